//! The door for agents of other nodes: each call over a link is one stateless request, about the one server
//! that its header names. The agent is who its node says it is; what it may do is decided here, like for any
//! other agent, but by grants alone.

mod judge;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mgp_cluster::agent_turns::{AgentTurn, takes_turn};
use mgp_cluster::links::{InboundNodeCall, PeerLink};
use mgp_engine::calls::outcome::of_refusal;
use mgp_engine::clock::micros;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::dialect::Dialect;
use mgp_protocol::federation::call::times::PartTimes;
use mgp_protocol::federation::call::{CallHeader, CallRefused, owner_refusal};
use mgp_protocol::federation::ends::StreamReset;
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

use self::judge::{JudgedCall, Judgement};
use crate::reception::Reception;
use crate::stateless::{Arrival, RunningCall};
use mgp_callers::exchange::Exchange;
use mgp_callers::exchange::rounds::{Outlet, STREAM_QUEUE};
use mgp_callers::request::{Caller, CallerSession};
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::task;
use mgp_runtime::time::moment;

/// Events that may wait for the reader of one channel: they are kept besides, and 128 channels of one node hold 36 MiB at
/// most here.
const EVENTS_QUEUE: usize = 4;

/// Of calls that took less, in microseconds, the node they came from is told nothing: in its own record, which has parts
/// from a millisecond on, they are not what took long.
const SHORTEST_US: u64 = 250;

/// What is still taken when the kernel shuts down: what a call that is under way may wait for.
const LAST_TAKEN: [&str; 2] = [Respond::METHOD, Cancel::METHOD];

/// Takes the calls of other nodes.
#[derive(Debug)]
pub struct NodeDoor {
    reception: Reception,
    ending: CancellationToken,
    /// Calls that were taken, until their callers have the answers. What lasts as long as its link is none of them.
    calls: TaskTracker,
    /// One of these ended without an answer while the kernel shut down.
    unanswered: AtomicBool,
}

/// A call that was taken, until dropped.
struct TakenCall<'a> {
    door: &'a NodeDoor,
    /// Its caller has the answer, or wants none.
    answered: bool,
    _token: TaskTrackerToken,
}

impl Drop for TakenCall<'_> {
    fn drop(&mut self) {
        if !self.answered && self.door.ending.is_cancelled() {
            self.door.unanswered.store(true, Ordering::Relaxed);
        }
    }
}

/// How the node that calls reads errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorFrames {
    /// An error is the server's; what this kernel refuses is a frame of its own.
    Apart,
    /// An older version: both are errors.
    Alike,
}

impl ErrorFrames {
    fn for_peer(peer: &PeerLink) -> Self {
        let features = peer.link.agreed().features;
        match features.contains(WireFeatures::REFUSALS) {
            true => Self::Apart,
            false => Self::Alike,
        }
    }
}

/// A request under way, with what is still to be said of it.
struct NodeConversation {
    running: RunningCall,
    dialect: Dialect,
    messages: mpsc::Receiver<Bytes>,
}

impl NodeDoor {
    /// The door to what this reception has.
    #[must_use]
    pub fn new(reception: Reception) -> Arc<Self> {
        Arc::new(Self {
            reception,
            ending: CancellationToken::new(),
            calls: TaskTracker::new(),
            unanswered: AtomicBool::new(false),
        })
    }

    /// Takes no new calls from now on: their callers are told that nothing of them was begun.
    pub fn close(&self) {
        self.ending.cancel();
        self.calls.close();
    }

    /// After [`Self::close`]: resolves when all calls that were taken have ended. True when their callers have the
    /// answers.
    pub async fn drain(&self) -> bool {
        self.calls.wait().await;
        !self.unanswered.load(Ordering::Relaxed)
    }

    /// Where the calls of other nodes go. Each has a task of its own: a link lets a node begin
    /// [`mgp_transports::quic::CALLS`] at a time, [`mgp_transports::quic::LISTENS`] more that wait for news and
    /// [`mgp_transports::quic::FOLLOWS`] for events, and no more links than one for each node last.
    #[must_use]
    pub fn calls(self: &Arc<Self>) -> EventSink<InboundNodeCall> {
        let door = self.clone();
        EventSink::new(move |call: InboundNodeCall| {
            let door = door.clone();
            task::detached("node_door.call", async move { door.take(call).await });
        })
    }

