//! How long what was granted elsewhere is believed: only while everyone who could take it away was heard within
//! the lease. Then it lapses by itself. Denials and revocations never do.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use mgp_protocol::hex_id;
use mgp_protocol::ids::NodeId;

use crate::clock::MonotonicTime;
use crate::policy::grants::LogTip;

/// The lease where nothing else is configured.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// Questions to one node that may still be answered; an older one is given up, its answer would hardly extend
/// anything.
const PENDING_REQUESTS_MAX: usize = 8;

hex_id! {
    /// Sent with a question and back with its answer: random, so that an answer is not older than its question.
    Nonce, 16
}

/// A question that was sent.
#[derive(Clone, Copy, Debug, Hash)]
struct PendingRequest {
    nonce: Nonce,
    sent_at: MonotonicTime,
}

#[derive(Clone, Debug, Default, Hash)]
struct PeerLease {
    pending: VecDeque<PendingRequest>,
    /// From when what it has told holds.
    fresh_since: Option<MonotonicTime>,
    /// It told of an operation that is not known here yet: fresh from then on, once it is.
    pending_tip: Option<(MonotonicTime, LogTip)>,
}

/// Whom this node has heard, and when it asked. Empty after a start. All times are of a clock that goes on
/// while the machine sleeps, and count from the sending of a question, so that no delay on the way stretches
/// anything.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Leases {
    duration: Duration,
    peers: BTreeMap<NodeId, PeerLease>,
}

impl Leases {
    /// Nobody has been heard.
    #[must_use]
    pub(crate) fn new(duration: Duration) -> Self {
        let peers = BTreeMap::new();
        Self { duration, peers }
    }

    /// How long what a node told is believed.
    #[must_use]
    pub(crate) fn duration(&self) -> Duration {
        self.duration
    }

    /// A question was sent.
    pub(crate) fn record_request(&mut self, node: NodeId, nonce: Nonce, at: MonotonicTime) {
        let heard = self.peers.entry(node).or_default();
        heard
            .pending
            .push_back(PendingRequest { nonce, sent_at: at });
        if heard.pending.len() > PENDING_REQUESTS_MAX {
            heard.pending.pop_front();
        }
    }

    /// When the question of this answer was sent; None for an answer to none, and for a second one.
    pub(crate) fn take_request(&mut self, node: NodeId, nonce: Nonce) -> Option<MonotonicTime> {
        let heard = self.peers.get_mut(&node)?;
        let at = heard
            .pending
            .iter()
            .position(|asked| asked.nonce == nonce)?;
        heard.pending.remove(at).map(|asked| asked.sent_at)
    }

    /// Questions to this node are forgotten: their answers prove nothing any more.
    pub(crate) fn discard_requests(&mut self, node: NodeId) {
        if let Some(heard) = self.peers.get_mut(&node) {
            heard.pending.clear();
        }
    }

    /// A node has told the end of its own log in answer to a question of then.
    pub(crate) fn record_tip(&mut self, node: NodeId, asked_at: MonotonicTime, own: LogTip) {
        let heard = self.peers.entry(node).or_default();
        if heard.pending_tip.is_none_or(|(at, _)| at < asked_at) {
            heard.pending_tip = Some((asked_at, own));
        }
    }

    /// Takes into account what is known here by now of the logs.
    pub(crate) fn apply_known_tips(&mut self, knows: impl Fn(NodeId, LogTip) -> bool) {
        for (node, heard) in &mut self.peers {
            if let Some((at, tip)) = heard.pending_tip
                && knows(*node, tip)
            {
                heard.pending_tip = None;
                heard.fresh_since = heard.fresh_since.max(Some(at));
            }
        }
    }

    /// Forgets what a node told: it is not believed any more.
    pub(crate) fn expire(&mut self, node: NodeId) {
        self.peers.remove(&node);
    }

    /// Until when what this node could take away is known; None when it is not.
    #[must_use]
    pub(crate) fn valid_until(&self, node: NodeId, now: MonotonicTime) -> Option<MonotonicTime> {
        let fresh = self.peers.get(&node)?.fresh_since?;
        (now.duration_since(fresh) < self.duration).then(|| fresh + self.duration)
    }

    /// When what this node told last ends, or has ended; None when it has told nothing since this one's start.
    #[must_use]
    pub(crate) fn last_expiry(&self, node: NodeId) -> Option<MonotonicTime> {
        let fresh = self.peers.get(&node)?.fresh_since?;
        Some(fresh + self.duration)
    }

