//! Asks a person to confirm a call: by a callback, else by an elicitation, else in the operator's queue (A-32). A
//! confirmation is for one call with exactly its arguments.

use crate::clock::MonotonicTime;
use std::time::Duration;

/// The channels for a confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfirmationChannel {
    /// `notifications/mgp.callback.request` to the agent that calls.
    Callback,
    /// `elicitation/create` to the client that calls.
    Elicitation,
    /// The operator's queue of pending entries.
    Queue,
}

impl ConfirmationChannel {
    const IN_ORDER: [Self; 3] = [Self::Callback, Self::Elicitation, Self::Queue];
}

/// The channels that are available for a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AvailableChannels {
    /// The caller negotiated callbacks.
    pub callback: bool,
    /// The caller can be elicited with a form.
    pub elicitation: bool,
    /// The operator's queue has capacity, and the operator did not disable it.
    pub queue: bool,
}

impl AvailableChannels {
    fn contains(self, way: ConfirmationChannel) -> bool {
        match way {
            ConfirmationChannel::Callback => self.callback,
            ConfirmationChannel::Elicitation => self.elicitation,
            ConfirmationChannel::Queue => self.queue,
        }
    }
}

/// Identifies the call that a confirmation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallDigest([u8; 32]);

impl CallDigest {
    /// The digest of a call: who calls, the tool's canonical name, the arguments as they will be sent.
    #[must_use]
    pub fn new(caller: &str, tool: &str, arguments: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in [caller, tool, arguments] {
            // The length separates the fields.
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        Self(*hasher.finalize().as_bytes())
    }
}

/// The answer from one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConfirmationAnswer {
    /// Approved.
    Accepted,
    /// Denied, or closed without an answer.
    Declined,
    /// The channel could not be used: not supported, broken or full. The next one is tried.
    Unavailable,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfirmationStep {
    /// Ask through this channel.
    Ask(ConfirmationChannel),
    /// Decided.
    Finished(ConfirmationOutcome),
    /// The answer was not for the open request; keep waiting.
    Ignored,
}

/// The final outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConfirmationOutcome {
    /// The call is confirmed.
    Confirmed(ConfirmationChannel),
    /// A person denied it.
    Denied(ConfirmationChannel),
    /// Nobody could be asked.
    NoChannel,
    /// Nobody answered in time.
    TimedOut,
}

/// A call that waits for confirmation. One channel is used at a time; it finishes once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfirmationFlow {
    call: CallDigest,
    channels: AvailableChannels,
    current: Option<ConfirmationChannel>,
    deadline: MonotonicTime,
    outcome: Option<ConfirmationOutcome>,
}

impl ConfirmationFlow {
    /// Starts. `patience` is the timeout for all channels together.
    #[must_use]
    pub fn start(
        call: CallDigest,
        reach: AvailableChannels,
        now: MonotonicTime,
        patience: Duration,
    ) -> (Self, ConfirmationStep) {
        let mut this = Self {
            call,
            channels: reach,
            current: None,
            deadline: now + patience,
            outcome: None,
        };
        let next = this.try_next_channel();
        (this, next)
    }

    /// When it times out.
    #[must_use]
    pub fn deadline(&self) -> MonotonicTime {
        self.deadline
    }

    /// Handles an answer from the channel `way`, for the request about `call`.
    pub fn handle_answer(
        &mut self,
        way: ConfirmationChannel,
        call: CallDigest,
        answer: ConfirmationAnswer,
        now: MonotonicTime,
    ) -> ConfirmationStep {
        if self.outcome.is_some() || self.current != Some(way) || call != self.call {
            return ConfirmationStep::Ignored;
        }
        if now >= self.deadline {
            return self.finish(ConfirmationOutcome::TimedOut);
        }
        match answer {
            ConfirmationAnswer::Accepted => self.finish(ConfirmationOutcome::Confirmed(way)),
            ConfirmationAnswer::Declined => self.finish(ConfirmationOutcome::Denied(way)),
            ConfirmationAnswer::Unavailable => self.try_next_channel(),
        }
    }

    /// Handles the passing of time.
    pub fn handle_timeout(&mut self, now: MonotonicTime) -> ConfirmationStep {
        if self.outcome.is_some() || now < self.deadline {
            return ConfirmationStep::Ignored;
        }
        self.finish(ConfirmationOutcome::TimedOut)
    }

    fn try_next_channel(&mut self) -> ConfirmationStep {
        let open =
            |way: &ConfirmationChannel| self.current < Some(*way) && self.channels.contains(*way);
        match ConfirmationChannel::IN_ORDER.into_iter().find(open) {
            Some(way) => {
                self.current = Some(way);
                ConfirmationStep::Ask(way)
            }
            None => self.finish(ConfirmationOutcome::NoChannel),
        }
    }

