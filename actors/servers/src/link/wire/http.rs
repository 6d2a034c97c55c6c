//! Servers over HTTP: Streamable HTTP first, HTTP+SSE of 2024-11-05 as the last fallback.

mod icons;
mod metadata_headers;
mod session;
mod sse_wire;
mod stream;
mod transport_detection;

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Method, StatusCode, Uri};
use http_body::Body as _;
use mgp_engine::servers::supervision::session_loss::{RefusalBody, can_retry, is_session_suspect};
use mgp_protocol::dialect::Version;
use mgp_protocol::jsonrpc::{self, Message, RequestId};
use mgp_protocol::refusal::Refusal;
use mgp_sync::Credit;
use mgp_transports::http::body::BodyError;
use mgp_transports::http::client::{ClientError, Response, read_json};
use mgp_transports::http::names::{LAST_EVENT, SESSION, VERSION};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use crate::link::{CallContext, Link, MetadataHeaders};
use crate::login::ServerClient;
use mgp_callers::Flag;
use mgp_runtime::task;
use mgp_runtime::time::monotonic_now;

use self::session::HttpSessionState;
pub(crate) use self::sse_wire::SseWire;
pub(crate) use self::transport_detection::{DetectedTransport, HttpTarget};

/// The maximum of pending notifications and answers to one server; more are dropped, as on a broken connection.
const MAX_PENDING_POSTS: u64 = 256;

/// How long the last messages may take to be sent when the connection ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A Streamable HTTP server: each message to it is a POST.
#[derive(Debug)]
pub struct HttpWire {
    client: ServerClient,
    url: Uri,
    /// Headers of every stateless request, without a session.
    stateless_headers: HeaderMap,
    /// Headers of every legacy request.
    headers: RwLock<Arc<HeaderMap>>,
    has_session: bool,
    version: OnceLock<Version>,
    pending_posts: Arc<Credit>,
    icon_fetches: Semaphore,
    /// Names of agents' headers that are forwarded.
    forwarded_headers: OnceLock<Box<[HeaderName]>>,
    /// True once the server has accepted a GET stream.
    is_get_stream_open: AtomicBool,
    session: HttpSessionState,
    closed: Flag,
}

