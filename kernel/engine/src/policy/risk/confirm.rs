//! Asks a person to confirm a call: by a callback, else by an elicitation, else in the operator's list
//! (A-32). A confirmation is for one call with exactly its arguments.

use crate::clock::MonotonicTime;
use std::time::Duration;

/// How a person can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfirmationChannel {
    /// `notifications/mgp.callback.request` to the agent that calls.
    Callback,
    /// `elicitation/create` to the client that calls.
    Elicitation,
    /// The operator's queue of pending questions.
    Queue,
}

impl ConfirmationChannel {
    const IN_ORDER: [Self; 3] = [Self::Callback, Self::Elicitation, Self::Queue];
}

/// The ways that are available for a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenChannels {
    /// The caller negotiated callbacks.
    pub callback: bool,
    /// The caller can be elicited with a form.
    pub elicitation: bool,
    /// The operator's list has room, and the operator did not switch it off.
    pub queue: bool,
}

impl OpenChannels {
    fn has(self, way: ConfirmationChannel) -> bool {
        match way {
            ConfirmationChannel::Callback => self.callback,
            ConfirmationChannel::Elicitation => self.elicitation,
            ConfirmationChannel::Queue => self.queue,
        }
    }
}

/// What a confirmation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallDigest([u8; 32]);

impl CallDigest {
    /// The digest of a call: who calls, the tool's canonical name, the arguments as they will be sent.
    #[must_use]
    pub fn of(caller: &str, tool: &str, arguments: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in [caller, tool, arguments] {
            // The length separates the two.
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        Self(*hasher.finalize().as_bytes())
    }
}

/// The outcome of one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConfirmationAnswer {
    /// Yes.
    Accepted,
    /// No, or the question was closed unanswered.
    Declined,
    /// It could not be used: not supported, broken or full. The next way is tried.
    NoWay,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfirmationStep {
    /// Ask this way.
    Ask(ConfirmationChannel),
    /// Decided.
    Settled(Settled),
    /// The answer was not for the open question; keep waiting.
    Ignored,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    /// The call is confirmed.
    Yes(ConfirmationChannel),
    /// A person denied it.
    No(ConfirmationChannel),
    /// Nobody could be asked.
    Nobody,
    /// Nobody answered in time.
    TooLate,
}

/// A call that waits for confirmation. Asked in one way at a time; settled once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirming {
    call: CallDigest,
    reach: OpenChannels,
    asked: Option<ConfirmationChannel>,
    until: MonotonicTime,
    settled: Option<Settled>,
}

impl Confirming {
    /// Begins. `patience` is for all ways together.
    #[must_use]
    pub fn begin(
        call: CallDigest,
        reach: OpenChannels,
        now: MonotonicTime,
        patience: Duration,
    ) -> (Self, ConfirmationStep) {
        let mut this = Self {
            call,
            reach,
            asked: None,
            until: now + patience,
            settled: None,
        };
        let next = this.go_on();
        (this, next)
    }

    /// When the time is over.
    #[must_use]
    pub fn until(&self) -> MonotonicTime {
        self.until
    }