    /// Answers one call. Dropped by its caller, it is cancelled.
    async fn take(&self, InboundNodeCall { peer, call }: InboundNodeCall) {
        let (input, output) = (call.input, call.output);
        let (kind, header) = (call.kind, call.header);
        let mut taken = (kind == StreamKind::Call).then(|| TakenCall {
            door: self,
            answered: false,
            _token: self.calls.token(),
        });
        let delivered = output.stopped();
        let frames = ErrorFrames::for_peer(&peer);
        let is_last = LAST_TAKEN.contains(&&*header.method);
        let is_late = self.ending.is_cancelled() && !is_last;
        let judgement = match judge::judge(&self.reception, &peer, &header, call.params, kind) {
            // The answer to a question belongs to a call that was taken before.
            Judgement::Taken(judged) if is_late && judged.stated.state.is_none() => {
                Judgement::Refused(refusal_at_shutdown(&peer))
            }
            judgement @ (Judgement::Refused(_) | Judgement::Answered(..) | Judgement::Taken(_)) => {
                judgement
            }
        };
        let answered = match judgement {
            Judgement::Refused(refused) => output.refuse(&refused).await,
            Judgement::Answered(refusal, dialect) => {
                let first = CallOutcome::NotExecuted;
                refuse(output, &refusal, (dialect, frames), first).await
            }
            Judgement::Taken(judged) => {
                self.carry_out(*judged, (&peer, &header), input, output)
                    .await
            }
        };
        let answered = match answered {
            // In the place of an answer that is too large stands a refusal.
            Ok(()) | Err(WriteFailure::TooLarge { .. }) => {
                delivered.await;
                true
            }
            Err(WriteFailure::Stopped(_)) => true,
            Err(WriteFailure::Gone(_)) => peer.link.gone().is_some(),
        };
        if let Some(taken) = &mut taken {
            taken.answered = answered;
        }
    }

    /// Makes a call that may be made, once it is its agent's turn.
    async fn carry_out(
        &self,
        judged: JudgedCall,
        (peer, header): (&PeerLink, &CallHeader),
        input: CallInput,
        output: CallOutput,
    ) -> Result<(), WriteFailure> {
        let turn = turn(peer, &header.method, &judged.agent, header.left_ms).await;
        let Some(_turn) = turn else {
            return output.refuse(&CallRefused::Late).await;
        };
        let frames = ErrorFrames::for_peer(peer);
        // What comes back with the answer to a question belongs to a call that was made.
        let least = match judged.stated.state {
            Some(_) => CallOutcome::Unknown,
            None => CallOutcome::NotExecuted,
        };
        let session = match header.has_session {
            true => CallerSession::AtNode,
            false => CallerSession::Stateless,
        };
        match self.begin(judged, session) {
            Ok(conversation) => {
                let last = (frames, least);
                self.converse(conversation, peer, (input, output), last)
                    .await
            }
            Err((refusal, dialect)) => refuse(output, &refusal, (dialect, frames), least).await,
        }
    }

    fn begin(
        &self,
        judged: JudgedCall,
        session: CallerSession,
    ) -> Result<NodeConversation, (Refusal, Dialect)> {
        let JudgedCall {
            agent,
            server,
            id,
            method,
            params,
            trace,
            stated,
        } = judged;
        let waiting = match &*method {
            Subscribe::METHOD => EVENTS_QUEUE,
            _ => STREAM_QUEUE,
        };
        let (outlet, messages) = mpsc::channel(waiting);
        let (dialect, view) = (stated.dialect(), CatalogView::One(server));
        let clients = &self.reception.directory.stateless_clients;
        let activity = clients.activity(&agent, &view, stated.client.as_deref());
        let arrival = Arrival {
            agent,
            operator: false,
            session,
            view,
            id,
            method,
            params: Some(params),
            trace,
            outlet: Outlet::Stream(outlet),
        };
        let running = self.reception.stateless.open(arrival, stated, activity);
        match running {
            Ok(running) => Ok(NodeConversation {
                running,
                dialect,
                messages,
            }),
            Err(refusal) => Err((refusal, dialect)),
        }
    }

