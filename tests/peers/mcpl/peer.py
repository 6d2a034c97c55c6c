"""One side of a connection on the low level of the official SDK: messages go in and out of its two streams.

The sessions of the SDK know the methods of MCP and refuse all others, and so what speaks MCPL as well uses the streams
below them. The SDK before 2.0 wraps each message in a model, and later ones do not: `unwrap` and `wrap` are all the
difference.
"""

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

VERSION = "2025-06-18"


def unwrap(message):
    return getattr(message, "root", message)


def wrap(message):
    return JSONRPCMessage(message) if isinstance(JSONRPCMessage, type) else message


class Failed(Exception):
    """The other side answered with an error."""


class Peer:
    """`answers` are coroutines by method, each of `params`: what it returns is the result."""

    def __init__(self, read, write, answers):
        self.read, self.write, self.answers = read, write, answers
        self.waiting = {}
        self.last = 0

    async def run(self):
        """Takes messages until the other side leaves."""
        async with anyio.create_task_group() as tasks:
            async for message in self.read:
                if isinstance(message, Exception):
                    continue
                root = unwrap(message.message)
                if isinstance(root, (JSONRPCResponse, JSONRPCError)):
                    waiting = self.waiting.pop(root.id, None)
                    if waiting is not None:
                        await waiting.send(root)
                else:
                    tasks.start_soon(self._take, root)

    async def _take(self, message):
        answer = self.answers.get(message.method)
        if isinstance(message, JSONRPCNotification):
            if answer is not None:
                await answer(message.params or {})
            return
        if answer is None:
            error = ErrorData(code=-32601, message=f"Method not found: {message.method}")
            await self._send(JSONRPCError(jsonrpc="2.0", id=message.id, error=error))
            return
        result = await answer(message.params or {})
        await self._send(JSONRPCResponse(jsonrpc="2.0", id=message.id, result=result))

    async def ask(self, method, params=None):
        """Sends a request; its result."""
        self.last += 1
        send, receive = anyio.create_memory_object_stream(1)
        self.waiting[self.last] = send
        await self._send(JSONRPCRequest(jsonrpc="2.0", id=self.last, method=method, params=params or {}))
        answer = await receive.receive()
        if isinstance(answer, JSONRPCError):
            raise Failed(f"{method}: {answer.error.message}")
        return answer.result

    async def tell(self, method, params=None):
        """Sends a notification."""
        await self._send(JSONRPCNotification(jsonrpc="2.0", method=method, params=params or {}))

    async def _send(self, message):
        await self.write.send(SessionMessage(wrap(message)))


def server_answers(name, mcpl, tools, methods):
    """What a server answers: its handshake, its tools, each a description, a schema and a coroutine, and `methods`."""

    async def initialize(params):
        return {
            "protocolVersion": VERSION,
            "capabilities": {"tools": {}, "experimental": {"mcpl": mcpl}},
            "serverInfo": {"name": name, "version": "1"},
        }

    async def ping(params):
        return {}

    async def list_tools(params):
        return {
            "tools": [
                {"name": tool, "description": about, "inputSchema": schema}
                for tool, (about, schema, _) in tools.items()
            ]
        }

    async def call_tool(params):
        text = await tools[params["name"]][2](**params.get("arguments", {}))
        return {"content": [{"type": "text", "text": text}]}

    return {
        "initialize": initialize,
        "ping": ping,
        "tools/list": list_tools,
        "tools/call": call_tool,
        **methods,
    }


def texts(**names):
    """The schema of a tool whose arguments are all texts."""
    properties = {name: {"type": "string", "description": about} for name, about in names.items()}
    return {"type": "object", "properties": properties, "required": list(names)}
