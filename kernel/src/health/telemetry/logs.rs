//! The kernel's structured log: a JSON object per line on stderr, and log records for a collector.

use std::fmt;
use std::io::Write;
use std::sync::OnceLock;

use mgp_engine::calls::telemetry::otlp::LogRecord;
use mgp_engine::calls::telemetry::spans::SpanContext;
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_runtime::time::{unix_ms, unix_ns};
use mgp_runtime::{EventSink, trace};
use mgp_transports::log::sanitize;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::{Context, Layer};

/// Longest exported value of a field, in bytes.
const VALUE_MAX: usize = 4 << 10;

/// Receives log records besides stderr. One for the process, like its log.
static EXPORT_SINK: OnceLock<EventSink<LogRecord>> = OnceLock::new();

/// Exports each record from now on.
pub(super) fn export_to(sink: EventSink<LogRecord>) {
    let _ = EXPORT_SINK.set(sink);
}

/// The fields of an event.
#[derive(Default)]
struct LogFields {
    message: String,
    fields: Map<String, Value>,
    names: Vec<&'static str>,
}

impl LogFields {
    fn from_event(event: &Event<'_>) -> Self {
        let mut event_fields = Self::default();
        event.record(&mut event_fields);
        event_fields
    }

    fn insert(&mut self, field: &Field, value: Value) {
        self.names.push(field.name());
        self.fields.insert(field.name().to_owned(), value);
    }

    fn insert_text(&mut self, field: &Field, mut text: String) {
        if text.len() > VALUE_MAX {
            let end = (0..=VALUE_MAX)
                .rev()
                .find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or_default());
        }
        match field.name() {
            "message" => self.message = text,
            _ => self.insert(field, text.into()),
        }
    }
}

impl Visit for LogFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert_text(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert_text(field, value.to_owned());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value.into());
    }
}

/// Formats fields for display, without control characters and line breaks: they include names of tools and texts of
/// servers.
pub(crate) fn sanitized_fields() -> impl for<'w> FormatFields<'w> + Send + Sync + 'static {
    let field = |writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
        let value = sanitize(format!("{value:?}").as_bytes());
        match (
            field.name().trim_start_matches("r#"),
            writer.has_ansi_escapes(),
        ) {
            ("message", _) => write!(writer, "{value}"),
            (name, true) => write!(writer, "\u{1b}[3m{name}\u{1b}[0m\u{1b}[2m=\u{1b}[0m{value}"),
            (name, false) => write!(writer, "{name}={value}"),
        }
    };
    debug_fn(field).delimited(" ")
}

/// Writes each event as a JSON object on its own line.
pub(crate) struct JsonLayer;

impl JsonLayer {
    fn render(event: &Event<'_>, at_ms: u64) -> String {
        let event_fields = LogFields::from_event(event);
        let mut line = Map::new();
        line.insert("timestamp".into(), render_rfc3339_ms(at_ms).into());
        let level = event.metadata().level();
        line.insert("level".into(), level.as_str().to_lowercase().into());
        line.insert("message".into(), event_fields.message.into());
        line.insert("target".into(), event.metadata().target().into());
        // Nested, because a field may have the name of a member above.
        line.insert("fields".into(), event_fields.fields.into());
        if let Some(SpanContext { trace, span }) = trace::current_span() {
            line.insert("trace_id".into(), format!("{trace:032x}").into());
            line.insert("span_id".into(), format!("{span:016x}").into());
        }
        Value::Object(line).to_string()
    }
}

impl<S: Subscriber> Layer<S> for JsonLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let line = Self::render(event, unix_ms()) + "\n";
        // A failure to log cannot be logged.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

/// Forwards each event to the exporter, if there is one.
pub(crate) struct ExportLayer;

impl<S: Subscriber> Layer<S> for ExportLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(sink) = EXPORT_SINK.get() else {
            return;
        };
        if !is_exported(event.metadata().target()) {
            return;
        }
        let event_fields = LogFields::from_event(event);
        let value = |name: &str| match event_fields.fields.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let level = *event.metadata().level();
        sink.send(LogRecord {
            at_ns: unix_ns(),
            severity: severity_number(level),
            level: level.as_str(),
            fields: event_fields
                .names
                .iter()
                .map(|name| (*name, value(name)))
                .collect(),
            body: event_fields.message,
            span: trace::current_span(),
        });
    }
}

