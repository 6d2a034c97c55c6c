//! The HTTP endpoint: Streamable HTTP for agents, in both protocol families.
//!
//! The path `/mcp` shows all servers; `/mcp/<server>` shows one server under its own names; `/mcp/p/<set>` shows the
//! servers and tools of a set. MCP-lite is below `/mcp-lite/v1`.

mod auth;
mod broker;
mod console;
mod headers;
mod http_sse;
mod icons;
mod lite;
mod metrics;
mod post;
mod refusal_dialect;
mod responses;
mod server_card;
mod stateless;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use mgp_engine::tools::catalog::{CatalogView, ICONS_PATH};
use mgp_protocol::ids::{ServerId, SetName};
use mgp_protocol::lite::LiteEndpoint;
use mgp_transports::http::body::{ReplyBody, RequestBody};
use mgp_transports::http::server::HttpPeer;
use mgp_transports::{ResponseBudget, sse};

use self::headers::{LAST_EVENT, SESSION};
use self::lite::openapi::{self, ApiPath};
use self::responses::{
    failure_response, refusal_response, text_response, unknown_session_response,
};
use crate::console::Console;
use crate::endpoint_context::EndpointContext;
use crate::lite::{Lite, LiteCaller};
use crate::oauth::{SET_PREFIX, WELL_KNOWN};
use crate::session::{Session, Sessions};
use mgp_callers::Credential;
use mgp_callers::request::{identity, panic_refusal};
use mgp_runtime::task;

pub use self::auth::{Auth, Tokens};
pub(crate) use self::auth::{AuthError, AuthRequest};
pub(crate) use self::headers::read_trace;
pub use self::http_sse::HttpSse;
pub use self::metrics::{MetricsPage, MetricsPath, ResponseCounts};
pub(crate) use self::post::BODY_DEADLINE;
pub use self::server_card::ServerCard;

/// The interval of comments, which keep idle streams open through proxies, and detect a dead client within
/// a minute.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);

/// The path of the kernel's metrics.
const METRICS_PATH: &str = "/metrics";

/// The HTTP endpoint of a kernel.
#[derive(Debug)]
pub struct HttpEndpoint {
    /// The context shared by all endpoints.
    pub endpoint: EndpointContext,
    /// Legacy sessions.
    pub sessions: Arc<Sessions>,
    /// Connections of 2024-11-05 clients.
    pub http_sse: Arc<HttpSse>,
    /// Authentication of callers.
    pub auth: Auth,
    /// The console and its signed-in browsers.
    pub console: Arc<Console>,
    /// How answers are sent.
    pub response_options: ResponseOptions,
    /// True if it accepts TLS only.
    pub secure: bool,
    /// MCP-lite, if it is enabled.
    pub lite: Option<Arc<Lite>>,
    /// Metrics of the kernel, if they are served here.
    pub metrics: Option<MetricsPath>,
    /// Scheme and authority as clients know them, if the operator said so; by default those of the request.
    pub address: Option<String>,
    /// The card of this gateway, if it is published.
    pub card: Option<ServerCard>,
    /// Counts of the responses by status.
    pub counts: Arc<ResponseCounts>,
}

/// How answers are sent.
#[derive(Debug, Clone, Copy)]
pub struct ResponseOptions {
    /// A call without an answer for this long gets a stream, which can be
    /// resumed.
    pub stream_after: Duration,
    /// The stream of a call is closed after this time, and the client reconnects for the answer
    /// (SEP-1699); `None` keeps it open.
    pub poll_after: Option<Duration>,
}

impl HttpEndpoint {
    /// Answers one HTTP request; with status 500 if the handler panics.
    pub(crate) async fn handle(
        self: Arc<Self>,
        request: Request<RequestBody>,
        peer: HttpPeer,
    ) -> Response<ReplyBody> {
        let counts = self.counts.clone();
        let answered = task::catch_panic("http.respond", self.route(request, peer)).await;
        let answer = answered.unwrap_or_else(|broken| failure_response(&panic_refusal(&broken)));
        counts.count(answer.status());
        answer
    }

    /// Counts a response that another endpoint sent at this address.
    pub(crate) fn count_response(&self, status: StatusCode) {
        self.counts.count(status);
    }

