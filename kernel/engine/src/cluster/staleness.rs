//! How far a node's index may still be relied on, by the time since its last message.

use std::time::Duration;

use crate::clock::MonotonicTime;

/// A live node sends several messages in this time.
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(3);
/// After this, callers would wait in vain.
pub(crate) const HIDDEN_AFTER: Duration = Duration::from_secs(30);
/// After this, a node that returns sends its index from the start.
pub(crate) const DROPPED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// How the tools of a node are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Visible.
    Fresh,
    /// Visible with their age.
    Stale,
    /// Hidden from agents; visible again after the node's next message.
    Hidden,
    /// Forgotten.
    Dropped,
}

/// When the last message of one node arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staleness {
    last_message: MonotonicTime,
    /// The age at that time: data loaded from before the kernel's start.
    previous_age: Duration,
    is_link_lost: bool,
}

impl Staleness {
    /// A message arrived now.
    #[must_use]
    pub(crate) fn new(now: MonotonicTime) -> Self {
        Self {
            last_message: now,
            previous_age: Duration::ZERO,
            is_link_lost: false,
        }
    }

    /// Loaded from before the kernel's start, with this age.
    #[must_use]
    pub(crate) fn from_age(age: Duration, now: MonotonicTime) -> Self {
        Self {
            last_message: now,
            previous_age: age,
            is_link_lost: true,
        }
    }

    /// A message arrived over the node's own link.
    pub(crate) fn refresh(&mut self, now: MonotonicTime) {
        *self = Self::new(now.max(self.last_message));
    }

    /// Its link is lost. The age still counts from its last message.
    pub(crate) fn mark_link_lost(&mut self, now: MonotonicTime) {
        self.previous_age = self.age(now);
        self.last_message = now.max(self.last_message);
        self.is_link_lost = true;
    }

    /// The time since its last message.
    #[must_use]
    pub(crate) fn age(&self, now: MonotonicTime) -> Duration {
        self.previous_age
            .saturating_add(now.duration_since(self.last_message))
    }

    /// The current stage.
    #[must_use]
    pub(crate) fn stage_at(&self, now: MonotonicTime) -> Stage {
        match self.age(now) {
            age if age >= DROPPED_AFTER => Stage::Dropped,
            age if age >= HIDDEN_AFTER => Stage::Hidden,
            age if age >= STALE_AFTER || self.is_link_lost => Stage::Stale,
            _ => Stage::Fresh,
        }
    }

    /// When the stage changes next, unless another message arrives.
    #[must_use]
    pub(crate) fn next_transition(&self, now: MonotonicTime) -> Option<MonotonicTime> {
        let age = self.age(now);
        let end = match self.stage_at(now) {
            Stage::Fresh => STALE_AFTER,
            Stage::Stale => HIDDEN_AFTER,
            Stage::Hidden => DROPPED_AFTER,
            Stage::Dropped => return None,
        };
        Some(now + end.saturating_sub(age))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> MonotonicTime {
        MonotonicTime::new(Duration::from_millis(millis))
    }

    /// PRJ-007, FED-030.
    #[test]
    fn a_silent_node_becomes_stale_then_hidden_then_dropped() {
        let mut node = Staleness::new(at(0));
        for (millis, stage) in [
            (2_999, Stage::Fresh),
            (3_000, Stage::Stale),
            (29_999, Stage::Stale),
            (30_000, Stage::Hidden),
            (86_399_999, Stage::Hidden),
            (86_400_000, Stage::Dropped),
        ] {
            assert_eq!(node.stage_at(at(millis)), stage, "{millis}");
        }
        node.refresh(at(40_000));
        assert_eq!(node.stage_at(at(40_000)), Stage::Fresh);
        node.mark_link_lost(at(40_001));
        assert_eq!(node.stage_at(at(40_001)), Stage::Stale);
        assert_eq!(node.next_transition(at(40_001)), Some(at(70_000)));
        assert_eq!(
            Staleness::from_age(HIDDEN_AFTER, at(0)).stage_at(at(0)),
            Stage::Hidden
        );
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Heard,
        Lost,
        Nothing,
    }

    proptest! {
        /// Against a model: the time of the last message, and whether the link was lost since.
        #[test]
        fn only_the_last_message_and_a_lost_link_count(
            events in proptest::collection::vec(
                (0..100_000_000_u64, prop_oneof![Just(Event::Heard), Just(Event::Lost), Just(Event::Nothing)]), 1..12)
        ) {
            let mut events = events;
            events.sort_by_key(|(millis, _)| *millis);
            let mut node = Staleness::new(at(0));
            let (mut last, mut lost) = (0, false);
            for (millis, event) in events {
                match event {
                    Event::Heard => { node.refresh(at(millis)); (last, lost) = (millis, false); }
                    Event::Lost => { node.mark_link_lost(at(millis)); lost = true; }
                    Event::Nothing => {}
                }
                let age = Duration::from_millis(millis - last);
                let stage = if age >= DROPPED_AFTER { Stage::Dropped }
                    else if age >= HIDDEN_AFTER { Stage::Hidden }
                    else if age >= STALE_AFTER || lost { Stage::Stale }
                    else { Stage::Fresh };
                prop_assert_eq!(node.stage_at(at(millis)), stage);
                if let Some(next) = node.next_transition(at(millis)) {
                    prop_assert!(node.stage_at(next) > stage && next > at(millis));
                }
            }
        }
    }
}