impl HttpWire {
    /// Creates a connection to `url`; `headers` are sent with each request, `session` is the session id of the
    /// server.
    #[must_use]
    pub(crate) fn new(
        client: ServerClient,
        url: Uri,
        mut headers: HeaderMap,
        session: Option<HeaderValue>,
    ) -> Arc<Self> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        let has_session = session.is_some();
        let mut alone = headers.clone();
        alone.insert(
            VERSION,
            HeaderValue::from_static(Version::STATELESS.as_str()),
        );
        if let Some(session) = session {
            headers.insert(SESSION, session);
        }
        Arc::new(Self {
            client,
            url,
            stateless_headers: alone,
            headers: RwLock::new(Arc::new(headers)),
            has_session,
            version: OnceLock::new(),
            pending_posts: Credit::new(MAX_PENDING_POSTS),
            icon_fetches: Semaphore::new(icons::FETCHES_MAX),
            forwarded_headers: OnceLock::new(),
            is_get_stream_open: AtomicBool::new(false),
            session: HttpSessionState::default(),
            closed: Flag::default(),
        })
    }

    /// Forwards the agents' headers with these names from now on, each as often as it was sent.
    pub(in crate::link) fn has_session(&self) -> bool {
        self.has_session
    }

    pub(crate) fn set_forwarded_headers(&self, names: &[String]) {
        let names = names.iter().filter_map(|name| name.parse().ok());
        let _ = self.forwarded_headers.set(names.collect());
    }

    fn add_forwarded(&self, mut headers: HeaderMap, context: CallContext<'_>) -> HeaderMap {
        context.add_headers(
            &mut headers,
            self.forwarded_headers.get().map_or(&[], Deref::deref),
        );
        headers
    }

    /// True while the GET stream is open.
    pub(in crate::link) fn has_get_stream(&self) -> bool {
        self.is_get_stream_open.load(Ordering::Relaxed)
    }

    /// Sends this version in the header of each request from now on.
    pub(crate) fn set_version(&self, version: Version) {
        let mut headers = self.headers.write().unwrap_or_else(PoisonError::into_inner);
        let mut with = HeaderMap::clone(&headers);
        with.insert(VERSION, HeaderValue::from_static(version.as_str()));
        *headers = Arc::new(with);
        let _ = self.version.set(version);
    }

    fn headers(&self) -> HeaderMap {
        let headers = self.headers.read().unwrap_or_else(PoisonError::into_inner);
        HeaderMap::clone(&headers)
    }

    /// POSTs a legacy request and passes the response to the link.
    pub(in crate::link) async fn call(
        &self,
        link: &Arc<Link>,
        id: u64,
        frame: Bytes,
        context: CallContext<'_>,
    ) -> Result<(), Refusal> {
        let headers = self.add_forwarded(self.headers(), context);
        let response = self
            .client
            .request(Method::POST, &self.url, headers, Some(frame));
        let response = response.await.map_err(|e| unsent_refusal(link, &e))?;
        let response = self.check_status(link, Some(id), response).await?;
        if has_media_type(response.headers.get(CONTENT_TYPE), "text/event-stream") {
            return Box::pin(self.read_call_stream(link, id, response)).await;
        }
        handle_json_answer(link, id, response).await
    }

    /// POSTs a stateless request. The response belongs to this call: dropping it cancels the call, and if it
    /// breaks the call is lost.
    pub(in crate::link) async fn call_stateless(
        &self,
        link: &Arc<Link>,
        id: u64,
        frame: Bytes,
        mirror: MetadataHeaders<'_>,
        context: CallContext<'_>,
    ) -> Result<(), Refusal> {
        let headers = metadata_headers::build_headers(&self.stateless_headers, mirror)
            .map_err(|name| Refusal::BadParams(format!("{name} cannot be a header's value")))?;
        let headers = self.add_forwarded(headers, context);
        let response = self
            .client
            .request(Method::POST, &self.url, headers, Some(frame))
            .await
            .map_err(|e| unsent_refusal(link, &e))?;
        if !response.status.is_success() {
            return Err(Box::pin(self.refusal_from_response(link, response)).await);
        }
        if has_media_type(response.headers.get(CONTENT_TYPE), "text/event-stream") {
            return self.read_stateless_stream(link, id, response).await;
        }
        handle_json_answer(link, id, response).await
    }

    async fn post(&self, frame: Bytes) -> Result<Response, ClientError> {
        self.client
            .request(Method::POST, &self.url, self.headers(), Some(frame))
            .await
    }

    /// Interprets an HTTP status; returns the response if it is a success. `id` is the request in a session.
    async fn check_status(
        &self,
        link: &Arc<Link>,
        id: Option<u64>,
        response: Response,
    ) -> Result<Response, Refusal> {
        if response.status.is_success() {
            return Ok(response);
        }
        // It may probe the session, which is rare and large.
        Err(Box::pin(self.refusal_in_session(link, id, response)).await)
    }

    /// The refusal for an error status of a legacy request. The connection ends with its session.
    async fn refusal_in_session(
        &self,
        link: &Arc<Link>,
        id: Option<u64>,
        response: Response,
    ) -> Refusal {
        let status = response.status;
        if let Some(refusal) = self.login_refusal(link, status) {
            return refusal;
        }
        let refused_at = monotonic_now();
        let hint = self.client.sign_in_hint(status);
        let error = ErrorBody::read(link, response).await;
        let body = if error.is_answer_to(link, id) {
            RefusalBody::Response
        } else {
            RefusalBody::Other
        };
        let code = status.as_u16();
        if self.has_session
            && is_session_suspect(code)
            && self.check_session_ended(link, refused_at).await
        {
            link.report_broken(format!("its session has ended (HTTP {code})"));
            if can_retry(code, body) {
                return link.unsent_refusal("its session has ended");
            }
        }
        error.into_refusal(link, status, hint)
    }

    /// The refusal for an error status. If the server requires a login, the connection ends until a person has
    /// signed in.
    async fn refusal_from_response(&self, link: &Arc<Link>, response: Response) -> Refusal {
        let status = response.status;
        if let Some(refusal) = self.login_refusal(link, status) {
            return refusal;
        }
        let hint = self.client.sign_in_hint(status);
        let body = ErrorBody::read(link, response).await;
        body.into_refusal(link, status, hint)
    }

    fn login_refusal(&self, link: &Arc<Link>, status: StatusCode) -> Option<Refusal> {
        let why = self
            .client
            .park_reason()
            .filter(|_| status == StatusCode::UNAUTHORIZED)?;
        link.report_broken(why.clone());
        Some(link.unsent_refusal(&why))
    }

    /// POSTs a message without an answer.
    pub(in crate::link) fn send_message(self: &Arc<Self>, link: &Arc<Link>, frame: Bytes) {
        let Some(charge) = self.pending_posts.try_take(1) else {
            link.log
                .push_note("a notification was dropped: too many are under way");
            return;
        };
        let (wire, link) = (self.clone(), link.clone());
        task::spawn_detached("link.send", async move {
            let _charge = charge;
            let sent = tokio::select! {
                sent = wire.post(frame) => sent,
                () = wait_after_close(&wire.closed) => return,
            };
            match sent {
                Ok(response) if response.status.is_success() => response.body.discard_rest(),
                Ok(response) => link.log.push_note(&format!(
                    "a notification was answered HTTP {}",
                    response.status
                )),
                Err(error) => link
                    .log
                    .push_note(&format!("a notification failed: {error}")),
            }
        });
    }

    /// POSTs a message without an answer, and waits until it is accepted.
    ///
    /// # Errors
    /// The reason why it was not accepted, as text.
    pub(crate) async fn post_and_wait(&self, frame: Bytes) -> Result<(), String> {
        let response = self.post(frame).await.map_err(|e| e.to_string())?;
        if response.status.is_success() {
            response.body.discard_rest();
            Ok(())
        } else {
            Err(format!("HTTP {}", response.status))
        }
    }

    /// Ends the streams; the session is deleted by [`Self::delete`].
    pub(in crate::link) fn close(&self) {
        self.closed.raise();
    }

    /// Ends the session at the server (MCP-024). Servers without DELETE are ignored.
    pub(crate) async fn delete(&self) {
        if self.has_session && !self.is_session_ended() {
            let _ = self
                .client
                .request(Method::DELETE, &self.url, self.headers(), None)
                .await;
        }
    }
}

