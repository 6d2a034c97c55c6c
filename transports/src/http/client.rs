//! Requests to upstream servers.

mod h2;
mod pool;
mod unary;

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{LOCATION, PROXY_AUTHORIZATION};
use http::uri::Scheme;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Body;
use tokio::net::TcpStream;
use tokio::task::coop::consume_budget;

use super::address_scope::AddressScope;
use super::body::{self, BodyError};
use super::dial::{Dial, host_and_port};
use super::proxy::{Outbound, ProxyAddress, explain_refusal};
use super::root_cause;
use crate::sse;

use self::pool::{Pool, SendError};

pub use self::h2::{H2Body, H2Client};
pub(crate) use self::pool::ResponseBody;
pub use self::unary::UnaryClient;
#[cfg(test)]
pub(crate) use self::unary::UnaryResponse;
pub(crate) use super::dial::DialError;

/// Most characters of an untrusted text that are shown to a person.
const QUOTE_CHARS_MAX: usize = 300;

/// Sends requests; clones share the connections.
///
/// It sends the given headers and `Host`: no cookies, no credentials, no user agent. It follows no redirects. The number
/// of connections is the number of requests in flight, which the caller bounds, plus the idle ones.
#[derive(Clone, Debug)]
pub struct Client {
    pool: Arc<Pool>,
    dial: Dial,
}

/// The head of an answer, and its body as a stream. A body that is dropped before its end closes the connection.
#[derive(Debug)]
pub struct Response {
    /// Any status but a redirect.
    pub status: StatusCode,
    /// The header fields.
    pub headers: HeaderMap,
    /// For [`read_json`] or [`read_events`].
    pub body: ResponseBody,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The URL cannot be used.
    #[error("{url:?} is no URL of a server: {why}")]
    BadUrl {
        /// The URL.
        url: String,
        /// The defect.
        why: String,
    },
    /// There is no connection: the request was not sent.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The server redirects.
    #[error("the server is redirected: set url = \"{to}\"")]
    Redirected {
        /// The target.
        to: String,
    },
    /// The connection ended before the head of an answer: the request may have been executed.
    #[error("{at} closed the connection without an answer: {why}")]
    Closed {
        /// The server, `host:port`.
        at: String,
        /// How it ended.
        why: String,
    },
    /// The answer is no HTTP.
    #[error("{at} does not answer in HTTP: {why}")]
    NotHttp {
        /// The server, `host:port`.
        at: String,
        /// The defect.
        why: String,
    },
}

/// Parses a URL that a person wrote.
///
/// # Errors
/// [`ClientError::BadUrl`]: not `http://host…` or `https://host…`, or with credentials in it.
pub fn parse_url(url: &str) -> Result<Uri, ClientError> {
    let uri: Uri = url.parse().map_err(|e| bad_url(url, format!("{e}")))?;
    check_url(&uri)?;
    Ok(uri)
}

fn check_url(url: &Uri) -> Result<(), ClientError> {
    let wrong = match (url.scheme_str(), url.authority()) {
        (Some("http" | "https"), Some(authority)) if authority.as_str().contains('@') => {
            "credentials belong into a header"
        }
        (Some("http" | "https"), Some(authority)) if !authority.host().is_empty() => return Ok(()),
        (Some("http" | "https"), _) => "it names no host",
        _ => "it must begin with http:// or https://",
    };
    Err(bad_url(&url.to_string(), wrong.to_owned()))
}

fn bad_url(url: &str, why: String) -> ClientError {
    ClientError::BadUrl {
        url: quote(&mgp_protocol::redacted_url::redact_url(&strip_credentials(
            url,
        ))),
        why,
    }
}

/// Displayed and logged URLs contain no secret.
fn strip_credentials(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://***@{host}"),
        None => url.to_owned(),
    }
}

impl Client {
    /// A client that trusts these authorities, and uses these proxies.
    #[must_use]
    pub fn new(outbound: impl Into<Outbound>) -> Self {
        Self::with_scope(outbound, AddressScope::Any)
    }

    /// The same, connecting only to addresses in `scope`, whatever names resolve to. Also through a proxy: the name is
    /// resolved here, and the proxy connects to the checked address.
    #[must_use]
    pub fn with_scope(outbound: impl Into<Outbound>, scope: AddressScope) -> Self {
        let outbound = outbound.into();
        let dial = Dial {
            outbound,
            scope,
            h2: false,
        };
        Self {
            pool: Arc::default(),
            dial,
        }
    }

    /// Opens a TCP connection to a host, through the same proxies, and only to an address in `scope`.
    ///
    /// # Errors
    /// [`ClientError::BadUrl`] for what is no host, [`ClientError::Dial`] without a connection.
    pub async fn open_tcp(
        &self,
        host: &str,
        port: u16,
        scope: AddressScope,
    ) -> Result<TcpStream, ClientError> {
        let host = match host.contains(':') {
            true => format!("[{host}]"),
            false => host.to_owned(),
        };
        // The scheme selects the proxy that tunnels.
        let server = parse_url(&format!("https://{host}:{port}"))?;
        let dial = Dial {
            scope,
            ..self.dial.clone()
        };
        Ok(dial.open_tcp(&server).await?)
    }

