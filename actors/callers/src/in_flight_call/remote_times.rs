//! The timings of a call across nodes: those measured here for the node that the call came from, and those
//! reported by the nodes it went to. They are exchanged beside the answer, and no agent or server sees
//! them.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use mgp_protocol::federation::call::timings::CallTimings;

/// The most nodes whose timings are stored for one call: the nodes it can have moved to. Further ones are
/// ignored.
const NODES_MAX: usize = 4;

/// The timings of one call.
#[derive(Debug, Default)]
pub struct RemoteTimes {
    local: OnceLock<Box<CallTimings>>,
    reported: Mutex<Vec<NodeTimes>>,
}

/// The timings that one node reports for its part of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTimes {
    /// The name of the node on this node.
    pub node: Box<str>,
    /// The reported timings.
    pub times: CallTimings,
}

impl RemoteTimes {
    /// Sets the timings of a call that came from another node.
    pub fn set_local(&self, times: CallTimings) {
        let _ = self.local.set(Box::new(times));
    }

    /// The timings measured here.
    #[must_use]
    pub fn local(&self) -> Option<CallTimings> {
        self.local.get().map(|times| **times)
    }

    /// Adds the timings that a node reports; for a call that it received twice both count.
    pub fn add_reported(&self, node: &str, times: &CallTimings) {
        let mut reported = self.lock();
        if let Some(entry) = reported.iter_mut().find(|entry| &*entry.node == node) {
            entry.times = entry.times.merge(times);
        } else if reported.len() < NODES_MAX {
            let (node, times) = (node.into(), *times);
            reported.push(NodeTimes { node, times });
        }
    }

    /// The reported timings, in the order in which the nodes first reported.
    #[must_use]
    pub fn reported(&self) -> Vec<NodeTimes> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<NodeTimes>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0069: the number of nodes is bounded, and repeated reports of one node are added up.
    #[test]
    fn reported_times_are_bounded_and_added_per_node() {
        let (times, remote) = (
            CallTimings {
                whole: 5,
                ..CallTimings::default()
            },
            RemoteTimes::default(),
        );
        for n in [0, 1, 0, 2, 3, 4, 5] {
            remote.add_reported(&format!("n{n}"), &times);
        }
        let reported = remote.reported().into_iter();
        let reported: Vec<_> = reported
            .map(|node| (node.node.into_string(), node.times.whole))
            .collect();
        let names = [("n0", 10), ("n1", 5), ("n2", 5), ("n3", 5)];
        assert_eq!(
            reported,
            names.map(|(name, whole)| (name.to_owned(), whole))
        );
    }
}
