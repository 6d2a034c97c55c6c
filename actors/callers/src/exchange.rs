//! One request of an agent while it is under way: how messages that belong to it travel, and whether
//! the agent took it back.

pub(crate) mod delivery;
mod flag;
pub mod question;
pub mod rounds;
pub mod streams;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Once, OnceLock};

use bytes::Bytes;
use mgp_transports::lines::LineSink;
use serde_json::value::RawValue;

use self::rounds::CallRounds;
use self::streams::{Lane, Streams};

pub use self::delivery::{Delivery, pass_line, send_line};
pub use self::flag::Flag;

/// The state of one request.
#[derive(Debug)]
pub struct Exchange {
    way: ReplyPath,
    primer: Once,
    needs_stream: Flag,
    paused: Flag,
    unhurried: Flag,
    task: OnceLock<(Box<str>, Box<str>)>,
    missing: OnceLock<Box<RawValue>>,
    cancelled: Flag,
    reason: OnceLock<String>,
    ended: Flag,
    fallen_back: AtomicBool,
    /// Questions of the server that its client has not answered.
    asked: AtomicUsize,
}

/// Where messages that belong to a request go.
#[derive(Debug)]
pub enum ReplyPath {
    /// The only way a line connection has.
    Line(LineSink),
    /// The SSE stream of this request, opened by its first message. `primed` puts an event without
    /// data first, so that the client can resume from the very start.
    Stream {
        /// All streams of the session.
        streams: Arc<Streams>,
        /// This request's own.
        lane: Lane,
        /// For clients that know the empty event.
        primed: bool,
    },
    /// The requests of a stateless client; boxed, for it is much larger than the others.
    Rounds(Box<CallRounds>),
    /// Nobody listens: the kernel's own requests.
    Nowhere,
}

impl Exchange {
    /// A request whose messages go this way.
    #[must_use]
    pub fn new(way: ReplyPath) -> Arc<Self> {
        Arc::new(Self {
            way,
            primer: Once::new(),
            needs_stream: Flag::default(),
            paused: Flag::default(),
            unhurried: Flag::default(),
            task: OnceLock::new(),
            missing: OnceLock::new(),
            cancelled: Flag::default(),
            reason: OnceLock::new(),
            ended: Flag::default(),
            fallen_back: AtomicBool::new(false),
            asked: AtomicUsize::new(0),
        })
    }

    /// Sends a message that belongs to this request.
    pub fn send(&self, frame: Bytes, class: Delivery) {
        if class == Delivery::Lossy && self.is_cancelled() {
            return;
        }
        match &self.way {
            ReplyPath::Line(sink) => pass_line(sink, frame, class),
            ReplyPath::Stream { streams, lane, .. } => {
                self.prime();
                streams.push(*lane, frame, class);
                self.needs_stream.raise();
            }
            ReplyPath::Rounds(rounds) => {
                if !rounds.send(frame, class) {
                    self.cancel();
                }
            }
            ReplyPath::Nowhere => {}
        }
    }

    /// The requests by which a stateless client follows this call; `None` for every other caller.
    #[must_use]
    pub fn rounds(&self) -> Option<&CallRounds> {
        match &self.way {
            ReplyPath::Rounds(rounds) => Some(rounds),
            ReplyPath::Line(_) | ReplyPath::Stream { .. } | ReplyPath::Nowhere => None,
        }
    }

    /// The token under which the client wants to hear of progress now, if it does; `first` is the
    /// one its first request gave.
    #[must_use]
    pub fn progress_token(&self, first: Box<str>) -> Option<Box<str>> {
        match &self.way {
            ReplyPath::Rounds(rounds) => rounds.token(),
            ReplyPath::Line(_) | ReplyPath::Stream { .. } | ReplyPath::Nowhere => Some(first),
        }
    }

    /// Makes sure that the empty event is the first one of the stream.
    pub fn prime(&self) {
        if let ReplyPath::Stream {
            streams,
            lane,
            primed: true,
        } = &self.way
        {
            self.primer
                .call_once(|| streams.push(*lane, Bytes::new(), Delivery::Reliable));
        }
    }

    /// Resolves when a message waits that only a stream can carry.
    pub async fn needs_stream(&self) {
        self.needs_stream.raised().await;
    }

    /// True when a message was sent, which only a stream can carry.
    #[must_use]
    pub fn needed_stream(&self) -> bool {
        self.needs_stream.is_raised()
    }

    /// The server let go of its stream and wants to be asked again later (SEP-1699).
    pub fn pause(&self) {
        self.paused.raise();
        self.needs_stream.raise();
    }

    /// Resolves when [`Self::pause`] was said.
    pub async fn paused(&self) {
        self.paused.raised().await;
    }

    /// The call may be silent for as long as it likes: somebody asks after it from time to time.
    pub fn take_time(&self) {
        self.unhurried.raise();
    }

    /// True when [`Self::take_time`] was said.
    #[must_use]
    pub fn is_unhurried(&self) -> bool {
        self.unhurried.is_raised()
    }

    /// What belongs to it belongs to a task: the server's own name for it, and its client's.
    pub fn is_about(&self, own: &str, id: &str) {
        let _ = self.task.set((own.into(), id.into()));
    }

    /// What was said with [`Self::is_about`].
    #[must_use]
    pub fn task(&self) -> Option<(&str, &str)> {
        self.task.get().map(|(own, id)| (&**own, &**id))
    }

    /// The call cannot go on, because its client did not say that it has these capabilities; it is
    /// taken back.
    pub fn lacks(&self, capabilities: Box<RawValue>) {
        let _ = self.missing.set(capabilities);
        self.cancel();
    }

    /// What the client would have to be able to do.
    #[must_use]
    pub fn lacking(&self) -> Option<&RawValue> {
        self.missing.get().map(|missing| &**missing)
    }

    /// The request has its answer.
    pub fn end(&self) {
        self.ended.raise();
    }

    /// Resolves when the request has its answer.
    pub async fn ended(&self) {
        self.ended.raised().await;
    }

    /// The agent took the request back: nothing more is sent for it.
    pub fn cancel(&self) {
        self.cancelled.raise();
    }

    /// The same, with what its client says why.
    pub fn cancel_because(&self, reason: Option<String>) {
        if let Some(reason) = reason {
            let _ = self.reason.set(reason);
        }
        self.cancel();
    }

    /// Why the agent took the request back, where it said so.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// From now on it is done by another tool than was called. True the first time; there is no third.
    pub fn falls_back(&self) -> bool {
        !self.fallen_back.swap(true, Ordering::Relaxed)
    }

    /// The server asks its client something in its course, until what is given is dropped.
    pub fn asks(&self) -> UnansweredQuestion<'_> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        UnansweredQuestion(self)
    }

    /// True while its client has a question of the server's to answer.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) > 0
    }

    /// True when another tool does it.
    #[must_use]
    pub fn has_fallen_back(&self) -> bool {
        self.fallen_back.load(Ordering::Relaxed)
    }

    /// True once the agent took it back.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_raised()
    }

    /// Resolves when the agent takes the request back.
    pub async fn cancelled(&self) {
        self.cancelled.raised().await;
    }
}

/// A question that its client has not answered.
#[derive(Debug)]
pub struct UnansweredQuestion<'a>(&'a Exchange);

impl Drop for UnansweredQuestion<'_> {
    fn drop(&mut self) {
        self.0.asked.fetch_sub(1, Ordering::Relaxed);
    }
}
