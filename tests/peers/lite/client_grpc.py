"""A client of the gRPC door: reads requests as JSON lines, writes what came of each as one.

    client_grpc.py HOST:PORT [CERTIFICATE]

    {"op": "tools"}
    {"op": "call", "name": ..., "arguments": {...}, "timeout": s, "metadata": {...}, "key": ...}
    {"op": "stream", ..., "take": n}       reads at most n messages, then goes away
    {"op": "begin", ..., "key": "a"} {"op": "cancel", "key": "a"}
    {"op": "wire", "method": "CallTool", "message": "ToolResponse", ...}   bytes, as protoc reads them
    {"op": "raw", "method": ..., "hex": ..., "compression": "gzip"}
    {"op": "health"} {"op": "watch"} {"op": "reflect"}
"""

import json
import sys

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.struct_pb2 import Struct
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status

from stubs import Stubs

PATIENCE = 30


class Client:
    def __init__(self, address, certificate=None):
        options = [("grpc.enable_retries", 0), ("grpc.max_receive_message_length", 256 << 20)]
        if certificate:
            with open(certificate, "rb") as file:
                credentials = grpc.ssl_channel_credentials(file.read())
            self.channel = grpc.secure_channel(address, credentials, options)
        else:
            self.channel = grpc.insecure_channel(address, options)
        self.stubs = Stubs()
        self.stub = self.stubs.services.MCPLiteStub(self.channel)
        self.begun = {}

    def request(self, said):
        request = self.stubs.messages.ToolRequest(name=said["name"])
        if "arguments" in said:
            request.arguments.CopyFrom(struct(said["arguments"]))
        return request

    @staticmethod
    def terms(said):
        metadata = [(name, value) for name, value in said.get("metadata", {}).items()]
        return {"timeout": said.get("timeout", PATIENCE), "metadata": metadata}

    def tools(self, said):
        listed = self.stub.GetTools(self.stubs.messages.Empty(), **self.terms(said))
        return {"tools": [as_json(tool) for tool in listed.tools]}

    def call(self, said):
        return as_json(self.stub.CallTool(self.request(said), **self.terms(said)))

    def stream(self, said):
        call = self.stub.CallToolStream(self.request(said), **self.terms(said))
        messages, take = [], said.get("take")
        try:
            for message in call:
                messages.append(as_json(message))
                if len(messages) == take:
                    call.cancel()
                    break
        except grpc.RpcError as error:
            return {"messages": messages, **refused(error)}
        return {"messages": messages}

    def begin(self, said):
        self.begun[said["key"]] = self.stub.CallTool.future(self.request(said), **self.terms(said))
        return {}

    def cancel(self, said):
        return {"cancelled": self.begun.pop(said["key"]).cancel()}

    def end(self, said):
        return as_json(self.begun.pop(said["key"]).result())

    def wire(self, said):
        path = f"/mcplite.MCPLite/{said['method']}"
        call = self.channel.unary_unary(path, lambda message: message.SerializeToString(), lambda wire: wire)
        request = self.request(said) if "name" in said else self.stubs.messages.Empty()
        wire = call(request, **self.terms(said))
        return {"text": self.stubs.decode(said["message"], wire)}

    def raw(self, said):
        call = self.channel.unary_unary(f"/{said['method']}", lambda wire: wire, lambda wire: wire)
        compression = grpc.Compression.Gzip if said.get("compression") == "gzip" else None
        return {"hex": call(bytes.fromhex(said["hex"]), compression=compression, **self.terms(said)).hex()}

    def health(self, said):
        stub = health_pb2_grpc.HealthStub(self.channel)
        request = health_pb2.HealthCheckRequest(service=said.get("service", ""))
        answer = stub.Check(request, **self.terms(said))
        return {"status": health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)}

    def watch(self, said):
        """The first state, and how the stream ends."""
        stub = health_pb2_grpc.HealthStub(self.channel)
        self.begun["watch"] = stub.Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
        return {"status": next(self.begun["watch"]).status}

    def unwatch(self, said):
        for _ in self.begun["watch"]:
            pass
        return {}

    def reflect(self, said):
        """A call with nothing known beforehand but what reflection tells."""
        channel = with_metadata(self.channel, self.terms(said)["metadata"])
        database = ProtoReflectionDescriptorDatabase(channel)
        pool = descriptor_pool.DescriptorPool(database)
        method = pool.FindServiceByName("mcplite.MCPLite").FindMethodByName("CallTool")
        types = [message_factory.GetMessageClass(kind) for kind in (method.input_type, method.output_type)]
        request = json_format.ParseDict({"name": said["name"], "arguments": said["arguments"]}, types[0]())
        call = channel.unary_unary("/mcplite.MCPLite/CallTool", types[0].SerializeToString, types[1].FromString)
        answer = call(request, timeout=PATIENCE)
        services = sorted(database.get_services())
        return {"services": services, **json_format.MessageToDict(answer, preserving_proto_field_name=True)}


def with_metadata(channel, metadata):
    """The same channel, which says this with each call."""

    class Says(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):
        def intercept_unary_unary(self, go_on, details, request):
            return go_on(details._replace(metadata=metadata), request)

        def intercept_stream_stream(self, go_on, details, requests):
            return go_on(details._replace(metadata=metadata), requests)

    return grpc.intercept_channel(channel, Says())


def struct(value):
    out = Struct()
    json_format.ParseDict(value, out)
    return out


def as_json(message):
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def refused(error):
    said = {"code": error.code().name, "message": error.details()}
    headers = {key: value for key, value in (error.trailing_metadata() or ()) if isinstance(value, str)}
    said["headers"] = headers
    try:
        status = rpc_status.from_call(error)
    except ValueError:
        status = None
    for detail in status.details if status else []:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            said["info"] = {"reason": info.reason, "domain": info.domain, **info.metadata}
    return {"error": said}


def main():
    client = Client(*sys.argv[1:])
    for line in sys.stdin:
        said = json.loads(line)
        try:
            answer = getattr(client, said["op"])(said)
        except grpc.RpcError as error:
            answer = refused(error)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
