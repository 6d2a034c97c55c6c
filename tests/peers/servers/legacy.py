"""A server made with the Python SDK 1.x, of the versions that open with `initialize`.

    legacy.py stdio
    legacy.py http

Over HTTP it says its port and ends with its input. What was cancelled it tells in the file that
`MGP_WITNESS` names.
"""

import asyncio
import os
import socket
import sys
import threading

import mcp.types as types
import uvicorn
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.lowlevel import NotificationOptions
from pydantic import AnyUrl, BaseModel

LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

server = FastMCP("legacy-python", log_level="WARNING")
low = server._mcp_server
told = low.create_initialization_options
level = {"least": "debug"}
released = asyncio.Event()


class Echo(BaseModel):
    text: str
    version: str


class Name(BaseModel):
    name: str


def text(words):
    return types.TextContent(type="text", text=words)


async def asked(ctx, message):
    answer = await ctx.elicit(message, Name)
    return answer.data.name if answer.action == "accept" else answer.action


async def sampled(ctx, prompt):
    result = await ctx.session.create_message(
        [types.SamplingMessage(role="user", content=text(prompt))],
        max_tokens=10,
        related_request_id=ctx.request_id,
    )
    return result.content.text


async def say(ctx, severity, words):
    if LEVELS.index(severity) >= LEVELS.index(level["least"]):
        await ctx.log(severity, words)


# This SDK can tell of changes, but has no way to say so.
def options(*_):
    options = told(NotificationOptions(tools_changed=True))
    options.capabilities.resources.subscribe = True
    return options


low.create_initialization_options = options


@low.set_logging_level()
async def set_level(least: types.LoggingLevel):
    level["least"] = least


@low.subscribe_resource()
async def subscribe(uri: AnyUrl):
    pass


@server.tool()
async def echo(text: str, ctx: Context) -> Echo:
    return Echo(text=text, version=ctx.session.client_params.protocolVersion)


@server.tool()
async def ask(ctx: Context) -> str:
    return f"you are {await asked(ctx, 'who are you')}"


@server.tool()
async def sample(prompt: str, ctx: Context) -> str:
    return f"the model says {await sampled(ctx, prompt)}"


@server.tool()
async def both(ctx: Context) -> str:
    name = await asked(ctx, "who is it about")
    return f"of {name}: {await sampled(ctx, f'a word about {name}')}"


@server.tool()
async def roots(ctx: Context) -> str:
    found = await ctx.session.list_roots()
    return " ".join(str(root.uri) for root in found.roots)


@server.tool()
async def log(ctx: Context) -> str:
    await say(ctx, "debug", "too quiet")
    await say(ctx, "info", "begun")
    await say(ctx, "warning", "nearly done")
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
    await ctx.session.send_resource_updated(AnyUrl("test://note"))
    return "touched"


@server.tool()
async def grow(ctx: Context) -> str:
    server.add_tool(release, name="grown")
    await ctx.session.send_tool_list_changed()
    return "grown"


@server.tool()
async def wait(ctx: Context) -> str:
    try:
        await ctx.report_progress(1, 2, "waiting")
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        with open(os.environ["MGP_WITNESS"], "a") as witness:
            witness.write("cancelled\n")
        raise
    return "never"


@server.tool()
async def fail() -> str:
    raise ValueError("on purpose")


@server.resource("test://note", name="note", mime_type="text/plain")
def note() -> str:
    return "a note"


@server.prompt()
def greet(name: str) -> str:
    return f"say hello to {name}"


def serve_http():
    door = socket.create_server(("127.0.0.1", 0))
    print(f"listening 127.0.0.1:{door.getsockname()[1]}", flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    app = uvicorn.Config(server.streamable_http_app(), log_level="warning")
    asyncio.run(uvicorn.Server(app).serve(sockets=[door]))


if sys.argv[1] == "http":
    serve_http()
else:
    server.run("stdio")
