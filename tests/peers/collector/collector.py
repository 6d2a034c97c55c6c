"""A collector of OpenTelemetry that reads OTLP over HTTP and over gRPC with the messages of opentelemetry-proto, and tells
what it read.

POST /v1/traces, /v1/metrics, /v1/logs   what collectors take; the services of gRPC are at a port of their own
GET /told                                everything so far, as JSON
PUT /answers                             from now on each message is answered so, by the members of a JSON object: `status`,
                                         of HTTP; `code`, of gRPC, and its `words`; the text `rejected` of a partial
                                         success, which is one span; `after`, when to come again, in seconds; `hold`,
                                         until it is taken back no message is answered
"""

import hashlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition

import grpc
from google.protobuf.any_pb2 import Any
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as of_logs, logs_service_pb2_grpc as log_stubs
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as of_metrics, metrics_service_pb2_grpc as metric_stubs
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as of_traces, trace_service_pb2_grpc as trace_stubs

told = {"spans": [], "metrics": {}, "logs": [], "resources": [], "headers": [], "posts": [], "bad": []}
answers = {}
lock = Condition()


def plain(value):
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None


def attributes(pairs):
    return {pair.key: plain(pair.value) for pair in pairs}


def traces(request):
    for of_resource in request.resource_spans:
        resource = attributes(of_resource.resource.attributes)
        told["resources"].append(resource)
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                told["spans"].append({
                    "trace": span.trace_id.hex(), "id": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(), "state": span.trace_state,
                    "name": span.name, "kind": span.kind, "node": resource.get("mgp.node.name"),
                    "start": span.start_time_unix_nano, "end": span.end_time_unix_nano,
                    "attributes": attributes(span.attributes), "failed": span.status.code == 2,
                })


def point(metric, one):
    labels = attributes(one.attributes)
    if metric.WhichOneof("data") == "histogram":
        value = {"count": one.count, "sum": one.sum, "buckets": list(one.bucket_counts), "bounds": list(one.explicit_bounds)}
    else:
        value = getattr(one, one.WhichOneof("value"))
    return {"labels": labels, "value": value}


def metrics(request):
    for of_resource in request.resource_metrics:
        for of_scope in of_resource.scope_metrics:
            for metric in of_scope.metrics:
                data = getattr(metric, metric.WhichOneof("data"))
                told["metrics"][metric.name] = {
                    "kind": metric.WhichOneof("data"), "unit": metric.unit,
                    "points": [point(metric, one) for one in data.data_points],
                }


def logs(request):
    for of_resource in request.resource_logs:
        for of_scope in of_resource.scope_logs:
            for record in of_scope.log_records:
                told["logs"].append({
                    "body": record.body.string_value, "severity": record.severity_number,
                    "fields": attributes(record.attributes), "trace": record.trace_id.hex(), "span": record.span_id.hex(),
                })


PATHS = {
    "/v1/traces": (of_traces.ExportTraceServiceRequest, traces),
    "/v1/metrics": (of_metrics.ExportMetricsServiceRequest, metrics),
    "/v1/logs": (of_logs.ExportLogsServiceRequest, logs),
}


def success():
    answer = of_traces.ExportTraceServiceResponse()
    if "rejected" in answers:
        answer.partial_success.rejected_spans = 1
        answer.partial_success.error_message = answers["rejected"]
    return answer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def say(self, status, body=b"", after=None):
        self.send_response(status)
        if after is not None:
            self.send_header("retry-after", str(after))
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        with lock:
            self.say(200, json.dumps(told).encode())

    def do_PUT(self):
        said = json.loads(self.rfile.read(int(self.headers.get("content-length", "0"))))
        with lock:
            answers.clear()
            answers.update(said)
            lock.notify_all()
        self.say(200)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        with lock:
            status, after = answers.get("status", 200), answers.get("after")
            told["posts"].append({"path": self.path, "status": status, "body": hashlib.sha256(body).hexdigest()})
            answer = success()
            if status == 200:
                told["headers"].append({name.lower(): value for name, value in self.headers.items()})
                try:
                    message, read = PATHS[self.path]
                    read(message.FromString(body))
                except Exception as error:  # whatever is wrong with it is what the test wants to know
                    told["bad"].append(f"{self.path}: {error!r}")
                    status = 400
            lock.wait_for(lambda: "hold" not in answers)
        self.say(status, answer.SerializeToString() if status == 200 else b"", after)

    def log_message(self, *_):
        pass


def exporter(servicer, path, read):
    """A service whose one method takes messages."""

    def export(_, request, context):
        body = request.SerializeToString(deterministic=True)
        with lock:
            code, after = answers.get("code", "OK"), answers.get("after")
            words, answer = answers.get("words", ""), success()
            told["posts"].append({"path": path, "status": code, "body": hashlib.sha256(body).hexdigest()})
            if code == "OK":
                told["headers"].append(dict(context.invocation_metadata()))
                read(request)
            lock.wait_for(lambda: "hold" not in answers)
        if code == "OK":
            return answer
        if after is not None:
            info, detail = RetryInfo(), Any()
            info.retry_delay.FromMilliseconds(int(after * 1000))
            detail.Pack(info)
            status = Status(code=grpc.StatusCode[code].value[0], message=words, details=[detail])
            context.set_trailing_metadata([("grpc-status-details-bin", status.SerializeToString())])
        return context.abort(grpc.StatusCode[code], words)

    return type("Exporter", (servicer,), {"Export": export})()


calls = grpc.server(ThreadPoolExecutor(max_workers=8))
trace_stubs.add_TraceServiceServicer_to_server(exporter(trace_stubs.TraceServiceServicer, "TraceService", traces), calls)
metric_stubs.add_MetricsServiceServicer_to_server(exporter(metric_stubs.MetricsServiceServicer, "MetricsService", metrics), calls)
log_stubs.add_LogsServiceServicer_to_server(exporter(log_stubs.LogsServiceServicer, "LogsService", logs), calls)
port = calls.add_insecure_port("127.0.0.1:0")
calls.start()
server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
print(f"collecting at http://127.0.0.1:{server.server_port} and http://127.0.0.1:{port}", flush=True)
server.serve_forever()
