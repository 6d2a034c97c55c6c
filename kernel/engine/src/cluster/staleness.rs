//! How far what a node told may still be believed, by the time since it was last heard.

use std::time::Duration;

use crate::clock::MonotonicTime;

/// A node that is there is heard several times in this time.
pub const STALE_AFTER: Duration = Duration::from_secs(3);
/// After this, whoever calls would wait for nothing.
pub const HIDDEN_AFTER: Duration = Duration::from_secs(30);
/// After this, a node that comes back is told from the start.
pub const DROPPED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// What is done with a node's tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Shown.
    Fresh,
    /// Shown with their age.
    Stale,
    /// Not shown to agents; found when the node is heard again.
    Hidden,
    /// Forgotten.
    Dropped,
}

/// When one node was heard.
#[derive(Clone, Copy, Debug)]
pub struct Staleness {
    last_heard: MonotonicTime,
    /// How old it was then: what was kept from before the kernel's start.
    previous_age: Duration,
    is_link_lost: bool,
}

impl Staleness {
    /// Heard now.
    #[must_use]
    pub fn new(now: MonotonicTime) -> Self {
        Self {
            last_heard: now,
            previous_age: Duration::ZERO,
            is_link_lost: false,
        }
    }

    /// Kept from before the kernel's start, last heard so long ago.
    #[must_use]
    pub fn from_age(age: Duration, now: MonotonicTime) -> Self {
        Self {
            last_heard: now,
            previous_age: age,
            is_link_lost: true,
        }
    }

    /// The node was heard over its own link.
    pub fn refresh(&mut self, now: MonotonicTime) {
        *self = Self::new(now.max(self.last_heard));
    }

    /// Its link is lost. The time goes on from when it was last heard.
    pub fn mark_link_lost(&mut self, now: MonotonicTime) {
        self.previous_age = self.age(now);
        self.last_heard = now.max(self.last_heard);
        self.is_link_lost = true;
    }

    /// The time since it was heard.
    #[must_use]
    pub fn age(&self, now: MonotonicTime) -> Duration {
        self.previous_age
            .saturating_add(now.duration_since(self.last_heard))
    }

    /// What is done now.
    #[must_use]
    pub fn stage_at(&self, now: MonotonicTime) -> Stage {
        match self.age(now) {
            age if age >= DROPPED_AFTER => Stage::Dropped,
            age if age >= HIDDEN_AFTER => Stage::Hidden,
            age if age >= STALE_AFTER || self.is_link_lost => Stage::Stale,
            _ => Stage::Fresh,
        }
    }

    /// When something else will be done, unless it is heard again.
    #[must_use]
    pub fn next_transition(&self, now: MonotonicTime) -> Option<MonotonicTime> {
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

    /// PRJ-007, FED-030: a missing node's tools go stale, are hidden, are dropped.
    #[test]
    fn a_node_that_is_not_heard_goes_stale_then_hidden_then_away() {
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
        /// Against a model of two facts: when it was last heard, and whether the link was lost since.
        #[test]
        fn only_the_last_hearing_and_the_loss_since_count(
            events in proptest::collection::vec(
                (0..100_000_000_u64, prop_oneof![Just(Event::Heard), Just(Event::Lost), Just(Event::Nothing)]), 1..12)
        ) {
            let mut events = events;
            events.sort_by_key(|(millis, _)| *millis);
            let mut node = Staleness::new(at(0));
            let (mut heard, mut lost) = (0, false);
            for (millis, event) in events {
                match event {
                    Event::Heard => { node.refresh(at(millis)); (heard, lost) = (millis, false); }
                    Event::Lost => { node.mark_link_lost(at(millis)); lost = true; }
                    Event::Nothing => {}
                }
                let age = Duration::from_millis(millis - heard);
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
