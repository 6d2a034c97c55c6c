//! The endpoint for agents of other nodes: each call over a link is one stateless request, for the one
//! server that its header names. The node vouches for the agent's identity; its access is decided here,
//! like for any other agent, but by grants alone.

mod authorization;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mgp_cluster::links::{InboundNodeCall, PeerLink};
use mgp_cluster::{AgentPermit, needs_permit};
use mgp_engine::clock::to_micros_rounded_up;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::dialect::Dialect;
use mgp_protocol::federation::call::timings::CallTimings;
use mgp_protocol::federation::call::{CallHeader, CallRejection};
use mgp_protocol::federation::close_codes::StreamReset;
use mgp_protocol::federation::frames::StreamKind;
use mgp_protocol::federation::hello::WireFeatures;
use mgp_protocol::ids::AgentId;
use mgp_protocol::jsonrpc::{self, Message};
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::callback::Respond;
use mgp_protocol::mgp::events::Subscribe;
use mgp_protocol::mgp::stream::Cancel;
use mgp_protocol::refusal::owner_refusal::OwnerRefusal;
use mgp_protocol::refusal::{CallOutcome, Refusal, Rendered};
use mgp_transports::quic::{CallFrame, CallInput, CallOutput, StreamFailure, WriteFailure};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use self::authorization::{Authorization, AuthorizedCall};
use crate::endpoint_context::EndpointContext;
use crate::stateless::{RunningCall, StatelessRequest};
use mgp_callers::request::{Caller, CallerSession};
use mgp_callers::{InFlightCall, Outlet, STREAM_QUEUE};
use mgp_engine::policy::access::ClaimedGroups;
use mgp_runtime::time::monotonic_now;
use mgp_runtime::{EventSink, task};

/// Buffered events for the reader of one channel: they are also stored elsewhere, and 128 channels of one
/// node hold 36 MiB at most here.
const EVENTS_QUEUE: usize = 4;

/// For shorter calls, in microseconds, the calling node gets no timings: its own record starts at a
/// millisecond and does not need them.
const MIN_REPORTED_US: u64 = 250;

/// The methods still accepted during shutdown: an in-flight call may wait for them.
const ALLOWED_WHILE_DRAINING: [&str; 2] = [Respond::METHOD, Cancel::METHOD];

/// Handles the calls of other nodes.
#[derive(Debug)]
pub struct NodeEndpoint {
    endpoint: EndpointContext,
    closing: CancellationToken,
    /// Accepted calls, until their callers have the answers. Requests that last as long as their link are
    /// not counted.
    calls: TaskTracker,
    /// Set if one of these ended without an answer while the kernel shut down.
    unanswered: AtomicBool,
}

/// An accepted call, until dropped.
struct AcceptedCall<'a> {
    endpoint: &'a NodeEndpoint,
    /// True if its caller has the answer, or does not want it.
    is_answered: bool,
    _token: TaskTrackerToken,
}

impl Drop for AcceptedCall<'_> {
    fn drop(&mut self) {
        if !self.is_answered && self.endpoint.closing.is_cancelled() {
            self.endpoint.unanswered.store(true, Ordering::Relaxed);
        }
    }
}

/// How the calling node reads errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorFrames {
    /// An error is the server's; a refusal of this kernel has a frame of its own.
    Separate,
    /// An older version: both are errors.
    Combined,
}

impl ErrorFrames {
    fn for_peer(peer: &PeerLink) -> Self {
        let features = peer.link.negotiated().features;
        if features.contains(WireFeatures::REFUSALS) {
            Self::Separate
        } else {
            Self::Combined
        }
    }
}

/// An in-flight request with its pending messages.
struct NodeCall {
    running: RunningCall,
    dialect: Dialect,
    messages: mpsc::Receiver<Bytes>,
}

