//! The HTTP door: Streamable HTTP for agents, in both eras.
//!
//! The endpoint `/mcp` shows all servers; `/mcp/<server>` shows one server under its own
//! names; `/mcp/p/<set>` shows the servers and tools of a set. MCP-lite is below `/mcp-lite/v1`.

mod answer;
mod auth;
mod console;
mod headers;
mod http_sse;
mod lite;
mod modern;
mod post;
mod refusal_dialect;
mod scrape;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::ids::{ServerId, SetName};
use mgp_protocol::lite::LiteEndpoint;
use mgp_transports::http::body::{ReplyBody, RequestBody};
use mgp_transports::http::server::HttpPeer;
use mgp_transports::sse;
use mgp_transports::unread::ResponseBudget;

use self::answer::{failed, plain, refusal, unknown_session};
use self::headers::{LAST_EVENT, SESSION};
use self::lite::openapi::{self, ApiPath};
use crate::console::Console;
use crate::lite::Lite;
use crate::oauth::{SETS, WELL_KNOWN};
use crate::reception::Reception;
use crate::session::{Session, Sessions};
use mgp_callers::credential::Credential;
use mgp_callers::request::{identity, refused};
use mgp_runtime::task;

pub(crate) use self::auth::Unwelcome;
pub use self::auth::{Auth, Tokens};
pub(crate) use self::headers::traced;
pub use self::http_sse::HttpSse;
pub(crate) use self::post::BODY_DEADLINE;
pub use self::scrape::{DoorCounts, MetricsPage, MetricsPath};

/// Comments keep quiet streams alive through proxies, and show a dead client within a minute.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The path of the kernel's figures.
const METRICS: &str = "/metrics";

/// The HTTP door of a kernel.
#[derive(Debug)]
pub struct HttpDoor {
    /// What all doors share.
    pub reception: Reception,
    /// Legacy sessions.
    pub sessions: Arc<Sessions>,
    /// Connections of clients of 2024-11-05.
    pub http_sse: Arc<HttpSse>,
    /// Authentication of callers.
    pub auth: Auth,
    /// Who is signed in to the console.
    pub console: Arc<Console>,
    /// How answers are sent.
    pub manners: Manners,
    /// It speaks TLS only.
    pub secure: bool,
    /// MCP-lite, where it is offered.
    pub lite: Option<Arc<Lite>>,
    /// Figures of the kernel, where they are shown here.
    pub metrics: Option<MetricsPath>,
    /// How requests were answered.
    pub counts: Arc<DoorCounts>,
}

/// How answers are sent.
#[derive(Debug, Clone, Copy)]
pub struct Manners {
    /// A call without an answer for this long gets a stream, which can be
    /// resumed.
    pub stream_after: Duration,
    /// The stream of a call is closed after this time, and the client reconnects for the answer
    /// (SEP-1699); `None` keeps it open.
    pub poll_after: Option<Duration>,
}

impl HttpDoor {
    /// Answers one HTTP request; with status 500 if the handler panics.
    pub async fn answer(
        self: Arc<Self>,
        request: Request<RequestBody>,
        peer: HttpPeer,
    ) -> Response<ReplyBody> {
        let counts = self.counts.clone();
        let answered = task::caught("http.respond", self.respond(request, peer)).await;
        let answer = answered.unwrap_or_else(|broken| failed(&refused(&broken)));
        counts.answered(answer.status());
        answer
    }

    /// Counts an answer that another door gave at this one's address.
    pub(crate) fn answered(&self, status: StatusCode) {
        self.counts.answered(status);
    }