/// Resolves some time after the connection has ended, so that an unresponsive server holds no resources.
async fn wait_after_close(closed: &Flag) {
    closed.wait_until_raised().await;
    tokio::time::sleep(CLOSE_TIMEOUT).await;
}

/// Handles a response that is one JSON message.
async fn handle_json_answer(link: &Arc<Link>, id: u64, response: Response) -> Result<(), Refusal> {
    link.wait_for_budget(id, response.body.size_hint().exact())
        .await;
    let body = match read_json(response.body, link.limits.max_frame).await {
        Err(BodyError::TooLarge { .. }) => {
            link.handle_oversized(&[], Some(id));
            return Ok(());
        }
        body => body.map_err(|e| link.lost_refusal(&e.to_string()))?,
    };
    link.receive(&body, Some(id));
    if link.is_pending(id) {
        return Err(
            link.invalid_answer_refusal("its HTTP response contains no answer to the request")
        );
    }
    Ok(())
}

/// The error object in the body of an error status. A 401 or 403 comes from what protects the server, so its
/// body is ignored.
pub(in crate::link) async fn read_error_object(
    link: &Link,
    response: Response,
) -> Option<Box<RawValue>> {
    ErrorBody::read(link, response).await.error
}

/// The body and headers of an error status.
#[derive(Default)]
struct ErrorBody {
    id: Option<RequestId>,
    error: Option<Box<RawValue>>,
    /// The first line of a text body.
    text: Option<String>,
    /// `Retry-After`, as sent.
    retry_after: Option<String>,
}

