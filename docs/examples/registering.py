"""An agent that lacks a tool: it writes a server that has it, registers it, finds the tool by what it is
for, calls it and takes the server out again.

    MGP_TOKEN=... python registering.py http://127.0.0.1:7332/mcp
"""

import asyncio
import json
import os
import sys

from mcp import ClientSession
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

SERVER = "dynamic.dates"
CODE = '''
from datetime import date
try:
    from mcp.server import MCPServer
except ImportError:  # the SDK before 2.0
    from mcp.server.fastmcp import FastMCP as MCPServer

server = MCPServer("dates")

@server.tool()
def days_between(start: date, end: date) -> int:
    """Counts the days from one date to another"""
    return (end - start).days

server.run()
'''
WANTED = "how long is it until my holiday?"
DATES = {"start": "2026-11-22", "end": "2026-12-24"}


async def call(session, tool, **arguments):
    """What a tool answers; its own words when it is an error."""
    result = (await session.call_tool(tool, arguments)).model_dump(mode="json", by_alias=True)
    text = result["content"][0]["text"]
    if result["isError"]:
        raise RuntimeError(text)
    return text


async def find(session, wanted):
    """What fits best, once it is known what the new tool means: a moment after its server is connected."""
    while True:
        found = json.loads(await call(session, "mgp_tools_discover", query=wanted, max_results=3))
        if any(tool["server_id"] == SERVER for tool in found["tools"]):
            return found["tools"][0]
        await asyncio.sleep(0.1)


async def story(session):
    code = {"language": "python", "text": CODE}
    registered = json.loads(await call(session, "mgp_discovery_register", id=SERVER, command="python",
                                       code=code, justification="dates have to be counted"))
    print(f"registered {SERVER}: {registered['status']}, {registered['trust_level']}, tools {registered['tools']}")
    for line in registered.get("pending", []) + registered.get("remarks", []):
        print(line)
    if registered["status"] != "connected":
        return

    tool = await find(session, WANTED)
    print(f"looked for {WANTED!r}: found {tool['name']}, which {tool['description'].lower()}")
    print("called through mgp_tools_call:", await call(session, "mgp_tools_call", name=tool["name"], arguments=DATES))
    print("called by its name:", await call(session, tool["name"], **DATES))

    gone = json.loads(await call(session, "mgp_discovery_deregister", id=SERVER, reason="counted"))
    print(f"deregistered {gone['id']}, and with it {gone['tools']}")
    try:
        await call(session, tool["name"], **DATES)
    except Exception as error:
        print("called once more:", error)


async def main(url, token):
    async with create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as http:
        async with streamable_http_client(url, http_client=http) as (read, write, *_):
            async with ClientSession(read, write) as session:
                await session.initialize()
                await asyncio.wait_for(story(session), 60)


asyncio.run(main(sys.argv[1], os.environ["MGP_TOKEN"]))
