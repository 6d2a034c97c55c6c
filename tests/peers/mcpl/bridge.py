"""A bridge to a chat with two channels. The chat is in memory: `say` is what somebody writes there, `read` what stands
there. Whoever is mentioned as @bot makes it push an event."""

import itertools
from datetime import datetime, timezone

import anyio
from mcp.server.stdio import stdio_server
from peer import Failed, Peer, server_answers, texts

MCPL = {
    "version": "0.4",
    "pushEvents": True,
    "channels": {"register": True, "publish": True},
    "featureSets": {
        "chat.mentions": {"description": "Tells who asks for the bot", "uses": ["pushEvents"]},
        "chat.publish": {"description": "Writes to the chat", "uses": ["channels.publish"]},
    },
}

chat = {"#team": [], "#support": []}
numbers = itertools.count(1)
peer = None


async def say(channel, text):
    chat[channel].append(f"alice: {text}")
    if "@bot" not in text:
        return "said"
    event = {
        "featureSet": "chat.mentions",
        "eventId": f"mention-{next(numbers)}",
        "timestamp": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "origin": {"channelId": channel, "author": "alice"},
        "payload": {"content": [{"type": "text", "text": text}]},
    }
    try:
        answer = await peer.ask("push/event", event)
    except Failed as why:
        return f"said, and nobody was told: {why}"
    return "said, and taken" if answer["accepted"] else f"said, and not taken: {answer.get('reason')}"


async def read(channel):
    return "\n".join(chat[channel])


async def publish(params):
    text = " ".join(block["text"] for block in params["content"] if block["type"] == "text")
    chat[params["channelId"]].append(f"bot: {text}")
    return {"delivered": True, "messageId": f"m{len(chat[params['channelId']])}"}


async def register(params):
    channels = [
        {
            "id": name,
            "type": "chat",
            "label": f"{name} of the example",
            "direction": "bidirectional",
            "address": {"channel": name},
        }
        for name in chat
    ]
    await peer.ask("channels/register", {"channels": channels})


async def main():
    global peer
    channel = {"channel": "#team or #support"}
    tools = {
        "say": ("Somebody writes to a channel", texts(text="What", **channel), say),
        "read": ("What stands in a channel", texts(**channel), read),
    }
    async with stdio_server() as (incoming, outgoing):
        # Channels are registered once the host has said what is enabled.
        methods = {"channels/publish": publish, "featureSets/update": register}
        peer = Peer(incoming, outgoing, server_answers("bridge", MCPL, tools, methods))
        await peer.run()


anyio.run(main)
