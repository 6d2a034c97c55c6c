//! What the wall clocks of others show, so that a wrong one, there or here, makes nothing that was allowed last
//! longer, and nothing that was denied end sooner, than who wrote it down meant.
//!
//! Only those who could take something back are asked: anybody else would end with its clock what it may not
//! touch with its words.

use std::collections::BTreeMap;

use mgp_protocol::ids::NodeId;

use crate::clock::MonotonicTime;
use crate::cluster::clock_offset::PeerClock;

/// To this the difference of two clocks is rounded up, so that the unrest of measuring changes nothing.
const SKEW_ROUNDING_MS: u64 = 1000;

/// A clock as it was seen. Its time now is counted from then by a clock that nobody sets, so that setting the one
/// here shows at once.
#[derive(Clone, Copy, Debug, Hash)]
struct ClockReading {
    peer_ms: u64,
    error_ms: u64,
    measured_at: MonotonicTime,
}

/// The clocks of other nodes. Kept when a link ends: who is away may still be right.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct PeerClocks(BTreeMap<NodeId, ClockReading>);

/// How far the clocks of others are from the one here; nothing where they differ too little to matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ClockSkew {
    ahead_ms: u64,
    behind_ms: u64,
}

impl PeerClocks {
    /// The clock of a node was measured; true when it was the first time.
    pub(crate) fn record(
        &mut self,
        node: NodeId,
        clock: PeerClock,
        now_ms: u64,
        now: MonotonicTime,
    ) -> bool {
        let seen = ClockReading {
            peer_ms: clock.to_peer_ms(now_ms),
            error_ms: clock.error_ms,
            measured_at: now,
        };
        self.0.insert(node, seen).is_none()
    }

    /// Forgets whom nobody speaks with any more.
    pub(crate) fn retain(&mut self, known: impl Fn(NodeId) -> bool) {
        self.0.retain(|node, _| known(*node));
    }

    /// How far the clocks of these are from the one here, which shows `now_ms`.
    pub(crate) fn skew(
        &self,
        of: impl Iterator<Item = NodeId>,
        now_ms: u64,
        now: MonotonicTime,
    ) -> ClockSkew {
        let mut spread = ClockSkew::default();
        for seen in of.filter_map(|node| self.0.get(&node)) {
            let since =
                u64::try_from(now.duration_since(seen.measured_at).as_millis()).unwrap_or(u64::MAX);
            let theirs_ms = seen.peer_ms.saturating_add(since);
            let clock = PeerClock::from_clocks(theirs_ms, now_ms, seen.error_ms);
            if !clock.is_skewed() {
                continue;
            }
            let apart = clock.offset_ms.unsigned_abs().saturating_add(seen.error_ms);
            let apart = apart
                .div_ceil(SKEW_ROUNDING_MS)
                .saturating_mul(SKEW_ROUNDING_MS);
            let side = if clock.offset_ms > 0 {
                &mut spread.ahead_ms
            } else {
                &mut spread.behind_ms
            };
            *side = apart.max(*side);
        }
        spread
    }
}

impl ClockSkew {
    /// The time by the clock that is furthest ahead: by it ends what is allowed.
    #[must_use]
    pub(crate) fn latest(self, now_ms: u64) -> u64 {
        now_ms.saturating_add(self.ahead_ms)
    }

    /// The time by the clock that is furthest behind: by it ends what is denied.
    #[must_use]
    pub(crate) fn earliest(self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.behind_ms)
    }

    /// When by the clock here what is allowed until then ends.
    #[must_use]
    pub(crate) fn allow_expiry_ms(self, end_ms: u64) -> u64 {
        end_ms.saturating_sub(self.ahead_ms)
    }

    /// When by the clock here what is denied until then ends.
    #[must_use]
    pub(crate) fn deny_expiry_ms(self, end_ms: u64) -> u64 {
        end_ms.saturating_add(self.behind_ms)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NODES: [NodeId; 2] = [NodeId([1; 32]), NodeId([2; 32])];

    fn at(seconds: u64) -> MonotonicTime {
        MonotonicTime::new(Duration::from_secs(seconds))
    }

    fn clock(offset_ms: i64, error_ms: u64) -> PeerClock {
        PeerClock {
            offset_ms,
            error_ms,
        }
    }

    /// FED-051: up to two seconds nothing changes, beyond allows end early and denials late.
    #[test]
    fn the_clock_furthest_ahead_ends_what_is_allowed_and_the_one_furthest_behind_what_is_denied() {
        let mut clocks = PeerClocks::default();
        let now_ms = 1_000_000;
        let spread = |clocks: &PeerClocks| clocks.skew(NODES.into_iter(), now_ms, at(0));
        clocks.record(NODES[0], clock(2000, 0), now_ms, at(0));
        clocks.record(NODES[1], clock(-2400, 500), now_ms, at(0));
        assert_eq!(spread(&clocks), ClockSkew::default());
        clocks.record(NODES[0], clock(60_000, 10), now_ms, at(0));
        clocks.record(NODES[1], clock(-7_100, 10), now_ms, at(0));
        let spread = spread(&clocks);
        assert_eq!(spread.latest(now_ms), now_ms + 61_000);
        assert_eq!(spread.earliest(now_ms), now_ms - 8_000);
        assert_eq!(spread.allow_expiry_ms(now_ms), now_ms - 61_000);
        assert_eq!(spread.deny_expiry_ms(now_ms), now_ms + 8_000);
    }

    /// Who sets the clock here is found out without another measurement.
    #[test]
    fn a_clock_that_was_set_here_shows_at_once() {
        let mut clocks = PeerClocks::default();
        clocks.record(NODES[0], clock(0, 1), 1_000_000, at(10));
        let spread = |now_ms, now| clocks.skew(NODES.into_iter(), now_ms, now);
        assert_eq!(spread(1_005_000, at(15)), ClockSkew::default());
        assert_eq!(spread(945_000, at(15)).latest(0), 61_000);
        assert_eq!(spread(1_065_000, at(15)).earliest(61_000), 0);
    }

    /// What a clock shows is somebody else's word: no value of it goes wrong.
    #[test]
    fn the_wildest_clock_ends_all_that_expires_and_nothing_else() {
        let mut clocks = PeerClocks::default();
        let far = PeerClock::from_clocks(u64::MAX, 0, u64::MAX / 4);
        clocks.record(NODES[0], far, 7, at(0));
        let spread = clocks.skew(NODES.into_iter(), 7, at(9));
        assert_eq!(spread.allow_expiry_ms(5), 0);
        assert_eq!(spread.deny_expiry_ms(5), 5);
        clocks.retain(|node| node != NODES[0]);
        let spread = clocks.skew(NODES.into_iter(), 7, at(9));
        assert_eq!(spread, ClockSkew::default());
    }
}