    async fn route(
        self: Arc<Self>,
        request: Request<RequestBody>,
        peer: HttpPeer,
    ) -> Response<ReplyBody> {
        if request.uri().path() == "/healthz" {
            return text_response(StatusCode::OK, "ok\n");
        }
        if let Some(metrics) = self
            .metrics
            .as_ref()
            .filter(|_| request.uri().path() == METRICS_PATH)
        {
            let from = peer.addr.ip();
            return metrics
                .handle(request.method(), request.headers(), from)
                .await;
        }
        if let Some(path) = request.uri().path().strip_prefix(WELL_KNOWN) {
            return self.resource_metadata(request.method(), request.headers(), path);
        }
        if let Some(broker) = self.auth.broker()
            && broker::is_broker_path(broker, request.uri().path())
        {
            // Boxed because it is large, and would make every other request larger.
            return Box::pin(broker::handle(&self, broker, request, &peer)).await;
        }
        let card = self.card.as_ref();
        if let Some(answer) = card.and_then(|card| card.answer(&request, self.secure)) {
            return answer;
        }
        if let Some(name) = request.uri().path().strip_prefix(ICONS_PATH) {
            return self.answer_icon(request.method(), name).await;
        }
        if self.console.is_open() && console::is_console_path(request.uri().path()) {
            return Box::pin(console::handle(&self, request)).await;
        }
        let offered = |at: &(EndpointPath, _)| {
            self.lite.is_some() || !matches!(at.0, EndpointPath::Lite(_) | EndpointPath::Api(_))
        };
        let Some((way, view)) = parse_path(request.uri().path()).filter(offered) else {
            return refusal_response(StatusCode::NOT_FOUND, &self.describe_paths());
        };
        let pass = if console::has_page_key(request.headers()) {
            match console::authenticate(&self.console, &request, way, &view) {
                Ok(pass) => pass,
                Err(unwelcome) => return unwelcome.into_response(),
            }
        } else {
            let shown = peer.certificate.as_deref();
            let known = self
                .auth
                .authenticate(AuthRequest::new(&request, shown), &view);
            match known.await {
                Ok(pass) => pass,
                Err(unwelcome) => {
                    let refused = self.auth.to_refusal(&unwelcome, request.headers(), &view);
                    let bodies = &self.endpoint.message_budgets;
                    let declared =
                        Box::pin(refusal_dialect::refusal_dialect(request, bodies)).await;
                    return unwelcome.to_dialect(declared, refused);
                }
            }
        };
        peer.auth.mark_authenticated(pass.agent.as_str());
        self.serve_with_credential(way, request, view, pass).await
    }

    /// Scheme and authority of this endpoint as the client knows them: behind a proxy those of the request are others.
    fn client_address(&self, uri: &Uri, headers: &HeaderMap) -> String {
        let of_request = || request_address(uri, headers, self.secure);
        self.address.clone().unwrap_or_else(of_request)
    }

    /// The response for an unknown path.
    fn describe_paths(&self) -> String {
        let shown = |is: bool, message| if is { message } else { "" };
        format!(
            "no such path; MCP is at /mcp, /mcp/<server> and /mcp/p/<set>, for old clients at /sse{}{}",
            shown(self.lite.is_some(), "; MCP-lite is below /mcp-lite/v1"),
            shown(self.console.is_open(), "; the console is at /"),
        )
    }

    /// Handles a request with a valid credential, until the credential ends.
    async fn serve_with_credential(
        self: Arc<Self>,
        way: EndpointPath,
        request: Request<RequestBody>,
        view: CatalogView,
        pass: Credential,
    ) -> Response<ReplyBody> {
        let principal = identity(&pass.agent, pass.is_operator(), &view, &pass.groups);
        if !self.endpoint.routes.is_view_known(&view, &principal) {
            return refusal_response(StatusCode::NOT_FOUND, &unknown_endpoint_message(&view));
        }
        let budget = self.endpoint.directory.responses.budget(&pass.agent);
        if budget.is_full() && *request.method() == Method::POST {
            return responses::overloaded_response(None, &backpressure_message(&budget));
        }
        let entering = pin!(self.clone().dispatch(way, request, view, &pass));
        let entered = run_until_credential_ends(&pass, entering).await;
        let mut response = entered.unwrap_or_else(|| self.reject_ended_credential(&pass));
        response.body_mut().count_unread(&budget);
        response
    }

