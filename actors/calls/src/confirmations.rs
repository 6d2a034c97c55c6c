//! Waits until the other nodes of the cluster have confirmed what this one wrote to its log, and tells who has not.

use std::time::Duration;

use mgp_cluster::replication::{ProposedChanges, ReplicationHandle};
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::kernel::nodes::Confirmations;
use mgp_protocol::refusal::Refusal;

/// Long enough for every node in reach (1 s, FEDERATION); whoever is not is told of.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who has confirmed these changes, after two seconds at most; `None` where they are signed only once other nodes
/// have confirmed this one's log.
///
/// # Errors
/// A [`Refusal`] where this node is in no cluster any more.
pub async fn confirmations(
    replication: &ReplicationHandle,
    proposed: &ProposedChanges,
    name: impl Fn(NodeId) -> String,
) -> Result<Option<Confirmations>, Refusal> {
    let Some(number) = proposed.number else {
        return Ok(None);
    };
    let mut heard = replication.confirmations(number).await?;
    let all = heard.wait_for(|heard| heard.missing.is_empty());
    let _ = tokio::time::timeout(PATIENCE, all).await;
    let (now, heard) = (replication.now(), heard.borrow().clone());
    let lease = replication.view().lease;
    let lapses = heard.missing.iter().map(|(_, ends)| match ends {
        Some(ends) => ends.since(now).min(lease),
        None => lease,
    });
    let lapses = lapses.max().unwrap_or_default();
    let ms = now.since(proposed.at).as_millis();
    Ok(Some(Confirmations {
        nodes: heard.by as u64,
        of: heard.of as u64,
        after_ms: u64::try_from(ms).unwrap_or(u64::MAX),
        missing: heard.missing.iter().map(|(node, _)| name(*node)).collect(),
        lapses_secs: lapses.as_secs_f64().ceil() as u64,
    }))
}
