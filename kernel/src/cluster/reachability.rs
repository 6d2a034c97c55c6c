//! The reports of linked nodes about themselves: their lease, whether it is confirmed, and which nodes they reach. For
//! display only: nothing is decided by them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mgp_protocol::federation::control::{Control, LINKED_MAX, ReachReport};
use mgp_protocol::ids::NodeId;

use super::Cluster;

/// Interval of unchanged reports: the maximum delay of a changed lease.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Older reports are dropped: three were missed.
const REPORT_TTL: Duration = Duration::from_secs(30);
/// Shortest time between two reports, however often links change.
const REPORT_INTERVAL_MIN: Duration = Duration::from_millis(500);

/// The last report of each linked member.
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
        let mut by_node = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        by_node.insert(node, (Instant::now(), reach));
        by_node.retain(|node, _| is_member(*node));
    }

    /// The latest report of a node, unless it has expired.
    pub(super) fn latest(&self, node: NodeId) -> Option<ReachReport> {
        let by_node = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, reach) = by_node.get(&node)?;
        (at.elapsed() < REPORT_TTL).then(|| reach.clone())
    }
}

impl Cluster {
    /// Reports after each change, and at intervals.
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

    /// The last report of a linked node about itself.
    pub(crate) fn reported_reach(&self, node: NodeId) -> Option<ReachReport> {
        self.links.link(node)?;
        self.reports.latest(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reports_of_members_are_stored() {
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
