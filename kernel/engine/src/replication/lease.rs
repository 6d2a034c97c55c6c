//! Leases: grants of other nodes are in force only while every node that could revoke them answered within the lease.
//! Denials and revokes never expire.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use mgp_protocol::hex_id;
use mgp_protocol::ids::NodeId;

use crate::clock::MonotonicTime;
use crate::policy::grants::LogTip;

/// The lease if none is configured.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// Pending requests to one node; older ones are dropped, as their responses would hardly extend a lease.
const PENDING_REQUESTS_MAX: usize = 8;

hex_id! {
    /// Sent with a request and back with its response: random, so that no response is older than its request.
    Nonce, 16
}

#[derive(Clone, Copy, Debug, Hash)]
struct PendingRequest {
    nonce: Nonce,
    sent_at: MonotonicTime,
}

#[derive(Clone, Debug, Default, Hash)]
struct PeerLease {
    pending: VecDeque<PendingRequest>,
    /// The sending time of the latest request that counts.
    fresh_since: Option<MonotonicTime>,
    /// The tip of a response that is not known here yet. Once it is, the lease runs from that time.
    pending_tip: Option<(MonotonicTime, LogTip)>,
}

/// The leases of all peers. Empty after a start. Times are of a clock that also runs while the machine sleeps, and
/// count from the sending of a request, so that network delay does not extend a lease.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Leases {
    duration: Duration,
    peers: BTreeMap<NodeId, PeerLease>,
}

impl Leases {
    #[must_use]
    pub(crate) fn new(duration: Duration) -> Self {
        Self {
            duration,
            peers: BTreeMap::new(),
        }
    }

    #[must_use]
    pub(crate) fn duration(&self) -> Duration {
        self.duration
    }

    pub(crate) fn record_request(&mut self, node: NodeId, nonce: Nonce, at: MonotonicTime) {
        let peer = self.peers.entry(node).or_default();
        peer.pending
            .push_back(PendingRequest { nonce, sent_at: at });
        if peer.pending.len() > PENDING_REQUESTS_MAX {
            peer.pending.pop_front();
        }
    }

    /// Removes a pending request and returns its sending time; None if there is none with this nonce.
    pub(crate) fn take_request(&mut self, node: NodeId, nonce: Nonce) -> Option<MonotonicTime> {
        let peer = self.peers.get_mut(&node)?;
        let index = peer
            .pending
            .iter()
            .position(|request| request.nonce == nonce)?;
        peer.pending.remove(index).map(|request| request.sent_at)
    }

    /// Drops the pending requests to a node, so that their responses do not count.
    pub(crate) fn discard_requests(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.pending.clear();
        }
    }

    /// Records the tip of a node's own log from the response to a request of `asked_at`.
    pub(crate) fn record_tip(&mut self, node: NodeId, asked_at: MonotonicTime, tip: LogTip) {
        let peer = self.peers.entry(node).or_default();
        if peer.pending_tip.is_none_or(|(at, _)| at < asked_at) {
            peer.pending_tip = Some((asked_at, tip));
        }
    }

    /// Renews the leases whose pending tips are known here now.
    pub(crate) fn apply_known_tips(&mut self, is_known: impl Fn(NodeId, LogTip) -> bool) {
        for (node, peer) in &mut self.peers {
            if let Some((at, tip)) = peer.pending_tip
                && is_known(*node, tip)
            {
                peer.pending_tip = None;
                peer.fresh_since = peer.fresh_since.max(Some(at));
            }
        }
    }

    /// Ends the lease of a node.
    pub(crate) fn expire(&mut self, node: NodeId) {
        self.peers.remove(&node);
    }

    /// The end of a node's lease; None if it is not valid now.
    #[must_use]
    pub(crate) fn valid_until(&self, node: NodeId, now: MonotonicTime) -> Option<MonotonicTime> {
        let fresh = self.peers.get(&node)?.fresh_since?;
        (now.duration_since(fresh) < self.duration).then(|| fresh + self.duration)
    }

    /// The end of a node's last lease, also if it has expired; None if it has not answered since this node's start.
    #[must_use]
    pub(crate) fn last_expiry(&self, node: NodeId) -> Option<MonotonicTime> {
        let fresh = self.peers.get(&node)?.fresh_since?;
        Some(fresh + self.duration)
    }

    /// True if the node has answered since this node's start.
    #[must_use]
    pub(crate) fn has_responded(&self, node: NodeId) -> bool {
        self.peers
            .get(&node)
            .is_some_and(|peer| peer.fresh_since.is_some())
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

    /// FED-050: the lease runs from the request, and only a response to it counts.
    #[test]
    fn a_lease_runs_from_the_request_however_late_the_response() {
        let mut leases = Leases::new(DEFAULT_LEASE);
        let nonce = Nonce([1; 16]);
        assert_eq!(
            leases.valid_until(NODE, at(0)),
            None,
            "no lease after a start"
        );
        leases.record_request(NODE, nonce, at(5));
        assert_eq!(leases.take_request(NODE, Nonce([2; 16])), None);
        let asked = leases.take_request(NODE, nonce).unwrap();
        assert_eq!(
            leases.take_request(NODE, nonce),
            None,
            "a response counts once"
        );
        leases.record_tip(NODE, asked, LogTip::EMPTY);
        leases.apply_known_tips(|_, _| true);
        assert_eq!(leases.valid_until(NODE, at(34)), Some(at(35)));
        assert_eq!(leases.valid_until(NODE, at(35)), None);
    }

    #[test]
    fn a_response_counts_once_its_tip_is_known_here() {
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
    fn old_requests_are_dropped() {
        let mut leases = Leases::new(DEFAULT_LEASE);
        for n in 0..100 {
            leases.record_request(NODE, Nonce([n; 16]), at(u64::from(n)));
        }
        assert_eq!(leases.take_request(NODE, Nonce([91; 16])), None);
        assert_eq!(leases.take_request(NODE, Nonce([92; 16])), Some(at(92)));
    }

    #[test]
    fn a_response_to_a_discarded_request_does_not_count() {
        let mut leases = Leases::new(DEFAULT_LEASE);
        let (first, second) = (Nonce([1; 16]), Nonce([2; 16]));
        leases.record_request(NODE, first, at(5));
        leases.discard_requests(NODE);
        leases.record_request(NODE, second, at(6));
        assert_eq!(leases.take_request(NODE, first), None);
        assert_eq!(leases.take_request(NODE, second), Some(at(6)));
    }

    /// Responses may overtake each other, and a lease never gets shorter.
    #[test]
    fn the_latest_request_decides_whatever_the_order_of_responses() {
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
            "an older response, or a second one"
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

    /// Distinguishes an expired lease from none.
    #[test]
    fn an_expired_lease_is_stored_until_it_is_ended() {
        let mut leases = Leases::new(DEFAULT_LEASE);
        assert_eq!(leases.duration(), DEFAULT_LEASE);
        leases.record_request(NODE, Nonce([1; 16]), at(5));
        assert!(!leases.has_responded(NODE), "a request is no response");
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
