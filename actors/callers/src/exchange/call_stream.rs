//! The actor of the chunks of one call: from the moment the call asks for them until its answer leaves.
//! Asked by: the link of its server, the requests of its reader. Asks: the reader's connection, and the
//! server through what the link hands in.
//!
//! Whoever has a chunk hands it over without waiting; a slow reader is waited for here and nowhere else.

mod chunk;
pub mod room;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mgp_engine::callers::call_stream::{CallStream, CallStreamEffect, WAITING_MAX};
use mgp_engine::clock::MonotonicTime;
use mgp_protocol::mgp::stream::Chunk;
use mgp_sync::credit::Credit;
use mgp_sync::send_window::SendWindow;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, ActorRuntime};
use tokio::time::timeout;

use self::chunk::StreamChunk;
use self::room::AgentRoom;
use super::Exchange;
use super::delivery::Receipt;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::mailbox::{Mailbox, Queued, Reply};
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::moment;

pub use self::chunk::{ChunkForm, PartialResult};

/// Before the answer leaves, chunks may go on to a reader that takes one in this time.
const FLUSH_STALL: Duration = Duration::from_millis(250);
/// How often: an answer is not held up longer than two seconds.
const FLUSH_ROUNDS: usize = 8;

/// What the server of a stream is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallStreamNotice {
    /// So many chunks a second; 0 pauses it.
    Pace(u32),
    /// These chunks are missed.
    Gap(Vec<u64>),
}

/// Messages to the actor.
#[derive(Debug)]
pub enum CallStreamMsg {
    /// The call has left for its server.
    Began(EventSink<CallStreamNotice>),
    /// A chunk came: its index and whether it is the last.
    Chunk(u64, bool, Arc<StreamChunk>),
    /// A chunk of this index came and found no room.
    Overflowed(u64, bool),
    /// The reader has taken something, and nobody had counted it.
    Returned,
    /// The reader's own pace.
    Pace(u32),
    /// The reader misses chunks.
    Gap(Vec<u64>),
    /// It is time to look again.
    Passed,
    /// What there is of the result.
    SoFar(Reply<PartialResult>),
    /// The call has its answer; replied to when all that its reader takes is on its way.
    Finish(Reply<()>),
}

/// Handle of the actor.
#[derive(Clone, Debug)]
pub struct CallStreamHandle {
    mailbox: Mailbox<CallStreamMsg>,
    shared: Arc<StreamShared>,
}

/// What the actor, the links and the readers share.
#[derive(Debug)]
struct StreamShared {
    /// Bytes that may wait, in the mailbox, in the engine and on their way.
    waiting: Arc<Credit>,
    room: Arc<AgentRoom>,
    window: SendWindow,
    /// To be woken when something came back; set once, right after the start.
    mailbox: OnceLock<Mailbox<CallStreamMsg>>,
    /// A chunk was taken: another try of the call would begin anew.
    taken: AtomicBool,
    delivered: AtomicU64,
}

impl CallStreamHandle {
    /// Starts the stream of a call below `parent`, without waiting, because a call is under way; `None`
    /// when the kernel is ending.
    pub fn start(
        parent: ActorCell,
        exchange: &Arc<Exchange>,
        form: ChunkForm,
        room: Arc<AgentRoom>,
    ) -> Option<Self> {
        let shared = Arc::new(StreamShared {
            waiting: Credit::new(WAITING_MAX as u64),
            room,
            window: SendWindow::default(),
            mailbox: OnceLock::new(),
            taken: AtomicBool::new(false),
            delivered: AtomicU64::new(0),
        });
        let actor = CallStreamActor {
            shared: shared.clone(),
            exchange: exchange.clone(),
            form,
        };
        let (actor, _) = ActorRuntime::spawn_linked_instant(None, actor, (), parent).ok()?;
        let mailbox = Mailbox::new(actor);
        let _ = shared.mailbox.set(mailbox.clone());
        Some(Self { mailbox, shared })
    }

