"""A client made with the Python SDK 1.x: goes once through what a server of `servers/` offers and
prints what it saw, one JSON object a line.

    legacy.py http URL
    legacy.py stdio COMMAND [ARGUMENT...]
"""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from datetime import timedelta

import mcp.types as types
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from pydantic import AnyUrl

DEADLINE = timedelta(seconds=40)

asked, logged = [], []
all_logged = asyncio.Event()
changes = asyncio.Queue()


def saw(**what):
    print(json.dumps(what), flush=True)


async def sample(context, params):
    asked.append(params.messages[0].content.text)
    content = types.TextContent(type="text", text="four")
    return types.CreateMessageResult(role="assistant", content=content, model="m")


async def elicit(context, params):
    asked.append(params.message)
    return types.ElicitResult(action="accept", content={"name": "ada"})


async def roots(context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///home/ada", name="home")])


async def hear(params):
    logged.append([params.level, params.data])
    if params.data == "nearly done":
        all_logged.set()


async def notice(message):
    if isinstance(message, types.ServerNotification):
        change = message.root
        if isinstance(change, types.ResourceUpdatedNotification):
            changes.put_nowait(str(change.params.uri))
        if isinstance(change, types.ToolListChangedNotification):
            changes.put_nowait("tools")


async def lists(session):
    saw(tools=sorted(tool.name for tool in (await session.list_tools()).tools))
    saw(resources=[str(found.uri) for found in (await session.list_resources()).resources])
    saw(prompts=[prompt.name for prompt in (await session.list_prompts()).prompts])


async def notifications(session):
    steps, all_reported = [], asyncio.Event()

    async def report(done, total, message):
        steps.append([done, total, message])
        if done == total:
            all_reported.set()

    call = asyncio.create_task(session.call_tool("progress", {}, progress_callback=report))
    await asyncio.wait_for(all_reported.wait(), DEADLINE.total_seconds())
    await session.call_tool("release", {})
    saw(progress=[steps, (await call).content[0].text])
    await session.set_logging_level("info")
    await session.call_tool("log", {})
    await asyncio.wait_for(all_logged.wait(), DEADLINE.total_seconds())
    saw(logged=logged)


async def calls(session):
    async def call(name, **arguments):
        return await session.call_tool(name, arguments)

    saw(echo=(await call("echo", text="grüße")).structuredContent)
    for name in ["ask", "both", "roots"]:
        saw(**{name: (await call(name)).content[0].text})
    saw(sample=(await call("sample", prompt="two and two")).content[0].text)
    at_once = await asyncio.gather(call("ask"), call("ask"))
    saw(at_once=[answer.content[0].text for answer in at_once])
    saw(asked=asked)
    failed = await call("fail")
    saw(fail=[failed.isError, "on purpose" in failed.content[0].text])
    try:
        unknown = await call("no such tool")
        saw(unknown=f"a result, isError {unknown.isError}")
    except McpError as error:
        saw(unknown=error.error.code)


async def reads(session):
    read = await session.read_resource(AnyUrl("test://note"))
    saw(read=[[str(part.uri), part.mimeType, part.text] for part in read.contents])
    prompt = await session.get_prompt("greet", {"name": "ada"})
    saw(prompt=[[message.role, message.content.text] for message in prompt.messages])


async def listens(session):
    await session.subscribe_resource(AnyUrl("test://note"))
    seen = []
    for tool in ["touch", "grow"]:
        await session.call_tool(tool, {})
        seen.append(await asyncio.wait_for(changes.get(), DEADLINE.total_seconds()))
    tools = [tool.name for tool in (await session.list_tools()).tools]
    saw(changes=[*seen, "grown" in tools])


async def cancels(session):
    waiting = asyncio.Event()

    async def report(done, total, message):
        waiting.set()

    # This SDK leaves it to its users to tell the server.
    request = session._request_id
    call = asyncio.create_task(session.call_tool("wait", {}, progress_callback=report))
    await asyncio.wait_for(waiting.wait(), DEADLINE.total_seconds())
    params = types.CancelledNotificationParams(requestId=request, reason="enough")
    cancelled = types.CancelledNotification(method="notifications/cancelled", params=params)
    await session.send_notification(types.ClientNotification(cancelled))
    call.cancel()
    await asyncio.wait([call])
    after = await session.call_tool("echo", {"text": "still there"})
    saw(after=after.structuredContent["text"])


@asynccontextmanager
async def wire(kind, target):
    if kind == "http":
        async with streamablehttp_client(target[0]) as (read, write, _):
            yield read, write
    else:
        server = StdioServerParameters(command=target[0], args=target[1:], env=dict(os.environ))
        async with stdio_client(server) as (read, write):
            yield read, write


async def story(kind, target):
    async with wire(kind, target) as (read, write):
        session = ClientSession(
            read,
            write,
            read_timeout_seconds=DEADLINE,
            sampling_callback=sample,
            elicitation_callback=elicit,
            list_roots_callback=roots,
            logging_callback=hear,
            message_handler=notice,
            client_info=types.Implementation(name="legacy-python", version="1"),
        )
        async with session:
            opened = await session.initialize()
            saw(version=opened.protocolVersion)
            for chapter in [lists, notifications, calls, reads, listens, cancels]:
                await chapter(session)


asyncio.run(story(sys.argv[1], sys.argv[2:]))
