//! `[telemetry]`: export to an OpenTelemetry collector.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use mgp_engine::calls::telemetry::sampling::Sampler;
use mgp_transports::http::client::parse_url;
use mgp_transports::http::is_safe_url;

use crate::config::parsing::{Env, SecretsConfig, Section, Values};

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

/// `[telemetry]`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TelemetryConfig {
    /// The OTLP endpoint; `None` disables the export.
    pub(crate) endpoint: Option<String>,
    pub(crate) protocol: OtlpProtocol,
    /// Headers of each message; they may be secrets.
    pub(crate) headers: BTreeMap<String, String>,
    /// Whether spans are exported.
    pub(crate) traces: bool,
    /// Whether metrics are exported.
    pub(crate) metrics: bool,
    /// Whether the kernel's log is exported.
    pub(crate) logs: bool,
    /// Which traces are exported.
    pub(crate) sampling: Sampler,
    /// Most queued spans, and log lines; more are dropped and counted.
    pub(crate) queue: usize,
    /// The interval of batches.
    pub(crate) interval: Duration,
    /// The interval of metrics.
    pub(crate) metrics_interval: Duration,
    /// Limit for the collector's response.
    pub(crate) timeout: Duration,
    /// The service name.
    pub(crate) service: String,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            protocol: OtlpProtocol::default(),
            headers: BTreeMap::new(),
            traces: true,
            metrics: true,
            logs: false,
            sampling: Sampler {
                percent: 100,
                parent_based: true,
            },
            queue: 2048,
            interval: Duration::from_secs(5),
            metrics_interval: Duration::from_secs(60),
            timeout: Duration::from_secs(10),
            service: "mgp".into(),
        }
    }
}

impl fmt::Debug for TelemetryConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TelemetryConfig")
            .field("endpoint", &self.endpoint)
            .field("protocol", &self.protocol)
            .field("headers", &self.headers.keys())
            .field("sampling", &self.sampling)
            .finish_non_exhaustive()
    }
}

impl TelemetryConfig {
    /// Relative paths start at `folder`, which is the file's.
    pub(crate) fn read(
        &mut self,
        mut section: Section<'_, '_, '_>,
        folder: &Path,
        env: &Env<'_>,
        secrets: &SecretsConfig,
    ) {
        section.choice("protocol", &PROTOCOLS, &mut self.protocol);
        if let Some(text) = section.text("endpoint") {
            match parse_endpoint(text.get_ref(), self.protocol) {
                Ok(url) => {
                    self.endpoint = Some(url.to_owned());
                    if let Some(hint) = other_protocol_port_hint(url, self.protocol) {
                        section.warn(text.span(), format!("`endpoint` in [telemetry] {hint}"));
                    }
                }
                Err(why) => section.reject(text.span(), format!("`endpoint` in [telemetry] {why}")),
            }
        }
        let headers = section.text_map("headers");
        for (name, text) in &headers {
            if name.parse::<http::HeaderName>().is_err() {
                let words = format!("`headers` in [telemetry]: {name:?} is no name of a header");
                section.reject(text.span(), words);
            }
        }
        if !headers.is_empty() {
            let mut values = Values::new(folder, env, secrets);
            self.headers = values.resolve_secrets("headers", &headers);
            values.report_errors(&mut section);
            for (name, text) in &headers {
                let value = self.headers.get(*name);
                if value.is_some_and(|value| http::HeaderValue::from_str(value).is_err()) {
                    let words = format!(
                        "`headers` in [telemetry]: the value of {name:?} has a character that HTTP does not allow"
                    );
                    section.reject(text.span(), words);
                }
            }
        }
        section.flag("traces", &mut self.traces);
        section.flag("metrics", &mut self.metrics);
        section.flag("logs", &mut self.logs);
        section.count("sample_percent", 0..=100, &mut self.sampling.percent);
        section.flag("follow_callers", &mut self.sampling.parent_based);
        // A span takes about 1 KB.
        section.count("queue", 1..=65_536, &mut self.queue);
        section.millis("interval_ms", 10..=60_000, &mut self.interval);
        section.secs(
            "metrics_interval_secs",
            1..=3_600,
            &mut self.metrics_interval,
        );
        section.millis("timeout_ms", 10..=60_000, &mut self.timeout);
        if let Some(text) = section.text("service") {
            self.service = (*text.get_ref()).to_owned();
        }
        section.finish();
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