    /// True when the node has answered since this one's start.
    #[must_use]
    pub(crate) fn has_responded(&self, node: NodeId) -> bool {
        self.peers
            .get(&node)
            .is_some_and(|heard| heard.fresh_since.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::grants::OperationId;

    const NODE: NodeId = NodeId([1; 32]);

    fn at(seconds: u64) -> MonotonicTime {
        MonotonicTime::new(Duration::from_secs(seconds))
    }

    /// FED-050: the age runs from the question, and only an answer to it counts.
    #[test]
    fn a_lease_ends_its_length_after_the_question_however_late_the_answer() {
        let mut leases = Leases::new(DEFAULT_LEASE);
        let nonce = Nonce([1; 16]);
        assert_eq!(
            leases.valid_until(NODE, at(0)),
            None,
            "a start begins unconfirmed"
        );
        leases.record_request(NODE, nonce, at(5));
        assert_eq!(leases.take_request(NODE, Nonce([2; 16])), None);
        let asked = leases.take_request(NODE, nonce).unwrap();
        assert_eq!(
            leases.take_request(NODE, nonce),
            None,
            "an answer counts once"
        );
        leases.record_tip(NODE, asked, LogTip::EMPTY);
        leases.apply_known_tips(|_, _| true);
        assert_eq!(leases.valid_until(NODE, at(34)), Some(at(35)));
        assert_eq!(leases.valid_until(NODE, at(35)), None);
    }

    #[test]
    fn what_was_told_counts_once_it_is_known_here() {
        let mut leases = Leases::new(DEFAULT_LEASE);
        let tip = LogTip {
            next: 3,
            id: OperationId([3; 32]),
        };
        leases.record_tip(NODE, at(5), tip);
        leases.apply_known_tips(|_, _| false);
        assert_eq!(leases.valid_until(NODE, at(6)), None);
        leases.apply_known_tips(|node, known| node == NODE && known == tip);
        assert_eq!(leases.valid_until(NODE, at(6)), Some(at(35)));
    }

    #[test]
    fn old_questions_are_given_up() {
        let mut leases = Leases::new(DEFAULT_LEASE);
        for n in 0..100 {
            leases.record_request(NODE, Nonce([n; 16]), at(u64::from(n)));
        }
        assert_eq!(leases.take_request(NODE, Nonce([91; 16])), None);
        assert_eq!(leases.take_request(NODE, Nonce([92; 16])), Some(at(92)));
    }

    /// What was asked before a node was taken for another life proves nothing.
    #[test]
    fn a_forgotten_question_has_no_answer() {
        let mut leases = Leases::new(DEFAULT_LEASE);
        let (first, second) = (Nonce([1; 16]), Nonce([2; 16]));
        leases.record_request(NODE, first, at(5));
        leases.discard_requests(NODE);
        leases.record_request(NODE, second, at(6));
        assert_eq!(leases.take_request(NODE, first), None);
        assert_eq!(leases.take_request(NODE, second), Some(at(6)));
    }

    /// Answers overtake each other: the one to the latest question counts, and a lease never gets shorter.
    #[test]
    fn the_latest_question_decides_whatever_comes_last() {
        let tip = |next| LogTip {
            next,
            id: OperationId([3; 32]),
        };
        let mut leases = Leases::new(DEFAULT_LEASE);
        leases.record_tip(NODE, at(8), tip(4));
        leases.record_tip(NODE, at(5), tip(3));
        leases.record_tip(NODE, at(8), tip(9));
        leases.apply_known_tips(|_, known| known == tip(3));
        assert_eq!(
            leases.last_expiry(NODE),
            None,
            "an older answer, or a second one"
        );
        leases.apply_known_tips(|_, known| known == tip(4));
        assert_eq!(leases.last_expiry(NODE), Some(at(38)));
        leases.record_tip(NODE, at(6), tip(3));
        leases.apply_known_tips(|_, _| true);
        assert_eq!(leases.valid_until(NODE, at(9)), Some(at(38)));
        leases.record_tip(NODE, at(9), tip(4));
        leases.apply_known_tips(|_, _| true);
        assert_eq!(leases.valid_until(NODE, at(9)), Some(at(39)));
    }

    /// What has lapsed is told from what never began: until the node is not believed any more.
    #[test]
    fn a_lapsed_lease_is_remembered_until_its_node_is_forgotten() {
        let mut leases = Leases::new(DEFAULT_LEASE);
        assert_eq!(leases.duration(), DEFAULT_LEASE);
        leases.record_request(NODE, Nonce([1; 16]), at(5));
        assert!(!leases.has_responded(NODE), "a question is no answer");
        assert_eq!(leases.last_expiry(NODE), None);
        leases.record_tip(NODE, at(5), LogTip::EMPTY);
        leases.apply_known_tips(|_, _| true);
        assert_eq!(leases.valid_until(NODE, at(90)), None);
        assert_eq!(leases.last_expiry(NODE), Some(at(35)));
        let other = NodeId([2; 32]);
        assert!(leases.has_responded(NODE) && !leases.has_responded(other));
        leases.expire(NODE);
        assert!(!leases.has_responded(NODE));
        assert_eq!(leases.last_expiry(NODE), None);
    }
}
