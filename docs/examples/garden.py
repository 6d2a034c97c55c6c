"""A server that speaks MGP, made with the Python SDK 2.x: `explain` streams what it says, and `clear` asks
before it deletes anything.
"""

import asyncio
import uuid
from typing import Any

import mcp.types as types
from mcp.server import MCPServer
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import Context
from pydantic import BaseModel

TEXT = ["Leaves", " are green", " because of", " chlorophyll."]
PATIENCE = 60
waiting = {}


class Response(BaseModel):
    callback_id: str
    response: Any


class Mgp(Extension):
    identifier = "dev.cloto/mgp"

    def settings(self):
        return {"version": "0.2.0", "extensions": ["streaming", "bidirectional"]}

    def methods(self):
        return [MethodBinding("mgp/callback/respond", Response, self.responded)]

    async def responded(self, ctx, answer):
        waiting.pop(answer.callback_id).set_result(answer.response)
        return {}


server = MCPServer("garden", extensions=[Mgp()], log_level="WARNING")


async def tell(ctx, method, **params):
    """Says something in the course of a call."""
    request = ctx.request_context.request_id
    said = types.Notification[dict, str](method=method, params={"request_id": request, **params})
    await ctx.session.send_notification(said, related_request_id=request)


async def confirmed(ctx, message):
    """Asks whoever made the call; no answer is a no."""
    callback, answer = str(uuid.uuid4()), asyncio.get_running_loop().create_future()
    waiting[callback] = answer
    await tell(ctx, "notifications/mgp.callback.request", callback_id=callback, type="confirmation",
               message=message, options=["confirm", "cancel"], timeout_ms=PATIENCE * 1000)
    try:
        return await asyncio.wait_for(answer, PATIENCE) == "confirm"
    except TimeoutError:
        return False
    finally:
        waiting.pop(callback, None)


@server.tool()
async def explain(ctx: Context) -> str:
    """Explains why leaves are green"""
    if ctx.request_context.params.get("_mgp", {}).get("stream"):
        for index, text in enumerate(TEXT):
            await tell(ctx, "notifications/mgp.stream.chunk", index=index,
                       content={"type": "text", "text": text}, done=index == len(TEXT) - 1)
            await asyncio.sleep(0.1)
    return "".join(TEXT)


@server.tool()
async def clear(folder: str, ctx: Context) -> str:
    """Deletes the files of a folder"""
    if await confirmed(ctx, f"This deletes 15 files of {folder}. Continue?"):
        return "15 files are gone"
    return "nothing was deleted"


server.run("stdio")
