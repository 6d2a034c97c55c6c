"""A server of MCP-lite over HTTP, made of nothing but the standard library and the document.

server_http.py [--port N] [--paths doc|examples] [--array] [--token T]

It behaves as the document says, and for tools whose names say so it does not.
"""

import argparse
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tools import Tools

NAMES = [
    "search_documents", "plain", "bare", "echo", "fails", "refuses", "odd", "unknown_kind",
    "slow", "gated", "endless", "expires", "huge_token", "no_token",
    "order", "wants_more", "needs_something", "hang",
    "report", "whole_report", "stream_fails", "stream_ends", "stream_of_lies",
    "exact", "headers", "torn", "huge", "wrong_id", "no_json", "two_metas", "nan", "moved", "broken",
    "says_404", "closes", "unlisted_error",
]
PATHS = {"doc": ("listtools", "calltools"), "examples": ("tools", "rpc")}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        self.body = self.rfile.read(length)
        server = self.server
        path = self.path.split("?")[0]
        if path == "/told":
            return self.json(dict(server.tools.told(), paths=server.paths_seen))
        if path == "/set":
            settings = json.loads(self.body)
            server.broken = settings.get("broken", server.broken)
            server.tools.set(settings)
            return self.json({})
        server.paths_seen[path] = server.paths_seen.get(path, 0) + 1
        if server.token and self.headers.get("authorization") != "Bearer " + server.token:
            return self.raw(401, b'{"error":"no"}')
        if server.broken:
            return self.raw(500, b"out of order", "text/plain")
        lists, calls = PATHS[server.spoken]
        if path == "/mcp-lite/v1/" + lists:
            tools = server.tools.listed(NAMES)
            return self.json(tools if server.array else {"tools": tools})
        if path == "/mcp-lite/v1/" + calls:
            return self.call()
        return self.raw(404, b"not here", "text/plain")

    do_GET = do_POST

    def call(self):
        request = json.loads(self.body)
        if not isinstance(request["id"], str) or set(request["params"]) - {"name", "arguments", "_meta"}:
            return self.raw(400, b"not what the document shows", "text/plain")
        name, arguments = request["params"]["name"], request["params"].get("arguments", {})
        own = getattr(self, "does_" + name, None)
        if own is not None:
            self.server.tools.count(name)
            return own(request, arguments)
        self.outcome(request, self.server.tools.call(name, arguments))

    def outcome(self, request, outcome):
        answer = {"jsonrpc": "2.0", "id": request["id"]}
        if "error" in outcome:
            code, message, data = outcome["error"]
            answer["error"] = {"code": code, "message": message}
            if data:
                answer["error"]["data"] = data
            return self.json(answer)
        result = dict(outcome["result"])
        meta = {}
        if "type" in outcome:
            meta["response_type"] = outcome["type"]
            meta["timestamp"] = "2024-01-01T12:00:00Z"
        if "token" in outcome:
            meta["promise_token"] = outcome["token"]
            meta["estimated_completion"] = "2024-01-01T12:05:00Z"
        if "elicitation" in outcome:
            meta["elicitation"] = outcome["elicitation"]
        if meta:
            result["_meta"] = meta
        answer["result"] = result
        self.json(answer)

    def json(self, value):
        self.raw(200, json.dumps(value).encode())

    def raw(self, status, body, kind="application/json", headers=()):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def answer_text(self, request, result):
        """An answer whose result is this text, whatever that is."""
        text = '{"jsonrpc":"2.0","id":%s,"result":%s}' % (json.dumps(request["id"]), result)
        self.raw(200, text.encode())

    # Streams.

    def stream(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, name, data):
        self.wfile.write(("event: %s\ndata: %s\n\n" % (name, json.dumps(data))).encode())
        self.wfile.flush()

    def does_report(self, request, arguments):
        if "text/event-stream" not in self.headers.get("accept", ""):
            done = {"result": {"content": ["not streamed"]}, "type": "answer"}
            return self.outcome(request, done)
        self.stream()
        self.event("message", {"partial": "Quarterly Report\n\nSummary"})
        self.event("heartbeat", {})
        self.event("message", {"partial": "\n\nRevenue increased by 15%"})
        self.event("done", {"_meta": {"response_type": "answer", "timestamp": "2024-01-01T12:00:00Z"}})

    def does_whole_report(self, request, arguments):
        self.stream()
        self.event("message", {"partial": {"row": 1}})
        self.event("done", {"content": ["all of it"], "_meta": {"response_type": "answer"}})

    def does_stream_fails(self, request, arguments):
        self.stream()
        self.event("message", {"partial": "so far"})
        self.event("error", {"code": -32603, "message": "the printer burns"})

    def does_stream_ends(self, request, arguments):
        self.stream()
        self.event("message", {"partial": "so far"})

    def does_stream_of_lies(self, request, arguments):
        self.stream()
        for _ in range(200):
            self.event("message", {"partial": "x" * 1000})

    # What the document does not say.

    def does_exact(self, request, arguments):
        raw = self.body.decode()
        said = raw[raw.index('"arguments":') + len('"arguments":'):].rstrip("}") + "}"
        self.answer_text(request, '{"content":[{"said":%s}],"_meta":{"response_type":"answer"}}' % json.dumps(said))

    def does_headers(self, request, arguments):
        names = {name.lower(): value for name, value in self.headers.items()}
        self.outcome(request, {"result": {"content": [names]}, "type": "answer"})

    def does_torn(self, request, arguments):
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "1000")
        self.end_headers()
        self.wfile.write(b'{"jsonrpc":"2.0","id":')
        self.close_connection = True

    def does_huge(self, request, arguments):
        self.answer_text(request, json.dumps({"content": ["x" * 300000]}))

    def does_wrong_id(self, request, arguments):
        self.outcome({"id": "another"}, {"result": {"content": ["another's"]}, "type": "answer"})

    def does_no_json(self, request, arguments):
        self.raw(200, b"<html>welcome</html>", "text/html")

    def does_two_metas(self, request, arguments):
        self.answer_text(request, '{"content":[],"_meta":{"response_type":"answer"},"_meta":{"response_type":"promise","promise_token":"t"}}')

    def does_nan(self, request, arguments):
        self.answer_text(request, '{"content":[{"value":NaN}]}')

    def does_moved(self, request, arguments):
        self.raw(307, b"", "text/plain", [("location", "http://127.0.0.1:9/elsewhere")])

    def does_broken(self, request, arguments):
        self.raw(500, b"Internal Server Error", "text/plain")

    def does_says_404(self, request, arguments):
        error = {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "Tool not found"}}
        self.raw(404, json.dumps(error).encode())

    def does_closes(self, request, arguments):
        self.close_connection = True
        self.connection.close()

    def does_unlisted_error(self, request, arguments):
        self.raw(200, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--paths", choices=sorted(PATHS), default="doc")
    parser.add_argument("--array", action="store_true")
    parser.add_argument("--token", default="")
    options = parser.parse_args()
    ThreadingHTTPServer.allow_reuse_address = True
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    server.daemon_threads = True
    server.tools, server.broken, server.paths_seen = Tools(), False, {}
    server.spoken, server.array, server.token = options.paths, options.array, options.token
    print("listening 127.0.0.1:%d" % server.server_address[1], flush=True)
    threading.Thread(target=until_eof, args=(server,), daemon=True).start()
    server.serve_forever()


def until_eof(server):
    """Ends with whoever started it."""
    sys.stdin.buffer.read()
    time.sleep(0)
    server.shutdown()


if __name__ == "__main__":
    main()
