//! POST: one message of a client, answered as JSON, as a stream, or not at all.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use futures_util::future::join_all;
use http::header::{HeaderMap, HeaderValue};
use http::{Request as HttpRequest, Response, StatusCode};
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::ids::AgentId;
use mgp_protocol::jsonrpc::torn::{self, Glance};
use mgp_protocol::jsonrpc::{self, Malformed, Message, RequestId};
use mgp_protocol::mcp;
use mgp_protocol::refusal::Refusal;
use mgp_transports::http::body::{BodyError, Ends, ReplyBody, RequestBody, collect};
use serde_json::value::RawValue;

use super::answer::{json, overloaded, refusal, refusal_of};
use super::headers::{self, SESSION, VERSION};
use super::{HttpDoor, events, modern, status, stream_response};
use crate::session::{NoSession, Session};
use crate::stateless;
use mgp_callers::credential::Credential;
use mgp_callers::exchange::Exchange;
use mgp_callers::exchange::forwarded::ForwardedHeaders;
use mgp_callers::exchange::streams::Lane;
use mgp_callers::request::{GuardedAnswer, Outcome, Request, answer_frame, answer_parts};
use mgp_runtime::task;
use mgp_runtime::trace::Trace;

/// How long a client may take to send a message.
pub(crate) const BODY_DEADLINE: Duration = Duration::from_secs(30);

pub(super) async fn post(
    door: &Arc<HttpDoor>,
    request: HttpRequest<RequestBody>,
    view: CatalogView,
    pass: &Credential,
) -> Response<ReplyBody> {
    if let Some(response) = judge_headers(&request) {
        return response;
    }
    let modern = headers::names_modern(request.headers());
    let named = request.headers().contains_key(SESSION);
    let session = match named && !modern {
        true => match door.session(&request, &view, pass) {
            Ok(session) => Some(session),
            Err(response) => return *response,
        },
        false => None,
    };
    let (head, body) = request.into_parts();
    let body = match taken(door, body, &pass.agent).await {
        Ok(body) => body,
        Err(response) => return *response,
    };
    let Ok(text) = ByteString::try_from(body) else {
        return malformed(
            "",
            &Malformed::NotJson("the body is not UTF-8".into()),
            false,
        );
    };
    match (jsonrpc::parse_text(&text), session) {
        (Ok(message), _) if modern || stateless::is_modern(message.params()) => {
            modern::post(door, &head.headers, &text, message, view, pass).await
        }
        (
            Ok(Message::Request {
                id, method, params, ..
            }),
            None,
        ) if method == "initialize" => {
            initialize(door, id, params.map(RawValue::get), view, pass).await
        }
        // The one request that MCP allows before `initialize` (2025-11-25, lifecycle). It is answered
        // however much is under way.
        (Ok(Message::Request { id, method, .. }), session) if method == "ping" => {
            let answer = match session {
                Some(session) => (session.agent.ping(&id)).unwrap_or_else(|refusal| {
                    refusal.answer(id.as_json(), session.caller.dialect())
                }),
                None => jsonrpc::result(id.as_json(), "{}"),
            };
            json(StatusCode::OK, ReplyBody::full(answer))
        }
        (Ok(message), Some(session)) => one(door, &session, &text, message, &head.headers).await,
        (Err(Malformed::Batch), Some(session)) if session.caller.version.allows_batches() => {
            batch(door, &session, &text).await
        }
        (Ok(_), None) => refusal(
            StatusCode::BAD_REQUEST,
            "`Mcp-Session-Id` is missing; `initialize` gives one",
        ),
        (Err(error), session) => {
            if let Some(session) = &session {
                session.agent.tap_unreadable(text.as_bytes());
                session.agent.settle_malformed(text.as_bytes(), &error);
            }
            malformed(&text, &error, modern || session.is_some())
        }
    }
}

