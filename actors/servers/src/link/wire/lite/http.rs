//! MCP-lite over HTTP (§4): each message is a POST, answered with JSON or with an event stream.

mod events;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode, Uri};
use mgp_protocol::jsonrpc::{self, Message, RequestId};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::quoted;
use mgp_runtime::ids::new_id;
use mgp_transports::http::body::BodyError;
use mgp_transports::http::client::{ClientError, Response, parse_url, read_json};
use serde_json::value::RawValue;

use super::ForeignCall;
use super::partials::LitePartials;
use crate::link::Link;
use crate::link::wire::http::{is, said, unsent, without_words};
use crate::login::ServerClient;

/// The paths of the list and of calls: those of §4.2, then those of the examples.
const LISTS: [&str; 2] = ["listtools", "tools"];
const CALLS: [&str; 3] = ["calltools", "rpc", "calltool"];

/// The way to one server.
#[derive(Debug)]
pub(super) struct LiteHttp {
    client: ServerClient,
    /// Up to the last slash.
    base: String,
    /// What stands behind the path, from `?` on.
    query: String,
    /// Which of [`LISTS`] and of [`CALLS`] the server answers.
    list_at: AtomicUsize,
    call_at: AtomicUsize,
}

impl LiteHttp {
    /// The way to the endpoints below this URL.
    ///
    /// # Errors
    /// Why it is no such URL, in words.
    pub(super) fn new(client: ServerClient, url: &str) -> Result<Self, String> {
        let uri = parse_url(url).map_err(|why| why.to_string())?;
        let authority = uri.authority().map_or("", |it| it.as_str());
        let scheme = uri.scheme_str().unwrap_or("http");
        let path = uri.path().trim_end_matches('/');
        Ok(Self {
            client,
            base: format!("{scheme}://{authority}{path}/"),
            query: uri.query().map(|it| format!("?{it}")).unwrap_or_default(),
            list_at: AtomicUsize::new(0),
            call_at: AtomicUsize::new(0),
        })
    }

    /// Why the server takes no calls before a person has signed in.
    pub(super) fn parked(&self) -> Option<String> {
        self.client.parked()
    }

    /// The list of tools, as it is.
    pub(super) async fn list(
        &self,
        link: &Arc<Link>,
        headers: &HeaderMap,
    ) -> Result<Bytes, Refusal> {
        let headers = accepting(headers, false);
        let body = Bytes::from_static(b"{}");
        let found = self.found(link, &LISTS, &self.list_at, &headers, &body);
        let body = whole(link, found.await?).await?;
        match jsonrpc::parse(&body) {
            // Some answer all their endpoints in the words of the one for calls.
            Ok(Message::Response { outcome, .. }) => outcome
                .map(|list| body.slice_ref(list.get().as_bytes()))
                .map_err(|error| Refusal::Peer(error.to_owned())),
            Ok(_) | Err(_) => Ok(body),
        }
    }

    /// Calls a tool; the result, which may be any JSON.
    pub(super) async fn call(
        &self,
        link: &Arc<Link>,
        request: ForeignCall<'_>,
        partials: &mut LitePartials<'_>,
    ) -> Result<String, Refusal> {
        let id = quoted(new_id().as_str());
        let params = request.params();
        let body = Bytes::from(jsonrpc::request(&id, "tools/call", Some(&params)));
        let headers = accepting(request.headers, partials.wanted());
        let found = self.found(link, &CALLS, &self.call_at, &headers, &body);
        let response = found.await?;
        if is(response.headers.get(CONTENT_TYPE), "text/event-stream") {
            return events::result(link, response, partials).await;
        }
        let body = whole(link, response).await?;
        answered(link, &id, &body)
    }

    /// POSTs to the first of these paths that the server has, beginning with the one that was found last. A path
    /// that is not there has carried nothing out.
    async fn found(
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
            let url = self.at(paths[at]).map_err(|why| link.faulty(&why))?;
            let sent = self
                .client
                .request(Method::POST, &url, headers.clone(), Some(body.clone()));
            let response = sent.await.map_err(|error| self.unsent(link, &error))?;
            if response.status.is_success() {
                last.store(at, Ordering::Relaxed);
                return Ok(response);
            }
            let status = response.status;
            let error = said(link, response).await;
            let gone = [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED];
            if error.is_some() || !gone.contains(&status) {
                return Err(self.refused(link, status, error));
            }
            missing.get_or_insert(status);
        }
        let status = missing.unwrap_or(StatusCode::NOT_FOUND);
        let paths = paths.join(", ");
        Err(link.faulty(&format!(
            "it answered HTTP {status} below its `url` to each of {paths}; is `url` its base, as in \
             https://example.com/mcp-lite/v1/ ?"
        )))
    }

    fn at(&self, path: &str) -> Result<Uri, String> {
        let url = format!("{}{path}{}", self.base, self.query);
        url.parse().map_err(|why| format!("its `url`: {why}"))
    }

    /// Without a connection nothing was asked. The link is over then, unless calls hold promises, which outlive
    /// a restart of the server.
    fn unsent(&self, link: &Arc<Link>, error: &ClientError) -> Refusal {
        match (error, link.holds_promises()) {
            (ClientError::Dial(why), true) => link.unreached(&why.to_string()),
            _ => unsent(link, error),
        }
    }

    fn refused(
        &self,
        link: &Arc<Link>,
        status: StatusCode,
        error: Option<Box<RawValue>>,
    ) -> Refusal {
        if let (StatusCode::UNAUTHORIZED, Some(why)) = (status, self.client.parked()) {
            link.breaks(why.clone());
            return link.untaken(&why);
        }
        match error {
            Some(error) => Refusal::Peer(error),
            None => without_words(link, status, self.client.hint(status)),
        }
    }
}

/// The headers of a request; `stream` asks for partial messages.
fn accepting(headers: &HeaderMap, stream: bool) -> HeaderMap {
    let mut headers = headers.clone();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Who is asked for a stream gives no promise; so only where somebody reads what comes before the result.
    let accept = match stream {
        true => "text/event-stream, application/json",
        false => "application/json",
    };
    headers.insert(ACCEPT, HeaderValue::from_static(accept));
    headers
}

async fn whole(link: &Link, response: Response) -> Result<Bytes, Refusal> {
    match read_json(response.body, link.limits.max_frame).await {
        Err(BodyError::TooLarge { .. }) => Err(link.too_large()),
        body => body.map_err(|why| link.lost(&why.to_string())),
    }
}

/// The result in an answer to the request of this id.
fn answered(link: &Link, id: &str, body: &[u8]) -> Result<String, Refusal> {
    let (said, outcome) = match jsonrpc::parse(body) {
        Ok(Message::Response { id, outcome }) => (id, outcome),
        Ok(_) => return Err(link.faulty("it answered with a message that is no answer")),
        Err(why) => return Err(link.faulty(&format!("its answer cannot be read: {why}"))),
    };
    match (said, outcome) {
        (None, Err(error)) => Err(Refusal::Peer(error.to_owned())),
        (Some(said), outcome) if RequestId::from_json(id).as_ref() == Some(&said) => outcome
            .map(|result| result.get().to_owned())
            .map_err(|error| Refusal::Peer(error.to_owned())),
        _ => Err(link.faulty("it answered another request than the one it was sent")),
    }
}
