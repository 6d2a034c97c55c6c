"""An agent that speaks MGP: it follows what becomes of its calls, reads a result while it is made, and
answers what a tool asks. For the Python SDK 2.x, of which MGP is an extension.

    MGP_TOKEN=... python streaming.py http://127.0.0.1:7332/mcp
"""

import asyncio
import os
import sys
from typing import Any

from mcp import Client, types
from mcp.client.extension import ClientExtension, NotificationBinding
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from pydantic import RootModel

Members = RootModel[dict[str, Any]]


class Mgp(ClientExtension):
    """Says that the client speaks MGP, and keeps what it hears until it is asked for."""

    identifier = "dev.cloto/mgp"

    def __init__(self):
        self.chunks, self.events, self.questions = asyncio.Queue(), asyncio.Queue(), asyncio.Queue()

    def settings(self):
        return {"version": "0.2.0", "extensions": ["streaming", "bidirectional"]}

    def notifications(self):
        heard = {"stream.chunk": self.chunks, "event": self.events, "callback.request": self.questions}
        return [NotificationBinding(method=f"notifications/mgp.{name}", params_type=Members, handler=queue.put)
                for name, queue in heard.items()]

    async def outcome(self):
        """What was told of a call; that it is done comes when it is written down, often after its result."""
        for _ in range(2):
            event = (await self.events.get()).root
            print(f"event {event['_mgp.seq']}: {event['channel']} {event['data']['tool_name']}")


async def ask(client, method, **params):
    """A request that the SDK does not know, or knows less of."""
    request = types.Request[dict[str, Any], str](method=method, params=params)
    return (await client.session.send_request(request, Members)).root


def calling(client, tool, **params):
    return asyncio.create_task(ask(client, "tools/call", name=tool, **params))


async def story(client, mgp):
    agreed = client.server_capabilities.extensions[mgp.identifier]
    print("agreed on MGP", agreed["version"], "and", ", ".join(agreed["extensions"]))
    said = await ask(client, "mgp/events/subscribe", channels=["tool.*"])
    print("follows", *said["subscribed"])

    call = calling(client, "garden__explain", arguments={}, _mgp={"stream": True})
    done = False
    while not done:
        chunk = (await mgp.chunks.get()).root
        print(f"chunk {chunk['index']}:", chunk["content"]["text"])
        done = chunk["done"]
    print("result:", (await call)["content"][0]["text"])
    await mgp.outcome()

    call = calling(client, "garden__clear", arguments={"folder": "attic"})
    asked = (await mgp.questions.get()).root
    print(f"{asked['server_id']} asks: {asked['message']} ({', '.join(asked['options'])})")
    await ask(client, "mgp/callback/respond", callback_id=asked["callback_id"], response="confirm")
    print("result:", (await call)["content"][0]["text"])
    await mgp.outcome()


async def main(url, token):
    mgp = Mgp()
    async with create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as http:
        transport = streamable_http_client(url, http_client=http)
        # A session, as `mgp/events/subscribe` needs one.
        async with Client(transport, mode="legacy", extensions=[mgp]) as client:
            await asyncio.wait_for(story(client, mgp), 60)


asyncio.run(main(sys.argv[1], os.environ["MGP_TOKEN"]))
