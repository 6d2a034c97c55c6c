//! Waits until the other nodes of the cluster have confirmed what this one wrote to its log, and reports which have
//! not.

use std::time::Duration;

use mgp_cluster::replication::{ProposedChanges, ReplicationHandle};
use mgp_engine::clock::MonotonicTime;
use mgp_engine::policy::grants::MemberRole;
use mgp_engine::replication::replica::{AllowEnd, Confirmation};
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::kernel::nodes::{Confirmations, RevokeBound};
use mgp_protocol::refusal::Refusal;

/// Long enough for every reachable node (1 s, FEDERATION); the others are reported.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(2);

/// Who has confirmed these changes, after two seconds at most; `None` where they are signed only once other nodes
/// have confirmed this one's log.
///
/// # Errors
/// A [`Refusal`] where this node is in no cluster any more.
pub async fn wait_for_confirmations(
    replication: &ReplicationHandle,
    proposed: &ProposedChanges,
    name: impl Fn(NodeId) -> String,
) -> Result<Option<Confirmations>, Refusal> {
    let Some(number) = proposed.number else {
        return Ok(None);
    };
    let mut heard = replication.watch_confirmations(number).await?;
    let all = heard.wait_for(|heard| heard.missing.is_empty());
    let _ = tokio::time::timeout(CONFIRMATION_TIMEOUT, all).await;
    let (now, heard) = (replication.lease_now(), heard.borrow().clone());
    let after = now.duration_since(proposed.proposed_at);
    let members = replication.view().members.clone();
    let is_admin =
        |node| members.get(&node).and_then(|member| member.role) == Some(MemberRole::Admin);
    Ok(Some(build_confirmations(
        &heard, now, after, name, is_admin,
    )))
}

/// The bounds in whole seconds, no shorter than they are.
fn build_confirmations(
    heard: &Confirmation,
    now: MonotonicTime,
    after: Duration,
    name: impl Fn(NodeId) -> String,
    is_admin: impl Fn(NodeId) -> bool,
) -> Confirmations {
    let admins = heard.missing.iter().filter(|(node, _)| is_admin(*node));
    let missing_admins = admins.map(|(node, _)| name(*node)).collect();
    let bounds = heard.missing.iter().map(|(node, end)| RevokeBound {
        node: name(*node),
        secs: match end {
            AllowEnd::NoLaterThan(end) => Some(end.duration_since(now).as_secs_f64().ceil() as u64),
            AllowEnd::UnknownLease | AllowEnd::Unbounded => None,
        },
        lease_unknown: *end == AllowEnd::UnknownLease,
    });
    let bounds: Vec<RevokeBound> = bounds.collect();
    let all_secs: Option<Vec<u64>> = bounds.iter().map(|bound| bound.secs).collect();
    Confirmations {
        nodes: heard.confirmed as u64,
        of: heard.total as u64,
        after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
        missing: bounds.iter().map(|bound| bound.node.clone()).collect(),
        lapses_secs: all_secs.map(|secs| secs.into_iter().max().unwrap_or_default()),
        bounds,
        missing_admins,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(missing: &[AllowEnd]) -> Confirmations {
        let nodes = (1..).map(|n| NodeId([n; 32]));
        let heard = Confirmation {
            confirmed: 1,
            total: 1 + missing.len(),
            missing: nodes.zip(missing.iter().copied()).collect(),
        };
        let now = MonotonicTime::new(Duration::from_secs(100));
        let first = NodeId([1; 32]);
        build_confirmations(
            &heard,
            now,
            Duration::from_millis(5),
            |node| node.short_id(),
            |node| node == first,
        )
    }

    fn by(millis: u64) -> AllowEnd {
        AllowEnd::NoLaterThan(MonotonicTime::new(Duration::from_millis(millis)))
    }

    /// FED-038: the longest that applies, and no number where one of them has no end.
    #[test]
    fn an_answer_names_a_bound_only_where_every_node_has_one() {
        assert_eq!(answered(&[]).lapses_secs, Some(0));
        let bounded = answered(&[by(129_001), by(184_000), by(99_000)]);
        assert_eq!(bounded.lapses_secs, Some(84));
        assert_eq!(bounded.missing_admins, bounded.missing[..1]);
        let secs: Vec<_> = bounded.bounds.iter().map(|bound| bound.secs).collect();
        assert_eq!(secs, [Some(30), Some(84), Some(0)]);
        for unbounded in [AllowEnd::Unbounded, AllowEnd::UnknownLease] {
            let answer = answered(&[by(129_000), unbounded]);
            assert_eq!(answer.lapses_secs, None);
            assert_eq!((answer.nodes, answer.missing.len()), (1, 2));
            let [first, second] = &answer.bounds[..] else {
                panic!("{answer:?}");
            };
            assert_eq!((first.secs, second.secs), (Some(29), None));
            assert_eq!(second.lease_unknown, unbounded == AllowEnd::UnknownLease);
        }
    }
}