/// The whole body of a message of an agent, or why it was not taken.
pub(super) async fn taken(
    door: &HttpDoor,
    body: RequestBody,
    agent: &AgentId,
) -> Result<Bytes, Box<Response<ReplyBody>>> {
    let bodies = &door.reception.bodies;
    let room = || bodies.room(agent);
    let body = collect(body, bodies.longest(), BODY_DEADLINE, room).await;
    body.map_err(|untaken| {
        let whose = whose(&untaken.ends);
        let (status, words) = (untaken.why.status(), untaken.why.to_string());
        Box::new(match untaken.why {
            BodyError::NoRoom => overloaded(whose.as_ref(), &bodies.full()),
            BodyError::TooLarge { .. } | BodyError::TooSlow { .. } | BodyError::Broken(_) => {
                refusal_of(whose.as_ref(), status, &words)
            }
        })
    })
}

/// The id of a request that was not accepted; clients write it first or last. The id of an answer is one of
/// the kernel's and does not count.
fn whose(ends: &Ends) -> Option<RequestId> {
    let seen = Glance::at(&ends.head);
    match seen.answers() {
        true => None,
        false => seen.id().or_else(|| torn::id_at_end(&ends.tail)),
    }
}

/// MCP-076, MCP-077, A-16: judged before the body is read.
fn judge_headers(request: &HttpRequest<RequestBody>) -> Option<Response<ReplyBody>> {
    let headers = request.headers();
    if !headers::is_json(headers) {
        return Some(refusal(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send `Content-Type: application/json`",
        ));
    }
    if !headers::accepts_both(headers) {
        return Some(refusal(
            StatusCode::NOT_ACCEPTABLE,
            "send `Accept: application/json, text/event-stream`",
        ));
    }
    let said = headers::text(headers, &VERSION).filter(|_| !headers::names_modern(headers))?;
    headers::known_version(said)
        .err()
        .map(|words| refusal(StatusCode::BAD_REQUEST, &words))
}

/// An unreadable answer has an id of the kernel's, so no error is sent under it. `begun`: the sender is past
/// its handshake or needs none.
fn malformed(text: &str, error: &Malformed, begun: bool) -> Response<ReplyBody> {
    let frame = match Glance::at(text.as_bytes()).answers() {
        true => Some(error.to_nobody()),
        false => error.to_frame(),
    };
    let Some(frame) = frame else {
        return status(StatusCode::ACCEPTED);
    };
    let code = match begun && matches!(error, Malformed::BadParams { .. }) {
        true => StatusCode::OK,
        false => StatusCode::BAD_REQUEST,
    };
    json(code, ReplyBody::full(frame))
}

/// Opens a session; a malformed `initialize` never gets one (CMCP-020).
async fn initialize(
    door: &Arc<HttpDoor>,
    id: RequestId,
    params: Option<&str>,
    view: CatalogView,
    pass: &Credential,
) -> Response<ReplyBody> {
    let (agent, streams) = door.sessions.agent(pass);
    let caller =
        mcp::read::<mcp::Initialize<'_>>(params).and_then(|hello| agent.hello(view, &hello));
    let caller = match caller {
        Ok(caller) => caller,
        Err(wrong) => {
            let frame = wrong.answer(id.as_json(), mgp_protocol::dialect::Version::LATEST_LEGACY);
            return json(StatusCode::BAD_REQUEST, ReplyBody::full(frame));
        }
    };
    let welcome = GuardedAnswer::new(|| door.reception.routes.welcome(caller.clone())).await;
    let session = match door.sessions.open(caller.clone(), agent, streams).await {
        Ok(session) => session,
        Err(no @ (NoSession::Full(_) | NoSession::Stopping)) => {
            return overloaded(Some(&id), &no.to_string());
        }
    };
    let frame = answer_frame(id.as_json(), &welcome, caller.dialect());
    let mut response = json(StatusCode::OK, ReplyBody::full(frame));
    let value = HeaderValue::from_str(session.id.as_str()).expect("a UUID is visible ASCII");
    response.headers_mut().insert(SESSION, value);
    response
}

async fn one(
    door: &Arc<HttpDoor>,
    session: &Arc<Session>,
    text: &ByteString,
    message: Message<'_>,
    headers: &HeaderMap,
) -> Response<ReplyBody> {
    match message {
        Message::Request {
            id,
            method,
            params,
            trace,
        } => {
            let trace = Trace::of(params.map(RawValue::get), trace);
            let trace = super::headers::traced(headers, trace);
            let params = params.map(|p| text.slice_ref(p.get()));
            let forwarded = door.reception.directory.forwarded.of(headers);
            request(door, session, id, &method, (params, trace, forwarded)).await
        }
        Message::Notification { method, params } => {
            note(door, session, &method, params.map(RawValue::get));
            status(StatusCode::ACCEPTED)
        }
        Message::Response { id, outcome } => {
            settle(session, text, id, outcome);
            status(StatusCode::ACCEPTED)
        }
    }
}

