//! Detects the HTTP transport of a server (MCP transports, backwards compatibility).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use mgp_protocol::dialect::Version;
use mgp_protocol::jsonrpc::{self, Message};
use mgp_protocol::mcp::request_headers::METHOD;
use mgp_protocol::redacted_url;
use mgp_transports::http::body::BodyError;
use mgp_transports::http::client::{
    ClientError, EventsError, Response, SseEvents, parse_url, read_events, read_json,
};

use super::{HttpWire, SESSION, SseWire, VERSION, has_media_type, metadata_headers};
use crate::link::MetadataHeaders;
use crate::link::wire::strip_bom;
use crate::login::ServerClient;

/// How long a server may take to send its endpoint on an SSE stream.
const ENDPOINT_DEADLINE: Duration = Duration::from_secs(10);

/// The transport found at the URL.
#[derive(Debug)]
pub(crate) enum DetectedTransport {
    /// Streamable HTTP; `answer` is the answer to `initialize`.
    Streamable {
        /// The connection, with its session.
        wire: Arc<HttpWire>,
        /// The answer's frame.
        answer: Bytes,
    },
    /// HTTP+SSE: `initialize` is sent like any other message.
    Sse {
        /// The connection.
        wire: Arc<SseWire>,
        /// The stream that carries all answers.
        stream: Box<SseEvents>,
    },
}

/// Why the URL cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// No connection, or TLS or HTTP failed.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// The response body broke off or is too large.
    #[error("{0}")]
    Body(#[from] BodyError),
    /// The event stream broke off or has an oversized event.
    #[error("{0}")]
    Events(#[from] EventsError),
    /// An HTTP status that ends the detection.
    #[error("{url} answered HTTP {status}{hint}")]
    Status {
        /// The URL.
        url: String,
        /// The status.
        status: StatusCode,
        /// What the operator can do about it.
        hint: &'static str,
    },
    /// It responded, but not with MCP.
    #[error("{url} is no MCP server: {why}")]
    NotMcp {
        /// The URL.
        url: String,
        /// What it sent instead.
        why: String,
    },
}

impl OpenError {
    /// True if there was a connection but no answer.
    #[must_use]
    pub(crate) fn has_no_answer(&self) -> bool {
        match self {
            Self::Client(error) => matches!(error, ClientError::Closed { .. }),
            Self::Body(_) | Self::Events(_) | Self::NotMcp { .. } => true,
            Self::Status { .. } => false,
        }
    }
}

/// The address of a server and how to reach it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HttpTarget<'a> {
    /// The HTTP client.
    pub(crate) client: &'a ServerClient,
    /// The URL.
    pub(crate) url: &'a str,
    /// Headers for each request.
    pub(crate) headers: &'a HeaderMap,
    /// The longest message, in bytes.
    pub(crate) limit: usize,
}

impl HttpTarget<'_> {
    /// POSTs `initialize`; if that fails, requests an SSE stream.
    ///
    /// # Errors
    /// [`OpenError`], as text for the operator.
    pub(crate) async fn open(self, initialize: Bytes) -> Result<DetectedTransport, OpenError> {
        let response = self.post(self.headers.clone(), initialize).await?;
        match response.status {
            status if status.is_success() => {
                let (wire, answer) = self.open_wire(response).await?;
                Ok(DetectedTransport::Streamable { wire, answer })
            }
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
                let Self {
                    client,
                    url,
                    headers,
                    limit,
                } = self;
                open_sse(client, url, headers, limit, response.status).await
            }
            status => Err(status_error(self.url, status)),
        }
    }

    /// POSTs `initialize` and nothing else, to a server that is also stateless. Returns the connection with its
    /// session, and the answer. A proxy may require the method in a header; no version is named in a header,
    /// because the server may not know it.
    ///
    /// # Errors
    /// [`OpenError`].
    pub(crate) async fn initialize(
        self,
        frame: Bytes,
    ) -> Result<(Arc<HttpWire>, Bytes), OpenError> {
        let mut headers = self.headers.clone();
        headers.insert(METHOD, HeaderValue::from_static("initialize"));
        let response = self.post(headers, frame).await?;
        match response.status {
            status if status.is_success() => self.open_wire(response).await,
            status => Err(status_error(self.url, status)),
        }
    }

    /// POSTs a stateless request. Returns the frame of the answer, whatever its status, or `None` if there is
    /// none.
    ///
    /// # Errors
    /// [`OpenError`] if the server gave no response.
    pub(crate) async fn request_stateless(
        self,
        method: &str,
        frame: Bytes,
    ) -> Result<Option<Bytes>, OpenError> {
        let mirror = MetadataHeaders {
            method,
            name: None,
            params: &[],
        };
        let mut every = self.headers.clone();
        every.insert(
            VERSION,
            HeaderValue::from_static(Version::STATELESS.as_str()),
        );
        let headers =
            metadata_headers::build_headers(&every, mirror).map_err(|name| OpenError::NotMcp {
                url: redacted_url::redact_url(self.url),
                why: format!("{name} cannot be a header"),
            })?;
        let response = self.post(headers, frame).await?;
        if response.status.is_success() {
            return read_first_answer(self.url, response, self.limit)
                .await
                .map(Some);
        }
        // The body of an error may be anything; one that is not a message is no answer.
        let body = read_json(response.body, self.limit).await.ok();
        Ok(body.filter(|body| matches!(jsonrpc::parse(body), Ok(Message::Response { .. }))))
    }

    /// Creates a connection to this target.
    ///
    /// # Errors
    /// [`OpenError`] if the URL is invalid.
    pub(crate) fn wire(self, session: Option<HeaderValue>) -> Result<Arc<HttpWire>, OpenError> {
        let url = parse_url(self.url)?;
        let client = self.client.clone();
        Ok(HttpWire::new(client, url, self.headers.clone(), session))
    }

    async fn post(self, mut headers: HeaderMap, frame: Bytes) -> Result<Response, OpenError> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        let url = parse_url(self.url)?;
        let sent = self
            .client
            .request(Method::POST, &url, headers, Some(frame));
        Ok(sent.await?)
    }

    async fn open_wire(self, response: Response) -> Result<(Arc<HttpWire>, Bytes), OpenError> {
        let session = response.headers.get(SESSION).cloned();
        let answer = read_first_answer(self.url, response, self.limit).await?;
        Ok((self.wire(session)?, answer))
    }
}

