"""Calls a tool of MCP-lite and reads its event stream with httpx-sse; one line of JSON for each event."""

import json
import sys

import httpx
from httpx_sse import connect_sse

url, tool, arguments = sys.argv[1:]
message = {
    "jsonrpc": "2.0",
    "id": "1",
    "method": "tools/call",
    "params": {"name": tool, "arguments": json.loads(arguments)},
}
with httpx.Client() as client:
    with connect_sse(client, "POST", url, json=message) as source:
        for event in source.iter_sse():
            print(json.dumps({"event": event.event, "data": event.json()}), flush=True)
