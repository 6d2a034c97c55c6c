//! Limits of relayed traffic for each pair of nodes, for each sender and in total.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use mgp_protocol::ids::NodeId;

/// Concurrent pairs: a site of thirty nodes with another one of thirty. Each takes 100 bytes.
const PAIRS: usize = 1024;

/// Those that one node began, so that it does not starve others.
const PAIRS_PER_NODE: usize = 128;

/// Bytes a second of one pair, and its burst: a payload of 8 MiB takes two seconds.
const RATE: u64 = 4 << 20;
const BURST: u64 = 1 << 20;

/// The same for all pairs: an eighth of a gigabit.
const RATE_ALL: u64 = 16 << 20;
const BURST_ALL: u64 = 4 << 20;

/// The same for one sender: half of it, so that its many pairs leave the other half to others.
const RATE_PER_NODE: u64 = RATE_ALL / 2;
const BURST_PER_NODE: u64 = BURST_ALL / 2;

/// Refusals a second for one node, and their burst: more than it dials through one relay. Its other packets are dropped
/// silently.
const REFUSALS: u64 = 16;

/// A pair without packets for this long has ended: a link sends keep-alives every half second.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The traffic between two nodes since their first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayedPair {
    /// The two, the smaller id first.
    pub nodes: [NodeId; 2],
    /// Relayed bytes, both ways.
    pub bytes: u64,
    /// Dropped packets: the pair was too fast, or a link had no capacity.
    pub dropped: u64,
    /// The time since the first packet.
    pub age: Duration,
}

/// The decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RelayAdmission {
    Pass,
    /// Dropped: the rate is exceeded.
    TooFast,
    /// The limit of pairs is reached.
    Full,
}

/// The pairs of this relay.
#[derive(Debug)]
pub(super) struct RelayTraffic {
    total: RateBucket,
    pairs: HashMap<[NodeId; 2], PairTraffic>,
    /// Each is linked to this node, or was a few seconds ago.
    senders: HashMap<NodeId, SenderTraffic>,
}

/// The traffic of one sender, to any node.
#[derive(Debug)]
struct SenderTraffic {
    last: Instant,
    bytes: RateBucket,
    refusals: RateBucket,
}

#[derive(Debug)]
struct PairTraffic {
    started_by: NodeId,
    started_at: Instant,
    last: Instant,
    bucket: RateBucket,
    bytes: u64,
    dropped: u64,
}

/// A token bucket of bytes or refusals.
#[derive(Debug)]
struct RateBucket {
    rate: u64,
    burst: u64,
    tokens: u64,
    refilled_at: Instant,
}

impl RelayTraffic {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            total: RateBucket::new(RATE_ALL, BURST_ALL, now),
            pairs: HashMap::new(),
            senders: HashMap::new(),
        }
    }

    /// Whether a node may be sent a refusal now.
    pub(super) fn can_refuse(&mut self, from: NodeId, now: Instant) -> bool {
        self.sender(from, now).refusals.take_tokens(1, now)
    }

    fn sender(&mut self, from: NodeId, now: Instant) -> &mut SenderTraffic {
        let sender = self.senders.entry(from).or_insert_with(|| SenderTraffic {
            last: now,
            bytes: RateBucket::new(RATE_PER_NODE, BURST_PER_NODE, now),
            refusals: RateBucket::new(REFUSALS, REFUSALS, now),
        });
        sender.last = now;
        sender
    }

    /// Decides about a packet of this length.
    pub(super) fn admit(
        &mut self,
        from: NodeId,
        to: NodeId,
        len: usize,
        now: Instant,
    ) -> RelayAdmission {
        let nodes = pair(from, to);
        if !self.pairs.contains_key(&nodes) && !self.begin_pair(nodes, from, now) {
            return RelayAdmission::Full;
        }
        let len = len as u64;
        let sender_has_tokens = self.sender(from, now).bytes.has_tokens(len, now);
        let Some(pair) = self.pairs.get_mut(&nodes) else {
            return RelayAdmission::Full;
        };
        pair.last = now;
        // Checked first: packets beyond the pair's or sender's limit must not take tokens from others.
        if sender_has_tokens && pair.bucket.has_tokens(len, now) && self.total.take_tokens(len, now)
        {
            pair.bucket.take_tokens(len, now);
            self.sender(from, now).bytes.take_tokens(len, now);
            RelayAdmission::Pass
        } else {
            RelayAdmission::TooFast
        }
    }

    /// Records the outcome of a packet.
    pub(super) fn record(&mut self, from: NodeId, to: NodeId, len: usize, sent: bool) {
        if let Some(pair) = self.pairs.get_mut(&pair(from, to)) {
            if sent {
                pair.bytes = pair.bytes.saturating_add(len as u64)
            } else {
                pair.dropped = pair.dropped.saturating_add(1)
            }
        }
    }

    /// The current pairs.
    pub(super) fn pairs(&mut self, now: Instant) -> Vec<RelayedPair> {
        self.remove_idle(now);
        let mut pairs: Vec<RelayedPair> = self
            .pairs
            .iter()
            .map(|(nodes, pair)| RelayedPair {
                nodes: *nodes,
                bytes: pair.bytes,
                dropped: pair.dropped,
                age: now.saturating_duration_since(pair.started_at),
            })
            .collect();
        pairs.sort_by_key(|pair| pair.nodes);
        pairs
    }

    fn begin_pair(&mut self, nodes: [NodeId; 2], by: NodeId, now: Instant) -> bool {
        self.remove_idle(now);
        let from_node = self.pairs.values().filter(|pair| pair.started_by == by);
        if self.pairs.len() >= PAIRS || from_node.count() >= PAIRS_PER_NODE {
            return false;
        }
        let pair = PairTraffic {
            started_by: by,
            started_at: now,
            last: now,
            bucket: RateBucket::new(RATE, BURST, now),
            bytes: 0,
            dropped: 0,
        };
        self.pairs.insert(nodes, pair);
        true
    }

    fn remove_idle(&mut self, now: Instant) {
        let is_active = |last: Instant| now.saturating_duration_since(last) < IDLE_TIMEOUT;
        self.pairs.retain(|_, pair| is_active(pair.last));
        self.senders.retain(|_, sender| is_active(sender.last));
    }
}