    /// An answer by `way`, for the question about `call`.
    pub fn answer(
        &mut self,
        way: ConfirmationChannel,
        call: CallDigest,
        answer: ConfirmationAnswer,
        now: MonotonicTime,
    ) -> ConfirmationStep {
        if self.settled.is_some() || self.asked != Some(way) || call != self.call {
            return ConfirmationStep::Ignored;
        }
        if now >= self.until {
            return self.settle(Settled::TooLate);
        }
        match answer {
            ConfirmationAnswer::Accepted => self.settle(Settled::Yes(way)),
            ConfirmationAnswer::Declined => self.settle(Settled::No(way)),
            ConfirmationAnswer::NoWay => self.go_on(),
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: MonotonicTime) -> ConfirmationStep {
        if self.settled.is_some() || now < self.until {
            return ConfirmationStep::Ignored;
        }
        self.settle(Settled::TooLate)
    }

    fn go_on(&mut self) -> ConfirmationStep {
        let open = |way: &ConfirmationChannel| self.asked < Some(*way) && self.reach.has(*way);
        match ConfirmationChannel::IN_ORDER.into_iter().find(open) {
            Some(way) => {
                self.asked = Some(way);
                ConfirmationStep::Ask(way)
            }
            None => self.settle(Settled::Nobody),
        }
    }

    fn settle(&mut self, settled: Settled) -> ConfirmationStep {
        self.settled = Some(settled);
        ConfirmationStep::Settled(settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PATIENCE: Duration = Duration::from_secs(60);
    const ALL: OpenChannels = OpenChannels {
        callback: true,
        elicitation: true,
        queue: true,
    };

    fn call() -> CallDigest {
        CallDigest::of("a", "files:write", "{}")
    }

    /// MGP-054, A-32: callback, elicitation, operator, in that order.
    #[test]
    fn the_ways_are_tried_in_their_order() {
        let (mut it, next) = Confirming::begin(call(), ALL, MonotonicTime::START, PATIENCE);
        assert_eq!(next, ConfirmationStep::Ask(ConfirmationChannel::Callback));
        let no_way = |it: &mut Confirming, way| {
            it.answer(way, call(), ConfirmationAnswer::NoWay, MonotonicTime::START)
        };
        assert_eq!(
            no_way(&mut it, ConfirmationChannel::Callback),
            ConfirmationStep::Ask(ConfirmationChannel::Elicitation)
        );
        assert_eq!(
            no_way(&mut it, ConfirmationChannel::Elicitation),
            ConfirmationStep::Ask(ConfirmationChannel::Queue)
        );
        assert_eq!(
            no_way(&mut it, ConfirmationChannel::Queue),
            ConfirmationStep::Settled(Settled::Nobody)
        );
        let (_, next) = Confirming::begin(
            call(),
            OpenChannels::default(),
            MonotonicTime::START,
            PATIENCE,
        );
        assert_eq!(next, ConfirmationStep::Settled(Settled::Nobody));
        let queue = OpenChannels {
            queue: true,
            ..OpenChannels::default()
        };
        let (_, next) = Confirming::begin(call(), queue, MonotonicTime::START, PATIENCE);
        assert_eq!(next, ConfirmationStep::Ask(ConfirmationChannel::Queue));
    }

    /// A no is a no: it is not asked again by another way.
    #[test]
    fn a_no_ends_the_matter() {
        let (mut it, _) = Confirming::begin(call(), ALL, MonotonicTime::START, PATIENCE);
        let next = it.answer(
            ConfirmationChannel::Callback,
            call(),
            ConfirmationAnswer::Declined,
            MonotonicTime::START,
        );
        assert_eq!(
            next,
            ConfirmationStep::Settled(Settled::No(ConfirmationChannel::Callback))
        );
        let next = it.answer(
            ConfirmationChannel::Callback,
            call(),
            ConfirmationAnswer::Accepted,
            MonotonicTime::START,
        );
        assert_eq!(next, ConfirmationStep::Ignored);
    }

    /// A yes to other arguments, by a way that was not asked, or too late, is none.
    #[test]
    fn a_yes_is_for_one_call_one_way_and_in_time() {
        let (mut it, _) = Confirming::begin(call(), ALL, MonotonicTime::START, PATIENCE);
        let other = CallDigest::of("a", "files:write", r#"{"path":"/"}"#);
        let yes = ConfirmationAnswer::Accepted;
        assert_eq!(
            it.answer(
                ConfirmationChannel::Callback,
                other,
                yes,
                MonotonicTime::START
            ),
            ConfirmationStep::Ignored
        );
        assert_eq!(
            it.answer(
                ConfirmationChannel::Queue,
                call(),
                yes,
                MonotonicTime::START
            ),
            ConfirmationStep::Ignored
        );
        assert_eq!(it.tick(MonotonicTime::START), ConfirmationStep::Ignored);
        let late = it.answer(ConfirmationChannel::Callback, call(), yes, it.until());
        assert_eq!(late, ConfirmationStep::Settled(Settled::TooLate));
        assert_ne!(CallDigest::of("a", "bc", ""), CallDigest::of("ab", "c", ""));
    }

    proptest! {
        /// Whatever comes in, it is settled at most once, and with yes only by a fitting yes in time.
        #[test]
        fn it_is_settled_once(
            reach in any::<[bool; 3]>(),
            events in proptest::collection::vec((0_usize..3, 0_u8..3, any::<bool>(), 0_u64..80), 0..12),
        ) {
            let [callback, elicitation, queue] = reach;
            let reach = OpenChannels { callback, elicitation, queue };
            let (mut it, first) = Confirming::begin(call(), reach, MonotonicTime::START, PATIENCE);
            let mut settled = usize::from(matches!(first, ConfirmationStep::Settled(_)));
            for (way, answer, fits, seconds) in events {
                let way = ConfirmationChannel::IN_ORDER[way];
                let answer = [ConfirmationAnswer::Accepted, ConfirmationAnswer::Declined, ConfirmationAnswer::NoWay][usize::from(answer)];
                let about = if fits { call() } else { CallDigest::of("b", "x", "") };
                let now = MonotonicTime::START + Duration::from_secs(seconds);
                let next = it.answer(way, about, answer, now);
                if next == ConfirmationStep::Settled(Settled::Yes(way)) {
                    prop_assert!(fits && answer == ConfirmationAnswer::Accepted && now < it.until());
                }
                settled += usize::from(matches!(next, ConfirmationStep::Settled(_)));
            }
            prop_assert!(settled <= 1);
        }
    }
}
