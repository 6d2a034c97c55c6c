//! The two protocols of OTLP 1.x: a POST over HTTP, and a unary gRPC call.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Method, Uri};
use mgp_engine::calls::telemetry::collector::{ExportResult, code_name};
use mgp_transports::http::client::{Client, ClientError, UnaryClient, parse_url, read_json};
use mgp_transports::log::sanitize;
use tokio::time::timeout;

use super::Signal;
use crate::config::{OtlpProtocol, TelemetryConfig};

/// Bytes read of a response.
const RESPONSE_BYTES_MAX: usize = 64 << 10;
/// Bytes of a collector's message that are logged.
const MESSAGE_BYTES_MAX: usize = 300;

/// Sends messages to one collector.
#[derive(Debug)]
pub(super) struct CollectorClient {
    protocol: ProtocolClient,
    /// By signal.
    urls: [Uri; Signal::ALL.len()],
    headers: HeaderMap,
    timeout: Duration,
}

#[derive(Debug)]
enum ProtocolClient {
    Http(Client),
    Grpc(Box<UnaryClient>),
}

/// A collector's response, or its absence.
pub(super) struct CollectorResponse {
    pub(super) verdict: ExportResult,
    /// Why it was not accepted, for display.
    pub(super) reason: String,
}

impl CollectorClient {
    /// A client of the configured collector; `None` without one.
    pub(super) fn new(config: &TelemetryConfig, client: Client) -> Option<Self> {
        let endpoint = config.endpoint.as_ref()?;
        let url = |signal| {
            parse_url(&format!(
                "{endpoint}{}",
                signal_path(config.protocol, signal)
            ))
            .ok()
        };
        let [traces, metrics, logs] = Signal::ALL.map(url);
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers.0 {
            let (Ok(name), Ok(mut value)) =
                (name.parse::<HeaderName>(), HeaderValue::from_str(value))
            else {
                continue;
            };
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let protocol = match config.protocol {
            OtlpProtocol::HttpProtobuf => {
                let protobuf = HeaderValue::from_static("application/x-protobuf");
                headers.insert(CONTENT_TYPE, protobuf);
                ProtocolClient::Http(client)
            }
            OtlpProtocol::Grpc => ProtocolClient::Grpc(Box::new(client.unary_client())),
        };
        Some(Self {
            protocol,
            urls: [traces?, metrics?, logs?],
            headers,
            timeout: config.timeout,
        })
    }

    /// Sends one message, without a retry.
    pub(super) async fn send(&self, signal: Signal, message: Bytes) -> CollectorResponse {
        let url = &self.urls[signal as usize];
        let answered = async {
            match &self.protocol {
                ProtocolClient::Http(client) => self.send_http(client, url, message).await,
                ProtocolClient::Grpc(client) => self.send_grpc(client, url, &message).await,
            }
        };
        let why = match timeout(self.timeout, answered).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(why)) => why.to_string(),
            Err(_) => "it did not answer in time".into(),
        };
        CollectorResponse {
            verdict: ExportResult::Retryable(None),
            reason: why,
        }
    }

    async fn send_http(
        &self,
        client: &Client,
        url: &Uri,
        message: Bytes,
    ) -> Result<CollectorResponse, ClientError> {
        let sent = client.request(Method::POST, url, self.headers.clone(), Some(message));
        let answer = sent.await?;
        // Read in any case, so that the connection can be reused.
        let message_text = read_json(answer.body, RESPONSE_BYTES_MAX)
            .await
            .unwrap_or_default();
        let retry_after = answer.headers.get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|retry_after| retry_after.to_str().ok());
        Ok(CollectorResponse {
            verdict: ExportResult::from_http(answer.status.as_u16(), retry_after, &message_text),
            reason: format!("it answered HTTP {}", answer.status),
        })
    }

    async fn send_grpc(
        &self,
        client: &UnaryClient,
        url: &Uri,
        message: &[u8],
    ) -> Result<CollectorResponse, ClientError> {
        let sent = client.call(url, self.headers.clone(), message, RESPONSE_BYTES_MAX);
        let answer = sent.await?;
        let name = code_name(answer.code);
        Ok(CollectorResponse {
            verdict: ExportResult::from_grpc(answer.code, &answer.details, &answer.message),
            reason: match &*sanitize_message(&answer.status_message) {
                "" => format!("it answered {name}"),
                words => format!("it answered {name}: {words}"),
            },
        })
    }
}

/// The path of a signal below the endpoint.
const fn signal_path(protocol: OtlpProtocol, signal: Signal) -> &'static str {
    match (protocol, signal) {
        (OtlpProtocol::HttpProtobuf, Signal::Traces) => "/v1/traces",
        (OtlpProtocol::HttpProtobuf, Signal::Metrics) => "/v1/metrics",
        (OtlpProtocol::HttpProtobuf, Signal::Logs) => "/v1/logs",
        (OtlpProtocol::Grpc, Signal::Traces) => {
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
        }
        (OtlpProtocol::Grpc, Signal::Metrics) => {
            "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
        }
        (OtlpProtocol::Grpc, Signal::Logs) => {
            "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
        }
    }
}

/// A collector's message, as it is logged.
pub(super) fn sanitize_message(message_text: &[u8]) -> String {
    sanitize(&message_text[..message_text.len().min(MESSAGE_BYTES_MAX)])
}
