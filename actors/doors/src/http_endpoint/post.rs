//! Handles POST: one message of a client, answered as JSON, as a stream, or without a body.

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
use mgp_protocol::jsonrpc::partial_message::{self, PartialMessage};
use mgp_protocol::jsonrpc::{self, Malformed, Message, RequestId};
use mgp_protocol::mcp;
use mgp_protocol::refusal::Refusal;
use mgp_transports::http::body::{BodyError, BodyExcerpt, ReplyBody, RequestBody, collect};
use serde_json::value::RawValue;

use super::headers::{self, SESSION, VERSION};
use super::responses::{
    json_response, overloaded_response, refusal_response, refusal_response_with_id,
};
use super::{HttpEndpoint, empty_response, event_stream_body, stateless, stream_response};
use crate::session::{Session, SessionError};
use crate::stateless::is_stateless;
use mgp_callers::request::{GuardedAnswer, Outcome, Request, render_answer, render_answer_parts};
use mgp_callers::{Credential, ForwardedHeaders, InFlightCall, Lane};
use mgp_runtime::task;
use mgp_runtime::trace::Trace;

/// How long a client may take to send a message.
pub(crate) const BODY_DEADLINE: Duration = Duration::from_secs(30);

pub(super) async fn handle_post(
    endpoint: &Arc<HttpEndpoint>,
    request: HttpRequest<RequestBody>,
    view: CatalogView,
    pass: &Credential,
) -> Response<ReplyBody> {
    if let Some(response) = check_headers(&request) {
        return response;
    }
    let modern = headers::is_stateless(request.headers());
    let named = request.headers().contains_key(SESSION);
    let session = if named && !modern {
        match endpoint.find_session(&request, &view, pass) {
            Ok(session) => Some(session),
            Err(response) => return *response,
        }
    } else {
        None
    };
    let (head, body) = request.into_parts();
    let body = match read_message(endpoint, body, &pass.agent).await {
        Ok(body) => body,
        Err(response) => return *response,
    };
    let Ok(text) = ByteString::try_from(body) else {
        return malformed_response(
            "",
            &Malformed::NotJson("the body is not UTF-8".into()),
            false,
        );
    };
    match (jsonrpc::parse_text(&text), session) {
        (Ok(message), _) if modern || is_stateless(message.params()) => {
            stateless::handle_post(endpoint, &head, &text, message, view, pass).await
        }
        (
            Ok(Message::Request {
                id, method, params, ..
            }),
            None,
        ) if method == "initialize" => {
            let address = endpoint.client_address(&head.uri, &head.headers);
            let params = params.map(RawValue::get);
            initialize(endpoint, id, params, (view, address), pass).await
        }
        // The one request that MCP allows before `initialize` (2025-11-25, lifecycle). It is answered even
        // at the limit of in-flight requests.
        (Ok(Message::Request { id, method, .. }), session) if method == "ping" => {
            let answer = match session {
                Some(session) => (session.agent.ping(&id)).unwrap_or_else(|refusal| {
                    refusal.render_response(id.as_json(), session.caller.dialect())
                }),
                None => jsonrpc::result(id.as_json(), "{}"),
            };
            json_response(StatusCode::OK, ReplyBody::full(answer))
        }
        (Ok(message), Some(session)) => {
            handle_message(endpoint, &session, &text, message, &head.headers).await
        }
        (Err(Malformed::Batch), Some(session)) if session.caller.version.has_batches() => {
            handle_batch(endpoint, &session, &text).await
        }
        (Ok(_), None) => refusal_response(
            StatusCode::BAD_REQUEST,
            "`Mcp-Session-Id` is missing; `initialize` gives one",
        ),
        (Err(error), session) => {
            if let Some(session) = &session {
                session.agent.tap_unreadable(text.as_bytes());
                session.agent.settle_malformed(text.as_bytes(), &error);
            }
            malformed_response(&text, &error, modern || session.is_some())
        }
    }
}

/// Reads the whole body of an agent's message, or returns why it was rejected.
pub(super) async fn read_message(
    endpoint: &HttpEndpoint,
    body: RequestBody,
    agent: &AgentId,
) -> Result<Bytes, Box<Response<ReplyBody>>> {
    let bodies = &endpoint.endpoint.message_budgets;
    let budget = || bodies.agent_budget(agent);
    let body = collect(body, bodies.message_max(), BODY_DEADLINE, budget).await;
    body.map_err(|untaken| {
        let id_in_excerpt = find_request_id(&untaken.excerpt);
        let (status, message) = (untaken.error.status(), untaken.error.to_string());
        Box::new(match untaken.error {
            BodyError::OverBudget => {
                overloaded_response(id_in_excerpt.as_ref(), &bodies.overload_message())
            }
            BodyError::TooLarge { .. } | BodyError::TooSlow { .. } | BodyError::Broken(_) => {
                refusal_response_with_id(id_in_excerpt.as_ref(), status, &message)
            }
        })
    })
}

