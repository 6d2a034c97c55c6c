//! How long the parts of a call took, told from node to node beside its answer: what was measured here for the node that
//! the call came from, and what the nodes said that it went to. No agent and no server sees any of it.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use mgp_protocol::federation::call::timings::CallTimings;

/// Nodes whose times are kept for one call: the places it can have moved to. What a further one says is left out.
const NODES_MAX: usize = 4;

/// The times of one call.
#[derive(Debug, Default)]
pub struct RemoteTimes {
    local: OnceLock<Box<CallTimings>>,
    reported: Mutex<Vec<NodeTimes>>,
}

/// What one node says of its part of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTimes {
    /// What the node is called here.
    pub node: Box<str>,
    /// By its own word.
    pub times: CallTimings,
}

impl RemoteTimes {
    /// The call came from another node, and took so long here.
    pub fn set_local(&self, times: CallTimings) {
        let _ = self.local.set(Box::new(times));
    }

    /// What was measured here.
    #[must_use]
    pub fn local(&self) -> Option<CallTimings> {
        self.local.get().map(|times| **times)
    }

    /// The node says so of its part; of a call for which it was asked twice both count.
    pub fn add_reported(&self, node: &str, times: &CallTimings) {
        let mut heard = self.lock();
        if let Some(known) = heard.iter_mut().find(|known| &*known.node == node) {
            known.times = known.times.merge(times);
        } else if heard.len() < NODES_MAX {
            let (node, times) = (node.into(), *times);
            heard.push(NodeTimes { node, times });
        }
    }

    /// What the nodes said, in the order in which they were first heard of.
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

    /// Decision 0069: however many nodes a call was tried at, and however often.
    #[test]
    fn a_call_keeps_the_times_of_a_few_nodes_each_once() {
        let (times, abroad) = (
            CallTimings {
                whole: 5,
                ..CallTimings::default()
            },
            RemoteTimes::default(),
        );
        for n in [0, 1, 0, 2, 3, 4, 5] {
            abroad.add_reported(&format!("n{n}"), &times);
        }
        let heard = abroad.reported().into_iter();
        let heard: Vec<_> = heard
            .map(|node| (node.node.into_string(), node.times.whole))
            .collect();
        let names = [("n0", 10), ("n1", 5), ("n2", 5), ("n3", 5)];
        assert_eq!(heard, names.map(|(name, whole)| (name.to_owned(), whole)));
    }
}