async fn request(
    door: &Arc<HttpDoor>,
    session: &Arc<Session>,
    id: RequestId,
    method: &str,
    (params, trace, forwarded): (Option<ByteString>, Trace, Option<ForwardedHeaders>),
) -> Response<ReplyBody> {
    let dialect = session.caller.dialect();
    if method == "initialize" {
        let wrong = Refusal::BadRequest("this session is initialized already".into());
        return json(
            StatusCode::BAD_REQUEST,
            ReplyBody::full(wrong.answer(id.as_json(), dialect)),
        );
    }
    let lane = session.streams.lane();
    let exchange = match session.agent.open(&id, Some(lane)) {
        Ok(exchange) => exchange,
        Err(refusal) => {
            return json(
                StatusCode::OK,
                ReplyBody::full(refusal.answer(id.as_json(), dialect)),
            );
        }
    };
    exchange.forward(forwarded);
    exchange.count_response(
        door.reception
            .directory
            .responses
            .budget(session.agent.id()),
    );
    let request = Request {
        caller: session.caller.clone(),
        exchange: exchange.clone(),
        method: method.into(),
        params,
        trace,
    };
    let answering = GuardedAnswer::new(|| door.reception.routes.answer(request));
    let mut work = SessionRequest {
        answering: Some(answering),
        session: session.clone(),
        exchange,
        id,
        lane,
    };
    let exchange = work.exchange.clone();
    tokio::select! {
        biased;
        outcome = &mut work => work.reply(&outcome),
        () = exchange.needs_stream() => work.stream(door),
        () = tokio::time::sleep(door.manners.stream_after) => work.stream(door),
    }
}

/// A request under way. If the connection breaks and this is dropped, the request goes on: in the legacy
/// era that is no cancellation.
struct SessionRequest {
    answering: Option<GuardedAnswer>,
    session: Arc<Session>,
    exchange: Arc<Exchange>,
    id: RequestId,
    lane: Lane,
}

impl Future for SessionRequest {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let answering = self
            .answering
            .as_mut()
            .expect("not polled after it was answered");
        let outcome = std::task::ready!(Pin::new(answering).poll(cx));
        self.answering = None;
        self.session.agent.done(&self.id);
        Poll::Ready(outcome)
    }
}

impl SessionRequest {
    /// The answer is there: as plain JSON, or at the end of the stream.
    fn reply(&self, outcome: &Outcome) -> Response<ReplyBody> {
        self.exchange.end();
        let (streams, caller) = (&self.session.streams, &self.session.caller);
        let dialect = caller.dialect();
        if !self.exchange.is_awaited() {
            // A cancelled request gets no answer (CMCP-054).
            streams.end(self.lane);
            return status(StatusCode::ACCEPTED);
        }
        if self.exchange.needed_stream() {
            let stream = streams.open(self.lane, caller.version.primes_streams());
            streams.finish(self.lane, answer_frame(self.id.as_json(), outcome, dialect));
            return stream_response(events(&self.session, stream));
        }
        let parts = answer_parts(self.id.as_json(), outcome, dialect);
        json(StatusCode::OK, ReplyBody::parts(parts))
    }

