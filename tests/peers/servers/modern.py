"""A server made with the Python SDK 2.x, of the version without `initialize`.

    modern.py stdio
    modern.py http

The SDK also serves clients that open with `initialize`; over HTTP they are refused here. `echo`
tells which version was spoken. Over HTTP it says its port and ends with its input. What was
cancelled it tells in the file that `MGP_WITNESS` names.
"""

import asyncio
import os
import socket
import sys
import threading
import warnings
from typing import Annotated

import anyio
import mcp.types as types
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, ListRoots, Resolve, Sample
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel
from starlette.responses import JSONResponse

# Logging, sampling and roots are deprecated, and are what is to be seen here.
warnings.simplefilter("ignore")

server = MCPServer("modern-python", log_level="WARNING")
released = asyncio.Event()


class Echo(BaseModel):
    text: str
    version: str


class Name(BaseModel):
    name: str


def sampling(prompt):
    content = types.TextContent(type="text", text=prompt)
    return Sample([types.SamplingMessage(role="user", content=content)], max_tokens=10)


def who() -> Elicit[Name]:
    return Elicit("who are you", Name)


def about() -> Elicit[Name]:
    return Elicit("who is it about", Name)


def prompted(prompt: str) -> Sample:
    return sampling(prompt)


def word(name: Annotated[Name, Resolve(about)]) -> Sample:
    return sampling(f"a word about {name.name}")


def places() -> ListRoots:
    return ListRoots()


Sampled = types.CreateMessageResult


@server.tool()
async def echo(text: str, ctx: Context) -> Echo:
    return Echo(text=text, version=ctx.protocol_version)


@server.tool()
async def ask(name: Annotated[Name, Resolve(who)]) -> str:
    return f"you are {name.name}"


@server.tool()
async def sample(prompt: str, answer: Annotated[Sampled, Resolve(prompted)]) -> str:
    return f"the model says {answer.content.text}"


@server.tool()
async def both(
    name: Annotated[Name, Resolve(about)], answer: Annotated[Sampled, Resolve(word)]
) -> str:
    return f"of {name.name}: {answer.content.text}"


@server.tool()
async def roots(found: Annotated[types.ListRootsResult, Resolve(places)]) -> str:
    return " ".join(str(root.uri) for root in found.roots)


@server.tool()
async def log(ctx: Context) -> str:
    await ctx.debug("too quiet")
    await ctx.info("begun")
    await ctx.warning("nearly done")
    return "logged"


@server.tool()
async def progress(ctx: Context) -> str:
    for step in [1, 2, 3]:
        await ctx.report_progress(step, 3, f"step {step}")
    await released.wait()
    return "done"


@server.tool()
async def release() -> str:
    released.set()
    return "released"


@server.tool()
async def touch(ctx: Context) -> str:
    await ctx.notify_resource_updated("test://note")
    return "touched"


@server.tool()
async def grow(ctx: Context) -> str:
    server.add_tool(release, name="grown")
    await ctx.notify_tools_changed()
    return "grown"


@server.tool()
async def wait(ctx: Context) -> str:
    try:
        await ctx.report_progress(1, 2, "waiting")
        await anyio.sleep_forever()
    except asyncio.CancelledError:
        with open(os.environ["MGP_WITNESS"], "a") as witness:
            witness.write("cancelled\n")
        raise
    return "never"


@server.tool()
async def fail() -> str:
    raise ToolError("on purpose")


@server.resource("test://note", name="note", mime_type="text/plain")
def note() -> str:
    return "a note"


@server.prompt()
def greet(name: str) -> str:
    return f"say hello to {name}"


UNSUPPORTED = {
    "code": -32022,
    "message": "Unsupported protocol version",
    "data": {"supported": ["2026-07-28"], "requested": "2025-11-25"},
}


# The SDK has no switch for this.
def modern_only(app):
    refused = JSONResponse({"jsonrpc": "2.0", "id": None, "error": UNSUPPORTED}, status_code=400)

    async def guarded(scope, receive, send):
        version = dict(scope.get("headers", [])).get(b"mcp-protocol-version")
        served = scope["type"] != "http" or version == b"2026-07-28"
        await (app if served else refused)(scope, receive, send)

    return guarded


def serve_http():
    door = socket.create_server(("127.0.0.1", 0))
    print(f"listening 127.0.0.1:{door.getsockname()[1]}", flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    app = uvicorn.Config(modern_only(server.streamable_http_app()), log_level="warning")
    asyncio.run(uvicorn.Server(app).serve(sockets=[door]))


if sys.argv[1] == "http":
    serve_http()
else:
    server.run("stdio")
