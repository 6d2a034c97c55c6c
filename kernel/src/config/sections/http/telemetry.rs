//! `[telemetry]`: export to an OpenTelemetry collector.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use mgp_engine::calls::telemetry::sampling::Sampler;
use mgp_transports::http::client::parse_url;
use mgp_transports::http::is_safe_url;

use crate::config::parsing::Section;
use crate::config::sections::section;

/// The protocol of the collector, named as in `OTEL_EXPORTER_OTLP_PROTOCOL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OtlpProtocol {
    /// A POST for each message.
    #[default]
    HttpProtobuf,
    /// A unary call for each message.
    Grpc,
}

const PROTOCOLS: [(&str, OtlpProtocol); 2] = [
    ("http/protobuf", OtlpProtocol::HttpProtobuf),
    ("grpc", OtlpProtocol::Grpc),
];

section! {
    /// `[telemetry]`.
    TelemetryConfig {
        /// The protocol of the collector.
        protocol: OtlpProtocol = OtlpProtocol::HttpProtobuf, choice("protocol", &PROTOCOLS);
        /// The OTLP endpoint; `None` disables the export.
        endpoint: Option<String> = None, string("endpoint");
        /// Headers of each message.
        headers: SecretHeaders = SecretHeaders::default(), read_with(read_headers);
        /// Whether spans are exported.
        traces: bool = true, flag("traces");
        /// Whether metrics are exported.
        metrics: bool = true, flag("metrics");
        /// Whether the kernel's log is exported.
        logs: bool = false, flag("logs");
        /// Which traces are exported.
        sampling: Sampler = Sampler { percent: 100, parent_based: true }, read_with(read_sampling);
        /// Most queued spans, of about 1 KB, and log lines; more are dropped and counted.
        queue: usize = 2048, count("queue", 1..=65_536);
        /// The interval of batches.
        interval: Duration = Duration::from_secs(5), millis("interval_ms", 10..=60_000);
        /// The interval of metrics.
        metrics_interval: Duration = Duration::from_secs(60), secs("metrics_interval_secs", 1..=3_600);
        /// Limit for the collector's response.
        timeout: Duration = Duration::from_secs(10), millis("timeout_ms", 10..=60_000);
        /// The service name.
        service: String = "mgp".into(), string("service");
        => Self::check_endpoint;
    }
}

/// Headers whose values may be secrets: `Debug` shows their names.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct SecretHeaders(pub(crate) BTreeMap<String, String>);

impl fmt::Debug for SecretHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.keys(), f)
    }
}

impl TelemetryConfig {
    fn check_endpoint(&mut self, section: &mut Section<'_, '_, '_>) {
        let (Some(url), Some(span)) = (&self.endpoint, section.span("endpoint")) else {
            return;
        };
        match parse_endpoint(url, self.protocol) {
            Ok(url) => {
                if let Some(hint) = other_protocol_port_hint(url, self.protocol) {
                    section.warn(span, format!("`endpoint` in [telemetry] {hint}"));
                }
                self.endpoint = Some(url.to_owned());
            }
            Err(why) => section.reject_key(span, "endpoint", &format!(" {why}")),
        }
    }
}

fn read_sampling(section: &mut Section<'_, '_, '_>, sampling: &mut Sampler) {
    section.count("sample_percent", 0..=100, &mut sampling.percent);
    section.flag("follow_callers", &mut sampling.parent_based);
}

fn read_headers(section: &mut Section<'_, '_, '_>, into: &mut SecretHeaders) {
    let headers = section.text_map("headers");
    if headers.is_empty() {
        return;
    }
    into.0 = section.resolve_secrets("headers", &headers);
    for (name, text) in &headers {
        if name.parse::<http::HeaderName>().is_err() {
            let why = format!(": {name:?} is no name of a header");
            section.reject_key(text.span(), "headers", &why);
        } else if http::HeaderValue::from_str(&into.0[*name]).is_err() {
            let why = format!(": the value of {name:?} has a character that HTTP does not allow");
            section.reject_key(text.span(), "headers", &why);
        }
    }
}

