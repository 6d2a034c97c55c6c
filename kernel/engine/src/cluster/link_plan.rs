//! Which of two links to a node is kept, when a node is dialed again, and through which relay.

use std::time::Duration;

use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::ids::NodeId;

/// The first wait after a failed dial; it doubles each time.
const DIAL_BACKOFF_MIN: Duration = Duration::from_millis(200);
/// Longest wait. After a partition heals, a cluster is connected again within five seconds, and a dial itself may
/// take three of them.
const DIAL_BACKOFF_MAX: Duration = Duration::from_secs(2);
/// The first and the longest wait after a node has rejected this one because two instances use its key; it doubles
/// each time. Each try costs both a handshake, and nothing changes before a person gives this node another key.
const DUPLICATE_BACKOFF_MIN: Duration = Duration::from_secs(2);
const DUPLICATE_BACKOFF_MAX: Duration = Duration::from_secs(60);
/// The node with the larger id lets the other one dial first, so that their links seldom cross.
const DIAL_HEAD_START: Duration = Duration::from_millis(100);

/// The first and the longest wait before a node that is linked through a relay is dialed directly again: the relayed
/// link serves meanwhile, and hole punching through two routers seldom works.
const DIRECT_BACKOFF_MIN: Duration = Duration::from_secs(2);
const DIRECT_BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Longer than a direct dial takes on most networks: only then are other nodes asked to relay.
pub const RELAY_AFTER: Duration = Duration::from_secs(2);
/// Nodes that are asked to relay in one dial. Others are asked next time.
pub(crate) const RELAYS_PER_DIAL: usize = 32;
/// The same at one time: a node that cannot relay answers within a round trip.
pub const RELAYS_CONCURRENT: usize = 4;

/// What distinguishes two links to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTraits {
    /// This node dialed.
    pub dialed: bool,
    /// Its packets go through a relay.
    pub relayed: bool,
    /// The instance of the peer.
    pub instance: LifeId,
}

/// Whether a new link replaces the existing one. Both ends decide alike: a direct link wins over a relayed one. Of
/// two links dialed at once by both ends, the one dialed by the smaller id stays. A later link of the same dialer, or
/// of another instance of the peer, means that the earlier one is lost, even if that was not noticed.
#[must_use]
pub fn should_replace(local: NodeId, peer: NodeId, current: LinkTraits, new: LinkTraits) -> bool {
    if current.instance == new.instance && current.relayed != new.relayed {
        return current.relayed;
    }
    if current.instance != new.instance || current.dialed == new.dialed {
        return true;
    }
    new.dialed == (local < peer)
}

/// When one node is dialed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DialBackoff {
    failures: u32,
    /// Rejections as a duplicate since the last link.
    duplicate_rejections: u32,
    /// Direct dials during a relayed link, since the last link was established.
    relayed_dials: u32,
}

impl DialBackoff {
    /// The wait before a first dial.
    #[must_use]
    pub fn initial_delay(local: NodeId, peer: NodeId) -> Duration {
        if local < peer {
            Duration::ZERO
        } else {
            DIAL_HEAD_START
        }
    }

    /// The wait after a failed dial. `chance` is random, so that nodes do not dial in step.
    pub fn next_delay(&mut self, chance: u64) -> Duration {
        let wait = exponential(DIAL_BACKOFF_MIN, self.failures, DIAL_BACKOFF_MAX);
        self.failures = self.failures.saturating_add(1);
        jitter(wait, chance)
    }

    /// The wait before a direct dial to a node linked through a relay.
    pub fn next_direct_delay(&mut self, chance: u64) -> Duration {
        let wait = exponential(DIRECT_BACKOFF_MIN, self.relayed_dials, DIRECT_BACKOFF_MAX);
        self.relayed_dials = self.relayed_dials.saturating_add(1);
        jitter(wait, chance)
    }

    /// The relays to ask in the next dial. They rotate, so that each one is asked after enough dials.
    #[must_use]
    pub fn pick_relays(&self, mut candidates: Vec<NodeId>) -> Vec<NodeId> {
        candidates.sort_unstable();
        if candidates.len() > RELAYS_PER_DIAL {
            let begin = self.failures as usize * RELAYS_PER_DIAL % candidates.len();
            candidates.rotate_left(begin);
            candidates.truncate(RELAYS_PER_DIAL);
        }
        candidates
    }

    /// The wait after the node has rejected this one because two instances use its key.
    pub fn next_duplicate_delay(&mut self, chance: u64) -> Duration {
        let wait = exponential(
            DUPLICATE_BACKOFF_MIN,
            self.duplicate_rejections,
            DUPLICATE_BACKOFF_MAX,
        );
        self.duplicate_rejections = self.duplicate_rejections.saturating_add(1);
        jitter(wait, chance)
    }

    /// True when the node rejected this one as a duplicate in its last answer.
    #[must_use]
    pub fn is_rejected_as_duplicate(&self) -> bool {
        self.duplicate_rejections > 0
    }

    /// Resets the wait because a dial may succeed now. The wait after a rejection as a duplicate stays.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// A link was established.
    pub fn record_link(&mut self) {
        *self = Self::default();
    }
}

/// Doubles the first wait so many times, up to the longest.
fn exponential(first: Duration, times: u32, longest: Duration) -> Duration {
    first.saturating_mul(1 << times.min(8)).min(longest)
}