    #[cfg(test)]
    pub(super) fn idle_connections(&self) -> usize {
        self.pool.idle_connections()
    }

    /// Sends one request and waits for the head of its answer, without a timeout.
    ///
    /// A request that meets a connection which the server has closed meanwhile is sent on another one. A request of which a
    /// byte was written is never repeated.
    ///
    /// # Errors
    /// [`ClientError`]. An answer with an error status is an answer.
    pub async fn request(
        &self,
        method: Method,
        url: &Uri,
        headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<Response, ClientError> {
        check_url(url)?;
        let mut request = Request::new(Full::new(body.unwrap_or_default()));
        *request.method_mut() = method;
        *request.uri_mut() = url.clone();
        *request.headers_mut() = headers;
        // Only requests that the proxy itself reads carry its credentials.
        let reader = self.forward_proxy(url);
        if let Some(value) = reader.and_then(ProxyAddress::authorization) {
            let headers = request.headers_mut();
            headers.insert(PROXY_AUTHORIZATION, value.clone());
        }
        let sent = self.pool.send(request, &self.dial).await;
        let (head, body) = sent.map_err(|e| explain(&e, url))?.into_parts();
        if let (Some(proxy), StatusCode::PROXY_AUTHENTICATION_REQUIRED) = (reader, head.status) {
            return Err(ClientError::Dial(DialError::Proxy {
                proxy: proxy.to_string(),
                why: explain_refusal(407, proxy.authorization().is_some(), &host_and_port(url)),
            }));
        }
        if head.status.is_redirection()
            && let Some(to) = head.headers.get(LOCATION)
        {
            let to = to_absolute_url(&String::from_utf8_lossy(to.as_bytes()), url);
            return Err(ClientError::Redirected { to });
        }
        Ok(Response {
            status: head.status,
            headers: head.headers,
            body,
        })
    }

    /// The proxy that reads the whole request, as for `http://` (RFC 9112, section 3.2.2).
    fn forward_proxy(&self, url: &Uri) -> Option<&ProxyAddress> {
        let plain = url.scheme() == Some(&Scheme::HTTP) && self.dial.scope == AddressScope::Any;
        let proxies = &self.dial.outbound.proxies;
        proxies.proxy_for(url).ok().flatten().filter(|_| plain)
    }
}

fn explain(error: &SendError, url: &Uri) -> ClientError {
    match error {
        SendError::Dial(error) => error.clone().into(),
        SendError::Http(error) => explain_http(error, error.is_parse(), url),
    }
}

fn explain_http(error: &(dyn Error + 'static), is_parse: bool, url: &Uri) -> ClientError {
    let at = host_and_port(url);
    let why = root_cause(error);
    if is_parse {
        ClientError::NotHttp { at, why }
    } else {
        ClientError::Closed { at, why }
    }
}

/// A `Location` is often only a path.
fn to_absolute_url(location: &str, base: &Uri) -> String {
    let scheme = base.scheme_str().unwrap_or("http");
    let authority = base.authority().map_or("", http::uri::Authority::as_str);
    if location.starts_with("//") {
        quote(&format!("{scheme}:{location}"))
    } else if location.starts_with('/') {
        quote(&format!("{scheme}://{authority}{location}"))
    } else {
        quote(location)
    }
}

/// Shortens an untrusted text for display and removes control characters.
fn quote(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(QUOTE_CHARS_MAX)
        .collect()
}

/// Reads an answer of at most `limit` bytes, without a timeout.
///
/// # Errors
/// [`BodyError::TooLarge`] or [`BodyError::Broken`].
pub async fn read_json<B>(body: B, limit: usize) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Error + 'static,
{
    body::read_to_end(body, limit).await
}

/// Reads an answer as an event stream with events of at most `limit` bytes.
pub fn read_events<B>(body: B, limit: usize) -> SseEvents<B> {
    SseEvents {
        body,
        decoder: sse::Decoder::new(limit),
    }
}

/// The events of an answer, in order.
#[derive(Debug)]
pub struct SseEvents<B = ResponseBody> {
    body: B,
    decoder: sse::Decoder,
}

/// Why there is no event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventsError {
    /// An event was discarded; later ones can be read.
    #[error(transparent)]
    TooLarge(#[from] sse::TooLarge),
    /// The stream ended in the middle.
    #[error(transparent)]
    Broken(#[from] BodyError),
}

impl SseEvents {
    /// Gives up the stream after the event that was wanted: see [`ResponseBody::discard_rest`].
    pub fn discard_rest(self) {
        self.body.discard_rest();
    }
}

impl<B> SseEvents<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Error + 'static,
{
    /// The next event; `None` once the server ended the stream. Cancel safe.
    ///
    /// # Errors
    /// [`EventsError`].
    pub async fn next(&mut self) -> Result<Option<sse::SseEvent>, EventsError> {
        loop {
            // Yields to other tasks after a hundred events or pieces, however fast a server writes.
            consume_budget().await;
            if let Some(event) = self.decoder.next() {
                return Ok(Some(event?));
            }
            match body::next_data(&mut self.body).await? {
                Some(bytes) => self.decoder.push(bytes),
                None => return Ok(None),
            }
        }
    }
}
