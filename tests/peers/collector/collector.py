"""A collector of OpenTelemetry that reads OTLP over HTTP with the messages of opentelemetry-proto, and tells what it read.

POST /v1/traces, /v1/metrics, /v1/logs   what collectors take
GET /told                                everything so far, as JSON
PUT /answers                             from now on each POST is answered so, by the members of a JSON object: `status`; the
                                         text `rejected` of a partial success, which is one span; `after`, a Retry-After;
                                         `delay`, seconds
"""

import hashlib
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

told = {"spans": [], "metrics": {}, "logs": [], "resources": [], "headers": [], "posts": [], "bad": []}
answers = {}
lock = Lock()


def plain(value):
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None


def attributes(pairs):
    return {pair.key: plain(pair.value) for pair in pairs}


def traces(body):
    for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
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


def metrics(body):
    for of_resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
        for of_scope in of_resource.scope_metrics:
            for metric in of_scope.metrics:
                data = getattr(metric, metric.WhichOneof("data"))
                told["metrics"][metric.name] = {
                    "kind": metric.WhichOneof("data"), "unit": metric.unit,
                    "points": [point(metric, one) for one in data.data_points],
                }


def logs(body):
    for of_resource in ExportLogsServiceRequest.FromString(body).resource_logs:
        for of_scope in of_resource.scope_logs:
            for record in of_scope.log_records:
                told["logs"].append({
                    "body": record.body.string_value, "severity": record.severity_number,
                    "fields": attributes(record.attributes),
                })


PATHS = {"/v1/traces": traces, "/v1/metrics": metrics, "/v1/logs": logs}


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
        self.say(200)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        with lock:
            status, after, delay = answers.get("status", 200), answers.get("after"), answers.get("delay", 0)
            told["posts"].append({"path": self.path, "status": status, "body": hashlib.sha256(body).hexdigest()})
            answer = ExportTraceServiceResponse()
            if "rejected" in answers:
                answer.partial_success.rejected_spans = 1
                answer.partial_success.error_message = answers["rejected"]
            if status == 200:
                told["headers"].append({name.lower(): value for name, value in self.headers.items()})
                try:
                    PATHS[self.path](body)
                except Exception as error:  # whatever is wrong with it is what the test wants to know
                    told["bad"].append(f"{self.path}: {error!r}")
                    status = 400
        time.sleep(delay)
        self.say(status, answer.SerializeToString() if status == 200 else b"", after)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
print(f"collecting at http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
