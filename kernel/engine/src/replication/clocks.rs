//! The wall clocks of other nodes: a wrong clock, there or here, must not extend an allow or shorten a denial.
//!
//! Only clocks of nodes that could revoke count: otherwise a node could end with its clock what it may not revoke.

use std::collections::BTreeMap;

use mgp_protocol::ids::NodeId;

use crate::clock::MonotonicTime;
use crate::cluster::clock_offset::PeerClock;

/// Differences are rounded up to this, so that jitter of measurements changes nothing.
const SKEW_ROUNDING_MS: u64 = 1000;

/// A measurement. The monotonic clock extrapolates it, so that setting the local wall clock takes effect at once.
#[derive(Clone, Copy, Debug, Hash)]
struct ClockReading {
    peer_ms: u64,
    error_ms: u64,
    measured_at: MonotonicTime,
}

/// The clocks of other nodes. Readings outlive their link.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct PeerClocks(BTreeMap<NodeId, ClockReading>);

/// How far other clocks are ahead of and behind the local one; 0 within the tolerance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ClockSkew {
    ahead_ms: u64,
    behind_ms: u64,
}

impl PeerClocks {
    /// Records a measurement; true if it is the first of this node.
    pub(crate) fn record(
        &mut self,
        node: NodeId,
        clock: PeerClock,
        now_ms: u64,
        now: MonotonicTime,
    ) -> bool {
        let reading = ClockReading {
            peer_ms: clock.to_peer_ms(now_ms),
            error_ms: clock.error_ms,
            measured_at: now,
        };
        self.0.insert(node, reading).is_none()
    }

    /// Removes the clocks of all other nodes.
    pub(crate) fn retain(&mut self, keep: impl Fn(NodeId) -> bool) {
        self.0.retain(|node, _| keep(*node));
    }

    /// The skew of these nodes' clocks to the local one, which shows `now_ms`.
    pub(crate) fn skew(
        &self,
        nodes: impl Iterator<Item = NodeId>,
        now_ms: u64,
        now: MonotonicTime,
    ) -> ClockSkew {
        let mut skew = ClockSkew::default();
        for reading in nodes.filter_map(|node| self.0.get(&node)) {
            let since = u64::try_from(now.duration_since(reading.measured_at).as_millis())
                .unwrap_or(u64::MAX);
            let theirs_ms = reading.peer_ms.saturating_add(since);
            let clock = PeerClock::from_clocks(theirs_ms, now_ms, reading.error_ms);
            if !clock.is_skewed() {
                continue;
            }
            let difference_ms = clock
                .offset_ms
                .unsigned_abs()
                .saturating_add(reading.error_ms);
            let difference_ms = difference_ms
                .div_ceil(SKEW_ROUNDING_MS)
                .saturating_mul(SKEW_ROUNDING_MS);
            let side = if clock.offset_ms > 0 {
                &mut skew.ahead_ms
            } else {
                &mut skew.behind_ms
            };
            *side = difference_ms.max(*side);
        }
        skew
    }
}

impl ClockSkew {
    /// The time by the clock that is furthest ahead: allows expire by it.
    #[must_use]
    pub(crate) fn latest(self, now_ms: u64) -> u64 {
        now_ms.saturating_add(self.ahead_ms)
    }

    /// The time by the clock that is furthest behind: denials expire by it.
    #[must_use]
    pub(crate) fn earliest(self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.behind_ms)
    }

    /// The local time when an allow that ends at `end_ms` expires.
    #[must_use]
    pub(crate) fn allow_expiry_ms(self, end_ms: u64) -> u64 {
        end_ms.saturating_sub(self.ahead_ms)
    }

    /// The local time when a denial that ends at `end_ms` expires.
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

    /// FED-051: a skew beyond two seconds ends allows early and denials late.
    #[test]
    fn allows_expire_by_the_fastest_clock_and_denials_by_the_slowest() {
        let mut clocks = PeerClocks::default();
        let now_ms = 1_000_000;
        let skew = |clocks: &PeerClocks| clocks.skew(NODES.into_iter(), now_ms, at(0));
        clocks.record(NODES[0], clock(2000, 0), now_ms, at(0));
        clocks.record(NODES[1], clock(-2400, 500), now_ms, at(0));
        assert_eq!(skew(&clocks), ClockSkew::default());
        clocks.record(NODES[0], clock(60_000, 10), now_ms, at(0));
        clocks.record(NODES[1], clock(-7_100, 10), now_ms, at(0));
        let skew = skew(&clocks);
        assert_eq!(skew.latest(now_ms), now_ms + 61_000);
        assert_eq!(skew.earliest(now_ms), now_ms - 8_000);
        assert_eq!(skew.allow_expiry_ms(now_ms), now_ms - 61_000);
        assert_eq!(skew.deny_expiry_ms(now_ms), now_ms + 8_000);
    }

    /// No new measurement is needed.
    #[test]
    fn setting_the_local_clock_takes_effect_at_once() {
        let mut clocks = PeerClocks::default();
        clocks.record(NODES[0], clock(0, 1), 1_000_000, at(10));
        let skew = |now_ms, now| clocks.skew(NODES.into_iter(), now_ms, now);
        assert_eq!(skew(1_005_000, at(15)), ClockSkew::default());
        assert_eq!(skew(945_000, at(15)).latest(0), 61_000);
        assert_eq!(skew(1_065_000, at(15)).earliest(61_000), 0);
    }

    /// Other nodes choose their clocks: no value overflows.
    #[test]
    fn an_extreme_clock_ends_allows_and_no_denial() {
        let mut clocks = PeerClocks::default();
        let far = PeerClock::from_clocks(u64::MAX, 0, u64::MAX / 4);
        clocks.record(NODES[0], far, 7, at(0));
        let skew = clocks.skew(NODES.into_iter(), 7, at(9));
        assert_eq!(skew.allow_expiry_ms(5), 0);
        assert_eq!(skew.deny_expiry_ms(5), 5);
        clocks.retain(|node| node != NODES[0]);
        let skew = clocks.skew(NODES.into_iter(), 7, at(9));
        assert_eq!(skew, ClockSkew::default());
    }
}
