//! MCP-lite over HTTP (§4): each message is a POST, answered with JSON or an event stream.

mod events;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode, Uri};
use mgp_json::quote;
use mgp_protocol::jsonrpc::{self, Message, RequestId};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::ids::new_session_id;
use mgp_transports::http::body::BodyError;
use mgp_transports::http::client::{ClientError, Response, parse_url, read_json};
use serde_json::value::RawValue;

use super::LiteCall;
use super::partials::PartialReporter;
use crate::link::Link;
use crate::link::wire::http::{
    bare_status_refusal, has_media_type, read_error_object, unsent_refusal,
};
use crate::login::ServerClient;

/// The paths of the list and of calls: those of §4.2, then those of the examples.
const LIST_PATHS: [&str; 2] = ["listtools", "tools"];
const CALL_PATHS: [&str; 3] = ["calltools", "rpc", "calltool"];

/// The HTTP connection to one server.
#[derive(Debug)]
pub(super) struct LiteHttp {
    client: ServerClient,
    /// The URL up to the last slash.
    base: String,
    /// The query of the URL, from `?` on.
    query: String,
    /// Which of [`LIST_PATHS`] and [`CALL_PATHS`] the server answers.
    list_path_index: AtomicUsize,
    call_path_index: AtomicUsize,
}

impl LiteHttp {
    /// Creates a connection to the endpoints below this URL.
    ///
    /// # Errors
    /// Why the URL is invalid, as text.
    pub(super) fn new(client: ServerClient, url: &str) -> Result<Self, String> {
        let uri = parse_url(url).map_err(|why| why.to_string())?;
        let authority = uri.authority().map_or("", |it| it.as_str());
        let scheme = uri.scheme_str().unwrap_or("http");
        let path = uri.path().trim_end_matches('/');
        Ok(Self {
            client,
            base: format!("{scheme}://{authority}{path}/"),
            query: uri.query().map(|it| format!("?{it}")).unwrap_or_default(),
            list_path_index: AtomicUsize::new(0),
            call_path_index: AtomicUsize::new(0),
        })
    }

    /// The reason for parking the server until a person has signed in.
    pub(super) fn park_reason(&self) -> Option<String> {
        self.client.park_reason()
    }

    /// The list of tools, as sent.
    pub(super) async fn list(
        &self,
        link: &Arc<Link>,
        headers: &HeaderMap,
    ) -> Result<Bytes, Refusal> {
        let headers = add_accept(headers, false);
        let body = Bytes::from_static(b"{}");
        let found =
            self.post_to_known_path(link, &LIST_PATHS, &self.list_path_index, &headers, &body);
        let body = read_body(link, found.await?).await?;
        match jsonrpc::parse(&body) {
            // Some servers answer all endpoints in the format of calls.
            Ok(Message::Response { outcome, .. }) => outcome
                .map(|list| body.slice_ref(list.get().as_bytes()))
                .map_err(|error| Refusal::Peer(error.to_owned())),
            Ok(_) | Err(_) => Ok(body),
        }
    }

    /// Calls a tool; the result may be any JSON.
    pub(super) async fn call(
        &self,
        link: &Arc<Link>,
        request: LiteCall<'_>,
        partials: &mut PartialReporter<'_>,
    ) -> Result<String, Refusal> {
        let id = quote(new_session_id().as_str());
        let params = request.render_params();
        let body = Bytes::from(jsonrpc::request(&id, "tools/call", Some(&params)));
        let headers = add_accept(request.headers, partials.is_wanted());
        let found =
            self.post_to_known_path(link, &CALL_PATHS, &self.call_path_index, &headers, &body);
        let response = found.await?;
        if has_media_type(response.headers.get(CONTENT_TYPE), "text/event-stream") {
            return events::read_result(link, response, partials).await;
        }
        let body = read_body(link, response).await?;
        parse_answer(link, &id, &body)
    }

