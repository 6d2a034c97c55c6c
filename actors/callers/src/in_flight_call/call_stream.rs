//! The actor that streams the chunks of one call, from the call's request for chunks until its answer is
//! sent. Receives from: the link of its server, the requests of its reader. Sends to: the reader's
//! connection, and the server through the link's event sink.
//!
//! Senders hand over a chunk without waiting; only this actor waits for a slow reader.

pub(crate) mod budget;
mod chunk;
mod guard;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mgp_engine::callers::call_stream::{BUFFERED_BYTES_MAX, CallStream, CallStreamEffect};
use mgp_engine::clock::MonotonicTime;
use mgp_protocol::mgp::stream::Chunk;
use mgp_sync::{Credit, SendWindow};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, ActorRuntime};
use tokio::time::timeout;

use self::budget::AgentStreamBudget;
use self::chunk::StreamChunk;
use self::guard::GuardedStream;
use super::InFlightCall;
use super::delivery::Receipt;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::monotonic_now;
use mgp_runtime::{EventSink, Mailbox, Queued, Reply, task};

pub use self::chunk::{ChunkForm, PartialResult};
pub use self::guard::ChunkGuard;

/// How long the reader may take for one chunk while the stream is flushed before the answer.
const FLUSH_STALL: Duration = Duration::from_millis(250);
/// The most flush rounds: an answer is delayed by two seconds at most.
const FLUSH_ROUNDS: usize = 8;

/// Notifications to the server of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallStreamNotice {
    /// The wanted number of chunks per second; 0 pauses the stream.
    Pace(u32),
    /// The missing chunks.
    Gap(Vec<u64>),
}

/// Messages to the actor.
#[derive(Debug)]
pub enum CallStreamMsg {
    /// The call was sent to its server, whose chunks are guarded like this.
    Started(EventSink<CallStreamNotice>, Option<ChunkGuard>),
    /// A chunk arrived: its index and whether it is the last.
    Chunk(u64, bool, Arc<StreamChunk>),
    /// A chunk of this index arrived and did not fit into the full queue.
    Overflowed(u64, bool),
    /// The reader took a chunk that was not counted.
    CapacityReturned,
    /// The reader set a pace.
    Pace(u32),
    /// The reader reported missing chunks.
    Gap(Vec<u64>),
    /// The timer fired.
    TimerFired,
    /// Returns the partial result.
    GetPartial(Reply<PartialResult>),
    /// The call is answered; replies when all chunks that the reader accepts are sent.
    Finish(Reply<()>),
}

/// Handle of the actor.
#[derive(Clone, Debug)]
pub struct CallStreamHandle {
    mailbox: Mailbox<CallStreamMsg>,
    shared: Arc<StreamShared>,
}

/// The state shared by the actor, the links and the readers.
#[derive(Debug)]
struct StreamShared {
    /// Credit for buffered bytes: in the mailbox, in the engine and in delivery.
    waiting: Arc<Credit>,
    budget: Arc<AgentStreamBudget>,
    window: SendWindow,
    /// The mailbox to wake when credit is returned; set once, right after the start.
    mailbox: OnceLock<Mailbox<CallStreamMsg>>,
    /// Set once a chunk was accepted: another attempt of the call would start the stream anew.
    has_chunks: AtomicBool,
    delivered: AtomicU64,
}

impl CallStreamHandle {
    /// Starts the stream of a call below `parent`, without waiting, because a call is in flight; `None`
    /// when the kernel is shutting down.
    pub fn start(
        parent: ActorCell,
        call: &Arc<InFlightCall>,
        form: ChunkForm,
        budget: Arc<AgentStreamBudget>,
    ) -> Option<Self> {
        let shared = Arc::new(StreamShared {
            waiting: Credit::new(BUFFERED_BYTES_MAX as u64),
            budget,
            window: SendWindow::default(),
            mailbox: OnceLock::new(),
            has_chunks: AtomicBool::new(false),
            delivered: AtomicU64::new(0),
        });
        let actor = CallStreamActor {
            shared: shared.clone(),
            call: call.clone(),
            form,
        };
        let (actor, _) = ActorRuntime::spawn_linked_instant(None, actor, (), parent).ok()?;
        let mailbox = Mailbox::new(actor);
        let _ = shared.mailbox.set(mailbox.clone());
        Some(Self { mailbox, shared })
    }