impl NodeEndpoint {
    /// Creates the endpoint for this context.
    #[must_use]
    pub fn new(endpoint: EndpointContext) -> Arc<Self> {
        Arc::new(Self {
            endpoint,
            closing: CancellationToken::new(),
            calls: TaskTracker::new(),
            unanswered: AtomicBool::new(false),
        })
    }

    /// Rejects new calls from now on: their callers learn that no call was started.
    pub fn close(&self) {
        self.closing.cancel();
        self.calls.close();
    }

    /// After [`Self::close`]: resolves when all accepted calls have ended. True if their callers have the
    /// answers.
    pub async fn drain(&self) -> bool {
        self.calls.wait().await;
        !self.unanswered.load(Ordering::Relaxed)
    }

    /// Receives the calls of other nodes. Each has a task of its own: a link lets a node start
    /// [`mgp_transports::quic::MAX_CALLS`] at a time, [`mgp_transports::quic::MAX_LISTENS`] more that wait
    /// for notifications and [`mgp_transports::quic::MAX_FOLLOWS`] for events, and there is at most one
    /// link for each node.
    #[must_use]
    pub fn call_sink(self: &Arc<Self>) -> EventSink<InboundNodeCall> {
        let endpoint = self.clone();
        EventSink::new(move |call: InboundNodeCall| {
            let endpoint = endpoint.clone();
            task::spawn_detached(
                "node_door.call",
                async move { endpoint.handle_call(call).await },
            );
        })
    }

    /// Answers one call. Cancelled if its caller drops it.
    async fn handle_call(&self, InboundNodeCall { peer, call }: InboundNodeCall) {
        let (input, output) = (call.input, call.output);
        let (kind, header) = (call.kind, call.header);
        let mut accepted = (kind == StreamKind::Call).then(|| AcceptedCall {
            endpoint: self,
            is_answered: false,
            _token: self.calls.token(),
        });
        let delivered = output.wait_stopped();
        let frames = ErrorFrames::for_peer(&peer);
        let is_last = ALLOWED_WHILE_DRAINING.contains(&&*header.method);
        let is_late = self.closing.is_cancelled() && !is_last;
        let judgement =
            match authorization::authorize(&self.endpoint, &peer, &header, call.params, kind) {
                // An answer to a callback belongs to a call that was accepted before.
                Authorization::Accepted(authorized)
                    if is_late && authorized.meta.state.is_none() =>
                {
                    Authorization::RefusedByNode(refusal_at_shutdown(&peer))
                }
                judgement @ (Authorization::RefusedByNode(_)
                | Authorization::RefusedByServer(..)
                | Authorization::Accepted(_)) => judgement,
            };
        let answered = match judgement {
            Authorization::RefusedByNode(refused) => output.send_refused(&refused).await,
            Authorization::RefusedByServer(refusal, dialect) => {
                let first = CallOutcome::NotExecuted;
                send_refusal(output, &refusal, (dialect, frames), first).await
            }
            Authorization::Accepted(authorized) => {
                self.execute(*authorized, (&peer, &header), input, output)
                    .await
            }
        };
        let answered = match answered {
            // A refusal replaces an answer that is too large.
            Ok(()) | Err(WriteFailure::TooLarge { .. }) => {
                delivered.await;
                true
            }
            Err(WriteFailure::Stopped(_)) => true,
            Err(WriteFailure::Gone(_)) => peer.link.end_reason().is_some(),
        };
        if let Some(accepted) = &mut accepted {
            accepted.is_answered = answered;
        }
    }

