//! POST of a stateless request (MCP 2026-07-28, Streamable HTTP): answered as JSON, or as a stream if other
//! messages come before the answer. Closing the connection cancels it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use bytestring::ByteString;
use http::header::{HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use mgp_engine::tools::catalog::CatalogView;
use mgp_json::member;
use mgp_protocol::dialect::{Dialect, Version};
use mgp_protocol::jsonrpc::{Message, RequestId};
use mgp_protocol::mcp::request_headers::{self, ReceivedHeader};
use mgp_protocol::refusal::Refusal;
use mgp_transports::http::body::ReplyBody;
use mgp_transports::sse;
use tokio::sync::mpsc;

use super::responses::{json_response, refusal_response};
use super::{HEARTBEAT_INTERVAL, HttpEndpoint, empty_response, stream_response};
use crate::stateless::{self, RequestMeta, StatelessRequest};
use mgp_callers::request::{CallerSession, Outcome, render_answer, render_answer_parts};
use mgp_callers::{Credential, Outlet, STREAM_QUEUE, request};
use mgp_runtime::trace::Trace;

/// Handles one message of the stateless protocol.
pub(super) async fn handle_post(
    endpoint: &Arc<HttpEndpoint>,
    head: &Parts,
    text: &ByteString,
    message: Message<'_>,
    view: CatalogView,
    pass: &Credential,
) -> Response<ReplyBody> {
    let (id, method, params, trace) = match message {
        Message::Request {
            id,
            method,
            params,
            trace,
        } => (id, method, params, trace),
        Message::Notification { .. } => return empty_response(StatusCode::ACCEPTED),
        Message::Response { .. } => {
            return refusal_response(
                StatusCode::BAD_REQUEST,
                "Invalid Request: servers ask nothing in this era; answers go into `inputResponses`",
            );
        }
    };
    let headers = &head.headers;
    // Only lists have icons.
    let is_list = method.ends_with("/list");
    let address = is_list.then(|| endpoint.client_address(&head.uri, headers).into());
    let (sender, messages) = mpsc::channel(STREAM_QUEUE);
    let arrival = StatelessRequest {
        agent: pass.agent.clone(),
        groups: pass.groups.clone(),
        operator: pass.is_operator(),
        session: CallerSession::Stateless,
        address,
        view,
        id: id.clone(),
        method: method.as_ref().into(),
        params: params.map(|params| text.slice_ref(params.get())),
        trace: super::headers::read_trace(
            headers,
            Trace::from_params(params.map(serde_json::value::RawValue::get), trace),
        ),
        outlet: Outlet::Stream(sender),
    };
    let read = parse_request(endpoint, headers, &arrival);
    let dialect = match &read {
        Ok(stated) => stated.dialect(),
        Err(_) => Version::STATELESS.into(),
    };
    let begun = read.and_then(|stated| {
        let stateless_clients = &endpoint.endpoint.directory.stateless_clients;
        let client = stated.client.as_deref();
        let activity = stateless_clients.activity(&arrival.agent, &arrival.view, client);
        endpoint.endpoint.stateless.open(arrival, stated, activity)
    });
    match begun {
        Err(refused) => outcome_response(&id, &Err(refused), dialect),
        Ok(running) => {
            let forwarded = endpoint.endpoint.directory.forwarded_names.select(headers);
            let exchange = running.call();
            exchange.set_forwarded_headers(forwarded);
            exchange.set_budget(endpoint.endpoint.directory.responses.budget(&pass.agent));
            let outcome: PendingOutcome = Box::pin(running.into_answer());
            let conversation = StatelessCall {
                id,
                dialect,
                messages,
                outcome: Some(outcome),
            };
            conversation.into_response(endpoint).await
        }
    }
}

/// Parses the envelope and compares it with the headers (MCP 2026-07-28, request metadata).
fn parse_request(
    endpoint: &HttpEndpoint,
    headers: &HeaderMap,
    arrival: &StatelessRequest,
) -> Result<RequestMeta, Refusal> {
    let params = arrival.params.as_deref();
    let (stated, mirrored) = stateless::parse_request_meta(&arrival.method, params)?;
    let header = |name: &str| {
        ReceivedHeader::from_values(headers.get_all(name).iter().map(HeaderValue::as_bytes))
    };
    request_headers::check_version(&stated.version, header(request_headers::VERSION))?;
    stated.check_version()?;
    mirrored.check(header)?;
    let principal = request::identity(
        &arrival.agent,
        arrival.operator,
        &arrival.view,
        &arrival.groups,
    );
    if arrival.method == "tools/call"
        && let Some(name) = &mirrored.name
        && let Some(tool) = endpoint
            .endpoint
            .routes
            .find_tool(&arrival.view, name, &principal)
        && !tool.param_headers.is_empty()
    {
        let arguments = params.and_then(|params| member(params, "arguments"));
        request_headers::check_params(&tool.param_headers, arguments, header)?;
    }
    Ok(stated)
}

fn outcome_response(id: &RequestId, outcome: &Outcome, dialect: Dialect) -> Response<ReplyBody> {
    let status = match outcome {
        Ok(_) => StatusCode::OK,
        Err(refusal) => StatusCode::from_u16(refusal.http_status()).unwrap_or(StatusCode::OK),
    };
    json_response(
        status,
        ReplyBody::parts(render_answer_parts(id.as_json(), outcome, dialect)),
    )
}

type PendingOutcome = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// An in-flight request with the messages sent for it. Dropping it cancels the request.
struct StatelessCall {
    id: RequestId,
    dialect: Dialect,
    messages: mpsc::Receiver<Bytes>,
    outcome: Option<PendingOutcome>,
}

impl StatelessCall {
    /// The response: plain JSON if the answer comes soon and first; otherwise a stream.
    async fn into_response(mut self, endpoint: &HttpEndpoint) -> Response<ReplyBody> {
        let mut outcome = self.outcome.take().expect("it is there at first");
        let first = tokio::select! {
            biased;
            outcome = &mut outcome => Err(outcome),
            message = self.messages.recv() => Ok(message),
            () = tokio::time::sleep(endpoint.response_options.stream_after) => Ok(None),
        };
        let first_messages = match first {
            Err(outcome) => match self.messages.try_recv() {
                Err(_) => return outcome_response(&self.id, &outcome, self.dialect),
                Ok(message) => {
                    self.outcome = Some(Box::pin(std::future::ready(outcome)));
                    Some(message)
                }
            },
            Ok(message) => {
                self.outcome = Some(outcome);
                message
            }
        };
        let first_messages = first_messages.map(|message| sse::render_event(None, &message));
        let first_messages = futures_util::stream::iter(first_messages);
        let events = futures_util::StreamExt::chain(first_messages, self);
        stream_response(
            ReplyBody::stream(events).with_heartbeat(HEARTBEAT_INTERVAL, sse::render_comment("")),
        )
    }
}

impl futures_util::Stream for StatelessCall {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Poll::Ready(Some(message)) = self.messages.poll_recv(cx) {
            return Poll::Ready(Some(sse::render_event(None, &message)));
        }
        let Some(outcome) = &mut self.outcome else {
            return Poll::Ready(None);
        };
        let outcome = std::task::ready!(outcome.as_mut().poll(cx));
        // Sent before the answer, and queued while the queue was being read.
        let frame = match self.messages.try_recv() {
            Ok(message) => {
                self.outcome = Some(Box::pin(std::future::ready(outcome)));
                message
            }
            Err(_) => {
                self.outcome = None;
                render_answer(self.id.as_json(), &outcome, self.dialect)
            }
        };
        Poll::Ready(Some(sse::render_event(None, &frame)))
    }
}