    /// Protected-resource metadata (RFC 9728), without authentication: of one endpoint by its path,
    /// otherwise of `/mcp`. Does not reveal which servers exist.
    fn resource_metadata(
        &self,
        method: &Method,
        headers: &http::HeaderMap,
        path: &str,
    ) -> Response<ReplyBody> {
        if *method != Method::GET {
            return method_not_allowed("GET");
        }
        let view = match parse_path(path) {
            Some((EndpointPath::Streamable, view)) => Some(view),
            Some((
                EndpointPath::Sse
                | EndpointPath::SseMessages
                | EndpointPath::Lite(_)
                | EndpointPath::Api(_),
                _,
            )) => None,
            None => path
                .trim_matches('/')
                .is_empty()
                .then_some(CatalogView::All),
        };
        match view.and_then(|view| self.auth.resource_metadata(headers, &view)) {
            Some(metadata) => responses::json_response(StatusCode::OK, ReplyBody::full(metadata)),
            None => refusal_response(StatusCode::NOT_FOUND, "no such resource"),
        }
    }

    async fn dispatch(
        self: Arc<Self>,
        way: EndpointPath,
        request: Request<RequestBody>,
        view: CatalogView,
        pass: &Credential,
    ) -> Response<ReplyBody> {
        match (way, request.method()) {
            (EndpointPath::Streamable, &Method::POST) => {
                post::handle_post(&self, request, view, pass).await
            }
            (EndpointPath::Streamable, _) if headers::is_stateless(request.headers()) => {
                method_not_allowed("POST")
            }
            (EndpointPath::Streamable, &Method::GET) => self.handle_get(&request, &view, pass),
            (EndpointPath::Streamable, &Method::DELETE) => {
                self.handle_delete(&request, &view, pass)
            }
            (EndpointPath::Streamable, _) => method_not_allowed("GET, POST, DELETE"),
            (EndpointPath::Sse, &Method::GET) => self.http_sse.open(&self, view, pass),
            (EndpointPath::Sse, _) => method_not_allowed("GET"),
            (EndpointPath::SseMessages, &Method::POST) => {
                self.http_sse.post(&self, request, pass).await
            }
            (EndpointPath::Lite(endpoint), &Method::POST) => match &self.lite {
                Some(lite) => {
                    let caller = LiteCaller::new(pass, view);
                    lite::handle_post((&self, lite), endpoint, request, caller).await
                }
                None => empty_response(StatusCode::NOT_FOUND),
            },
            (EndpointPath::Api(meant), _) => match &self.lite {
                Some(lite) => {
                    let caller = LiteCaller::new(pass, view);
                    Box::pin(openapi::handle((&self, lite), meant, request, caller)).await
                }
                None => empty_response(StatusCode::NOT_FOUND),
            },
            (EndpointPath::SseMessages | EndpointPath::Lite(_), _) => method_not_allowed("POST"),
        }
    }

    /// Rejects a request whose credential ended while it was in flight. Sessions that the request opened
    /// meanwhile are closed here.
    pub(crate) fn reject_ended_credential(&self, pass: &Credential) -> Response<ReplyBody> {
        if pass.is_operator() {
            // The operator's other connections are at the socket, and are not affected.
            self.sessions.close_agent_sessions(&pass.agent);
        } else if pass.is_revoked() {
            self.sessions.close_agent_sessions(&pass.agent);
            self.endpoint.directory.disconnect_agent(&pass.agent);
        }
        let message = "the credentials expired or were revoked during the request";
        auth::AuthError::Invalid(message.into()).to_response(None)
    }

    /// Opens the session's standing stream, or resumes a stream.
    fn handle_get(
        &self,
        request: &Request<RequestBody>,
        view: &CatalogView,
        pass: &Credential,
    ) -> Response<ReplyBody> {
        if !headers::accepts_events(request.headers()) {
            return refusal_response(
                StatusCode::NOT_ACCEPTABLE,
                "a GET opens an event stream: send `Accept: text/event-stream`",
            );
        }
        let session = match self.find_session(request, view, pass) {
            Ok(session) => session,
            Err(response) => return *response,
        };
        let last = request.headers().get(LAST_EVENT);
        let stream = match last.and_then(|v| v.to_str().ok()?.trim().parse().ok()) {
            Some(after) => session.streams.resume(after),
            None if last.is_some() => session.streams.resume(u64::MAX),
            None => session
                .streams
                .open_get(session.caller.version.has_stream_priming()),
        };
        stream_response(event_stream_body(&session, stream).mark_long_lived())
    }

