//! OTLP 1.x messages in protobuf: the bodies for `/v1/traces`, `/v1/metrics` and `/v1/logs`. Field numbers are those
//! of opentelemetry-proto 1.x.

use super::families::{MetricFamily, MetricKind, MetricPoint, MetricValue};
use super::latency::{BOUNDS_US, LatencyHistogram, micros_to_seconds};
use super::protobuf::{ProtoFields, ProtoMessage, ProtoValue};
use super::spans::{AttributeValue, FinishedSpan, SpanContext, SpanKind};

/// Aggregation since the start.
const TEMPORALITY_CUMULATIVE: u64 = 2;
/// The status of a span that failed.
const STATUS_ERROR: u64 = 2;

/// Attributes that the resource conventions require of an exporter.
const SDK_ATTRIBUTES: [(&str, &str); 2] = [
    ("telemetry.sdk.name", "mgp"),
    ("telemetry.sdk.language", "rust"),
];

/// The resource that sends the telemetry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TelemetryResource {
    /// `service.name`.
    pub service: String,
    /// `service.version`.
    pub version: String,
    /// `service.instance.id`: a UUID, new for each run of the kernel.
    pub instance: String,
    /// `mgp.node.name`.
    pub node: String,
    /// When the kernel started, in nanoseconds since 1970.
    pub start_ns: u64,
}

/// A line of the kernel's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRecord {
    /// Nanoseconds since 1970.
    pub at_ns: u64,
    /// The severity number of OpenTelemetry: 1 is the least severe.
    pub severity: u8,
    /// The severity as a word.
    pub level: &'static str,
    /// The text of the line.
    pub body: String,
    /// The fields of the line.
    pub fields: Vec<(&'static str, String)>,
    /// The sampled request during which it was logged.
    pub span: Option<SpanContext>,
}

/// What a collector rejected of an export that it accepted otherwise (`ExportTracePartialSuccess` and the two
/// messages with the same layout).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialSuccess {
    /// How many spans, points or lines.
    pub rejected: u64,
    /// Why, in the collector's words; perhaps a warning about what it took.
    pub error_message: String,
}

impl PartialSuccess {
    /// Decodes the answer to an export; `None` where it reports nothing, or is no protobuf message.
    #[must_use]
    pub(crate) fn decode(answer: &[u8]) -> Option<Self> {
        let mut said = Self::default();
        let partial = ProtoFields(answer).find_map(|field| match field {
            (1, ProtoValue::Bytes(partial)) => Some(partial),
            _ => None,
        })?;
        for field in ProtoFields(partial) {
            match field {
                (1, ProtoValue::Number(rejected)) => {
                    said.rejected = u64::try_from(rejected.cast_signed()).unwrap_or(0);
                }
                (2, ProtoValue::Bytes(why)) => {
                    said.error_message = String::from_utf8_lossy(why).into_owned()
                }
                _ => {}
            }
        }
        (said != Self::default()).then_some(said)
    }
}

impl TelemetryResource {
    /// An `ExportTraceServiceRequest`.
    #[must_use]
    pub fn encode_traces(&self, spans: &[FinishedSpan]) -> Vec<u8> {
        self.encode_request(|scope| {
            for span in spans {
                scope.write_message(2, |message| write_span(message, span));
            }
        })
    }

    /// An `ExportMetricsServiceRequest` with the metrics at `now_ns`.
    #[must_use]
    pub fn encode_metrics(&self, families: &[MetricFamily], now_ns: u64) -> Vec<u8> {
        let times = (self.start_ns, now_ns);
        self.encode_request(|scope| {
            for family in families.iter().filter(|family| !family.points.is_empty()) {
                scope.write_message(2, |metric| write_family(metric, family, times));
            }
        })
    }

    /// An `ExportLogsServiceRequest`.
    #[must_use]
    pub fn encode_logs(&self, lines: &[LogRecord]) -> Vec<u8> {
        self.encode_request(|scope| {
            for line in lines {
                scope.write_message(2, |record| write_log_record(record, line));
            }
        })
    }

