"""A client made with the Python SDK, 1.x or 2.x, that gives its child the environment the SDK gives by
itself, and prints the names of the tools it finds as JSON.

    plain.py COMMAND [ARGUMENT...]
"""

import asyncio
import json
import sys

import mcp
from mcp.client.stdio import stdio_client


async def tools(server):
    if hasattr(mcp, "Client"):
        async with mcp.Client(server) as client:
            return (await client.list_tools()).tools
    async with stdio_client(server) as (read, write):
        async with mcp.ClientSession(read, write) as session:
            await session.initialize()
            return (await session.list_tools()).tools


server = mcp.StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
print(json.dumps([tool.name for tool in asyncio.run(tools(server))]))