fn status_error(url: &str, status: StatusCode) -> OpenError {
    let hint = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "; set the token it wants in `headers` of this server"
        }
        StatusCode::NOT_FOUND => "; is the path of `url` right?",
        _ => "",
    };
    OpenError::Status {
        url: redacted_url::redact_url(url),
        status,
        hint,
    }
}

/// Reads the answer to `initialize`, as JSON or as an event.
async fn read_first_answer(
    url: &str,
    response: Response,
    limit: usize,
) -> Result<Bytes, OpenError> {
    if has_media_type(response.headers.get(CONTENT_TYPE), "application/json") {
        return Ok(strip_bom(read_json(response.body, limit).await?));
    }
    if !has_media_type(response.headers.get(CONTENT_TYPE), "text/event-stream") {
        return Err(OpenError::NotMcp {
            url: redacted_url::redact_url(url),
            why: "the first request was answered with neither JSON nor an event stream".into(),
        });
    }
    let mut stream = read_events(response.body, limit);
    while let Some(event) = stream.next().await? {
        if let Ok(Message::Response { .. }) = jsonrpc::parse(&event.data) {
            return Ok(event.data);
        }
    }
    Err(OpenError::NotMcp {
        url: redacted_url::redact_url(url),
        why: "its stream ended before the first request was answered".into(),
    })
}

/// Opens the stream of HTTP+SSE, whose first event names the endpoint for POST.
async fn open_sse(
    client: &ServerClient,
    url: &str,
    headers: &HeaderMap,
    limit: usize,
    status: StatusCode,
) -> Result<DetectedTransport, OpenError> {
    let mut with = headers.clone();
    with.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    let response = client
        .request(Method::GET, &parse_url(url)?, with, None)
        .await?;
    let is_stream = response.status.is_success()
        && has_media_type(response.headers.get(CONTENT_TYPE), "text/event-stream");
    if !is_stream {
        return Err(status_error(url, status));
    }
    let mut stream = read_events(response.body, limit);
    let not_mcp = |why: &str| OpenError::NotMcp {
        url: redacted_url::redact_url(url),
        why: why.to_owned(),
    };
    let first = tokio::time::timeout(ENDPOINT_DEADLINE, stream.next())
        .await
        .map_err(|_| not_mcp("its event stream names no endpoint"))??;
    let endpoint = first
        .filter(|e| e.event.as_deref() == Some("endpoint"))
        .ok_or_else(|| not_mcp("its event stream does not begin with `endpoint`"))?;
    let endpoint = String::from_utf8_lossy(&endpoint.data).into_owned();
    let post = resolve_endpoint(url, &endpoint)
        .ok_or_else(|| not_mcp("its endpoint lies on another origin"))?;
    Ok(DetectedTransport::Sse {
        wire: SseWire::new(client.clone(), parse_url(&post)?, headers.clone()),
        stream: Box::new(stream),
    })
}

/// Resolves the endpoint against the URL. Another origin is refused, because the configured headers are secrets
/// and would be sent there.
fn resolve_endpoint(url: &str, endpoint: &str) -> Option<String> {
    let base: http::Uri = url.parse().ok()?;
    let origin = format!("{}://{}", base.scheme_str()?, base.authority()?);
    if endpoint.starts_with('/') && !endpoint.starts_with("//") {
        return Some(format!("{origin}{endpoint}"));
    }
    if endpoint.contains("://") {
        let target: http::Uri = endpoint.parse().ok()?;
        let same = target.scheme() == base.scheme() && target.authority() == base.authority();
        return same.then(|| endpoint.to_owned());
    }
    let folder = base
        .path()
        .rsplit_once('/')
        .map_or("", |(folder, _)| folder);
    Some(format!("{origin}{folder}/{endpoint}"))
}

#[cfg(test)]
mod tests {
    use super::resolve_endpoint;

    #[test]
    fn endpoint_on_another_origin_is_refused() {
        let at = |endpoint| resolve_endpoint("http://a:1/x/sse", endpoint);
        assert_eq!(at("/m?s=1").as_deref(), Some("http://a:1/m?s=1"));
        assert_eq!(at("m").as_deref(), Some("http://a:1/x/m"));
        assert_eq!(at("http://a:1/m").as_deref(), Some("http://a:1/m"));
        assert_eq!(at("http://evil.example/m"), None);
        assert_eq!(
            at("//evil.example/m").as_deref(),
            Some("http://a:1/x///evil.example/m")
        );
    }
}