impl RateBucket {
    fn new(rate: u64, burst: u64, now: Instant) -> Self {
        Self {
            rate,
            burst,
            tokens: burst,
            refilled_at: now,
        }
    }

    fn has_tokens(&mut self, len: u64, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.refilled_at).as_micros();
        let more = passed.saturating_mul(u128::from(self.rate)) / 1_000_000;
        // Fractions of a token are not lost with frequent calls.
        if more > 0 {
            let more = u64::try_from(more).unwrap_or(u64::MAX);
            (self.tokens, self.refilled_at) =
                (self.tokens.saturating_add(more).min(self.burst), now);
        }
        self.tokens >= len
    }

    fn take_tokens(&mut self, len: u64, now: Instant) -> bool {
        let has_tokens = self.has_tokens(len, now);
        if has_tokens {
            self.tokens -= len;
        }
        has_tokens
    }
}

fn pair(a: NodeId, b: NodeId) -> [NodeId; 2] {
    if a < b { [a, b] } else { [b, a] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(n: u16) -> NodeId {
        let mut id = [0; 32];
        id[..2].copy_from_slice(&n.to_be_bytes());
        NodeId(id)
    }

    /// Sends packets for a second, one each 100 µs, and counts the admitted bytes.
    fn second(traffic: &mut RelayTraffic, pairs: &[(NodeId, NodeId)], start: Instant) -> Vec<u64> {
        let mut passed = vec![0; pairs.len()];
        for tick in 0..10_000 {
            let now = start + Duration::from_micros(tick * 100);
            for ((from, to), passed) in pairs.iter().zip(&mut passed) {
                let admitted = traffic.admit(*from, *to, 1200, now) == RelayAdmission::Pass;
                traffic.record(*from, *to, 1200, admitted);
                *passed += u64::from(admitted) * 1200;
            }
        }
        passed
    }

    #[test]
    fn a_pair_and_all_pairs_pass_at_most_their_rate() {
        let start = Instant::now();
        let mut traffic = RelayTraffic::new(start);
        let one = second(&mut traffic, &[(node(1), node(2))], start);
        assert!((RATE..=RATE + BURST).contains(&one[0]), "{one:?}");
        let listed = traffic.pairs(start + Duration::from_secs(1));
        assert_eq!(listed[0].bytes, one[0]);
        assert!(listed[0].dropped > 0);
        let pairs: Vec<_> = (1..=8).map(|n| (node(n), node(n + 100))).collect();
        let all: u64 = second(&mut traffic, &pairs, start + Duration::from_secs(2))
            .iter()
            .sum();
        assert!((RATE_ALL..=RATE_ALL + BURST_ALL).contains(&all), "{all}");
    }

    #[test]
    fn one_sender_leaves_half_of_the_rate_to_the_others() {
        let start = Instant::now();
        let mut traffic = RelayTraffic::new(start);
        let greedy = (0..16).map(|n| (node(1), node(n + 100)));
        let pairs: Vec<_> = greedy.chain([(node(2), node(3))]).collect();
        let passed = second(&mut traffic, &pairs, start);
        let (other, greedy) = passed.split_last().unwrap();
        let greedy: u64 = greedy.iter().sum();
        assert!(greedy <= RATE_PER_NODE + BURST_PER_NODE, "{greedy}");
        assert!(*other >= RATE, "{other}");
    }

    /// However many of its packets are refused.
    #[test]
    fn a_node_is_sent_a_few_refusals_a_second() {
        let start = Instant::now();
        let mut traffic = RelayTraffic::new(start);
        let refused = (0..10_000).filter(|tick| {
            let now = start + Duration::from_micros(tick * 100);
            traffic.can_refuse(node(1), now)
        });
        let refused = refused.count() as u64;
        assert!((REFUSALS..=2 * REFUSALS).contains(&refused), "{refused}");
        assert!(traffic.can_refuse(node(2), start), "and none of the others");
        traffic.pairs(start + 2 * IDLE_TIMEOUT);
        assert!(traffic.senders.is_empty());
    }

    /// No node starves others, and an idle pair is removed.
    #[test]
    fn pairs_are_bounded_for_each_node_and_in_total() {
        let now = Instant::now();
        let mut traffic = RelayTraffic::new(now);
        let opened = |traffic: &mut RelayTraffic, from: u16, now| {
            let to = (1..=PAIRS as u16).map(|n| node(1000 + n));
            to.filter(|to| traffic.admit(node(from), *to, 1, now) != RelayAdmission::Full)
                .count()
        };
        assert_eq!(opened(&mut traffic, 1, now), PAIRS_PER_NODE);
        let others: usize = (2..20).map(|from| opened(&mut traffic, from, now)).sum();
        assert_eq!(others, PAIRS - PAIRS_PER_NODE);
        let later = now + IDLE_TIMEOUT;
        assert_eq!(traffic.pairs(later), []);
        assert_eq!(opened(&mut traffic, 30, later), PAIRS_PER_NODE);
    }
}