/// The id of a rejected request; clients write it first or last. The id of an answer is one of the kernel's
/// and is ignored.
fn find_request_id(ends: &BodyExcerpt) -> Option<RequestId> {
    let scanned = PartialMessage::scan(&ends.head);
    if scanned.is_response() {
        None
    } else {
        scanned
            .id()
            .or_else(|| partial_message::find_trailing_id(&ends.tail))
    }
}

/// Checks the headers before the body is read (MCP-076, MCP-077, A-16).
fn check_headers(request: &HttpRequest<RequestBody>) -> Option<Response<ReplyBody>> {
    let headers = request.headers();
    if !headers::is_json(headers) {
        return Some(refusal_response(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send `Content-Type: application/json`",
        ));
    }
    if !headers::accepts_both(headers) {
        return Some(refusal_response(
            StatusCode::NOT_ACCEPTABLE,
            "send `Accept: application/json, text/event-stream`",
        ));
    }
    let said =
        headers::header_text(headers, &VERSION).filter(|_| !headers::is_stateless(headers))?;
    headers::parse_version(said)
        .err()
        .map(|message| refusal_response(StatusCode::BAD_REQUEST, &message))
}

/// The response to a malformed message. A malformed answer has an id of the kernel's, so no error is sent
/// under it. `begun`: the sender is past its handshake or needs none.
fn malformed_response(text: &str, error: &Malformed, begun: bool) -> Response<ReplyBody> {
    let frame = if PartialMessage::scan(text.as_bytes()).is_response() {
        Some(error.to_frame_without_id())
    } else {
        error.to_frame()
    };
    let Some(frame) = frame else {
        return empty_response(StatusCode::ACCEPTED);
    };
    let code = if begun && matches!(error, Malformed::BadParams { .. }) {
        StatusCode::OK
    } else {
        StatusCode::BAD_REQUEST
    };
    json_response(code, ReplyBody::full(frame))
}

/// Opens a session; a malformed `initialize` never gets one (CMCP-020).
async fn initialize(
    endpoint: &Arc<HttpEndpoint>,
    id: RequestId,
    params: Option<&str>,
    (view, address): (CatalogView, String),
    pass: &Credential,
) -> Response<ReplyBody> {
    let (agent, streams) = endpoint.sessions.new_agent(pass);
    let caller = mcp::parse_params::<mcp::Initialize<'_>>(params)
        .and_then(|hello| agent.initialize(view, &hello, Some(address.into())));
    let caller = match caller {
        Ok(caller) => caller,
        Err(wrong) => {
            let frame =
                wrong.render_response(id.as_json(), mgp_protocol::dialect::Version::LATEST_LEGACY);
            return json_response(StatusCode::BAD_REQUEST, ReplyBody::full(frame));
        }
    };
    let welcome = GuardedAnswer::new(|| endpoint.endpoint.routes.initialize(caller.clone())).await;
    let session = match endpoint
        .sessions
        .open(caller.clone(), (agent, streams), params)
        .await
    {
        Ok(session) => session,
        Err(no @ (SessionError::Full(_) | SessionError::ShuttingDown)) => {
            return overloaded_response(Some(&id), &no.to_string());
        }
    };
    let frame = render_answer(id.as_json(), &welcome, caller.dialect());
    let mut response = json_response(StatusCode::OK, ReplyBody::full(frame));
    let value = HeaderValue::from_str(session.id.as_str()).expect("a UUID is visible ASCII");
    response.headers_mut().insert(SESSION, value);
    response
}

async fn handle_message(
    endpoint: &Arc<HttpEndpoint>,
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
            let trace = Trace::from_params(params.map(RawValue::get), trace);
            let trace = super::headers::read_trace(headers, trace);
            let params = params.map(|p| text.slice_ref(p.get()));
            let forwarded = endpoint.endpoint.directory.forwarded_names.select(headers);
            handle_request(endpoint, session, id, &method, (params, trace, forwarded)).await
        }
        Message::Notification { method, params } => {
            handle_notification(endpoint, session, &method, params.map(RawValue::get));
            empty_response(StatusCode::ACCEPTED)
        }
        Message::Response { id, outcome } => {
            handle_response(session, text, id, outcome);
            empty_response(StatusCode::ACCEPTED)
        }
    }
}