    async fn respond(
        self: Arc<Self>,
        request: Request<RequestBody>,
        peer: HttpPeer,
    ) -> Response<ReplyBody> {
        if request.uri().path() == "/healthz" {
            return plain(StatusCode::OK, "ok\n");
        }
        if let Some(metrics) = self
            .metrics
            .as_ref()
            .filter(|_| request.uri().path() == METRICS)
        {
            let from = peer.addr.ip();
            return metrics
                .answer(request.method(), request.headers(), from)
                .await;
        }
        if let Some(path) = request.uri().path().strip_prefix(WELL_KNOWN) {
            return self.metadata(request.method(), request.headers(), path);
        }
        if self.console.is_open() && console::is_its(request.uri().path()) {
            return console::answer(&self, request).await;
        }
        let offered = |at: &(DoorPath, _)| {
            self.lite.is_some() || !matches!(at.0, DoorPath::Lite(_) | DoorPath::Api(_))
        };
        let Some((way, view)) = address(request.uri().path()).filter(offered) else {
            return refusal(StatusCode::NOT_FOUND, &self.paths());
        };
        if console::is_claimed(request.headers()) {
            return match console::admitted(&self.console, &request, way, &view) {
                Ok(pass) => {
                    peer.proof.accept(pass.agent.as_str());
                    self.admit(way, request, view, pass).await
                }
                Err(unwelcome) => unwelcome.answer(),
            };
        }
        let shown = peer.certificate.as_deref();
        let pass = match self.auth.judge(request.headers(), shown, &view).await {
            Ok(pass) => pass,
            Err(unwelcome) => {
                let refused = self.auth.refuse(&unwelcome, request.headers(), &view);
                let bodies = &self.reception.bodies;
                let declared = refusal_dialect::refusal_dialect(request, bodies).await;
                return unwelcome.in_words_of(declared, refused);
            }
        };
        peer.proof.accept(pass.agent.as_str());
        self.admit(way, request, view, pass).await
    }

    /// What a client is told that asks for a path which is none.
    fn paths(&self) -> String {
        let shown = |is: bool, words| if is { words } else { "" };
        format!(
            "no such path; MCP is at /mcp, /mcp/<server> and /mcp/p/<set>, for old clients at /sse{}{}",
            shown(self.lite.is_some(), "; MCP-lite is below /mcp-lite/v1"),
            shown(self.console.is_open(), "; the console is at /"),
        )
    }

    /// Lets one in whose credential is good, as long as it is.
    async fn admit(
        self: Arc<Self>,
        way: DoorPath,
        request: Request<RequestBody>,
        view: CatalogView,
        pass: Credential,
    ) -> Response<ReplyBody> {
        let who = identity(&pass.agent, pass.is_operator(), &view);
        if !self.reception.routes.knows(&view, &who) {
            return refusal(StatusCode::NOT_FOUND, &absent(&view));
        }
        let budget = self.reception.directory.responses.budget(&pass.agent);
        if budget.is_full() && *request.method() == Method::POST {
            return answer::overloaded(None, &unread(&budget));
        }
        let entering = pin!(self.clone().enter(way, request, view, &pass));
        let entered = while_it_lasts(&pass, entering).await;
        let mut response = entered.unwrap_or_else(|| self.shut_out(&pass));
        response.body_mut().count_unread(&budget);
        response
    }

    /// Protected-resource metadata (RFC 9728), without authentication: of one endpoint by its path, else of
    /// `/mcp`. Does not reveal which servers exist.
    fn metadata(
        &self,
        method: &Method,
        headers: &http::HeaderMap,
        path: &str,
    ) -> Response<ReplyBody> {
        if *method != Method::GET {
            return not_allowed("GET");
        }
        let view = match address(path) {
            Some((DoorPath::Streamable, view)) => Some(view),
            Some((
                DoorPath::Sse | DoorPath::SseMessages | DoorPath::Lite(_) | DoorPath::Api(_),
                _,
            )) => None,
            None => path
                .trim_matches('/')
                .is_empty()
                .then_some(CatalogView::All),
        };
        match view.and_then(|view| self.auth.metadata(headers, &view)) {
            Some(metadata) => answer::json(StatusCode::OK, ReplyBody::full(metadata)),
            None => refusal(StatusCode::NOT_FOUND, "no such resource"),
        }
    }

