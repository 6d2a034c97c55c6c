"""A client that knows nothing of MGP but the names of three methods: it sends them as raw requests of the SDK, 1.x or 2.x.

    register.py COMMAND ARGUMENT...

registers a server at what COMMAND speaks to, `mgp stdio --agent NAME` say, calls it, and prints what came of it as one
JSON object.
"""

import asyncio
import json
import os
import sys
from typing import Any

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from pydantic import RootModel

CODE = """
from datetime import date
try:
    from mcp.server import MCPServer
except ImportError:  # the SDK before 2.0
    from mcp.server.fastmcp import FastMCP as MCPServer

server = MCPServer("dates")

@server.tool()
def days_between(start: date, end: date) -> int:
    return (end - start).days

server.run()
"""


async def raw(session, method, **params):
    request = types.Request[dict[str, Any], str](method=method, params=params)
    return (await session.send_request(request, RootModel[dict[str, Any]])).root


async def main(command):
    program = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with stdio_client(program) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            told = {}
            told["registered"] = await raw(
                session,
                "mgp/discovery/register",
                id="dynamic.made",
                command="python",
                code={"language": "python", "text": CODE},
                justification="dates have to be counted",
            )
            told["listed"] = await raw(session, "mgp/discovery/list")
            dates = {"start": "2026-11-22", "end": "2026-12-24"}
            called = await session.call_tool("dynamic.made:days_between", dates)
            told["called"] = called.model_dump(mode="json", by_alias=True)["content"]
            told["deregistered"] = await raw(session, "mgp/discovery/deregister", id="dynamic.made", reason="done")
            print(json.dumps(told))


asyncio.run(main(sys.argv[1:]))
