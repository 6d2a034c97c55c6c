//! Logs failed and ended links once for each reason and peer.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use mgp_protocol::ids::NodeId;

/// Remembered reasons, of all peers. At the bound nothing new is logged, so that a peer with many different failures
/// cannot fill the log.
const REASONS_MAX: usize = 1024;

/// A logged reason is logged again only after [`CloseLog::reset_peer`].
#[derive(Debug, Default)]
pub(super) struct CloseLog(Mutex<HashSet<(Option<NodeId>, &'static str)>>);

impl CloseLog {
    /// Whether to log this reason. All peers that have not proven a key count as one.
    pub(super) fn should_log(&self, peer: Option<NodeId>, kind: &'static str) -> bool {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logged.len() < REASONS_MAX && logged.insert((peer, kind))
    }

    /// A link to this node was stable: its later failures are new.
    pub(super) fn reset_peer(&self, peer: NodeId) {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logged.retain(|(other, _)| *other != Some(peer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_logged_once_for_each_peer_until_a_link_was_stable() {
        let (log, a, b) = (CloseLog::default(), NodeId([1; 32]), NodeId([2; 32]));
        assert!(log.should_log(Some(a), "timed out"));
        assert!(!log.should_log(Some(a), "timed out"));
        assert!(log.should_log(Some(a), "revoked") && log.should_log(Some(b), "timed out"));
        assert!(log.should_log(None, "timed out") && !log.should_log(None, "timed out"));
        log.reset_peer(a);
        assert!(log.should_log(Some(a), "timed out") && !log.should_log(Some(b), "timed out"));
    }

    #[test]
    fn many_peers_fill_neither_the_log_nor_the_memory() {
        let log = CloseLog::default();
        let node = |n: u32| {
            let mut node = NodeId([0; 32]);
            node.0[..4].copy_from_slice(&n.to_be_bytes());
            Some(node)
        };
        let logged = (0..5000).filter(|n| log.should_log(node(*n), "x")).count();
        assert_eq!(
            (logged, log.0.lock().unwrap().len()),
            (REASONS_MAX, REASONS_MAX)
        );
    }
}