    fn finish(&mut self, settled: ConfirmationOutcome) -> ConfirmationStep {
        self.outcome = Some(settled);
        ConfirmationStep::Finished(settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PATIENCE: Duration = Duration::from_secs(60);
    const ALL: AvailableChannels = AvailableChannels {
        callback: true,
        elicitation: true,
        queue: true,
    };

    fn call() -> CallDigest {
        CallDigest::new("a", "files:write", "{}")
    }

    /// MGP-054, A-32: callback, elicitation, operator, in that order.
    #[test]
    fn the_ways_are_tried_in_their_order() {
        let (mut it, next) = ConfirmationFlow::start(call(), ALL, MonotonicTime::START, PATIENCE);
        assert_eq!(next, ConfirmationStep::Ask(ConfirmationChannel::Callback));
        let no_way = |it: &mut ConfirmationFlow, way| {
            it.handle_answer(
                way,
                call(),
                ConfirmationAnswer::Unavailable,
                MonotonicTime::START,
            )
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
            ConfirmationStep::Finished(ConfirmationOutcome::NoChannel)
        );
        let (_, next) = ConfirmationFlow::start(
            call(),
            AvailableChannels::default(),
            MonotonicTime::START,
            PATIENCE,
        );
        assert_eq!(
            next,
            ConfirmationStep::Finished(ConfirmationOutcome::NoChannel)
        );
        let queue = AvailableChannels {
            queue: true,
            ..AvailableChannels::default()
        };
        let (_, next) = ConfirmationFlow::start(call(), queue, MonotonicTime::START, PATIENCE);
        assert_eq!(next, ConfirmationStep::Ask(ConfirmationChannel::Queue));
    }

    /// A no is a no: it is not asked again by another way.
    #[test]
    fn a_no_ends_the_matter() {
        let (mut it, _) = ConfirmationFlow::start(call(), ALL, MonotonicTime::START, PATIENCE);
        let next = it.handle_answer(
            ConfirmationChannel::Callback,
            call(),
            ConfirmationAnswer::Declined,
            MonotonicTime::START,
        );
        assert_eq!(
            next,
            ConfirmationStep::Finished(ConfirmationOutcome::Denied(ConfirmationChannel::Callback))
        );
        let next = it.handle_answer(
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
        let (mut it, _) = ConfirmationFlow::start(call(), ALL, MonotonicTime::START, PATIENCE);
        let other = CallDigest::new("a", "files:write", r#"{"path":"/"}"#);
        let yes = ConfirmationAnswer::Accepted;
        assert_eq!(
            it.handle_answer(
                ConfirmationChannel::Callback,
                other,
                yes,
                MonotonicTime::START
            ),
            ConfirmationStep::Ignored
        );
        assert_eq!(
            it.handle_answer(
                ConfirmationChannel::Queue,
                call(),
                yes,
                MonotonicTime::START
            ),
            ConfirmationStep::Ignored
        );
        assert_eq!(
            it.handle_timeout(MonotonicTime::START),
            ConfirmationStep::Ignored
        );
        let late = it.handle_answer(ConfirmationChannel::Callback, call(), yes, it.deadline());
        assert_eq!(
            late,
            ConfirmationStep::Finished(ConfirmationOutcome::TimedOut)
        );
        let (mut it, _) = ConfirmationFlow::start(call(), ALL, MonotonicTime::START, PATIENCE);
        assert_eq!(
            it.handle_timeout(it.deadline()),
            ConfirmationStep::Finished(ConfirmationOutcome::TimedOut)
        );
        assert_ne!(
            CallDigest::new("a", "bc", ""),
            CallDigest::new("ab", "c", "")
        );
    }

    proptest! {
        /// Whatever comes in, it is settled at most once, and with yes only by a fitting yes in time.
        #[test]
        fn it_is_settled_once(
            reach in any::<[bool; 3]>(),
            events in proptest::collection::vec((0_usize..3, 0_u8..3, any::<bool>(), 0_u64..80), 0..12),
        ) {
            let [callback, elicitation, queue] = reach;
            let reach = AvailableChannels { callback, elicitation, queue };
            let (mut it, first) = ConfirmationFlow::start(call(), reach, MonotonicTime::START, PATIENCE);
            let mut settled = usize::from(matches!(first, ConfirmationStep::Finished(_)));
            for (way, answer, fits, seconds) in events {
                let way = ConfirmationChannel::IN_ORDER[way];
                let answer = [ConfirmationAnswer::Accepted, ConfirmationAnswer::Declined, ConfirmationAnswer::Unavailable][usize::from(answer)];
                let about = if fits { call() } else { CallDigest::new("b", "x", "") };
                let now = MonotonicTime::START + Duration::from_secs(seconds);
                let next = it.handle_answer(way, about, answer, now);
                if next == ConfirmationStep::Finished(ConfirmationOutcome::Confirmed(way)) {
                    prop_assert!(fits && answer == ConfirmationAnswer::Accepted && now < it.deadline());
                }
                settled += usize::from(matches!(next, ConfirmationStep::Finished(_)));
            }
            prop_assert!(settled <= 1);
        }
    }
}