    /// False when chunks of an earlier try of the call were taken: those of another one cannot be told
    /// from them.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        !self.shared.taken.load(Ordering::Relaxed)
    }

    /// The call leaves for its server, which is told things through `server`.
    pub fn begin(&self, server: EventSink<CallStreamNotice>) {
        if self.is_fresh() {
            let _ = self.mailbox.tell(CallStreamMsg::Began(server));
        }
    }

    /// Hands over a chunk with its `params`. False when it is lost: it has no place, or finds no room.
    #[must_use]
    pub fn chunk(&self, params: &str, chunk: &Chunk<'_>) -> bool {
        let Some(index) = chunk.index() else {
            return false;
        };
        self.shared.taken.store(true, Ordering::Relaxed);
        let (done, bytes) = (chunk.is_done(), StreamChunk::weight(params));
        let own = self.shared.waiting.try_take(bytes);
        match own.and_then(|own| Some((own, self.shared.room.wait(bytes)?))) {
            Some(charges) => {
                let chunk = Arc::new(StreamChunk::new(params, chunk, charges));
                let message = CallStreamMsg::Chunk(index, done, chunk);
                self.mailbox.tell(message).is_ok()
            }
            None => {
                let _ = self.mailbox.tell(CallStreamMsg::Overflowed(index, done));
                false
            }
        }
    }

    /// The reader's own pace.
    pub fn pace(&self, rate: u32) {
        let _ = self.mailbox.tell(CallStreamMsg::Pace(rate));
    }

    /// The reader misses these chunks.
    pub fn gap(&self, missing: Vec<u64>) {
        let _ = self.mailbox.tell(CallStreamMsg::Gap(missing));
    }

    /// What there is of the result.
    pub async fn so_far(&self) -> Option<PartialResult> {
        self.mailbox.ask(CallStreamMsg::SoFar).await.ok()
    }

    /// Resolves when all chunks that came are on their way, as far as their reader takes them.
    pub async fn finish(&self) {
        let (reply, mut flushed) = Reply::new();
        if self.mailbox.remind(CallStreamMsg::Finish(reply)).is_err() {
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

    /// Ends the actor.
    pub fn stop(&self) {
        self.mailbox.stop("its call has its answer");
    }
}

impl StreamShared {
    /// A frame with so many bytes of chunk was taken.
    fn returned(&self, bytes: usize) {
        if self.window.give_back(bytes)
            && let Some(mailbox) = self.mailbox.get()
        {
            let _ = mailbox.remind(CallStreamMsg::Returned);
        }
    }
}

/// Fixed at construction.
#[derive(Debug)]
struct CallStreamActor {
    shared: Arc<StreamShared>,
    exchange: Arc<Exchange>,
    form: ChunkForm,
}

/// The state of the actor.
#[derive(Debug)]
struct CallStreamState {
    me: Mailbox<CallStreamMsg>,
    stream: CallStream<Arc<StreamChunk>>,
    server: Option<EventSink<CallStreamNotice>>,
    flushed: Option<Reply<()>>,
    /// When it rings, and the task that waits until then.
    clock: Option<(MonotonicTime, SupervisedTask<()>)>,
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
            me: Mailbox::new(myself),
            stream: CallStream::default(),
            server: None,
            flushed: None,
            clock: None,
            effects: Vec::new(),
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let now = moment();
        let CallStreamState {
            stream, effects, ..
        } = state;
        let back = self.shared.window.collect();
        if back.frames > 0 {
            stream.returned(back.frames, back.bytes, now, effects);
        }
        match queued.open() {
            CallStreamMsg::Began(server) => state.server = Some(server),
            CallStreamMsg::Chunk(index, done, chunk) => {
                let about = (index, chunk.bytes(), done);
                // One that is dropped is seen by its index.
                let _ = stream.arrived(about, chunk, now, effects);
            }
            CallStreamMsg::Overflowed(index, done) => {
                stream.overflowed((index, done), now, effects);
            }
            CallStreamMsg::Returned => {}
            CallStreamMsg::Pace(rate) => stream.pace(rate, now, effects),
            CallStreamMsg::Gap(missing) => stream.gap(&missing, now, effects),
            CallStreamMsg::Passed => {
                state.clock = None;
                stream.passed(now, effects);
            }
            CallStreamMsg::SoFar(reply) => reply.send(PartialResult::of(&stream.so_far())),
            CallStreamMsg::Finish(reply) => {
                state.flushed = Some(reply);
                stream.finish(now, effects);
            }
        }
        self.go_on(state, now);
        Ok(())
    }
}