    fn handle_delete(
        &self,
        request: &Request<RequestBody>,
        view: &CatalogView,
        pass: &Credential,
    ) -> Response<ReplyBody> {
        match self.find_session(request, view, pass) {
            Ok(session) => {
                self.sessions.close(&session.id);
                empty_response(StatusCode::NO_CONTENT)
            }
            Err(response) => *response,
        }
    }

    /// The session that a request names; one of another agent or another view does not exist.
    fn find_session(
        &self,
        request: &Request<RequestBody>,
        view: &CatalogView,
        pass: &Credential,
    ) -> Result<Arc<Session>, Box<Response<ReplyBody>>> {
        let Some(id) = request.headers().get(SESSION) else {
            return Err(Box::new(refusal_response(
                StatusCode::BAD_REQUEST,
                "`Mcp-Session-Id` is missing; `initialize` gives one",
            )));
        };
        let session = id
            .to_str()
            .ok()
            .and_then(|id| self.sessions.get(id))
            .filter(|s| s.caller.agent == pass.agent && s.caller.view == *view)
            .filter(|s| s.caller.operator == pass.is_operator())
            // A token with other groups opens a session of its own.
            .filter(|s| s.caller.groups == pass.groups)
            .ok_or_else(|| Box::new(unknown_session_response()))?;
        headers::check_version(request.headers(), session.caller.version)
            .map_err(|message| Box::new(refusal_response(StatusCode::BAD_REQUEST, &message)))?;
        session.touch();
        Ok(session)
    }
}

/// The error for an agent whose unread responses exceed its share.
pub(crate) fn backpressure_message(budget: &ResponseBudget) -> String {
    format!(
        "responses that this agent has not read take the {} MiB they may; read them, or close their connections, and try again",
        budget.limit() >> 20
    )
}

/// Runs a request, whose response body ends with the credential; `None` if the credential ended before.
pub(crate) async fn run_until_credential_ends(
    pass: &Credential,
    entering: Pin<&mut impl Future<Output = Response<ReplyBody>>>,
) -> Option<Response<ReplyBody>> {
    if pass.is_permanent() {
        return Some(entering.await);
    }
    let mut response = tokio::select! {
        biased;
        () = pass.clone().wait_until_ended() => return None,
        response = entering => response,
    };
    if pass.has_ended() {
        return None;
    }
    response.body_mut().end_on(pass.clone().wait_until_ended());
    Some(response)
}

/// The protocol of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndpointPath {
    Streamable,
    Sse,
    SseMessages,
    Lite(LiteEndpoint),
    Api(ApiPath),
}

/// The error for an endpoint that does not exist, or that the caller may not know of.
fn unknown_endpoint_message(view: &CatalogView) -> String {
    match view {
        CatalogView::Set(_) => {
            "no such set for this caller; `mgp sets list` shows the known ones".to_owned()
        }
        CatalogView::All | CatalogView::One(_) => {
            format!("no server {view}; `mgp servers list` shows the known ones")
        }
    }
}

/// Parses `/mcp` and `/mcp/<server>`, `/sse` and `/sse/<server>`, and the message endpoint of the latter. A
/// server of another node is `<node>/<server>`; `p/<set>` is always a set, even if a node has the name `p`.
fn parse_path(path: &str) -> Option<(EndpointPath, CatalogView)> {
    if let Some((endpoint, view)) = lite::parse_path(path) {
        return Some((EndpointPath::Lite(endpoint), view));
    }
    if let Some((meant, view)) = openapi::parse_path(path) {
        return Some((EndpointPath::Api(meant), view));
    }
    if path == http_sse::ENDPOINT_PATH {
        return Some((EndpointPath::SseMessages, CatalogView::All));
    }
    let (way, rest) = match (path.strip_prefix("/mcp"), path.strip_prefix("/sse")) {
        (Some(rest), _) => (EndpointPath::Streamable, rest),
        (None, Some(rest)) => (EndpointPath::Sse, rest),
        (None, None) => return None,
    };
    let view = match rest.strip_prefix('/') {
        None if rest.is_empty() => CatalogView::All,
        None => return None,
        Some("") => CatalogView::All,
        Some(id) => match id.strip_prefix(SET_PREFIX) {
            // One spelling each: nothing is decoded, and no case is folded.
            Some(set) => CatalogView::Set(SetName::parse(set).ok()?),
            // Clients and proxies add a slash at the end.
            None => {
                let id = id.strip_suffix('/').unwrap_or(id);
                CatalogView::One(ServerId::parse_local_or_remote(id).ok()?)
            }
        },
    };
    Some((way, view))
}

