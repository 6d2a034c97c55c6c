//! What is said of links that end or do not come about: once for each reason and peer.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use mgp_protocol::ids::NodeId;

/// Reasons remembered, of all peers. At the bound nothing new is said: who makes so many different
/// things go wrong is not to fill the log with them.
const REASONS_MAX: usize = 1024;

/// A reason that was said is said again only after [`CloseLog::reset_peer`].
#[derive(Debug, Default)]
pub(super) struct CloseLog(Mutex<HashSet<(Option<NodeId>, &'static str)>>);

impl CloseLog {
    /// True if this is to be said. A peer that has shown no key is nobody in particular.
    pub(super) fn should_log(&self, peer: Option<NodeId>, kind: &'static str) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.len() < REASONS_MAX && said.insert((peer, kind))
    }

    /// A link to this node has lasted: what goes wrong from now on is new.
    pub(super) fn reset_peer(&self, peer: NodeId) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|(other, _)| *other != Some(peer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_said_once_for_each_peer_until_a_link_has_lasted() {
        let (log, a, b) = (CloseLog::default(), NodeId([1; 32]), NodeId([2; 32]));
        assert!(log.should_log(Some(a), "timed out"));
        assert!(!log.should_log(Some(a), "timed out"));
        assert!(log.should_log(Some(a), "revoked") && log.should_log(Some(b), "timed out"));
        assert!(log.should_log(None, "timed out") && !log.should_log(None, "timed out"));
        log.reset_peer(a);
        assert!(log.should_log(Some(a), "timed out") && !log.should_log(Some(b), "timed out"));
    }

    #[test]
    fn a_crowd_of_peers_fills_neither_the_log_nor_the_memory() {
        let log = CloseLog::default();
        let node = |n: u32| {
            let mut node = NodeId([0; 32]);
            node.0[..4].copy_from_slice(&n.to_be_bytes());
            Some(node)
        };
        let said = (0..5000).filter(|n| log.should_log(node(*n), "x")).count();
        assert_eq!(
            (said, log.0.lock().unwrap().len()),
            (REASONS_MAX, REASONS_MAX)
        );
    }
}
