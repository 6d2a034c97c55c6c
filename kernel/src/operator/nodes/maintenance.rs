//! `mgp/kernel/nodes/promote`, `demote`, `drain` and `forget`.

use mgp_callers::request::{Outcome, Request};
use mgp_cluster::replication::{ClusterView, ProposedChanges};
use mgp_engine::policy::grants::MemberRole;
use mgp_protocol::federation::hello::WireFeatures;
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::kernel::nodes::{
    Demote, Drain, Drained, Forget, ForgetResult, Promote, Role, RoleChanged,
};
use mgp_protocol::refusal::Refusal;

use super::request_author;
use crate::operator::{Operator, json, read};

impl Operator {
    /// `mgp/kernel/nodes/promote`.
    ///
    /// # Errors
    /// Unknown node, one that already has this role or more; a node without the right or the ability to write now.
    pub(crate) async fn promote_node(&self, request: &Request) -> Outcome {
        let promote: Promote = read(request)?;
        let node = self.find_node(&promote.node)?;
        let role = promote.role.unwrap_or(Role::Admin);
        let by = request_author(request);
        let changed = self
            .cluster
            .replication
            .promote(node, to_member_role(role), by);
        let changed = changed.await?;
        self.role_change_outcome(node, role, &changed).await
    }

    /// `mgp/kernel/nodes/demote`.
    ///
    /// # Errors
    /// Unknown node, one that already has this role or less, the last admin; a node without the right or the ability to
    /// write now; linked nodes of an older version, unless forced.
    pub(crate) async fn demote_node(&self, request: &Request) -> Outcome {
        let demote: Demote = read(request)?;
        let node = self.find_node(&demote.node)?;
        let role = demote.role.unwrap_or(Role::Member);
        let older = self.peers_without_demotion();
        if !older.is_empty() && !demote.with_older {
            return Err(Refusal::BadParams(format!(
                "{} of an older version would take {} for cut off, and have no link with it until updated: update first, or say --with-older",
                older.join(", "),
                self.cluster.node_label(node)
            )));
        }
        let by = request_author(request);
        let changed = self
            .cluster
            .replication
            .demote(node, to_member_role(role), by);
        let changed = changed.await?;
        self.role_change_outcome(node, role, &changed).await
    }

    /// The linked nodes whose version takes a demotion for a cut-off.
    fn peers_without_demotion(&self) -> Vec<String> {
        let older = self
            .cluster
            .links
            .linked_nodes_without(WireFeatures::DEMOTION);
        let older = older.into_iter();
        older.map(|node| self.cluster.node_label(node)).collect()
    }

    async fn role_change_outcome(
        &self,
        node: NodeId,
        role: Role,
        made: &ProposedChanges,
    ) -> Outcome {
        json(&RoleChanged {
            id: node.to_string(),
            name: self.cluster.node_label(node),
            role,
            confirmed: self.wait_for_confirmations(made).await?,
        })
    }

    /// `mgp/kernel/nodes/drain`.
    ///
    /// # Errors
    /// When the logs are not reachable.
    pub(crate) async fn drain_node(&self, request: &Request) -> Outcome {
        let drain: Drain = read(request)?;
        self.cluster.set_draining(!drain.end).await?;
        json(&Drained {
            draining: self.cluster.is_draining(),
            calls: self.cluster.in_flight_calls(),
        })
    }

    /// `mgp/kernel/nodes/forget`.
    ///
    /// # Errors
    /// An unknown former node; a failed write.
    pub(crate) async fn forget_nodes(&self, request: &Request) -> Outcome {
        let forget: Forget = read(request)?;
        let view = self.cluster.replication.view();
        let departed = departed_nodes(&view, forget.node.as_deref(), |node| {
            self.cluster.is_forgotten(node)
        });
        if let (Some(typed), true) = (&forget.node, departed.is_empty()) {
            return Err(Refusal::BadParams(format!(
                "no node called {typed:?} has left or was cut off: `mgp nodes list` shows which have; one that is in the cluster is cut off with `mgp nodes remove`"
            )));
        }
        let nodes = departed
            .iter()
            .map(|(node, name)| format!("{name} ({})", node.words()));
        let nodes = nodes.collect();
        let ids = departed.into_iter().map(|(node, _)| node).collect();
        let forgotten = self.cluster.forget_nodes(ids).await;
        forgotten.map_err(crate::operator::internal_error)?;
        json(&ForgetResult { nodes })
    }
}

/// The listed nodes that have left, filtered by name.
fn departed_nodes(
    view: &ClusterView,
    typed: Option<&str>,
    is_forgotten: impl Fn(NodeId) -> bool,
) -> Vec<(NodeId, String)> {
    let means = |node: NodeId, name: &str| {
        typed.is_none_or(|typed| {
            let id = node.to_string();
            name == typed || node.words() == typed || typed.len() >= 6 && id.starts_with(typed)
        })
    };
    let departed = view.members.iter();
    let departed = departed.filter(|(node, member)| {
        **node != view.node
            && member.status.is_out()
            && !is_forgotten(**node)
            && means(**node, &member.name)
    });
    departed
        .map(|(node, member)| (*node, member.name.clone()))
        .collect()
}

fn to_member_role(role: Role) -> MemberRole {
    match role {
        Role::Admin => MemberRole::Admin,
        Role::Member => MemberRole::Member,
        Role::Leaf => MemberRole::Leaf,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use mgp_cluster::replication::{ClusterMemberView, MemberStatus};
    use mgp_engine::node_key::NodeKey;

    use super::*;

    /// Of six keys of one node, the rows of the five earlier ones are removed, the current one stays.
    #[test]
    fn only_departed_nodes_are_forgotten() {
        let key = |n| NodeKey::new(&[n; 32]).public_key();
        let member = |n: u8, standing| {
            let member = ClusterMemberView {
                name: "desk".into(),
                key: key(n),
                role: Some(MemberRole::Member),
                admitted_by: None,
                status: standing,
                removed_ms: None,
            };
            (key(n).node_id(), member)
        };
        let before = (1..=5).map(|n| member(n, MemberStatus::CutOff));
        let here = key(9).node_id();
        let view = ClusterView {
            members: Arc::new(before.chain([member(6, MemberStatus::Active)]).collect()),
            ..ClusterView::standalone(here, Duration::from_secs(30))
        };
        assert_eq!(departed_nodes(&view, None, |_| false).len(), 5);
        assert_eq!(departed_nodes(&view, Some("desk"), |_| false).len(), 5);
        assert_eq!(departed_nodes(&view, Some("nas"), |_| false).len(), 0);
        let first = key(1).node_id();
        assert_eq!(
            departed_nodes(&view, Some(&first.words()), |_| false).len(),
            1
        );
        assert_eq!(departed_nodes(&view, None, |node| node == first).len(), 4);
    }
}