    /// Executes an authorized call, once it has its agent's permit.
    async fn execute(
        &self,
        authorized: AuthorizedCall,
        (peer, header): (&PeerLink, &CallHeader),
        input: CallInput,
        output: CallOutput,
    ) -> Result<(), WriteFailure> {
        let turn = acquire_permit(peer, &header.method, &authorized.agent, header.left_ms).await;
        let Some(_turn) = turn else {
            return output.send_refused(&CallRejection::Late).await;
        };
        let frames = ErrorFrames::for_peer(peer);
        // The request with the answer to a callback belongs to a call that was made.
        let least = match authorized.meta.state {
            Some(_) => CallOutcome::Unknown,
            None => CallOutcome::NotExecuted,
        };
        let session = if header.has_session {
            CallerSession::RemoteSession
        } else {
            CallerSession::Stateless
        };
        match self.begin_call(authorized, session) {
            Ok(conversation) => {
                if least == CallOutcome::Unknown {
                    conversation.running.call().start_attempt(true);
                }
                self.relay_until_answer(conversation, peer, (input, output), frames)
                    .await
            }
            Err((refusal, dialect)) => {
                send_refusal(output, &refusal, (dialect, frames), least).await
            }
        }
    }

    fn begin_call(
        &self,
        authorized: AuthorizedCall,
        session: CallerSession,
    ) -> Result<NodeCall, (Refusal, Dialect)> {
        let AuthorizedCall {
            agent,
            server,
            id,
            method,
            params,
            trace,
            meta: stated,
        } = authorized;
        let waiting = match &*method {
            Subscribe::METHOD => EVENTS_QUEUE,
            _ => STREAM_QUEUE,
        };
        let (outlet, messages) = mpsc::channel(waiting);
        let (dialect, view) = (stated.dialect(), CatalogView::One(server));
        let clients = &self.endpoint.directory.stateless_clients;
        let activity = clients.activity(&agent, &view, stated.client.as_deref());
        let arrival = StatelessRequest {
            agent,
            // What another node says of its agents gives them nothing.
            groups: ClaimedGroups::default(),
            operator: false,
            session,
            address: None,
            view,
            id,
            method,
            params: Some(params),
            trace,
            outlet: Outlet::Stream(outlet),
        };
        let running = self.endpoint.stateless.open(arrival, stated, activity);
        match running {
            Ok(running) => Ok(NodeCall {
                running,
                dialect,
                messages,
            }),
            Err(refusal) => Err((refusal, dialect)),
        }
    }

    /// Relays messages both ways until the answer; ends with the caller, which cancels the request.
    ///
    /// # Errors
    /// The caller did not receive the answer.
    async fn relay_until_answer(
        &self,
        conversation: NodeCall,
        peer: &PeerLink,
        (mut input, mut output): (CallInput, CallOutput),
        frames: ErrorFrames,
    ) -> Result<(), WriteFailure> {
        let NodeCall {
            running,
            dialect,
            mut messages,
        } = conversation;
        let (caller, exchange) = (running.caller().clone(), running.call().clone());
        let mut answering = running.into_answer();
        let mut stopped = Box::pin(output.wait_stopped());
        let mut is_open = true;
        let outcome = loop {
            tokio::select! {
                biased;
                Some(message) = messages.recv() => {
                    relay_message(&mut output, message).await?;
                }
                outcome = &mut answering => break outcome,
                why = &mut stopped => {
                    return Err(WriteFailure::Stopped(why.unwrap_or(StreamReset::Abandoned)));
                }
                said = input.next(), if is_open => match said {
                    Ok(CallFrame::Relayed(message)) => self.handle_notification(&caller, &message),
                    // The caller sends nothing more.
                    Err(StreamFailure::Unfinished) => is_open = false,
                    Ok(
                        CallFrame::Result(_)
                        | CallFrame::Error(_)
                        | CallFrame::Refused(_)
                        | CallFrame::OwnerRefusal(_),
                    ) => {
                        return Err(WriteFailure::Stopped(StreamReset::Malformed));
                    }
                    // The caller does not want an answer.
                    Err(StreamFailure::Reset(why)) => return Err(WriteFailure::Stopped(why)),
                    Err(failure) => return Err(WriteFailure::Gone(failure)),
                },
            }
        };
        // Sent before the answer, and queued while the queue was being read.
        while let Ok(message) = messages.try_recv() {
            relay_message(&mut output, message).await?;
        }
        if let Some(times) = call_times(&exchange) {
            output.set_times(times);
        }
        // Its server was stopped before the call reached it.
        let not_begun = matches!(outcome, Err(Refusal::NotReady { .. }));
        match outcome {
            Err(_) if not_begun && self.closing.is_cancelled() => {
                output.send_refused(&refusal_at_shutdown(peer)).await
            }
            Ok(result) => output.send_result(result).await,
            Err(refusal) => {
                let known = exchange.outcome_after(&refusal);
                send_refusal(output, &refusal, (dialect, frames), known).await
            }
        }
    }