impl CallStreamActor {
    /// Carries out what was decided, and again as long as something comes back meanwhile.
    fn go_on(&self, state: &mut CallStreamState, now: MonotonicTime) {
        loop {
            self.perform(state, now);
            let back = match state.stream.awaits_return() {
                true => self.shared.window.collect_or_wait(),
                false => Some(self.shared.window.collect()).filter(|back| back.frames > 0),
            };
            let Some(back) = back else { break };
            let CallStreamState {
                stream, effects, ..
            } = state;
            stream.returned(back.frames, back.bytes, now, effects);
        }
        state.set_clock(now);
        if state.stream.is_flushed()
            && let Some(flushed) = state.flushed.take()
        {
            flushed.send(());
        }
    }

    fn perform(&self, state: &mut CallStreamState, now: MonotonicTime) {
        let mut effects = std::mem::take(&mut state.effects);
        let mut refused = Vec::new();
        for effect in effects.drain(..) {
            match effect {
                // Nothing overtakes what found no room.
                CallStreamEffect::Deliver(index, chunk) => {
                    if !refused.is_empty() || !self.deliver(&mut state.stream, index, &chunk) {
                        refused.push((index, chunk.bytes(), chunk));
                    }
                }
                CallStreamEffect::Pace(rate) => state.tell(CallStreamNotice::Pace(
                    rate.unwrap_or(mgp_protocol::mgp::stream::UNPACED),
                )),
                CallStreamEffect::AskAgain(missing) => state.tell(CallStreamNotice::Gap(missing)),
            }
        }
        state.effects = effects;
        state.stream.put_back(refused, now);
    }

    /// False when there is no room for it now.
    fn deliver(
        &self,
        stream: &mut CallStream<Arc<StreamChunk>>,
        index: u64,
        chunk: &Arc<StreamChunk>,
    ) -> bool {
        let (bytes, shared, held) = (chunk.bytes(), self.shared.clone(), chunk.clone());
        let receipt = Receipt::new(move || {
            drop(held);
            shared.returned(bytes);
        });
        // One that its reader has no form for counts as taken.
        match self.form.render(&self.exchange, chunk) {
            None => receipt.left(),
            Some(frame) => {
                if !self.exchange.offer(frame, &receipt) {
                    return false;
                }
            }
        }
        receipt.arm();
        self.shared.delivered.fetch_add(1, Ordering::Relaxed);
        if let Some(charge) = self.shared.room.keep(bytes) {
            stream.keep(index, bytes, Arc::new(chunk.kept(charge)));
        }
        true
    }
}

impl CallStreamState {
    fn tell(&self, notice: CallStreamNotice) {
        if let Some(server) = &self.server {
            server.send(notice);
        }
    }

    /// Sets the clock to the next time that the engine wants to be asked.
    fn set_clock(&mut self, now: MonotonicTime) {
        let Some(at) = self.stream.wake_at() else {
            self.clock = None;
            return;
        };
        if self.clock.as_ref().is_some_and(|(set, _)| *set == at) {
            return;
        }
        let (me, wait) = (self.me.clone(), at.since(now));
        let ringing = task::supervised("call_stream.clock", async move {
            tokio::time::sleep(wait).await;
            let _ = me.remind(CallStreamMsg::Passed);
        });
        self.clock = Some((at, ringing));
    }
}

#[cfg(test)]
mod tests;