    /// Another message comes first, or the answer takes long: a stream.
    fn stream(mut self, door: &HttpDoor) -> Response<ReplyBody> {
        let primed = self.session.caller.version.primes_streams();
        let streams = self.session.streams.clone();
        self.exchange.prime();
        let stream = streams.open(self.lane, primed);
        let (exchange, lane) = (self.exchange.clone(), self.lane);
        let poll_after = door.manners.poll_after.filter(|_| primed);
        if let Some(answering) = self.answering.take() {
            self.go_on(answering);
        }
        if primed {
            task::detached("http.poll", async move {
                let polled = async {
                    match poll_after {
                        Some(after) => tokio::time::sleep(after).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = exchange.paused() => streams.let_go(lane),
                    () = polled => streams.let_go(lane),
                    () = exchange.ended() => {}
                }
            });
        }
        stream_response(events(&self.session, stream))
    }

    fn go_on(&self, answering: GuardedAnswer) {
        let (session, exchange, id, lane) = (
            self.session.clone(),
            self.exchange.clone(),
            self.id.clone(),
            self.lane,
        );
        task::detached("http.request", async move {
            let outcome = answering.await;
            session.agent.done(&id);
            exchange.end();
            if !exchange.is_awaited() {
                session.streams.end(lane);
            } else {
                let frame = answer_frame(id.as_json(), &outcome, session.caller.dialect());
                session.streams.finish(lane, frame);
            }
        });
    }
}

impl Drop for SessionRequest {
    fn drop(&mut self) {
        if let Some(answering) = self.answering.take() {
            self.go_on(answering);
        }
    }
}

fn note(door: &HttpDoor, session: &Session, method: &str, params: Option<&str>) {
    let agent = &session.agent;
    match method {
        "notifications/cancelled" => agent.cancel(params),
        _ => {
            if method == "notifications/initialized" {
                agent.set_ready();
            }
            door.reception.routes.note(&session.caller, method, params);
        }
    }
}

fn settle(
    session: &Session,
    text: &ByteString,
    id: Option<RequestId>,
    outcome: Result<&RawValue, &RawValue>,
) {
    let Some(id) = id else { return };
    let bytes = |raw: &RawValue| text.slice_ref(raw.get()).into_bytes();
    session.agent.settle(&id, outcome.map(bytes).map_err(bytes));
}

/// A batch of 2025-03-26: all answers in one JSON array; notifications and answers are accepted.
async fn batch(
    door: &Arc<HttpDoor>,
    session: &Arc<Session>,
    text: &ByteString,
) -> Response<ReplyBody> {
    let messages = jsonrpc::batch(text.as_bytes()).unwrap_or_default();
    if messages.is_empty() {
        return refusal(StatusCode::BAD_REQUEST, "Invalid Request: an empty batch");
    }
    let answers = messages
        .iter()
        .map(|raw| text.slice_ref(raw.get()))
        .map(|message| batched(door, session, message));
    let frames: Vec<Bytes> = join_all(answers).await.into_iter().flatten().collect();
    if frames.is_empty() {
        return status(StatusCode::ACCEPTED);
    }
    let mut out = vec![b'['];
    out.extend(frames.join(&b','));
    out.push(b']');
    json(StatusCode::OK, ReplyBody::full(out))
}

async fn batched(door: &HttpDoor, session: &Arc<Session>, text: ByteString) -> Option<Bytes> {
    match jsonrpc::parse_text(&text) {
        Err(malformed) => {
            let agent = &session.agent;
            let was_answer = agent.settle_malformed(text.as_bytes(), &malformed);
            let frame = (!was_answer).then(|| malformed.to_frame()).flatten();
            frame.map(Bytes::from)
        }
        Ok(Message::Notification { method, params }) => {
            note(door, session, &method, params.map(RawValue::get));
            None
        }
        Ok(Message::Response { id, outcome }) => {
            settle(session, &text, id, outcome);
            None
        }
        Ok(Message::Request {
            id,
            method,
            params,
            trace,
        }) => {
            let dialect = session.caller.dialect();
            let exchange = match session.agent.open(&id, None) {
                Ok(exchange) => exchange,
                Err(refusal) => return Some(refusal.answer(id.as_json(), dialect).into()),
            };
            exchange.count_response(
                door.reception
                    .directory
                    .responses
                    .budget(session.agent.id()),
            );
            let request = Request {
                caller: session.caller.clone(),
                exchange: exchange.clone(),
                method: method.as_ref().into(),
                params: params.map(|p| text.slice_ref(p.get())),
                trace: Trace::of(params.map(RawValue::get), trace),
            };
            let outcome = GuardedAnswer::new(|| door.reception.routes.answer(request)).await;
            session.agent.done(&id);
            exchange
                .is_awaited()
                .then(|| answer_frame(id.as_json(), &outcome, dialect))
        }
    }
}

#[cfg(test)]
mod tests;
