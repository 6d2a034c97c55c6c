"""Reads lists with the Python SDK: lists.py FILE, a JSON array of [method, result]. Prints what the SDK says of each that
it cannot read, as a JSON array."""

import json
import sys

from mcp import types

READERS = {
    "tools/list": types.ListToolsResult,
    "prompts/list": types.ListPromptsResult,
    "resources/list": types.ListResourcesResult,
    "resources/templates/list": types.ListResourceTemplatesResult,
}

wrong = []
with open(sys.argv[1], encoding="utf-8") as file:
    for method, result in json.load(file):
        try:
            READERS[method].model_validate(result)
        except ValueError as error:
            wrong.append([method, str(error)])
print(json.dumps(wrong))