    /// False when chunks of an earlier attempt of the call were accepted: those of another attempt cannot
    /// be distinguished from them.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        !self.shared.has_chunks.load(Ordering::Relaxed)
    }

    /// Marks the call as sent to its server, which is notified through `server`, and whose chunks are guarded.
    pub fn begin(&self, server: EventSink<CallStreamNotice>, guard: Option<ChunkGuard>) {
        if self.is_fresh() {
            let _ = self.mailbox.send(CallStreamMsg::Started(server, guard));
        }
    }

    /// Hands over a chunk with its `params`. False when it is lost: no index, or no capacity.
    #[must_use]
    pub fn chunk(&self, params: &str, chunk: &Chunk<'_>) -> bool {
        let Some(index) = chunk.index() else {
            return false;
        };
        self.shared.has_chunks.store(true, Ordering::Relaxed);
        let (is_last, bytes) = (chunk.is_done(), StreamChunk::weight(params));
        let charge = self.shared.waiting.try_take(bytes);
        match charge.and_then(|charge| Some((charge, self.shared.budget.reserve_waiting(bytes)?))) {
            Some(charges) => {
                let chunk = Arc::new(StreamChunk::new(params, chunk, charges));
                let message = CallStreamMsg::Chunk(index, is_last, chunk);
                self.mailbox.send(message).is_ok()
            }
            None => {
                let _ = self.mailbox.send(CallStreamMsg::Overflowed(index, is_last));
                false
            }
        }
    }

    /// Sets the pace that the reader asks for.
    pub fn set_pace(&self, rate: u32) {
        let _ = self.mailbox.send(CallStreamMsg::Pace(rate));
    }

    /// Reports the chunks that the reader misses.
    pub fn report_gap(&self, missing: Vec<u64>) {
        let _ = self.mailbox.send(CallStreamMsg::Gap(missing));
    }

    /// Returns the partial result.
    pub async fn partial_result(&self) -> Option<PartialResult> {
        self.mailbox.ask(CallStreamMsg::GetPartial).await.ok()
    }

    /// Resolves when all chunks that arrived are sent, as far as the reader accepts them.
    pub async fn finish(&self) {
        let (reply, mut flushed) = Reply::new();
        if self
            .mailbox
            .send_to_self(CallStreamMsg::Finish(reply))
            .is_err()
        {
            return;
        }
        for _ in 0..FLUSH_ROUNDS {
            let before = self.shared.delivered.load(Ordering::Relaxed);
            let ended = timeout(FLUSH_STALL, &mut flushed).await.is_ok();
            if ended || before == self.shared.delivered.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Stops the actor.
    pub(crate) fn stop(&self) {
        self.mailbox.stop("its call has its answer");
    }
}

impl StreamShared {
    /// Releases the credit of a frame with so many bytes of chunk.
    fn release_bytes(&self, bytes: usize) {
        if self.window.release(bytes)
            && let Some(mailbox) = self.mailbox.get()
        {
            let _ = mailbox.send_to_self(CallStreamMsg::CapacityReturned);
        }
    }
}

/// Fixed at construction.
#[derive(Debug)]
struct CallStreamActor {
    shared: Arc<StreamShared>,
    call: Arc<InFlightCall>,
    form: ChunkForm,
}

/// The state of the actor.
#[derive(Debug)]
struct CallStreamState {
    mailbox: Mailbox<CallStreamMsg>,
    stream: CallStream<Arc<StreamChunk>>,
    server: Option<EventSink<CallStreamNotice>>,
    guarded: Option<GuardedStream>,
    flushed: Option<Reply<()>>,
    /// The time it fires, and the task that waits for it.
    timer: Option<(MonotonicTime, SupervisedTask<()>)>,
    effects: Vec<CallStreamEffect<Arc<StreamChunk>>>,
}

impl Actor for CallStreamActor {
    type Msg = Queued<CallStreamMsg>;
    type State = CallStreamState;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(CallStreamState {
            mailbox: Mailbox::new(myself),
            stream: CallStream::default(),
            server: None,
            guarded: None,
            flushed: None,
            timer: None,
            effects: Vec::new(),
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let now = monotonic_now();
        let CallStreamState {
            stream, effects, ..
        } = state;
        let back = self.shared.window.collect();
        if back.frames > 0 {
            stream.acknowledge(back.frames, back.bytes, now, effects);
        }
        match queued.into_message() {
            CallStreamMsg::Started(server, guard) => {
                state.server = Some(server);
                state.guarded = guard.map(GuardedStream::new);
            }
            CallStreamMsg::Chunk(index, is_last, chunk) => {
                let about = (index, chunk.bytes(), is_last);
                // The engine finds a dropped chunk by its index.
                let _ = stream.push_chunk(about, chunk, now, effects);
            }
            CallStreamMsg::Overflowed(index, is_last) => {
                stream.skip_chunk((index, is_last), now, effects);
            }
            CallStreamMsg::CapacityReturned => {}
            CallStreamMsg::Pace(rate) => stream.set_pace(rate, now, effects),
            CallStreamMsg::Gap(missing) => stream.resend_missing(&missing, now, effects),
            CallStreamMsg::TimerFired => {
                state.timer = None;
                stream.handle_timeout(now, effects);
            }
            CallStreamMsg::GetPartial(reply) => {
                let partial = PartialResult::from_chunks(&stream.available_chunks());
                reply.send(match &state.guarded {
                    Some(guarded) => guarded.guard_partial(partial),
                    None => partial,
                })
            }
            CallStreamMsg::Finish(reply) => {
                state.flushed = Some(reply);
                stream.finish(now, effects);
            }
        }
        self.run_effects(state, now);
        Ok(())
    }
}

impl CallStreamActor {
    /// Performs the engine's effects, repeatedly while credit is returned meanwhile.
    fn run_effects(&self, state: &mut CallStreamState, now: MonotonicTime) {
        loop {
            self.perform(state, now);
            let back = if state.stream.is_blocked_on_reader() {
                self.shared.window.collect_or_wait()
            } else {
                Some(self.shared.window.collect()).filter(|back| back.frames > 0)
            };
            let Some(back) = back else { break };
            let CallStreamState {
                stream, effects, ..
            } = state;
            stream.acknowledge(back.frames, back.bytes, now, effects);
        }
        state.set_timer(now);
        if state.stream.is_flushed()
            && let Some(flushed) = state.flushed.take()
        {
            self.deliver_rest(state);
            flushed.send(());
        }
    }

    fn perform(&self, state: &mut CallStreamState, now: MonotonicTime) {
        let mut effects = std::mem::take(&mut state.effects);
        let mut refused = Vec::new();
        for effect in effects.drain(..) {
            match effect {
                // No chunk overtakes one that did not fit into the full queue.
                CallStreamEffect::Deliver(index, mut chunk) => {
                    if let Some(guarded) = &mut state.guarded
                        && refused.is_empty()
                        && !chunk.is_guarded()
                    {
                        chunk = guarded.guard_chunk(&self.call, index, &chunk);
                    }
                    if !refused.is_empty() || !self.deliver(&mut state.stream, index, &chunk) {
                        refused.push((index, chunk.bytes(), chunk));
                    }
                }
                CallStreamEffect::SetPace(rate) => state.notify_server(CallStreamNotice::Pace(
                    rate.unwrap_or(mgp_protocol::mgp::stream::UNPACED),
                )),
                CallStreamEffect::RequestResend(missing) => {
                    state.notify_server(CallStreamNotice::Gap(missing))
                }
            }
        }
        state.effects = effects;
        state.stream.requeue(refused, now);
    }

    /// Sends a chunk to the reader; false when the queue is full.
    fn deliver(
        &self,
        stream: &mut CallStream<Arc<StreamChunk>>,
        index: u64,
        chunk: &Arc<StreamChunk>,
    ) -> bool {
        let (bytes, shared, held) = (chunk.bytes(), self.shared.clone(), chunk.clone());
        let receipt = Receipt::new(move || {
            drop(held);
            shared.release_bytes(bytes);
        });
        // A chunk that the reader's form cannot express counts as accepted.
        match self.form.render(&self.call, chunk) {
            None => receipt.mark_sent(),
            Some(frame) => {
                if !self.call.try_send_with_receipt(frame, &receipt) {
                    return false;
                }
            }
        }
        receipt.arm();
        self.shared.delivered.fetch_add(1, Ordering::Relaxed);
        let bytes = chunk.stored_bytes();
        if let Some(charge) = self.shared.budget.reserve_stored(bytes) {
            stream.retain_delivered(index, bytes, Arc::new(chunk.with_charge(charge)));
        }
        true
    }

    /// Sends what a guard held back of a stream without a last chunk. The result has it, too.
    fn deliver_rest(&self, state: &mut CallStreamState) {
        let rest = state.guarded.as_mut();
        let rest = rest.and_then(|guarded| guarded.finish(&self.call));
        let id = self.call.request_id();
        if let (Some((index, text)), Some(id), ChunkForm::Chunk) = (rest, id, &self.form) {
            let frame = chunk::render_rest(index, &text, id.as_json());
            let _ = self.call.try_send(frame.into());
        }
    }
}

impl CallStreamState {
    fn notify_server(&self, notice: CallStreamNotice) {
        if let Some(server) = &self.server {
            server.send(notice);
        }
    }

    /// Sets the timer to the next deadline of the engine.
    fn set_timer(&mut self, now: MonotonicTime) {
        let Some(at) = self.stream.next_timeout() else {
            self.timer = None;
            return;
        };
        if self.timer.as_ref().is_some_and(|(set, _)| *set == at) {
            return;
        }
        let (me, wait) = (self.mailbox.clone(), at.duration_since(now));
        let ringing = task::spawn_supervised("call_stream.clock", async move {
            tokio::time::sleep(wait).await;
            let _ = me.send_to_self(CallStreamMsg::TimerFired);
        });
        self.timer = Some((at, ringing));
    }
}

#[cfg(test)]
mod tests;
