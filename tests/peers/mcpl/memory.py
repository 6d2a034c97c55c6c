"""A memory: keeps what it is told, and adds what has to do with a question to the context of the model."""

import anyio
from mcp.server.stdio import stdio_server
from peer import Peer, server_answers, texts

MCPL = {
    "version": "0.4",
    "contextHooks": {"beforeInference": True},
    "featureSets": {
        "memory.retrieval": {
            "description": "Adds what is remembered about a question",
            "uses": ["contextHooks.beforeInference"],
        }
    },
}

kept = []


def words(text):
    return {word.strip(".,:;?!").lower() for word in text.split() if len(word) > 3}


async def remember(text):
    kept.append(text)
    return f"{len(kept)} kept"


async def before_inference(params):
    asked = words(params.get("userMessage") or "")
    found = [text for text in kept if words(text) & asked]
    injections = [
        {
            "namespace": "memory",
            "position": "system",
            "content": [{"type": "text", "text": "\n".join(found)}],
        }
    ]
    return {"featureSet": "memory.retrieval", "contextInjections": injections if found else []}


async def main():
    tools = {"remember": ("Keeps a text", texts(text="What is to be kept"), remember)}
    async with stdio_server() as (read, write):
        methods = {"context/beforeInference": before_inference}
        await Peer(read, write, server_answers("memory", MCPL, tools, methods)).run()


anyio.run(main)