async fn handle_request(
    endpoint: &Arc<HttpEndpoint>,
    session: &Arc<Session>,
    id: RequestId,
    method: &str,
    (params, trace, forwarded): (Option<ByteString>, Trace, Option<ForwardedHeaders>),
) -> Response<ReplyBody> {
    let dialect = session.caller.dialect();
    session.note_method(method);
    if method == "initialize" {
        let wrong = Refusal::BadRequest("this session is initialized already".into());
        return json_response(
            StatusCode::BAD_REQUEST,
            ReplyBody::full(wrong.render_response(id.as_json(), dialect)),
        );
    }
    let lane = session.streams.lane();
    let exchange = match session.agent.open_request(&id, Some(lane)) {
        Ok(exchange) => exchange,
        Err(refusal) => {
            return json_response(
                StatusCode::OK,
                ReplyBody::full(refusal.render_response(id.as_json(), dialect)),
            );
        }
    };
    exchange.set_forwarded_headers(forwarded);
    exchange.set_budget(
        endpoint
            .endpoint
            .directory
            .responses
            .budget(session.agent.id()),
    );
    let request = Request {
        caller: session.caller.clone(),
        call: exchange.clone(),
        method: method.into(),
        params,
        trace,
    };
    let answering = GuardedAnswer::new(|| endpoint.endpoint.routes.answer(request));
    let mut work = SessionRequest {
        answer: Some(answering),
        session: session.clone(),
        call: exchange,
        id,
        lane,
    };
    let exchange = work.call.clone();
    tokio::select! {
        biased;
        outcome = &mut work => work.outcome_response(&outcome),
        () = exchange.wait_until_stream_needed() => work.into_stream_response(endpoint),
        () = tokio::time::sleep(endpoint.response_options.stream_after) => work.into_stream_response(endpoint),
    }
}

/// An in-flight request. If the connection breaks and this is dropped, the request continues: in the legacy
/// protocol that is no cancellation.
struct SessionRequest {
    answer: Option<GuardedAnswer>,
    session: Arc<Session>,
    call: Arc<InFlightCall>,
    id: RequestId,
    lane: Lane,
}

impl Future for SessionRequest {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let answering = self
            .answer
            .as_mut()
            .expect("not polled after it was answered");
        let outcome = std::task::ready!(Pin::new(answering).poll(cx));
        self.answer = None;
        self.session.agent.finish_request(&self.id);
        Poll::Ready(outcome)
    }
}

impl SessionRequest {
    /// The response with the answer: as plain JSON, or at the end of the stream.
    fn outcome_response(&self, outcome: &Outcome) -> Response<ReplyBody> {
        self.call.finish();
        let (streams, caller) = (&self.session.streams, &self.session.caller);
        let dialect = caller.dialect();
        if !self.call.is_awaited() {
            // A cancelled request gets no answer (CMCP-054).
            streams.end(self.lane);
            return empty_response(StatusCode::ACCEPTED);
        }
        if self.call.has_needed_stream() {
            let stream = streams.open(self.lane, caller.version.has_stream_priming());
            streams.finish(
                self.lane,
                render_answer(self.id.as_json(), outcome, dialect),
            );
            return stream_response(event_stream_body(&self.session, stream));
        }
        let parts = render_answer_parts(self.id.as_json(), outcome, dialect);
        json_response(StatusCode::OK, ReplyBody::parts(parts))
    }

