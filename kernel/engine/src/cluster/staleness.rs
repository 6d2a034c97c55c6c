//! How far what a node told may still be believed, by the time since it was last heard.

use std::time::Duration;

use crate::clock::MonotonicTime;

/// A node that is there is heard several times in this time.
pub const STALE: Duration = Duration::from_secs(3);
/// After this, whoever calls would wait for nothing.
pub const HIDDEN: Duration = Duration::from_secs(30);
/// After this, a node that comes back is told from the start.
pub const DROPPED: Duration = Duration::from_secs(24 * 60 * 60);

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
    heard: MonotonicTime,
    /// How old it was then: what was kept from before the kernel's start.
    before: Duration,
    lost: bool,
}

impl Staleness {
    /// Heard now.
    #[must_use]
    pub fn new(now: MonotonicTime) -> Self {
        Self {
            heard: now,
            before: Duration::ZERO,
            lost: false,
        }
    }

    /// Kept from before the kernel's start, last heard so long ago.
    #[must_use]
    pub fn kept(age: Duration, now: MonotonicTime) -> Self {
        Self {
            heard: now,
            before: age,
            lost: true,
        }
    }

    /// The node was heard over its own link.
    pub fn heard(&mut self, now: MonotonicTime) {
        *self = Self::new(now.max(self.heard));
    }

    /// Its link is lost. The time goes on from when it was last heard.
    pub fn lost(&mut self, now: MonotonicTime) {
        self.before = self.age(now);
        self.heard = now.max(self.heard);
        self.lost = true;
    }

    /// The time since it was heard.
    #[must_use]
    pub fn age(&self, now: MonotonicTime) -> Duration {
        self.before.saturating_add(now.since(self.heard))
    }

    /// What is done now.
    #[must_use]
    pub fn at(&self, now: MonotonicTime) -> Stage {
        match self.age(now) {
            age if age >= DROPPED => Stage::Dropped,
            age if age >= HIDDEN => Stage::Hidden,
            age if age >= STALE || self.lost => Stage::Stale,
            _ => Stage::Fresh,
        }
    }

    /// When something else will be done, unless it is heard again.
    #[must_use]
    pub fn next(&self, now: MonotonicTime) -> Option<MonotonicTime> {
        let age = self.age(now);
        let end = match self.at(now) {
            Stage::Fresh => STALE,
            Stage::Stale => HIDDEN,
            Stage::Hidden => DROPPED,
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
            assert_eq!(node.at(at(millis)), stage, "{millis}");
        }
        node.heard(at(40_000));
        assert_eq!(node.at(at(40_000)), Stage::Fresh);
        node.lost(at(40_001));
        assert_eq!(node.at(at(40_001)), Stage::Stale);
        assert_eq!(node.next(at(40_001)), Some(at(70_000)));
        assert_eq!(Staleness::kept(HIDDEN, at(0)).at(at(0)), Stage::Hidden);
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
                    Event::Heard => { node.heard(at(millis)); (heard, lost) = (millis, false); }
                    Event::Lost => { node.lost(at(millis)); lost = true; }
                    Event::Nothing => {}
                }
                let age = Duration::from_millis(millis - heard);
                let stage = if age >= DROPPED { Stage::Dropped }
                    else if age >= HIDDEN { Stage::Hidden }
                    else if age >= STALE || lost { Stage::Stale }
                    else { Stage::Fresh };
                prop_assert_eq!(node.at(at(millis)), stage);
                if let Some(next) = node.next(at(millis)) {
                    prop_assert!(node.at(next) > stage && next > at(millis));
                }
            }
        }
    }
}