    /// The two envelopes that all three requests share.
    fn encode_request(&self, write: impl FnOnce(&mut ProtoMessage)) -> Vec<u8> {
        let mut request = ProtoMessage::default();
        request.write_message(1, |of_resource| {
            of_resource.write_message(1, |resource| {
                let said = [
                    ("service.name", &self.service),
                    ("service.version", &self.version),
                    ("service.instance.id", &self.instance),
                    ("mgp.node.name", &self.node),
                    ("telemetry.sdk.version", &self.version),
                ];
                let said = said.map(|(name, value)| (name, value.as_str()));
                for (name, value) in said.into_iter().chain(SDK_ATTRIBUTES) {
                    resource.write_message(1, |pair| write_string_attribute(pair, name, value));
                }
            });
            of_resource.write_message(2, |of_scope| {
                of_scope.write_message(1, |scope| {
                    scope.write_bytes(1, b"mgp");
                    scope.write_nonempty_bytes(2, self.version.as_bytes());
                });
                write(of_scope);
            });
        });
        request.into_bytes()
    }
}

fn write_string_attribute(pair: &mut ProtoMessage, name: &str, value: &str) {
    pair.write_bytes(1, name.as_bytes());
    pair.write_message(2, |any| any.write_bytes(1, value.as_bytes()));
}

fn write_span(message: &mut ProtoMessage, span: &FinishedSpan) {
    message.write_bytes(1, &span.trace.to_be_bytes());
    message.write_bytes(2, &span.id.to_be_bytes());
    message.write_nonempty_bytes(3, span.state.as_bytes());
    if span.parent != 0 {
        message.write_bytes(4, &span.parent.to_be_bytes());
    }
    message.write_bytes(5, span.name.as_bytes());
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
    };
    message.write_number(6, kind);
    message.write_fixed64(7, span.start_ns);
    message.write_fixed64(8, span.end_ns);
    for (name, value) in &span.attributes {
        message.write_message(9, |pair| {
            pair.write_bytes(1, name.as_bytes());
            pair.write_message(2, |any| match value {
                AttributeValue::Text(text) => any.write_bytes(1, text.as_bytes()),
                AttributeValue::Bool(flag) => any.write_oneof_number(2, u64::from(*flag)),
                AttributeValue::Int(number) => any.write_oneof_number(3, number.cast_unsigned()),
            });
        });
    }
    if let Some(error) = span.error {
        message.write_message(9, |pair| write_string_attribute(pair, "error.type", error));
        message.write_message(15, |status| status.write_number(3, STATUS_ERROR));
    }
}

fn write_family(metric: &mut ProtoMessage, family: &MetricFamily, times: (u64, u64)) {
    metric.write_bytes(1, family.name.as_bytes());
    metric.write_bytes(2, family.help.as_bytes());
    // A plain number has no unit: a converter to Prometheus names would turn "1" into a ratio.
    let unit = match family.unit {
        "seconds" => "s",
        "bytes" => "By",
        _ => "",
    };
    metric.write_nonempty_bytes(3, unit.as_bytes());
    match family.kind {
        MetricKind::Gauge => metric.write_message(5, |gauge| write_points(gauge, family, times)),
        MetricKind::Counter => metric.write_message(7, |sum| {
            write_points(sum, family, times);
            sum.write_number(2, TEMPORALITY_CUMULATIVE);
            sum.write_number(3, 1);
        }),
        MetricKind::Histogram => metric.write_message(9, |histogram| {
            write_points(histogram, family, times);
            histogram.write_number(2, TEMPORALITY_CUMULATIVE);
        }),
    }
}

fn write_points(into: &mut ProtoMessage, family: &MetricFamily, times: (u64, u64)) {
    for point in &family.points {
        into.write_message(1, |message| {
            message.write_fixed64(2, times.0);
            message.write_fixed64(3, times.1);
            match &point.value {
                MetricValue::Float(value) => message.write_double(4, *value),
                MetricValue::Integer(value) => message.write_fixed64(6, *value),
                MetricValue::Histogram(counts) => write_histogram(message, counts),
            }
            write_labels(message, point);
        });
    }
}

fn write_histogram(message: &mut ProtoMessage, counts: &LatencyHistogram) {
    message.write_fixed64(4, counts.count());
    message.write_double(5, micros_to_seconds(counts.sum_us));
    message.write_packed_fixed64(6, counts.buckets.into_iter());
    message.write_packed_fixed64(
        7,
        BOUNDS_US
            .into_iter()
            .map(|us| micros_to_seconds(us).to_bits()),
    );
}

/// The field of the labels differs between a histogram point and a number point.
fn write_labels(message: &mut ProtoMessage, point: &MetricPoint) {
    let place = match point.value {
        MetricValue::Histogram(_) => 9,
        MetricValue::Integer(_) | MetricValue::Float(_) => 7,
    };
    for (name, value) in &point.labels {
        message.write_message(place, |pair| write_string_attribute(pair, name, value));
    }
}