    async fn enter(
        self: Arc<Self>,
        way: DoorPath,
        request: Request<RequestBody>,
        view: CatalogView,
        pass: &Credential,
    ) -> Response<ReplyBody> {
        let agent = &pass.agent;
        match (way, request.method()) {
            (DoorPath::Streamable, &Method::POST) => post::post(&self, request, view, pass).await,
            (DoorPath::Streamable, _) if headers::names_modern(request.headers()) => {
                not_allowed("POST")
            }
            (DoorPath::Streamable, &Method::GET) => self.get(&request, &view, pass),
            (DoorPath::Streamable, &Method::DELETE) => self.delete(&request, &view, pass),
            (DoorPath::Streamable, _) => not_allowed("GET, POST, DELETE"),
            (DoorPath::Sse, &Method::GET) => self.http_sse.open(&self, view, agent.clone()),
            (DoorPath::Sse, _) => not_allowed("GET"),
            (DoorPath::SseMessages, &Method::POST) => {
                self.http_sse.post(&self, request, agent).await
            }
            (DoorPath::Lite(endpoint), &Method::POST) => match &self.lite {
                Some(lite) => {
                    lite::post((&self, lite), endpoint, request, view, agent.clone()).await
                }
                None => status(StatusCode::NOT_FOUND),
            },
            (DoorPath::Api(meant), _) => match &self.lite {
                Some(lite) => {
                    openapi::answer((&self, lite), meant, request, view, agent.clone()).await
                }
                None => status(StatusCode::NOT_FOUND),
            },
            (DoorPath::SseMessages | DoorPath::Lite(_), _) => not_allowed("POST"),
        }
    }

    /// The credential ended during this request. What the request opened since then was missed when
    /// the rest was ended, so it is ended here.
    pub(crate) fn shut_out(&self, pass: &Credential) -> Response<ReplyBody> {
        if pass.is_operator() {
            // The operator's other connections are at the socket, and have nothing to do with this.
            self.sessions.end_of(&pass.agent);
        } else if pass.is_withdrawn() {
            self.sessions.end_of(&pass.agent);
            self.reception.directory.end_of(&pass.agent);
        }
        let words = "the credentials ended while the request was under way";
        auth::Unwelcome::Invalid(words.into()).answer(None)
    }

    /// Opens the session's standing stream, or resumes a stream.
    fn get(
        &self,
        request: &Request<RequestBody>,
        view: &CatalogView,
        pass: &Credential,
    ) -> Response<ReplyBody> {
        if !headers::accepts_events(request.headers()) {
            return refusal(
                StatusCode::NOT_ACCEPTABLE,
                "a GET opens an event stream: send `Accept: text/event-stream`",
            );
        }
        let session = match self.session(request, view, pass) {
            Ok(session) => session,
            Err(response) => return *response,
        };
        let last = request.headers().get(LAST_EVENT);
        let stream = match last.and_then(|v| v.to_str().ok()?.trim().parse().ok()) {
            Some(after) => session.streams.resume(after),
            None if last.is_some() => session.streams.resume(u64::MAX),
            None => session
                .streams
                .open_get(session.caller.version.primes_streams()),
        };
        stream_response(events(&session, stream).standing())
    }

    fn delete(
        &self,
        request: &Request<RequestBody>,
        view: &CatalogView,
        pass: &Credential,
    ) -> Response<ReplyBody> {
        match self.session(request, view, pass) {
            Ok(session) => {
                self.sessions.close(&session.id);
                status(StatusCode::NO_CONTENT)
            }
            Err(response) => *response,
        }
    }