    /// Handles the caller's messages while its call is in flight.
    fn handle_notification(&self, caller: &Arc<Caller>, message: &Bytes) {
        if let Ok(Message::Notification { method, params }) = jsonrpc::parse(message)
            && authorization::can_notify(&caller.agent, &method)
        {
            let params = params.map(RawValue::get);
            self.endpoint
                .routes
                .handle_notification(caller, &method, params);
        }
    }
}

/// The rejection during shutdown: no call was started. For an older node the reason is missing capacity.
fn refusal_at_shutdown(peer: &PeerLink) -> CallRejection {
    if peer
        .link
        .negotiated()
        .features
        .contains(WireFeatures::SHUTDOWN)
    {
        CallRejection::ShuttingDown
    } else {
        CallRejection::Busy
    }
}

/// Waits for the permit of a call: a node of an earlier version lets one agent start more calls than
/// allowed. None if the call's deadline passes before.
async fn acquire_permit(
    peer: &PeerLink,
    method: &str,
    agent: &AgentId,
    left_ms: u64,
) -> Option<Option<AgentPermit>> {
    if !needs_permit(method) {
        return Some(None);
    }
    let remaining = Duration::from_millis(left_ms);
    let turn = tokio::time::timeout(remaining, peer.incoming.acquire(agent)).await;
    turn.ok().map(Some)
}

/// The timings of a call on this node so far; `None` for a call that was too short.
fn call_times(exchange: &InFlightCall) -> Option<CallTimings> {
    let measured = exchange.remote_times().local()?;
    let whole = to_micros_rounded_up(monotonic_now().duration_since(exchange.started_at()));
    let times = CallTimings { whole, ..measured };
    (whole >= MIN_REPORTED_US).then_some(times)
}

/// Relays a message; fails when the caller reads no more. A message that is too large is dropped: the
/// answer still follows.
async fn relay_message(output: &mut CallOutput, message: Bytes) -> Result<(), WriteFailure> {
    match output.relay(message).await {
        Ok(()) | Err(WriteFailure::TooLarge { .. }) => Ok(()),
        failed @ Err(WriteFailure::Stopped(_) | WriteFailure::Gone(_)) => failed,
    }
}

/// Sends the last frame of a call without a result, and whether it took effect.
async fn send_refusal(
    output: CallOutput,
    refusal: &Refusal,
    (dialect, frames): (Dialect, ErrorFrames),
    outcome: CallOutcome,
) -> Result<(), WriteFailure> {
    match (frames, refusal) {
        // The server's own error, byte for byte; the agent's kernel translates it for the agent.
        (ErrorFrames::Separate, Refusal::Peer(error)) => {
            output.send_error(error.get().to_owned().into()).await
        }
        (ErrorFrames::Separate, refusal) => {
            let refusal = OwnerRefusal {
                cause: refusal.spec().owner_cause,
                outcome,
                answer: refusal.render_for_dialect(dialect).into(),
            };
            output.send_refusal(&refusal).await
        }
        (ErrorFrames::Combined, refusal) => match refusal.render_for_dialect(dialect) {
            Rendered::Result(result) => output.send_result(result.into()).await,
            Rendered::Error(error) => output.send_error(error.into()).await,
        },
    }
}