fn write_log_record(record: &mut ProtoMessage, line: &LogRecord) {
    record.write_fixed64(1, line.at_ns);
    record.write_number(2, u64::from(line.severity));
    record.write_bytes(3, line.level.as_bytes());
    record.write_message(5, |any| any.write_bytes(1, line.body.as_bytes()));
    for (name, value) in &line.fields {
        record.write_message(6, |pair| write_string_attribute(pair, name, value));
    }
    if let Some(SpanContext { trace, span }) = line.span {
        record.write_bytes(9, &trace.to_be_bytes());
        record.write_bytes(10, &span.to_be_bytes());
    }
    record.write_fixed64(11, line.at_ns);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> TelemetryResource {
        TelemetryResource {
            service: "mgp".into(),
            version: "1".into(),
            instance: "i".into(),
            node: "n".into(),
            start_ns: 5,
        }
    }

    /// Where a value stands in bytes.
    fn holds(bytes: &[u8], part: &[u8]) -> bool {
        bytes.windows(part.len()).any(|window| window == part)
    }

    /// Decision 0066: ids are big-endian bytes, and a failure has its status.
    #[test]
    fn a_span_is_encoded_with_its_ids() {
        let span = FinishedSpan {
            trace: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
            id: 0x1112_1314_1516_1718,
            parent: 0,
            state: "a=b".into(),
            name: "tools/call t".into(),
            kind: SpanKind::Server,
            start_ns: 1,
            end_ns: 2,
            attributes: vec![
                ("n", AttributeValue::Int(-1)),
                ("f", AttributeValue::Bool(false)),
            ],
            error: Some("timeout"),
        };
        let bytes = source().encode_traces(&[span]);
        assert!(holds(
            &bytes,
            b"\x0a\x10\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10"
        ));
        assert!(holds(&bytes, b"\x12\x08\x11\x12\x13\x14\x15\x16\x17\x18"));
        assert!(holds(&bytes, b"error.type") && holds(&bytes, b"\x7a\x02\x18\x02"));
        assert!(holds(&bytes, b"\x12\x02\x10\x00"), "a no is written");
    }

    /// Decision 0066: a line that was written for a sampled request has the ids of its span, and no other line has any.
    #[test]
    fn a_log_line_is_encoded_with_the_ids_of_its_request() {
        let mut line = LogRecord {
            body: "b".into(),
            ..LogRecord::default()
        };
        let plain = source().encode_logs(&[line.clone()]);
        line.span = Some(SpanContext { trace: 7, span: 9 });
        let of_request = source().encode_logs(&[line]);
        let trace = b"\x4a\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x07";
        let span = b"\x52\x08\0\0\0\0\0\0\0\x09";
        assert!(holds(&of_request, trace) && holds(&of_request, span));
        assert_eq!(of_request.len(), plain.len() + trace.len() + span.len());
    }

    /// OTLP 1.x, "Partial success": a number and words are read, and what says neither is a whole success.
    #[test]
    fn rejected_items_of_a_collector_are_parsed() {
        let mut answer = ProtoMessage::default();
        answer.write_message(1, |partial| {
            partial.write_number(1, 3);
            partial.write_bytes(2, "too old: grüße".as_bytes());
        });
        let said = PartialSuccess::decode(&answer.into_bytes()).unwrap();
        assert_eq!((said.rejected, &*said.error_message), (3, "too old: grüße"));
        for whole in [
            &b""[..],
            b"\x0a\x00",
            b"{}",
            b"{\"partialSuccess\":{}}",
            b"\x0a\x05\x08",
        ] {
            assert_eq!(PartialSuccess::decode(whole), None, "{whole:?}");
        }
    }

    /// Decision 0066: what only grows says so, and begins with the kernel.
    #[test]
    fn a_counter_is_cumulative_and_monotonic() {
        let family =
            MetricFamily::new("mgp_calls", MetricKind::Counter, "Calls.").with_point(&[], 7_u64);
        let bytes = source().encode_metrics(&[family], 9);
        assert!(holds(
            &bytes,
            b"\x11\x05\0\0\0\0\0\0\0\x19\x09\0\0\0\0\0\0\0\x31\x07\0\0\0\0\0\0\0"
        ));
        assert!(holds(&bytes, b"\x10\x02\x18\x01"));
        assert!(!holds(&bytes, b"\x1a\x011"), "it has no unit");
    }
}
