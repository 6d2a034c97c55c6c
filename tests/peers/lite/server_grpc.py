"""A server of MCP-lite over gRPC: grpcio, with stubs made from the document's own proto text.

server_grpc.py [--port N] [--token T]

It behaves as the document says, and for tools whose names say so it does not.
"""

import argparse
import json
import sys
import tempfile
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc
import grpc_tools
from google.protobuf import json_format, struct_pb2
from grpc_tools import protoc

from tools import Tools

PROTO = Path(__file__).resolve().parents[3] / "transports/grpc/proto"
NAMES = [
    "search_documents", "plain", "bare", "echo", "fails", "refuses", "odd", "unknown_kind",
    "slow", "gated", "endless", "expires", "huge_token", "no_token",
    "order", "wants_more", "needs_something", "hang",
    "report", "stream_fails", "stream_ends", "headers",
    "huge", "nan", "large", "broken", "guarded", "late", "bare_meta",
]
CODES = {-32601: grpc.StatusCode.NOT_FOUND, -32602: grpc.StatusCode.INVALID_ARGUMENT}


def stubs():
    folder = tempfile.mkdtemp()
    well_known = str(Path(grpc_tools.__file__).parent / "_proto")
    made = protoc.main(["", "-I" + str(PROTO), "-I" + well_known, "--python_out=" + folder,
                        "--grpc_python_out=" + folder, "mcplite.proto"])
    assert made == 0
    sys.path.insert(0, folder)
    import mcplite_pb2
    import mcplite_pb2_grpc
    return mcplite_pb2, mcplite_pb2_grpc


pb, services = stubs()


def struct(value):
    made = struct_pb2.Struct()
    json_format.ParseDict(value, made)
    return made


class Service(services.MCPLiteServicer):
    def __init__(self, tools, token):
        self.tools, self.token = tools, token
        self.broken = False

    def admitted(self, context):
        said = dict(context.invocation_metadata())
        if self.token and said.get("authorization") != "Bearer " + self.token:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")
        if self.broken:
            context.abort(grpc.StatusCode.INTERNAL, "out of order")
        return said

    def GetTools(self, request, context):
        self.admitted(context)
        listed = []
        for tool in self.tools.listed(NAMES):
            made = pb.Tool(name=tool["name"], type=tool["@type"], description=tool["description"])
            if "inputSchema" in tool:
                made.input_schema.CopyFrom(struct(tool["inputSchema"]))
            listed.append(made)
        return pb.ToolsList(tools=listed)

    def CallTool(self, request, context):
        said = self.admitted(context)
        own = getattr(self, "does_" + request.name, None)
        if own is not None:
            self.tools.count(request.name)
            return own(said, context)
        arguments = json_format.MessageToDict(request.arguments)
        arguments = {name: whole(value) for name, value in arguments.items()}
        return self.reply(self.tools.call(request.name, arguments), context)

    def reply(self, outcome, context):
        if "error" in outcome:
            code, message, _ = outcome["error"]
            context.abort(CODES.get(code, grpc.StatusCode.INTERNAL), message)
        result = dict(outcome["result"])
        if "elicitation" in outcome:
            result["_meta"] = {"elicitation": outcome["elicitation"]}
        made = pb.ToolResponse(result=struct(result))
        kind = outcome.get("type")
        if kind is not None:
            kinds = {"request-for-more-resource": 2, "maybe": 9}
            made.meta.response_type = kinds[kind] if kind in kinds else pb.ResponseType.Value(kind.upper())
            made.meta.timestamp = 1704110400000
            made.meta.promise_token = outcome.get("token", "")
        return made

    def CallToolStream(self, request, context):
        if request.name not in ("report", "stream_fails", "stream_ends"):
            yield self.CallTool(request, context)
            return
        self.admitted(context)
        self.tools.count(request.name)
        parts = ["Quarterly Report\n\nSummary", "\n\nRevenue increased by 15%"]
        for part in parts:
            yield pb.ToolResponse(result=struct({"partial": part}))
        if request.name == "stream_fails":
            context.abort(grpc.StatusCode.INTERNAL, "the printer burns")
        if request.name == "report":
            meta = pb.ResponseMeta(response_type=pb.ANSWER, timestamp=1704110400000)
            yield pb.ToolResponse(result=struct({"content": ["".join(parts)]}), meta=meta)

    def does_report(self, said, context):
        return pb.ToolResponse(result=struct({"content": ["not streamed"]}))

    does_stream_fails = does_stream_ends = does_report

    def does_headers(self, said, context):
        shown = {name: value for name, value in said.items() if isinstance(value, str)}
        return pb.ToolResponse(result=struct({"content": [shown]}))

    def does_huge(self, said, context):
        return pb.ToolResponse(result=struct({"content": ["x" * 300000]}))

    def does_nan(self, said, context):
        made = struct_pb2.Struct()
        made["value"] = float("nan")
        return pb.ToolResponse(result=made)

    def does_large(self, said, context):
        made = struct_pb2.Struct()
        made["value"] = 9007199254740994.0
        return pb.ToolResponse(result=made)

    def does_broken(self, said, context):
        raise ValueError("nobody expected this")

    def does_guarded(self, said, context):
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "not for you")

    def does_late(self, said, context):
        context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "too late")

    def does_bare_meta(self, said, context):
        return pb.ToolResponse(meta=pb.ResponseMeta())


def whole(value):
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Control(BaseHTTPRequestHandler):
    """What the test asks and tells the server, beside gRPC."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        settings = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        service = self.server.service
        service.broken = settings.get("broken", service.broken)
        service.tools.set(settings)
        body = json.dumps(service.tools.told()).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token", default="")
    options = parser.parse_args()
    service = Service(Tools(), options.token)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=32))
    services.add_MCPLiteServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:%d" % options.port)
    server.start()
    control = ThreadingHTTPServer(("127.0.0.1", 0), Control)
    control.service, control.daemon_threads = service, True
    threading.Thread(target=control.serve_forever, daemon=True).start()
    print("control 127.0.0.1:%d" % control.server_address[1], flush=True)
    print("listening 127.0.0.1:%d" % port, flush=True)
    sys.stdin.buffer.read()
    server.stop(None)


if __name__ == "__main__":
    main()
