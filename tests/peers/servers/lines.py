"""Servers that read lines as Python programs do.

    lines.py sdk         made with the Python SDK 1.x, which reads with universal newlines
    lines.py universal   universal newlines, the default of every text file
    lines.py splitlines  all input cut with str.splitlines

Each has the tools `echo`, `secret` and `ran`, which tells how often `secret` was run.
"""

import io
import json
import os
import sys

ran = {"secret": 0}


def echo(text: str) -> str:
    return text


def secret() -> str:
    ran["secret"] += 1
    return "SECRET"


def count() -> str:
    return str(ran["secret"])


def of_the_sdk():
    from mcp.server.fastmcp import FastMCP

    server = FastMCP("lines", log_level="ERROR")
    server.tool()(echo)
    server.tool()(secret)
    server.tool(name="ran")(count)
    server.run("stdio")


TOOLS = {"echo": echo, "secret": secret, "ran": count}


def answer(request):
    method, params = request["method"], request.get("params") or {}
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "lines", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
    if method == "tools/call":
        said = TOOLS[params["name"]](**params.get("arguments") or {})
        return {"content": [{"type": "text", "text": said}]}
    return {}


def take(line):
    try:
        request = json.loads(line)
    except ValueError:
        return
    if isinstance(request, dict) and "id" in request and "method" in request:
        result = answer(request)
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)


def universal():
    for line in io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8"):
        take(line)


def splitlines():
    waiting = b""
    while chunk := os.read(0, 1 << 16):
        waiting += chunk
        whole, newline, waiting = waiting.rpartition(b"\n")
        for line in (whole + newline).decode().splitlines():
            take(line)


{"sdk": of_the_sdk, "universal": universal, "splitlines": splitlines}[sys.argv[1]]()
