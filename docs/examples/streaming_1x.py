"""The agent of streaming.py with the Python SDK 1.x, which has no room for extensions.

    MGP_TOKEN=... python streaming_1x.py http://127.0.0.1:7332/mcp
"""

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp import ClientSession, types
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from pydantic import RootModel

MGP = {"version": "0.2.0", "extensions": ["streaming", "bidirectional"]}


class Session(ClientSession):
    """A session that declares MGP, which the SDK has no argument for."""

    async def send_request(self, request, *args, **kwargs):
        params = request.root.params if isinstance(request, types.ClientRequest) else request.params
        if isinstance(params, types.InitializeRequestParams):
            params.capabilities.experimental = {"mgp": MGP}
        return await super().send_request(request, *args, **kwargs)

    async def ask(self, method, **params):
        """A request that the SDK does not know, or knows less of."""
        request = types.Request[dict[str, Any], str](method=method, params=params)
        return (await self.send_request(request, RootModel[dict[str, Any]])).root


@asynccontextmanager
async def apart(read, hear):
    """What is read, without the notifications of MGP: the SDK drops those it does not know."""
    send, others = anyio.create_memory_object_stream(0)

    async def sort():
        async with send:
            async for item in read:
                message = getattr(getattr(item, "message", None), "root", None)
                if getattr(message, "method", "").startswith("notifications/mgp."):
                    hear(message.method, message.params)
                else:
                    await send.send(item)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sort)
        yield others
        tasks.cancel_scope.cancel()


class Heard:
    """Shows chunks as they come; keeps events and questions until they are asked for."""

    def __init__(self):
        self.events = asyncio.Queue()
        self.questions = asyncio.Queue()

    def __call__(self, method, params):
        match method:
            case "notifications/mgp.stream.chunk":
                print(f"chunk {params['index']}:", params["content"]["text"])
            case "notifications/mgp.event":
                self.events.put_nowait(params)
            case "notifications/mgp.callback.request":
                self.questions.put_nowait(params)


async def story(session, heard):
    agreed = (await session.initialize()).capabilities.experimental["mgp"]
    print("agreed on MGP", agreed["version"], "and", ", ".join(agreed["extensions"]))
    said = await session.ask("mgp/events/subscribe", channels=["tool.*"])
    print("follows", *said["subscribed"])

    result = await session.ask("tools/call", name="garden__explain", arguments={}, _mgp={"stream": True})
    print("result:", result["content"][0]["text"])
    await outcome(heard)

    call = asyncio.create_task(session.ask("tools/call", name="garden__clear", arguments={"folder": "attic"}))
    asked = await heard.questions.get()
    print(f"{asked['server_id']} asks: {asked['message']} ({', '.join(asked['options'])})")
    await session.ask("mgp/callback/respond", callback_id=asked["callback_id"], response="confirm")
    print("result:", (await call)["content"][0]["text"])
    await outcome(heard)


async def outcome(heard):
    """What was told of a call; that it is done comes when it is written down, often after its result."""
    for _ in range(2):
        event = await heard.events.get()
        print(f"event {event['_mgp.seq']}: {event['channel']} {event['data']['tool_name']}")


async def main(url, token):
    heard = Heard()
    async with create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as http:
        async with streamable_http_client(url, http_client=http) as (read, write, *_):
            async with apart(read, heard) as others, Session(others, write) as session:
                await asyncio.wait_for(story(session, heard), 60)


asyncio.run(main(sys.argv[1], os.environ["MGP_TOKEN"]))