impl ErrorBody {
    async fn read(link: &Link, response: Response) -> Self {
        let guarded = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
        if guarded.contains(&response.status) {
            return Self::default();
        }
        let retry_after = response.headers.get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok());
        let retry_after = retry_after.map(|value| value.chars().take(40).collect());
        let is_page = has_media_type(response.headers.get(CONTENT_TYPE), "text/html");
        let body = read_json(response.body, link.limits.max_frame).await;
        let body = body.unwrap_or_default();
        match jsonrpc::parse(&body) {
            Ok(Message::Response {
                id,
                outcome: Err(error),
            }) => Self {
                id,
                error: Some(error.to_owned()),
                text: None,
                retry_after,
            },
            Ok(_) | Err(_) => Self {
                text: first_line(&body).filter(|_| !is_page),
                retry_after,
                ..Self::default()
            },
        }
    }

    /// True if it is an error with the id of this request.
    fn is_answer_to(&self, link: &Link, id: Option<u64>) -> bool {
        let answered = self.id.as_ref().and_then(|id| link.find_call(id));
        self.error.is_some() && answered.is_some() && answered == id
    }

    fn into_refusal(self, link: &Link, status: StatusCode, hint: Option<String>) -> Refusal {
        if let Some(error) = self.error {
            return Refusal::Peer(error);
        }
        let text = self.text.map(|text| format!(": {text}"));
        let answer = format!("HTTP {status}{}", text.unwrap_or_default());
        let server = &link.server;
        // Requests with these two statuses are not executed (RFC 9110, section 15.5.14; RFC 6585, section 4).
        match status {
            StatusCode::PAYLOAD_TOO_LARGE => Refusal::BadParams(format!(
                "server {server} takes no request as large as this one, and did not execute it ({answer})"
            )),
            StatusCode::TOO_MANY_REQUESTS => {
                let after = self
                    .retry_after
                    .map(|after| format!("; Retry-After: {after}"));
                Refusal::Overloaded {
                    what: format!(
                        "the number of requests that server {server} takes ({answer}{}; not executed)",
                        after.unwrap_or_default()
                    ),
                }
            }
            status => status_refusal(link, status, &answer, hint),
        }
    }
}

/// The first line of a text, truncated.
fn first_line(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body.get(..1000).unwrap_or(body));
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let line: String = line.chars().filter(|c| !c.is_control()).collect();
    Some(line.chars().take(200).collect())
}

/// The refusal for a status without an error object. Some statuses are sent by proxies and mean that the server
/// is unreachable.
pub(in crate::link) fn bare_status_refusal(
    link: &Link,
    status: StatusCode,
    hint: Option<String>,
) -> Refusal {
    status_refusal(link, status, &format!("HTTP {status}"), hint)
}

fn status_refusal(link: &Link, status: StatusCode, answer: &str, hint: Option<String>) -> Refusal {
    let guarded = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let headers = || guarded.then(|| "; check `headers` of this server in mgp.toml".to_owned());
    let hint = hint.or_else(headers).unwrap_or_default();
    let message = format!("it answered {answer}{hint}");
    let gone = [
        StatusCode::BAD_GATEWAY,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
    ];
    // Also for 401 and 403: no status proves that the call was not executed.
    if gone.contains(&status) {
        link.lost_refusal(&message)
    } else {
        link.invalid_answer_refusal(&message)
    }
}

/// The refusal if there was no connection: the server has not read the request.
pub(in crate::link) fn unsent_refusal(link: &Arc<Link>, error: &ClientError) -> Refusal {
    let lost = broken_refusal(link, error);
    match error {
        ClientError::Dial(why) => link.unreachable_refusal(&why.to_string()),
        ClientError::BadUrl { .. }
        | ClientError::Redirected { .. }
        | ClientError::Closed { .. }
        | ClientError::NotHttp { .. } => lost,
    }
}

fn broken_refusal(link: &Arc<Link>, error: &ClientError) -> Refusal {
    let why = error.to_string();
    if matches!(error, ClientError::Dial(_)) {
        link.report_broken(why.clone());
    }
    link.lost_refusal(&why)
}

pub(in crate::link) fn has_media_type(value: Option<&HeaderValue>, kind: &str) -> bool {
    value.and_then(|v| v.to_str().ok()).is_some_and(|v| {
        // Duplicate headers are joined with a comma.
        v.split([';', ','])
            .next()
            .unwrap_or("")
            .trim()
            .eq_ignore_ascii_case(kind)
    })
}
