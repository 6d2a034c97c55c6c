"""A node that keeps to no rule: `main.py ATTACK.STORY ARGUMENT…` plays a story and prints what came of it.

Arguments that are JSON are read as JSON.
"""

import asyncio
import importlib
import json
import os
import sys


def argument(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


async def main():
    module, story = sys.argv[1].split(".")
    played = getattr(importlib.import_module(module), story)
    told = await played(*map(argument, sys.argv[2:]))
    print(json.dumps(told), flush=True)
    # What still runs beside the story is not waited for: a task whose wait was over as it was cancelled goes on.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
