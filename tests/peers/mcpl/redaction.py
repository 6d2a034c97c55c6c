"""A guard: nothing that a model says goes on with a key in it."""

import re

import anyio
from mcp.server.stdio import stdio_server
from peer import Peer, server_answers

MCPL = {
    "version": "0.4",
    "contextHooks": {"afterInference": {"blocking": True}},
    "featureSets": {
        "compliance.redaction": {
            "description": "Takes keys out of answers",
            "uses": ["contextHooks.afterInference"],
        }
    },
}

KEY = re.compile(r"\bsk-[A-Za-z0-9-]{8,}")


async def after_inference(params):
    text, count = KEY.subn("[REDACTED]", params["assistantMessage"])
    answer = {"featureSet": "compliance.redaction"}
    if count:
        answer |= {"modifiedResponse": text, "metadata": {"redactions": count}}
    return answer


async def main():
    async with stdio_server() as (read, write):
        methods = {"context/afterInference": after_inference}
        await Peer(read, write, server_answers("redaction", MCPL, {}, methods)).run()


anyio.run(main)