fn method_not_allowed(methods: &'static str) -> Response<ReplyBody> {
    let message = format!("only {methods} here");
    let mut response = refusal_response(StatusCode::METHOD_NOT_ALLOWED, &message);
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(methods));
    response
}

/// An event stream of a session that answers a request.
fn event_stream_body(session: &Arc<Session>, stream: mgp_callers::Stream) -> ReplyBody {
    let beat: Bytes = sse::render_comment("");
    ReplyBody::stream(session.open_stream(stream)).with_heartbeat(HEARTBEAT_INTERVAL, beat)
}

fn stream_response(body: ReplyBody) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(
        http::header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, no-transform"),
    );
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn empty_response(status: StatusCode) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::empty());
    *response.status_mut() = status;
    response
}

/// Scheme and authority that a request is addressed to. The listener has checked the host: it answers to this name.
fn request_address(uri: &Uri, headers: &HeaderMap, secure: bool) -> String {
    let scheme = if secure { "https" } else { "http" };
    let host = headers.get(HOST).and_then(|it| it.to_str().ok());
    let authority = uri.authority().map(http::uri::Authority::as_str);
    let host = authority.or(host).unwrap_or("localhost");
    format!("{scheme}://{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_map_to_views() {
        let one = || CatalogView::One(ServerId::new("a.b"));
        assert_eq!(
            parse_path("/mcp"),
            Some((EndpointPath::Streamable, CatalogView::All))
        );
        assert_eq!(
            parse_path("/mcp/"),
            Some((EndpointPath::Streamable, CatalogView::All))
        );
        assert_eq!(
            parse_path("/mcp/a.b"),
            Some((EndpointPath::Streamable, one()))
        );
        assert_eq!(parse_path("/sse/a.b"), Some((EndpointPath::Sse, one())));
        assert_eq!(
            parse_path("/sse/messages"),
            Some((EndpointPath::SseMessages, CatalogView::All))
        );
        let there = CatalogView::One(ServerId::new_remote("nas", &ServerId::new("a.b")));
        for path in ["/mcp/nas/a.b", "/mcp/nas/a.b/"] {
            let there = there.clone();
            assert_eq!(
                parse_path(path),
                Some((EndpointPath::Streamable, there)),
                "{path}"
            );
        }
        let set = || CatalogView::Set(SetName::parse("reading").unwrap());
        assert_eq!(
            parse_path("/mcp/p/reading"),
            Some((EndpointPath::Streamable, set()))
        );
        assert_eq!(
            parse_path("/sse/p/reading"),
            Some((EndpointPath::Sse, set()))
        );
        let other_spellings = [
            "/mcp/p/",
            "/mcp/p/Reading",
            "/mcp/p/reading/",
            "/mcp/p//reading",
            "/mcp/p/../reading",
            "/mcp/p/..",
            "/mcp/p/%72eading",
            "/mcp/%70/reading",
            "/mcp/p/re%61ding",
            "/mcp/p/re\u{0430}ding",
            "/mcp/p/reading%00",
            "/mcp//p/reading",
        ];
        for nothing in other_spellings {
            assert_eq!(parse_path(nothing), None, "{nothing}");
        }
        assert_eq!(
            parse_path("/mcp/a.b/"),
            Some((EndpointPath::Streamable, one()))
        );
        for nothing in [
            "/mcp/a/b/c",
            "/mcp/a//",
            "/mcp//b",
            "/mcp//",
            "/mcpx",
            "/",
            "",
        ] {
            assert_eq!(parse_path(nothing), None);
        }
    }
}
