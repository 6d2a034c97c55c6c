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
pub fn should_replace(own: NodeId, peer: NodeId, held: LinkTraits, new: LinkTraits) -> bool {
    if held.instance == new.instance && held.relayed != new.relayed {
        return held.relayed;
    }
    if held.instance != new.instance || held.dialed == new.dialed {
        return true;
    }
    new.dialed == (own < peer)
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
    pub fn initial_delay(own: NodeId, peer: NodeId) -> Duration {
        if own < peer {
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
    pub fn pick_relays(&self, mut able: Vec<NodeId>) -> Vec<NodeId> {
        able.sort_unstable();
        if able.len() > RELAYS_PER_DIAL {
            let begin = self.failures as usize * RELAYS_PER_DIAL % able.len();
            able.rotate_left(begin);
            able.truncate(RELAYS_PER_DIAL);
        }
        able
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

    fn facts(dialed: bool, life: u8) -> LinkTraits {
        let life = LifeId([life; 16]);
        LinkTraits {
            dialed,
            relayed: false,
            instance: life,
        }
    }

    /// Whoever dialed them, and in whatever order they come: both ends take the same one.
    #[test]
    fn a_direct_link_goes_before_a_relayed_one_of_the_same_life() {
        let (small, large) = (NodeId([1; 32]), NodeId([2; 32]));
        for (own, peer) in [(small, large), (large, small)] {
            for (direct, relayed) in [(true, true), (true, false), (false, true), (false, false)] {
                let direct = facts(direct, 7);
                let relayed = LinkTraits {
                    relayed: true,
                    ..facts(relayed, 7)
                };
                assert!(should_replace(own, peer, relayed, direct));
                assert!(!should_replace(own, peer, direct, relayed));
                let life = LifeId([8; 16]);
                assert!(should_replace(
                    own,
                    peer,
                    direct,
                    LinkTraits {
                        instance: life,
                        ..relayed
                    }
                ));
            }
        }
    }

    #[test]
    fn a_relayed_node_is_dialed_directly_more_and_more_seldom() {
        let mut plan = DialBackoff::default();
        let waits: Vec<_> = (0..12).map(|_| plan.next_direct_delay(999)).collect();
        assert!(waits.is_sorted() && waits[0] <= DIRECT_BACKOFF_MIN);
        assert!(waits[11] <= DIRECT_BACKOFF_MAX && waits[11] > DIRECT_BACKOFF_MAX / 2);
        plan.record_link();
        assert!(plan.next_direct_delay(0) <= DIRECT_BACKOFF_MIN);
    }

    /// In a large cluster the one node that both ends reach is found.
    #[test]
    fn each_node_that_could_relay_is_asked_in_its_turn() {
        let able: Vec<NodeId> = (0..100).map(|n| NodeId([n; 32])).collect();
        let mut plan = DialBackoff::default();
        let mut asked = std::collections::BTreeSet::new();
        for _ in 0..4 {
            let turn = plan.pick_relays(able.clone());
            assert_eq!(turn.len(), RELAYS_PER_DIAL);
            asked.extend(turn);
            plan.next_delay(0);
        }
        assert_eq!(asked.len(), able.len());
        assert_eq!(plan.pick_relays(able[..3].to_vec()), able[..3]);
    }

    /// Whatever the order in which two crossing links come to both ends, the same one stays.
    #[test]
    fn both_ends_keep_the_same_one_of_two_links_that_cross() {
        let (small, large) = (NodeId([1; 32]), NodeId([2; 32]));
        let kept = |own: NodeId, peer: NodeId, order: [bool; 2]| {
            let [held, new] = order.map(|dialed| facts(dialed, 7));
            let taken = should_replace(own, peer, held, new);
            // Whose dial it was.
            let dialed = if taken { new.dialed } else { held.dialed };
            if dialed { own } else { peer }
        };
        for order in [[true, false], [false, true]] {
            assert_eq!(kept(small, large, order), small);
            assert_eq!(kept(large, small, order), small);
        }
    }

    #[test]
    fn a_later_link_of_the_same_dialer_or_of_another_life_takes_over() {
        let (small, large) = (NodeId([1; 32]), NodeId([2; 32]));
        for dialed in [true, false] {
            assert!(should_replace(
                small,
                large,
                facts(dialed, 7),
                facts(dialed, 7)
            ));
            assert!(should_replace(
                small,
                large,
                facts(dialed, 7),
                facts(!dialed, 8)
            ));
            assert!(should_replace(
                large,
                small,
                facts(dialed, 7),
                facts(!dialed, 8)
            ));
        }
    }

    #[test]
    fn waits_grow_to_a_bound_and_are_spread() {
        let mut plan = DialBackoff::default();
        let waits: Vec<_> = (0..20).map(|_| plan.next_delay(999)).collect();
        assert!(waits.is_sorted() && waits[0] < DIAL_BACKOFF_MIN);
        assert!(waits[19] <= DIAL_BACKOFF_MAX && waits[19] > DIAL_BACKOFF_MAX * 9 / 10);
        assert!(plan.next_delay(0) >= DIAL_BACKOFF_MAX / 2);
        plan.reset();
        assert!(plan.next_delay(500) < DIAL_BACKOFF_MIN);
        plan.record_link();
        assert_eq!(plan, DialBackoff::default());
        assert!(DialBackoff::initial_delay(NodeId([1; 32]), NodeId([2; 32])).is_zero());
        assert_eq!(
            DialBackoff::initial_delay(NodeId([2; 32]), NodeId([1; 32])),
            DIAL_HEAD_START
        );
    }

    /// FEDERATION, cloned: who is kept out does not storm, whatever it hears meanwhile.
    #[test]
    fn who_is_kept_out_comes_seldom_until_a_link_lasts() {
        let mut plan = DialBackoff::default();
        let waits: Vec<_> = (0..20)
            .map(|_| {
                plan.reset();
                plan.next_duplicate_delay(999)
            })
            .collect();
        assert!(
            waits.is_sorted()
                && waits[0] > DIAL_BACKOFF_MAX / 2
                && waits[19] > DUPLICATE_BACKOFF_MAX / 2
        );
        assert!(waits[19] <= DUPLICATE_BACKOFF_MAX && plan.is_rejected_as_duplicate());
        plan.record_link();
        assert!(
            !plan.is_rejected_as_duplicate() && plan.next_duplicate_delay(0) < DIAL_BACKOFF_MAX
        );
    }
}