    /// Switches to a stream, because another message comes first, or the answer takes long.
    fn into_stream_response(mut self, endpoint: &HttpEndpoint) -> Response<ReplyBody> {
        let primed = self.session.caller.version.has_stream_priming();
        let streams = self.session.streams.clone();
        self.call.prime();
        let stream = streams.open(self.lane, primed);
        let (exchange, lane) = (self.call.clone(), self.lane);
        let poll_after = endpoint.response_options.poll_after.filter(|_| primed);
        if let Some(answering) = self.answer.take() {
            self.continue_in_background(answering);
        }
        if primed {
            task::spawn_detached("http.poll", async move {
                let polled = async {
                    match poll_after {
                        Some(after) => tokio::time::sleep(after).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = exchange.wait_until_paused() => streams.detach(lane),
                    () = polled => streams.detach(lane),
                    () = exchange.wait_until_ended() => {}
                }
            });
        }
        stream_response(event_stream_body(&self.session, stream))
    }

    fn continue_in_background(&self, answering: GuardedAnswer) {
        let (session, exchange, id, lane) = (
            self.session.clone(),
            self.call.clone(),
            self.id.clone(),
            self.lane,
        );
        task::spawn_detached("http.request", async move {
            let outcome = answering.await;
            session.agent.finish_request(&id);
            exchange.finish();
            if !exchange.is_awaited() {
                session.streams.end(lane);
            } else {
                let frame = render_answer(id.as_json(), &outcome, session.caller.dialect());
                session.streams.finish(lane, frame);
            }
        });
    }
}

impl Drop for SessionRequest {
    fn drop(&mut self) {
        if let Some(answering) = self.answer.take() {
            self.session.streams.interrupt();
            self.continue_in_background(answering);
        }
    }
}

fn handle_notification(
    endpoint: &HttpEndpoint,
    session: &Session,
    method: &str,
    params: Option<&str>,
) {
    let agent = &session.agent;
    session.note_method(method);
    match method {
        "notifications/cancelled" => agent.handle_cancelled(params),
        _ => {
            if method == "notifications/initialized" {
                agent.set_ready();
            }
            endpoint
                .endpoint
                .routes
                .handle_notification(&session.caller, method, params);
        }
    }
}

fn handle_response(
    session: &Session,
    text: &ByteString,
    id: Option<RequestId>,
    outcome: Result<&RawValue, &RawValue>,
) {
    let Some(id) = id else { return };
    let bytes = |raw: &RawValue| text.slice_ref(raw.get()).into_bytes();
    session
        .agent
        .settle_callback(&id, outcome.map(bytes).map_err(bytes));
}

/// Handles a batch of 2025-03-26: all answers in one JSON array; notifications and answers are accepted.
async fn handle_batch(
    endpoint: &Arc<HttpEndpoint>,
    session: &Arc<Session>,
    text: &ByteString,
) -> Response<ReplyBody> {
    let messages = jsonrpc::split_batch(text.as_bytes()).unwrap_or_default();
    if messages.is_empty() {
        return refusal_response(StatusCode::BAD_REQUEST, "Invalid Request: an empty batch");
    }
    let answers = messages
        .iter()
        .map(|raw| text.slice_ref(raw.get()))
        .map(|message| answer_batched(endpoint, session, message));
    let frames: Vec<Bytes> = join_all(answers).await.into_iter().flatten().collect();
    if frames.is_empty() {
        return empty_response(StatusCode::ACCEPTED);
    }
    let mut out = vec![b'['];
    out.extend(frames.join(&b','));
    out.push(b']');
    json_response(StatusCode::OK, ReplyBody::full(out))
}

async fn answer_batched(
    endpoint: &HttpEndpoint,
    session: &Arc<Session>,
    text: ByteString,
) -> Option<Bytes> {
    match jsonrpc::parse_text(&text) {
        Err(malformed) => {
            let agent = &session.agent;
            let was_answer = agent.settle_malformed(text.as_bytes(), &malformed);
            let frame = (!was_answer).then(|| malformed.to_frame()).flatten();
            frame.map(Bytes::from)
        }
        Ok(Message::Notification { method, params }) => {
            handle_notification(endpoint, session, &method, params.map(RawValue::get));
            None
        }
        Ok(Message::Response { id, outcome }) => {
            handle_response(session, &text, id, outcome);
            None
        }
        Ok(Message::Request {
            id,
            method,
            params,
            trace,
        }) => {
            let dialect = session.caller.dialect();
            session.note_method(&method);
            let exchange = match session.agent.open_request(&id, None) {
                Ok(exchange) => exchange,
                Err(refusal) => return Some(refusal.render_response(id.as_json(), dialect).into()),
            };
            exchange.set_budget(
                endpoint
                    .endpoint
                    .directory
                    .responses
                    .budget(session.agent.id()),
            );
            let request = Request {
                caller: session.caller.clone(),
                call: exchange.clone(),
                method: method.as_ref().into(),
                params: params.map(|p| text.slice_ref(p.get())),
                trace: Trace::from_params(params.map(RawValue::get), trace),
            };
            let outcome = GuardedAnswer::new(|| endpoint.endpoint.routes.answer(request)).await;
            session.agent.finish_request(&id);
            exchange
                .is_awaited()
                .then(|| render_answer(id.as_json(), &outcome, dialect))
        }
    }
}

#[cfg(test)]
mod tests;