    /// Relays both ways until the answer; ends with the caller, which cancels the request.
    ///
    /// # Errors
    /// The caller has no answer.
    async fn converse(
        &self,
        conversation: NodeConversation,
        peer: &PeerLink,
        (mut input, mut output): (CallInput, CallOutput),
        (frames, least): (ErrorFrames, CallOutcome),
    ) -> Result<(), WriteFailure> {
        let NodeConversation {
            running,
            dialect,
            mut messages,
        } = conversation;
        let (caller, exchange) = (running.caller().clone(), running.exchange().clone());
        let mut answering = running.answer();
        let mut stopped = Box::pin(output.stopped());
        let mut says = true;
        let outcome = loop {
            tokio::select! {
                biased;
                Some(message) = messages.recv() => {
                    relay(&mut output, message).await?;
                }
                outcome = &mut answering => break outcome,
                why = &mut stopped => {
                    return Err(WriteFailure::Stopped(why.unwrap_or(StreamReset::Abandoned)));
                }
                said = input.next(), if says => match said {
                    Ok(CallFrame::Relayed(message)) => self.note(&caller, &message),
                    // It has nothing more to say.
                    Err(StreamFailure::Unfinished) => says = false,
                    Ok(
                        CallFrame::Result(_)
                        | CallFrame::Error(_)
                        | CallFrame::Refused(_)
                        | CallFrame::OwnerRefusal(_),
                    ) => {
                        return Err(WriteFailure::Stopped(StreamReset::Malformed));
                    }
                    // It wants no answer.
                    Err(StreamFailure::Reset(why)) => return Err(WriteFailure::Stopped(why)),
                    Err(failure) => return Err(WriteFailure::Gone(failure)),
                },
            }
        };
        // Sent before the answer, and queued while the queue was being read.
        while let Ok(message) = messages.try_recv() {
            relay(&mut output, message).await?;
        }
        if let Some(times) = took(&exchange) {
            output.took(times);
        }
        // Its server was stopped before the call reached it.
        let not_begun = matches!(outcome, Err(Refusal::NotReady { .. }));
        match outcome {
            Err(_) if not_begun && self.ending.is_cancelled() => {
                output.refuse(&refusal_at_shutdown(peer)).await
            }
            Ok(result) => output.result(result).await,
            Err(refusal) => refuse(output, &refusal, (dialect, frames), least).await,
        }
    }

    /// What the caller says while its call is under way.
    fn note(&self, caller: &Arc<Caller>, message: &Bytes) {
        if let Ok(Message::Notification { method, params }) = jsonrpc::parse(message)
            && judge::may_notify(&caller.agent, &method)
        {
            let params = params.map(RawValue::get);
            self.reception.routes.note(caller, &method, params);
        }
    }
}

/// Nothing of the call was begun. An older node knows no better reason than that there is no room.
fn refusal_at_shutdown(peer: &PeerLink) -> CallRefused {
    match peer.link.agreed().features.contains(WireFeatures::SHUTDOWN) {
        true => CallRefused::ShuttingDown,
        false => CallRefused::Busy,
    }
}

/// The turn of a call that has one: a node of an earlier version lets one agent begin more than an agent may. None when
/// the call's time is over before it comes.
async fn turn(
    peer: &PeerLink,
    method: &str,
    agent: &AgentId,
    left_ms: u64,
) -> Option<Option<AgentTurn>> {
    if !takes_turn(method) {
        return Some(None);
    }
    let left = Duration::from_millis(left_ms);
    let turn = tokio::time::timeout(left, peer.incoming.enter(agent)).await;
    turn.ok().map(Some)
}

/// Where the time of a call went here, up to now; `None` of one that took no time anybody looks for.
fn took(exchange: &Exchange) -> Option<PartTimes> {
    let measured = exchange.times_abroad().measured()?;
    let whole = micros(moment().since(exchange.began()));
    let times = PartTimes { whole, ..measured };
    (whole >= SHORTEST_US).then_some(times)
}

/// Fails when the caller reads no more. A message that is too large is left out: the answer still comes.
async fn relay(output: &mut CallOutput, message: Bytes) -> Result<(), WriteFailure> {
    match output.relay(message).await {
        Ok(()) | Err(WriteFailure::TooLarge { .. }) => Ok(()),
        failed @ Err(WriteFailure::Stopped(_) | WriteFailure::Gone(_)) => failed,
    }
}

/// The last frame of a call without a result. `least`: what is known of the call whatever the refusal says of this part
/// of it.
async fn refuse(
    output: CallOutput,
    refusal: &Refusal,
    (dialect, frames): (Dialect, ErrorFrames),
    least: CallOutcome,
) -> Result<(), WriteFailure> {
    match (frames, refusal) {
        // The server's own error, byte for byte; the kernel of the agent says it in the words of the agent.
        (ErrorFrames::Apart, Refusal::Peer(error)) => {
            output.error(error.get().to_owned().into()).await
        }
        (ErrorFrames::Apart, refusal) => {
            let outcome = match of_refusal(refusal) {
                CallOutcome::NotExecuted => least,
                known @ (CallOutcome::Done | CallOutcome::Unknown) => known,
            };
            let refusal = OwnerRefusal {
                cause: owner_refusal::cause(refusal),
                outcome,
                answer: refusal.render_in(dialect).into(),
            };
            output.reject(&refusal).await
        }
        (ErrorFrames::Alike, refusal) => match refusal.render_in(dialect) {
            Rendered::Result(result) => output.result(result.into()).await,
            Rendered::Error(error) => output.error(error.into()).await,
        },
    }
}