/// Only the kernel's own lines, except those about the export: they would cause more of themselves. So would the
/// libraries' lines about connections.
fn is_exported(target: &str) -> bool {
    let way = module_path!().trim_end_matches("::logs");
    target.starts_with("mgp_") && !target.starts_with(way)
}

/// The severity number of OpenTelemetry's log data model.
fn severity_number(level: Level) -> u8 {
    match level {
        Level::TRACE => 1,
        Level::DEBUG => 5,
        Level::INFO => 9,
        Level::WARN => 13,
        Level::ERROR => 17,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    struct Kept(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Kept {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.lock().unwrap().push(JsonLayer::render(event, 0));
        }
    }

    /// Decision 0066: exporting the log does not cause more of it.
    #[test]
    fn lines_about_the_export_are_not_exported() {
        assert!(is_exported("mgp_servers::server::supervision"));
        for not in [
            "hyper::client",
            "h2",
            "rustls",
            module_path!(),
            "mgp_kernel::health::telemetry::posting",
        ] {
            assert!(!is_exported(not), "{not}");
        }
    }

    /// Decision 0066: a line written while a sampled request is handled has its ids; other lines have none.
    #[tokio::test]
    async fn a_line_of_a_sampled_request_has_its_ids() {
        let lines_written: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = tracing_subscriber::registry().with(Kept(lines_written.clone()));
        let _log = tracing::subscriber::set_default(log);
        let sink = EventSink::new(drop);
        let span =
            trace::RequestSpan::begin(&trace::Trace::generate(), "tools/call", &sink).unwrap();
        let handling = async {
            tracing::warn!("within");
            trace::current_span().unwrap()
        };
        let context = span.instrument(handling).await;
        tracing::warn!("behind");
        let lines = lines_written.lock().unwrap();
        let [within, behind] = [0, 1].map(|at| serde_json::from_str::<Value>(&lines[at]).unwrap());
        assert_eq!(within["trace_id"], format!("{:032x}", context.trace));
        assert_eq!(within["span_id"], format!("{:016x}", context.span));
        assert_eq!(behind["message"], "behind");
        assert!(behind.get("trace_id").is_none() && behind.get("span_id").is_none());
    }

    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Holds for any names and errors of servers.
    #[test]
    fn a_text_line_is_one_line_without_control_characters() {
        let written: Arc<Mutex<Vec<u8>>> = Arc::default();
        let buffer = written.clone();
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(move || Buffer(buffer.clone()))
            .with_ansi(false)
            .fmt_fields(sanitized_fields());
        let hostile =
            "a\r\n2026-11-28 ERROR forged\u{1b}]52;c;aGk=\u{7}\u{9b}2J\u{202e}\u{2028}\u{e0041}";
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            tracing::warn!(server = %hostile, why = hostile, calls = 3_u64, "it waits: {hostile}");
        });
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let hidden = text.trim_end_matches('\n').chars();
        let hidden: Vec<char> = hidden
            .filter(|c| mgp_transports::log::is_hidden(*c))
            .collect();
        assert!(hidden.is_empty() && text.ends_with('\n'), "{text:?}");
        assert!(text.contains("calls=3"), "{text}");
    }

    /// Decision 0066: a line is one JSON object, whatever it contains.
    #[test]
    fn a_json_line_is_one_object() {
        let lines_written: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = tracing_subscriber::registry().with(Kept(lines_written.clone()));
        tracing::subscriber::with_default(log, || {
            tracing::warn!(server = %"a\nb\"c", calls = 3_u64, level = "x", "what it \n says");
        });
        let lines = lines_written.lock().unwrap();
        assert!(!lines[0].contains('\n'), "{lines:?}");
        let line: Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(line["message"], "what it \n says");
        assert_eq!(line["level"], "warn");
        assert_eq!(line["timestamp"], "1970-01-01T00:00:00.000Z");
        assert_eq!(line["fields"]["server"], "a\nb\"c");
        assert_eq!(
            (&line["fields"]["calls"], &line["fields"]["level"]),
            (&3.into(), &"x".into())
        );
    }
}