    /// POSTs to the first of these paths that exists, starting with the one found last. A missing path has
    /// executed nothing.
    async fn post_to_known_path(
        &self,
        link: &Arc<Link>,
        paths: &[&str],
        last: &AtomicUsize,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<Response, Refusal> {
        let first = last.load(Ordering::Relaxed);
        let mut missing = None;
        for step in 0..paths.len() {
            let at = (first + step) % paths.len();
            let url = self
                .endpoint_uri(paths[at])
                .map_err(|why| link.invalid_answer_refusal(&why))?;
            let sent = self
                .client
                .request(Method::POST, &url, headers.clone(), Some(body.clone()));
            let response = sent
                .await
                .map_err(|error| self.unsent_refusal(link, &error))?;
            if response.status.is_success() {
                last.store(at, Ordering::Relaxed);
                return Ok(response);
            }
            let status = response.status;
            let error = read_error_object(link, response).await;
            let gone = [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED];
            if error.is_some() || !gone.contains(&status) {
                return Err(self.refusal_from_error(link, status, error));
            }
            missing.get_or_insert(status);
        }
        let status = missing.unwrap_or(StatusCode::NOT_FOUND);
        let paths = paths.join(", ");
        Err(link.invalid_answer_refusal(&format!(
            "it answered HTTP {status} below its `url` to each of {paths}; is `url` its base, as in \
             https://example.com/mcp-lite/v1/ ?"
        )))
    }

    fn endpoint_uri(&self, path: &str) -> Result<Uri, String> {
        let url = format!("{}{path}{}", self.base, self.query);
        url.parse().map_err(|why| format!("its `url`: {why}"))
    }

    /// The refusal if there was no connection: nothing was sent. The link ends, unless calls hold promises,
    /// which outlive a restart of the server.
    fn unsent_refusal(&self, link: &Arc<Link>, error: &ClientError) -> Refusal {
        match (error, link.has_promises()) {
            (ClientError::Dial(why), true) => link.unreachable_refusal(&why.to_string()),
            _ => unsent_refusal(link, error),
        }
    }

    fn refusal_from_error(
        &self,
        link: &Arc<Link>,
        status: StatusCode,
        error: Option<Box<RawValue>>,
    ) -> Refusal {
        if let (StatusCode::UNAUTHORIZED, Some(why)) = (status, self.client.park_reason()) {
            link.report_broken(why.clone());
            return link.unsent_refusal(&why);
        }
        match error {
            Some(error) => Refusal::Peer(error),
            None => bare_status_refusal(link, status, self.client.sign_in_hint(status)),
        }
    }
}

/// Adds `Accept`; `stream` requests partial messages.
fn add_accept(headers: &HeaderMap, stream: bool) -> HeaderMap {
    let mut headers = headers.clone();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // A server that streams gives no promise, so a stream is requested only if partial messages have a reader.
    let accept = if stream {
        "text/event-stream, application/json"
    } else {
        "application/json"
    };
    headers.insert(ACCEPT, HeaderValue::from_static(accept));
    headers
}

async fn read_body(link: &Link, response: Response) -> Result<Bytes, Refusal> {
    match read_json(response.body, link.limits.max_frame).await {
        Err(BodyError::TooLarge { .. }) => Err(link.too_large_refusal()),
        body => body.map_err(|why| link.lost_refusal(&why.to_string())),
    }
}

/// The result in an answer to the request with this id.
fn parse_answer(link: &Link, id: &str, body: &[u8]) -> Result<String, Refusal> {
    let (answer_id, outcome) = match jsonrpc::parse(body) {
        Ok(Message::Response { id, outcome }) => (id, outcome),
        Ok(_) => {
            return Err(link.invalid_answer_refusal("it answered with a message that is no answer"));
        }
        Err(why) => {
            return Err(link.invalid_answer_refusal(&format!("its answer cannot be read: {why}")));
        }
    };
    match (answer_id, outcome) {
        (None, Err(error)) => Err(Refusal::Peer(error.to_owned())),
        (Some(answer_id), outcome) if RequestId::from_json(id).as_ref() == Some(&answer_id) => {
            outcome
                .map(|result| result.get().to_owned())
                .map_err(|error| Refusal::Peer(error.to_owned()))
        }
        _ => {
            Err(link.invalid_answer_refusal("it answered another request than the one it was sent"))
        }
    }
}
