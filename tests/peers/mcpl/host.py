"""An agent that is an MCPL host: an event makes it think, and what it thinks goes to the channel the event came from.

    python host.py COMMAND ARGUMENT…

starts COMMAND, `mgp stdio` say, and ends after the first event it answered. Its model is a toy: it says back what it was
given. Put yours into `infer`.
"""

import sys
import uuid

import anyio
from mcp.client.stdio import StdioServerParameters, stdio_client
from peer import VERSION, Failed, Peer

MCPL = {
    "version": "0.4",
    "pushEvents": True,
    "contextHooks": {"beforeInference": True, "afterInference": {"blocking": True}},
    "featureSets": True,
    "channels": {"publish": True},
}
MODEL = {"id": "toy-1", "vendor": "example", "contextWindow": 1000, "capabilities": []}


def infer(system, user):
    """A model."""
    lines = [line for line in system.splitlines() if line and not line.startswith(("<", "[", "-"))]
    return f"You asked: {user} I know: {' '.join(lines) or 'nothing'}"


class Host:
    def __init__(self):
        self.peer = None
        self.events = anyio.create_memory_object_stream(16)

    async def pushed(self, event):
        inference = f"inf_{uuid.uuid4().hex}"
        await self.events[0].send((inference, event))
        return {"accepted": True, "inferenceId": inference}

    async def answer(self, inference, event):
        user = " ".join(block["text"] for block in event["payload"]["content"])
        print(f"event: {user}")
        about = {
            "inferenceId": inference,
            "conversationId": "conv_1",
            "turnIndex": 0,
            "userMessage": user,
            "model": MODEL,
        }
        added = await self.peer.ask("context/beforeInference", about)
        blocks = [block for one in added["contextInjections"] for block in one["content"]]
        system = "\n".join(block["text"] for block in blocks)
        print(f"added by servers: {len(added['contextInjections'])}")
        text = infer(system, user)
        after = about | {"assistantMessage": text, "usage": {"inputTokens": 1, "outputTokens": 1}}
        let_through = await self.peer.ask("context/afterInference", after)
        text = let_through.get("modifiedResponse", text)
        print(f"answer: {text}")
        message = {
            "conversationId": "conv_1",
            "channelId": f"bridge:{event['origin']['channelId']}",
            "stream": False,
            "content": [{"type": "text", "text": text}],
        }
        sent = await self.peer.ask("channels/publish", message)
        print(f"published: {sent['delivered']}")

    async def run(self, command):
        async with stdio_client(StdioServerParameters(command=command[0], args=command[1:])) as (read, write):
            self.peer = Peer(read, write, {"push/event": self.pushed})
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.peer.run)
                hello = {
                    "protocolVersion": VERSION,
                    "capabilities": {"experimental": {"mcpl": MCPL}},
                    "clientInfo": {"name": "host", "version": "1"},
                }
                offered = await self.peer.ask("initialize", hello)
                await self.peer.tell("notifications/initialized")
                sets = offered["capabilities"]["experimental"]["mcpl"]["featureSets"]
                print("sets:", ", ".join(sorted(sets)), flush=True)
                inference, event = await self.events[1].receive()
                try:
                    await self.answer(inference, event)
                except Failed as why:
                    print(f"failed: {why}")
                tasks.cancel_scope.cancel()


anyio.run(Host().run, sys.argv[1:])
