"""A client made with the Python SDK 2.x: goes once through what a server of `servers/` offers and
prints what it saw, one JSON object a line.

    modern.py http URL
    modern.py stdio COMMAND [ARGUMENT...]

It asks for the version without `initialize`, and would fall back to one with it: `version` tells.
"""

import asyncio
import json
import os
import sys
import warnings

import mcp.types as types
from mcp.client.subscriptions import ResourceUpdated
from mcp import Client, MCPError, StdioServerParameters

# Logging, sampling and roots are deprecated, and are what is to be seen here.
warnings.simplefilter("ignore")

DEADLINE = 40

asked, logged = [], []
all_logged = asyncio.Event()


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


async def lists(client):
    saw(tools=sorted(tool.name for tool in (await client.list_tools()).tools))
    saw(resources=[str(found.uri) for found in (await client.list_resources()).resources])
    saw(prompts=[prompt.name for prompt in (await client.list_prompts()).prompts])


async def notifications(client):
    steps, all_reported = [], asyncio.Event()

    async def report(done, total, message):
        steps.append([done, total, message])
        if done == total:
            all_reported.set()

    call = asyncio.create_task(client.call_tool("progress", {}, progress_callback=report))
    await asyncio.wait_for(all_reported.wait(), DEADLINE)
    await client.call_tool("release", {})
    saw(progress=[steps, (await call).content[0].text])
    # Nothing was logged so far, as no request asked for it.
    level = {"io.modelcontextprotocol/logLevel": "info"}
    await client.call_tool("log", {}, meta=level)
    await asyncio.wait_for(all_logged.wait(), DEADLINE)
    saw(logged=logged)


async def calls(client):
    async def call(name, **arguments):
        return await client.call_tool(name, arguments)

    saw(echo=(await call("echo", text="grüße")).structured_content)
    for name in ["ask", "both", "roots"]:
        saw(**{name: (await call(name)).content[0].text})
    saw(sample=(await call("sample", prompt="two and two")).content[0].text)
    at_once = await asyncio.gather(call("ask"), call("ask"))
    saw(at_once=[answer.content[0].text for answer in at_once])
    saw(asked=asked)
    failed = await call("fail")
    saw(fail=[failed.is_error, "on purpose" in failed.content[0].text])
    try:
        unknown = await call("no such tool")
        saw(unknown=f"a result, is_error {unknown.is_error}")
    except MCPError as error:
        saw(unknown=error.code)


async def reads(client):
    read = await client.read_resource("test://note")
    saw(read=[[str(part.uri), part.mime_type, part.text] for part in read.contents])
    prompt = await client.get_prompt("greet", {"name": "ada"})
    saw(prompt=[[message.role, message.content.text] for message in prompt.messages])


async def listens(client):
    seen = []
    wanted = {"tools_list_changed": True, "resource_subscriptions": ["test://note"]}
    async with client.listen(**wanted) as changes:
        for tool in ["touch", "grow"]:
            await client.call_tool(tool, {})
            change = await asyncio.wait_for(anext(aiter(changes)), DEADLINE)
            seen.append(change.uri if isinstance(change, ResourceUpdated) else "tools")
    tools = [tool.name for tool in (await client.list_tools()).tools]
    saw(changes=[*seen, "grown" in tools])


async def cancels(client):
    waiting = asyncio.Event()

    async def report(done, total, message):
        waiting.set()

    call = asyncio.create_task(client.call_tool("wait", {}, progress_callback=report))
    await asyncio.wait_for(waiting.wait(), DEADLINE)
    call.cancel()
    await asyncio.wait([call])
    after = await client.call_tool("echo", {"text": "still there"})
    saw(after=after.structured_content["text"])


async def story(kind, target):
    if kind == "stdio":
        server = StdioServerParameters(command=target[0], args=target[1:], env=dict(os.environ))
    else:
        server = target[0]
    client = Client(
        server,
        read_timeout_seconds=DEADLINE,
        sampling_callback=sample,
        elicitation_callback=elicit,
        list_roots_callback=roots,
        logging_callback=hear,
        client_info=types.Implementation(name="modern-python", version="1"),
    )
    async with client:
        saw(version=client.protocol_version)
        for chapter in [lists, notifications, calls, reads, listens, cancels]:
            await chapter(client)


asyncio.run(story(sys.argv[1], sys.argv[2:]))
