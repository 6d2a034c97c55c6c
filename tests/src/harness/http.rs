//! Streamable HTTP with nothing between the test and the wire: any header, any body, any answer.

pub mod events;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

use self::events::Events;
use super::DEADLINE;
use super::envelope::Outgoing;
use super::wait::within;

/// The header that names a legacy session.
pub const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// The header that names the protocol version.
pub const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// A client of one endpoint. Every header it sends is in [`HttpClient::headers`], to be changed at
/// will; to begin with those of a well-behaved client.
#[derive(Debug, Clone)]
pub struct HttpClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: Uri,
    /// What goes with each request.
    pub headers: HeaderMap,
}

impl HttpClient {
    /// A client of the endpoint at `url`.
    ///
    /// # Panics
    /// When `url` is none.
    #[must_use]
    pub fn new(url: &str) -> Self {
        let trusting_nobody =
            ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("ring knows the default versions")
                .with_root_certificates(RootCertStore::empty())
                .with_no_client_auth();
        Self::over_tls(url, trusting_nobody)
    }

    /// A client of the endpoint at an https URL: trusts whom `tls` trusts, and shows what it shows.
    ///
    /// # Panics
    /// When `url` is none.
    #[must_use]
    pub fn over_tls(url: &str, tls: ClientConfig) -> Self {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .build();
        let mut headers = HeaderMap::new();
        let both = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(ACCEPT, both);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            url: url.parse().expect("a test gives a URL"),
            headers,
        }
    }

    /// The same client with no connection yet: what it sends goes over new ones.
    #[must_use]
    pub fn anew(&self) -> Self {
        let mut new = Self::new(&self.url.to_string());
        new.headers.clone_from(&self.headers);
        new
    }

    /// Sets a header for all requests to come.
    ///
    /// # Panics
    /// When `value` cannot stand in a header.
    pub fn set(&mut self, name: HeaderName, value: &str) {
        let value = value.parse().expect("a test gives a header's value");
        self.headers.insert(name, value);
    }

    /// Sends a request; `Err` when the connection failed before an answer came.
    ///
    /// # Errors
    /// What the connection ran into.
    ///
    /// # Panics
    /// When no head of an answer comes by the deadline.
    pub async fn send(
        &self,
        method: Method,
        body: impl Into<Bytes>,
    ) -> Result<HttpAnswer, hyper_util::client::legacy::Error> {
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = method;
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = self.headers.clone();
        let answer = within(
            "the head of an answer",
            DEADLINE,
            self.client.request(request),
        );
        let (head, body) = answer.await?.into_parts();
        Ok(HttpAnswer {
            status: head.status,
            headers: head.headers,
            body,
        })
    }

    /// Sends a message.
    ///
    /// # Panics
    /// When no answer comes.
    pub async fn post(&self, message: impl Into<Bytes>) -> HttpAnswer {
        self.send(Method::POST, message).await.expect("an answer")
    }

    /// Sends a request that stands alone, with its own headers on top of those of the client.
    ///
    /// # Panics
    /// When no answer comes.
    pub async fn put(&self, request: &Outgoing) -> HttpAnswer {
        let mut this = self.clone();
        this.headers.extend(request.headers.clone());
        this.post(request.frame()).await
    }

    /// Opens the stream of a session, resuming after `last_event_id` when given.
    ///
    /// # Panics
    /// When no answer comes.
    pub async fn get(&self, last_event_id: Option<&str>) -> HttpAnswer {
        let mut this = self.clone();
        this.set(ACCEPT, "text/event-stream");
        if let Some(id) = last_event_id {
            this.set(HeaderName::from_static("last-event-id"), id);
        }
        let answer = this.send(Method::GET, Bytes::new()).await;
        answer.expect("an answer")
    }

    /// Ends the session.
    ///
    /// # Panics
    /// When no answer comes.
    pub async fn delete(&self) -> HttpAnswer {
        let answer = self.send(Method::DELETE, Bytes::new()).await;
        answer.expect("an answer")
    }

    /// Opens a legacy session and keeps to it from now on; gives the raw `initialize` result frame.
    ///
    /// # Panics
    /// When the endpoint refuses.
    pub async fn open_session(&mut self, version: &str, capabilities: &str) -> String {
        let initialize = super::handshake::initialize(version, capabilities);
        let answer = self.post(initialize).await;
        let status = answer.status;
        let session = answer.headers.get(SESSION).cloned();
        let frames = answer.frames().await;
        assert_eq!(status, StatusCode::OK, "initialize: {frames:?}");
        if let Some(session) = session {
            self.headers.insert(SESSION, session);
        }
        self.set(VERSION, version);
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert_eq!(self.post(initialized).await.status, StatusCode::ACCEPTED);
        frames
            .into_iter()
            .next_back()
            .expect("an initialize result")
    }
}

/// An answer whose body is still to be read.
#[derive(Debug)]
pub struct HttpAnswer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    body: Incoming,
}

impl HttpAnswer {
    /// True when the body is a stream of events.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        let kind = self.headers.get(CONTENT_TYPE);
        kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
    }

    /// The body as a stream of events.
    #[must_use]
    pub fn events(self) -> Events {
        Events::new(self.body)
    }

    /// The whole body as text.
    ///
    /// # Panics
    /// When it breaks off.
    pub async fn text(self) -> String {
        let body = self.body.collect().await.expect("the body comes whole");
        String::from_utf8_lossy(&body.to_bytes()).into_owned()
    }

    /// All messages of the body, from either kind of answer, once it has ended.
    ///
    /// # Panics
    /// When it breaks off.
    pub async fn frames(self) -> Vec<String> {
        if !self.is_stream() {
            let text = self.text().await;
            return Vec::from_iter((!text.is_empty()).then_some(text));
        }
        let (mut frames, mut events) = (Vec::new(), self.events());
        while let Some(event) = events.next().await {
            frames.extend((!event.data.is_empty()).then_some(event.data));
        }
        frames
    }
}
