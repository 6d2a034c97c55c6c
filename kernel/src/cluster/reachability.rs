//! What each node says of itself to those it is linked to: how long its lease is, whether it is confirmed, and whom it
//! reaches. For people alone: nothing is decided by it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mgp_protocol::federation::control::{Control, LINKED_MAX, ReachReport};
use mgp_protocol::ids::NodeId;

use super::Cluster;

/// How often it is said when nothing has changed: a change of the lease is seen by then.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// A word that is older is nobody's: three were missed.
const REPORT_TTL: Duration = Duration::from_secs(30);
/// The shortest time between two: links that come and go all the time are said a few times.
const REPORT_INTERVAL_MIN: Duration = Duration::from_millis(500);

/// What the linked nodes said last, one word for each member.
#[derive(Debug, Default)]
pub(super) struct ReachReports(Mutex<BTreeMap<NodeId, (Instant, ReachReport)>>);

impl ReachReports {
    /// Records what a linked node reported; reports of nodes that are no members are dropped.
    pub(super) fn record(
        &self,
        node: NodeId,
        reach: ReachReport,
        is_member: impl Fn(NodeId) -> bool,
    ) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.insert(node, (Instant::now(), reach));
        said.retain(|node, _| is_member(*node));
    }

    /// The latest report of a node, unless it has expired.
    pub(super) fn latest(&self, node: NodeId) -> Option<ReachReport> {
        let said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, reach) = said.get(&node)?;
        (at.elapsed() < REPORT_TTL).then(|| reach.clone())
    }
}

impl Cluster {
    /// Says it whenever it changes, and now and then.
    pub(super) async fn report_reachability(self: Arc<Self>) {
        loop {
            let (view, links) = (self.replication.view(), self.links.table());
            if view.cluster.is_some() {
                let linked = links.links.keys().take(LINKED_MAX).copied();
                let reach = ReachReport {
                    lease_ms: u64::try_from(view.lease.as_millis()).unwrap_or(u64::MAX),
                    confirmed: view.silent_node.is_none(),
                    linked: linked.collect(),
                };
                for node in links.links.keys() {
                    self.send_control((*node, Control::Reach(reach.clone())));
                }
            }
            tokio::select! {
                () = view.replaced.cancelled() => {}
                () = links.replaced.cancelled() => {}
                () = tokio::time::sleep(REPORT_INTERVAL) => {}
            }
            tokio::time::sleep(REPORT_INTERVAL_MIN).await;
        }
    }

    /// What a linked node said of itself last.
    pub(crate) fn reported_reach(&self, node: NodeId) -> Option<ReachReport> {
        self.links.link(node)?;
        self.reports.latest(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_of_members_are_kept() {
        let reports = ReachReports::default();
        let (one, other) = (NodeId([1; 32]), NodeId([2; 32]));
        let reach = ReachReport {
            lease_ms: 30_000,
            confirmed: true,
            linked: vec![other],
        };
        reports.record(one, reach.clone(), |_| true);
        assert_eq!(reports.latest(one), Some(reach.clone()));
        reports.record(other, reach, |node| node == other);
        assert_eq!(reports.latest(one), None);
    }
}