/// At least half of the wait, so that nodes do not dial in step.
fn jitter(wait: Duration, chance: u64) -> Duration {
    let part = u32::try_from(chance % 1000).unwrap_or_default();
    wait / 2 + wait / 2 * part / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traits(dialed: bool, instance: u8) -> LinkTraits {
        let instance = LifeId([instance; 16]);
        LinkTraits {
            dialed,
            relayed: false,
            instance,
        }
    }

    /// Both ends decide alike, whoever dialed.
    #[test]
    fn a_direct_link_replaces_a_relayed_one_of_the_same_instance() {
        let (small, large) = (NodeId([1; 32]), NodeId([2; 32]));
        for (local, peer) in [(small, large), (large, small)] {
            for (direct, relayed) in [(true, true), (true, false), (false, true), (false, false)] {
                let direct = traits(direct, 7);
                let relayed = LinkTraits {
                    relayed: true,
                    ..traits(relayed, 7)
                };
                assert!(should_replace(local, peer, relayed, direct));
                assert!(!should_replace(local, peer, direct, relayed));
                let instance = LifeId([8; 16]);
                assert!(should_replace(
                    local,
                    peer,
                    direct,
                    LinkTraits {
                        instance,
                        ..relayed
                    }
                ));
            }
        }
    }

    #[test]
    fn direct_dials_to_a_relayed_node_back_off() {
        let mut backoff = DialBackoff::default();
        let waits: Vec<_> = (0..12).map(|_| backoff.next_direct_delay(999)).collect();
        assert!(waits.is_sorted() && waits[0] <= DIRECT_BACKOFF_MIN);
        assert!(waits[11] <= DIRECT_BACKOFF_MAX && waits[11] > DIRECT_BACKOFF_MAX / 2);
        backoff.record_link();
        assert!(backoff.next_direct_delay(0) <= DIRECT_BACKOFF_MIN);
    }

    /// So in a large cluster, a node that both ends reach is found.
    #[test]
    fn all_possible_relays_are_asked_in_rotation() {
        let candidates: Vec<NodeId> = (0..100).map(|n| NodeId([n; 32])).collect();
        let mut backoff = DialBackoff::default();
        let mut asked = std::collections::BTreeSet::new();
        for _ in 0..4 {
            let relays = backoff.pick_relays(candidates.clone());
            assert_eq!(relays.len(), RELAYS_PER_DIAL);
            asked.extend(relays);
            backoff.next_delay(0);
        }
        assert_eq!(asked.len(), candidates.len());
        assert_eq!(
            backoff.pick_relays(candidates[..3].to_vec()),
            candidates[..3]
        );
    }

    /// In any order of arrival.
    #[test]
    fn both_ends_choose_the_same_of_two_crossing_links() {
        let (small, large) = (NodeId([1; 32]), NodeId([2; 32]));
        let survivor = |local: NodeId, peer: NodeId, order: [bool; 2]| {
            let [current, new] = order.map(|dialed| traits(dialed, 7));
            let is_replaced = should_replace(local, peer, current, new);
            let dialed = if is_replaced {
                new.dialed
            } else {
                current.dialed
            };
            if dialed { local } else { peer }
        };
        for order in [[true, false], [false, true]] {
            assert_eq!(survivor(small, large, order), small);
            assert_eq!(survivor(large, small, order), small);
        }
    }

    #[test]
    fn a_later_link_of_the_same_dialer_or_another_instance_replaces_the_first() {
        let (small, large) = (NodeId([1; 32]), NodeId([2; 32]));
        for dialed in [true, false] {
            assert!(should_replace(
                small,
                large,
                traits(dialed, 7),
                traits(dialed, 7)
            ));
            assert!(should_replace(
                small,
                large,
                traits(dialed, 7),
                traits(!dialed, 8)
            ));
            assert!(should_replace(
                large,
                small,
                traits(dialed, 7),
                traits(!dialed, 8)
            ));
        }
    }

    #[test]
    fn backoff_is_bounded_and_has_jitter() {
        let mut backoff = DialBackoff::default();
        let waits: Vec<_> = (0..20).map(|_| backoff.next_delay(999)).collect();
        assert!(waits.is_sorted() && waits[0] < DIAL_BACKOFF_MIN);
        assert!(waits[19] <= DIAL_BACKOFF_MAX && waits[19] > DIAL_BACKOFF_MAX * 9 / 10);
        assert!(backoff.next_delay(0) >= DIAL_BACKOFF_MAX / 2);
        backoff.reset();
        assert!(backoff.next_delay(500) < DIAL_BACKOFF_MIN);
        backoff.record_link();
        assert_eq!(backoff, DialBackoff::default());
        assert!(DialBackoff::initial_delay(NodeId([1; 32]), NodeId([2; 32])).is_zero());
        assert_eq!(
            DialBackoff::initial_delay(NodeId([2; 32]), NodeId([1; 32])),
            DIAL_HEAD_START
        );
    }

    /// FEDERATION, cloned: `reset` does not shorten the wait.
    #[test]
    fn a_node_rejected_as_duplicate_backs_off_until_it_is_linked() {
        let mut backoff = DialBackoff::default();
        let waits: Vec<_> = (0..20)
            .map(|_| {
                backoff.reset();
                backoff.next_duplicate_delay(999)
            })
            .collect();
        assert!(
            waits.is_sorted()
                && waits[0] > DIAL_BACKOFF_MAX / 2
                && waits[19] > DUPLICATE_BACKOFF_MAX / 2
        );
        assert!(waits[19] <= DUPLICATE_BACKOFF_MAX && backoff.is_rejected_as_duplicate());
        backoff.record_link();
        assert!(
            !backoff.is_rejected_as_duplicate()
                && backoff.next_duplicate_delay(0) < DIAL_BACKOFF_MAX
        );
    }
}
