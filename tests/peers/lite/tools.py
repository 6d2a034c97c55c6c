"""What the lite servers of the tests offer: the same tools over HTTP and over gRPC.

A call gives a dict: `result` (any JSON, or raw JSON text), `type` and `token` of its answer, or `error`
(code, message). Tools that only one transport can have live in its own file.
"""

import json
import threading

REDEEM = {
    "name": "redeem",
    "@type": "system",
    "description": "Redeem a promise token to get the result of a long-running operation",
    "inputSchema": {
        "type": "object",
        "required": ["promise"],
        "properties": {
            "promise": {
                "type": "string",
                "description": "The promise token received from a previous operation",
            }
        },
    },
}

QUERY = {"type": "object", "required": ["query"], "properties": {"query": {"type": "string"}}}
ORDER = {
    "type": "object",
    "required": ["item"],
    "properties": {
        "item": {"type": "string"},
        "size": {"type": "integer", "minimum": 30, "maximum": 50},
        "color": {"type": "string"},
    },
}
SIZE = {"type": "object", "required": ["size"], "properties": {"size": {"type": "integer"}}}
COLOR = {"type": "object", "properties": {"color": {"type": "string"}}}


def tool(name, schema=None, kind="query"):
    listed = {"name": name, "@type": kind, "description": "Answers as its name says: " + name}
    if schema is not False:
        listed["inputSchema"] = schema or {"type": "object"}
    return listed


class Tools:
    """The tools, and what was asked of them."""

    def __init__(self):
        self.lock = threading.Lock()
        self.counts = {}
        self.redeemed = {}
        self.ready = set()
        self.more = False
        self.open = threading.Event()

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def listed(self, names):
        more = [tool("arrived")] if self.more else []
        schemas = {"search_documents": QUERY, "order": ORDER, "bare": False}
        return [REDEEM] + [tool(name, schemas.get(name)) for name in names] + more

    def call(self, name, arguments):
        self.count(name)
        simple = getattr(self, "do_" + name, None)
        if simple is None:
            known = sorted(self.counts)
            data = {"requested_tool": name, "available_tools": known}
            return {"error": (-32601, "Tool not found", data)}
        return simple(arguments)

    def do_search_documents(self, arguments):
        found = {"document_id": "doc_123", "title": "Overview", "excerpt": arguments["query"]}
        return {"result": {"content": [found]}, "type": "answer"}

    def do_plain(self, arguments):
        return {"result": {"content": [{"type": "text", "text": "plain"}]}}

    def do_arrived(self, arguments):
        return self.do_plain(arguments)

    def do_bare(self, arguments):
        return self.do_plain(arguments)

    def do_echo(self, arguments):
        return {"result": {"content": [arguments]}, "type": "answer"}

    def do_fails(self, arguments):
        return {"result": {"content": ["out of stock"]}, "type": "failure"}

    def do_refuses(self, arguments):
        return {"error": (-32602, "no such thing", None)}

    def do_odd(self, arguments):
        odd = {"resultType": "task", "taskId": "t", "content": ["not a task"]}
        return {"result": odd, "type": "answer"}

    def do_unknown_kind(self, arguments):
        return {"result": {"content": []}, "type": "maybe"}

    # Promises. A token says all there is to know, so a server that was started again knows it, too.

    def do_slow(self, arguments):
        return self.promised("slow:%d:%s" % (arguments.get("polls", 2), arguments.get("label", "x")))

    def do_gated(self, arguments):
        return self.promised("gated:" + arguments["gate"])

    def do_endless(self, arguments):
        return self.promised("endless")

    def do_expires(self, arguments):
        return self.promised("expired")

    def do_huge_token(self, arguments):
        return self.promised("x" * 5000)

    def do_no_token(self, arguments):
        return {"result": {}, "type": "promise"}

    def promised(self, token):
        return {"result": {}, "type": "promise", "token": token}

    def do_redeem(self, arguments):
        token = arguments.get("promise", "")
        if arguments.get("action") == "cancel":
            self.count("cancelled " + token)
            return {"result": {"content": ["cancelled"]}, "type": "answer"}
        kind, *rest = token.split(":")
        with self.lock:
            self.redeemed[token] = self.redeemed.get(token, 0) + 1
            times = self.redeemed[token]
        if kind == "expired":
            return {"error": (-32602, "the promise has expired", None)}
        if kind == "slow" and times >= int(rest[0]):
            return {"result": {"content": [{"type": "text", "text": "late " + rest[1]}]}, "type": "answer"}
        if kind == "gated" and rest[0] in self.ready:
            return {"result": {"content": [{"type": "text", "text": "opened"}]}, "type": "answer"}
        if kind in ("slow", "gated", "endless"):
            return self.promised(token)
        return {"error": (-32602, "unknown promise", None)}

    # What needs more.

    def do_order(self, arguments):
        if "size" not in arguments:
            return self.needs("Which size?", SIZE)
        if "color" not in arguments and arguments["item"] == "shirt":
            return self.needs("Which color?", COLOR)
        text = " ".join([arguments["item"], str(arguments["size"]), arguments.get("color", "")]).strip()
        return {"result": {"content": [{"type": "text", "text": text}]}, "type": "answer"}

    def do_wants_more(self, arguments):
        if "size" in arguments:
            return {"result": {"content": ["enough"]}, "type": "answer"}
        return dict(self.needs("More, please", SIZE), type="request-for-more-resource")

    def do_needs_something(self, arguments):
        return {"result": {"content": ["a license"]}, "type": "elicitation"}

    def needs(self, message, schema):
        asked = {"message": message, "requestedSchema": schema}
        return {"result": {"content": []}, "type": "elicitation", "elicitation": asked}

    def do_hang(self, arguments):
        self.open.wait(60)
        return self.do_plain(arguments)

    def told(self):
        with self.lock:
            return {"counts": dict(self.counts), "redeemed": dict(self.redeemed)}

    def set(self, settings):
        self.more = settings.get("more", self.more)
        if "ready" in settings:
            with self.lock:
                self.ready.add(settings["ready"])
        if settings.get("open"):
            self.open.set()


