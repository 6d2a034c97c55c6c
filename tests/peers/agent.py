"""An agent made with the Python SDK: goes through every feature of the scripted server once and
prints what it saw as one JSON object.

    agent.py http URL
    agent.py stdio COMMAND [ARGUMENT...]
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

DEADLINE = timedelta(seconds=60)


class Agent:
    def __init__(self):
        self.seen = {"asked": [], "logged": [], "roots_asked": 0}
        self.notified = {}

    async def sample(self, context, params):
        self.seen["asked"].append(params.messages[0].content.text)
        content = types.TextContent(type="text", text="four")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    async def elicit(self, context, params):
        self.seen["asked"].append(params.message)
        return types.ElicitResult(action="accept", content={"username": "ada", "email": "a@b.c"})

    async def roots(self, context):
        self.seen["roots_asked"] += 1
        return types.ListRootsResult(roots=[types.Root(uri="file:///home/ada", name="home")])

    async def log(self, params):
        self.seen["logged"].append([params.level, params.data])

    async def message(self, message):
        if isinstance(message, types.ServerNotification):
            method = message.root.method
            self.notified.setdefault(method, asyncio.Event()).set()

    async def hears(self, method):
        event = self.notified.setdefault(method, asyncio.Event())
        await asyncio.wait_for(event.wait(), DEADLINE.total_seconds())
        event.clear()

    async def opens(self, session):
        opened = await session.initialize()
        self.seen["version"] = opened.protocolVersion
        tools = await session.list_tools()
        self.seen["tools"] = [tool.model_dump(mode="json", exclude_none=True) for tool in tools.tools]

    async def calls(self, session):
        async def call(name, **arguments):
            result = await session.call_tool(name, arguments)
            return result.model_dump(mode="json", exclude_none=True)

        progress = []

        async def report(done, total, message):
            progress.append([done, total])

        names = ["test_simple_text", "test_multiple_content_types", "test_error_handling"]
        self.seen["calls"] = [await call(name) for name in names]
        self.seen["structured"] = await call("structured_echo", text="grüße")
        await session.call_tool("test_tool_with_progress", {}, progress_callback=report)
        self.seen["progress"] = progress
        self.seen["sampled"] = await call("test_sampling", prompt="two and two")
        self.seen["elicited"] = await call("test_elicitation", message="who are you")
        self.seen["rooted"] = await call("ask_roots")
        try:
            await session.call_tool("no such tool", {})
            self.seen["unknown"] = "an answer"
        except McpError as error:
            self.seen["unknown"] = error.error.code

    async def reads(self, session):
        resources = (await session.list_resources()).resources
        self.seen["resources"] = [str(resource.uri) for resource in resources]
        templates = (await session.list_resource_templates()).resourceTemplates
        self.seen["templates"] = [template.uriTemplate for template in templates]
        self.seen["read"] = []
        for uri in ["test://static-text", "test://static-binary", "test://template/7/data"]:
            read = await session.read_resource(AnyUrl(uri))
            self.seen["read"].append(read.model_dump(mode="json", exclude_none=True))

    async def prompts(self, session):
        prompts = (await session.list_prompts()).prompts
        self.seen["prompts"] = [prompt.name for prompt in prompts]
        arguments = {"arg1": "one", "arg2": "two"}
        prompt = await session.get_prompt("test_prompt_with_arguments", arguments)
        self.seen["prompt"] = prompt.model_dump(mode="json", exclude_none=True)
        ref = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
        completion = await session.complete(ref, {"name": "arg1", "value": "par"})
        self.seen["completion"] = completion.completion.values

    async def listens(self, session):
        await session.set_logging_level("info")
        await session.call_tool("test_tool_with_logging", {})
        await session.subscribe_resource(AnyUrl("test://watched-resource"))
        await session.call_tool("test_trigger_resource_update", {})
        await self.hears("notifications/resources/updated")
        await session.unsubscribe_resource(AnyUrl("test://watched-resource"))
        await session.call_tool("test_trigger_tool_change", {})
        await self.hears("notifications/tools/list_changed")
        while len(self.seen["logged"]) < 3:
            await asyncio.sleep(0.01)
        await session.send_ping()


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
    agent = Agent()
    async with wire(kind, target) as (read, write):
        session = ClientSession(
            read,
            write,
            read_timeout_seconds=DEADLINE,
            sampling_callback=agent.sample,
            elicitation_callback=agent.elicit,
            list_roots_callback=agent.roots,
            logging_callback=agent.log,
            message_handler=agent.message,
        )
        async with session:
            for chapter in (agent.opens, agent.calls, agent.reads, agent.prompts, agent.listens):
                await chapter(session)
    return agent.seen


seen = asyncio.run(asyncio.wait_for(story(sys.argv[1], sys.argv[2:]), DEADLINE.total_seconds()))
print(json.dumps(seen, ensure_ascii=False))