    /// The session that a request names; one of another agent or another view does not exist.
    fn session(
        &self,
        request: &Request<RequestBody>,
        view: &CatalogView,
        pass: &Credential,
    ) -> Result<Arc<Session>, Box<Response<ReplyBody>>> {
        let Some(id) = request.headers().get(SESSION) else {
            return Err(Box::new(refusal(
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
            .ok_or_else(|| Box::new(unknown_session()))?;
        headers::check_version(request.headers(), session.caller.version)
            .map_err(|words| Box::new(refusal(StatusCode::BAD_REQUEST, &words)))?;
        session.touch();
        Ok(session)
    }
}

/// What an agent is told whose responses fill their share.
pub(crate) fn unread(budget: &ResponseBudget) -> String {
    format!(
        "responses that this agent has not read take the {} MiB they may; read them, or close their connections, and try again",
        budget.limit() >> 20
    )
}

/// The answer to a request, whose body ends with the credential at the latest; `None` when that ended before.
pub(crate) async fn while_it_lasts(
    pass: &Credential,
    entering: Pin<&mut impl Future<Output = Response<ReplyBody>>>,
) -> Option<Response<ReplyBody>> {
    if pass.is_lasting() {
        return Some(entering.await);
    }
    let mut response = tokio::select! {
        biased;
        () = pass.clone().over() => return None,
        response = entering => response,
    };
    if pass.is_over() {
        return None;
    }
    response.body_mut().until(pass.clone().over());
    Some(response)
}

/// The protocol of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DoorPath {
    Streamable,
    Sse,
    SseMessages,
    Lite(LiteEndpoint),
    Api(ApiPath),
}

/// What is said of an endpoint that leads nowhere, or to what the caller may not know of.
fn absent(view: &CatalogView) -> String {
    match view {
        CatalogView::Set(_) => {
            "no such set for this caller; `mgp sets list` shows the known ones".to_owned()
        }
        CatalogView::All | CatalogView::One(_) => {
            format!("no server {view}; `mgp servers list` shows the known ones")
        }
    }
}

/// Parses `/mcp` and `/mcp/<server>`, `/sse` and `/sse/<server>`, and the endpoint of the latter. A server of
/// another node is `<node>/<server>`; `p/<set>` is a set, whatever a node is called.
fn address(path: &str) -> Option<(DoorPath, CatalogView)> {
    if let Some((endpoint, view)) = lite::address(path) {
        return Some((DoorPath::Lite(endpoint), view));
    }
    if let Some((meant, view)) = openapi::address(path) {
        return Some((DoorPath::Api(meant), view));
    }
    if path == http_sse::ENDPOINT {
        return Some((DoorPath::SseMessages, CatalogView::All));
    }
    let (way, rest) = match (path.strip_prefix("/mcp"), path.strip_prefix("/sse")) {
        (Some(rest), _) => (DoorPath::Streamable, rest),
        (None, Some(rest)) => (DoorPath::Sse, rest),
        (None, None) => return None,
    };
    let view = match rest.strip_prefix('/') {
        None if rest.is_empty() => CatalogView::All,
        None => return None,
        Some("") => CatalogView::All,
        Some(id) => match id.strip_prefix(SETS) {
            // One spelling each: nothing is decoded, and no case is folded.
            Some(set) => CatalogView::Set(SetName::parse(set).ok()?),
            // Clients and proxies put a slash at the end.
            None => {
                let id = id.strip_suffix('/').unwrap_or(id);
                CatalogView::One(ServerId::parse_of_any_node(id).ok()?)
            }
        },
    };
    Some((way, view))
}

fn not_allowed(methods: &'static str) -> Response<ReplyBody> {
    let words = format!("only {methods} here");
    let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, &words);
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(methods));
    response
}

/// An event stream of a session that answers a request.
fn events(session: &Arc<Session>, stream: mgp_callers::exchange::streams::Stream) -> ReplyBody {
    let beat: Bytes = sse::comment("");
    ReplyBody::stream(session.standing(stream)).heartbeat(HEARTBEAT, beat)
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

fn status(status: StatusCode) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::empty());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_views() {
        let one = || CatalogView::One(ServerId::new("a.b"));
        assert_eq!(
            address("/mcp"),
            Some((DoorPath::Streamable, CatalogView::All))
        );
        assert_eq!(
            address("/mcp/"),
            Some((DoorPath::Streamable, CatalogView::All))
        );
        assert_eq!(address("/mcp/a.b"), Some((DoorPath::Streamable, one())));
        assert_eq!(address("/sse/a.b"), Some((DoorPath::Sse, one())));
        assert_eq!(
            address("/sse/messages"),
            Some((DoorPath::SseMessages, CatalogView::All))
        );
        let there = CatalogView::One(ServerId::of_node("nas", &ServerId::new("a.b")));
        for path in ["/mcp/nas/a.b", "/mcp/nas/a.b/"] {
            let there = there.clone();
            assert_eq!(address(path), Some((DoorPath::Streamable, there)), "{path}");
        }
        let set = || CatalogView::Set(SetName::parse("reading").unwrap());
        assert_eq!(
            address("/mcp/p/reading"),
            Some((DoorPath::Streamable, set()))
        );
        assert_eq!(address("/sse/p/reading"), Some((DoorPath::Sse, set())));
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
            assert_eq!(address(nothing), None, "{nothing}");
        }
        assert_eq!(address("/mcp/a.b/"), Some((DoorPath::Streamable, one())));
        for nothing in [
            "/mcp/a/b/c",
            "/mcp/a//",
            "/mcp//b",
            "/mcp//",
            "/mcpx",
            "/",
            "",
        ] {
            assert_eq!(address(nothing), None);
        }
    }
}