/// The endpoint, without a trailing `/`.
fn parse_endpoint(url: &str, protocol: OtlpProtocol) -> Result<&str, &'static str> {
    let url = url.trim_end_matches('/');
    let grpc = protocol == OtlpProtocol::Grpc;
    match url {
        _ if !is_safe_url(url) && grpc => {
            Err("wants https://, or http:// on this machine, like http://127.0.0.1:4317")
        }
        _ if !is_safe_url(url) => {
            Err("wants https://, or http:// on this machine, like http://127.0.0.1:4318")
        }
        _ if url.contains(['?', '#']) => Err("has a `?` or `#`: paths are put behind it"),
        _ if grpc && parse_url(url).is_ok_and(|url| url.path() != "/") => {
            Err("has a path, and gRPC has its own: leave it out, like http://127.0.0.1:4317")
        }
        _ if SIGNAL_PATHS.iter().any(|path| url.ends_with(path)) => {
            Err("is what stands before /v1/traces, /v1/metrics and /v1/logs: leave that out")
        }
        _ => Ok(url),
    }
}

/// A hint if the port is the usual one of the other protocol.
fn other_protocol_port_hint(url: &str, protocol: OtlpProtocol) -> Option<&'static str> {
    match (parse_url(url).ok()?.port_u16()?, protocol) {
        (4317, OtlpProtocol::HttpProtobuf) => Some(
            "has port 4317, where collectors take gRPC: set `protocol = \"grpc\"`, or the port of HTTP, 4318",
        ),
        (4318, OtlpProtocol::Grpc) => Some(
            "has port 4318, where collectors take HTTP: leave `protocol` out, or set the port of gRPC, 4317",
        ),
        _ => None,
    }
}

/// The paths of OTLP over HTTP.
const SIGNAL_PATHS: [&str; 3] = ["/v1/traces", "/v1/metrics", "/v1/logs"];

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0066: nothing is sent over a network in clear text; invalid endpoints are reported at once.
    #[test]
    fn http_endpoints_accept_signal_paths() {
        for valid in [
            "http://127.0.0.1:4318",
            "http://[::1]:4318/",
            "https://otel.example/x/",
        ] {
            let url = parse_endpoint(valid, OtlpProtocol::HttpProtobuf);
            assert_eq!(url, Ok(valid.trim_end_matches('/')));
        }
        for (rejected, why) in [
            ("http://otel.example:4318", "on this machine"),
            ("https://me:secret@otel.example", "wants"),
            ("otel.example:4318", "wants"),
            ("https://otel.example/?key=1", "`?`"),
            ("https://otel.example#x", "`#`"),
            ("http://localhost:4318/v1/traces/", "leave that out"),
        ] {
            let said = parse_endpoint(rejected, OtlpProtocol::HttpProtobuf).unwrap_err();
            assert!(
                said.contains(why) && !said.contains("secret"),
                "{rejected}: {said}"
            );
        }
    }

    /// Decision 0070: gRPC in clear text only on this machine, too, and with its own paths; a port of the other
    /// protocol gets a hint.
    #[test]
    fn grpc_endpoints_have_no_path() {
        for valid in ["http://127.0.0.1:4317", "https://otel.example/"] {
            let url = parse_endpoint(valid, OtlpProtocol::Grpc);
            assert_eq!(url, Ok(valid.trim_end_matches('/')));
        }
        for (rejected, why) in [
            ("http://otel.example:4317", "on this machine"),
            ("otel.example:4317", "wants"),
            ("https://otel.example/x", "leave it out"),
            ("http://localhost:4317/v1/traces", "leave it out"),
        ] {
            let said = parse_endpoint(rejected, OtlpProtocol::Grpc).unwrap_err();
            assert!(said.contains(why), "{rejected}: {said}");
        }
        let hint = |port: u16, protocol| {
            other_protocol_port_hint(&format!("http://127.0.0.1:{port}"), protocol).is_some()
        };
        let [http, grpc] = PROTOCOLS.map(|(_, protocol)| protocol);
        assert_eq!([hint(4317, http), hint(4318, http)], [true, false]);
        assert_eq!([hint(4317, grpc), hint(4318, grpc)], [false, true]);
        assert!(!hint(443, http) && !hint(443, grpc));
    }
}
