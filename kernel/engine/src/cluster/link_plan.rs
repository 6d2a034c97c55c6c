//! Which of two links to a node stays, when a node is dialed again, and through whom.

use std::time::Duration;

use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::ids::NodeId;

/// The first wait after a dial that failed; each further one is twice as long.
const DIAL_BACKOFF_MIN: Duration = Duration::from_millis(200);
/// Longest wait. A cluster that was cut in two is whole again five seconds after it can be, and a dial
/// itself may take three of them.
const DIAL_BACKOFF_MAX: Duration = Duration::from_secs(2);
/// The first wait after a node has said that two lives have this key, and the longest; each further one is twice
/// as long. Each try is a handshake for both, and nothing changes before a person gives this node another key.
const DUPLICATE_BACKOFF_MIN: Duration = Duration::from_secs(2);
const DUPLICATE_BACKOFF_MAX: Duration = Duration::from_secs(60);
/// The node with the larger id lets the other one dial first, so that their links seldom cross.
const DIAL_HEAD_START: Duration = Duration::from_millis(100);

/// The first wait before a node that is linked through another one is dialed directly again, and the longest: the
/// relayed link serves meanwhile, and a way through two routers opens seldom.
const DIRECT_BACKOFF_MIN: Duration = Duration::from_secs(2);
const DIRECT_BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Longer than a direct dial takes on most networks: only then others are asked to relay.
pub const RELAY_AFTER: Duration = Duration::from_secs(2);
/// Nodes that are asked to relay in one dial. Others come next time.
pub const RELAYS_PER_DIAL: usize = 32;
/// And at a time: who cannot says so in a round trip.
pub const RELAYS_CONCURRENT: usize = 4;

/// What tells two links to one node apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTraits {
    /// This node dialed.
    pub dialed: bool,
    /// Its packets go through a third node.
    pub relayed: bool,
    /// The life of the peer.
    pub instance: LifeId,
}

/// Whether a new link takes the place of the one that is there. Both ends answer alike: a direct one goes before one
/// through a third node; of two that cross, the one stays that the smaller id dialed; a later one of the same dialer, or of another life of the peer,
/// means that the one before is lost, whether that was noticed or not.
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
    /// How often the node has kept this one out, since a link last came about.
    duplicate_rejections: u32,
    /// How often it was dialed directly while it was linked through another node, since a link last came about.
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

    /// A dial failed: the wait before the next one. `chance` is random, so that nodes do not dial in step.
    pub fn next_delay(&mut self, chance: u64) -> Duration {
        let wait = exponential(DIAL_BACKOFF_MIN, self.failures, DIAL_BACKOFF_MAX);
        self.failures = self.failures.saturating_add(1);
        jitter(wait, chance)
    }

    /// The node is linked through another one: the wait before it is dialed directly.
    pub fn next_direct_delay(&mut self, chance: u64) -> Duration {
        let wait = exponential(DIRECT_BACKOFF_MIN, self.relayed_dials, DIRECT_BACKOFF_MAX);
        self.relayed_dials = self.relayed_dials.saturating_add(1);
        jitter(wait, chance)
    }

    /// Which of the nodes that could relay are asked in the next dial: each has its turn within as many dials as it takes.
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

    /// The node says that two lives have the key of this one, and keeps both out: the wait before the next dial.
    pub fn next_duplicate_delay(&mut self, chance: u64) -> Duration {
        let wait = exponential(
            DUPLICATE_BACKOFF_MIN,
            self.duplicate_rejections,
            DUPLICATE_BACKOFF_MAX,
        );
        self.duplicate_rejections = self.duplicate_rejections.saturating_add(1);
        jitter(wait, chance)
    }

    /// True when the node kept this one out the last time that it answered.
    #[must_use]
    pub fn is_rejected_as_duplicate(&self) -> bool {
        self.duplicate_rejections > 0
    }

    /// There is a reason to think that a link may come about. It is none where the node keeps this one out.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// A link came about.
    pub fn record_link(&mut self) {
        *self = Self::default();
    }
}

/// Twice as long for each time, up to a longest.
fn exponential(first: Duration, times: u32, longest: Duration) -> Duration {
    first.saturating_mul(1 << times.min(8)).min(longest)
}

/// At least half of it, so that nodes do not dial in step.
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
