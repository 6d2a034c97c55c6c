//! `mgp/kernel/nodes/promote`, `demote`, `drain` and `forget`.

use mgp_callers::request::{Outcome, Request};
use mgp_cluster::replication::{ClusterView, ProposedChanges};
use mgp_engine::policy::grants::MemberRole;
use mgp_protocol::federation::hello::WireFeatures;
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::kernel::nodes::{
    Demote, Drain, Drained, Forget, ForgottenRows, Promote, Role, RoleChanged,
};
use mgp_protocol::refusal::Refusal;

use super::asked_by;
use crate::operator::{Operator, json, read};

impl Operator {
    /// `mgp/kernel/nodes/promote`.
    ///
    /// # Errors
    /// Unknown node, one that may as much already; a node that may not, or cannot write now.
    pub async fn promote_node(&self, request: &Request) -> Outcome {
        let promote: Promote = read(request)?;
        let node = self.any_node(&promote.node)?;
        let role = promote.role.unwrap_or(Role::Admin);
        let by = asked_by(request);
        let changed = self.cluster.replication.promote(node, written(role), by);
        let changed = changed.await?;
        self.role_changed(node, role, &changed).await
    }

    /// `mgp/kernel/nodes/demote`.
    ///
    /// # Errors
    /// Unknown node, one that may no more already, the last admin; a node that may not, or cannot write now; linked nodes
    /// of an older version, unless that is asked for.
    pub async fn demote_node(&self, request: &Request) -> Outcome {
        let demote: Demote = read(request)?;
        let node = self.any_node(&demote.node)?;
        let role = demote.role.unwrap_or(Role::Member);
        let older = self.without_demotion();
        if !older.is_empty() && !demote.with_older {
            return Err(Refusal::BadParams(format!(
                "{} of an older version would take {} for cut off, and have no link with it until updated: update first, or say --with-older",
                older.join(", "),
                self.cluster.name_of(node)
            )));
        }
        let by = asked_by(request);
        let changed = self.cluster.replication.demote(node, written(role), by);
        let changed = changed.await?;
        self.role_changed(node, role, &changed).await
    }

    /// The linked nodes that read a demotion as a cut.
    fn without_demotion(&self) -> Vec<String> {
        let older = self.cluster.links.linked_without(WireFeatures::DEMOTION);
        let older = older.into_iter();
        older.map(|node| self.cluster.name_of(node)).collect()
    }

    async fn role_changed(&self, node: NodeId, role: Role, made: &ProposedChanges) -> Outcome {
        json(&RoleChanged {
            id: node.to_string(),
            name: self.cluster.name_of(node),
            role,
            confirmed: self.confirmed(made).await?,
        })
    }

    /// `mgp/kernel/nodes/drain`.
    ///
    /// # Errors
    /// When the logs are not reachable.
    pub async fn drain_node(&self, request: &Request) -> Outcome {
        let drain: Drain = read(request)?;
        self.cluster.set_draining(!drain.end).await?;
        json(&Drained {
            draining: self.cluster.is_draining(),
            calls: self.cluster.calls_under_way(),
        })
    }

    /// `mgp/kernel/nodes/forget`.
    ///
    /// # Errors
    /// A name that none has who left; a disk that does not take it.
    pub async fn forget_nodes(&self, request: &Request) -> Outcome {
        let forget: Forget = read(request)?;
        let view = self.cluster.replication.view();
        let gone = gone(&view, forget.node.as_deref(), |node| {
            self.cluster.is_forgotten(node)
        });
        if let (Some(typed), true) = (&forget.node, gone.is_empty()) {
            return Err(Refusal::BadParams(format!(
                "no node called {typed:?} has left or was cut off: `mgp nodes list` shows which have; one that is in the cluster is cut off with `mgp nodes remove`"
            )));
        }
        let nodes = gone
            .iter()
            .map(|(node, name)| format!("{name} ({})", node.words()));
        let nodes = nodes.collect();
        let ids = gone.into_iter().map(|(node, _)| node).collect();
        let forgotten = self.cluster.forget_nodes(ids).await;
        forgotten.map_err(crate::operator::broken)?;
        json(&ForgottenRows { nodes })
    }
}

/// The nodes that are out and listed still: those that are meant.
fn gone(
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
    let out = view.members.iter();
    let out = out.filter(|(node, member)| {
        **node != view.here
            && member.standing.is_out()
            && !is_forgotten(**node)
            && means(**node, &member.name)
    });
    out.map(|(node, member)| (*node, member.name.clone()))
        .collect()
}

fn written(role: Role) -> MemberRole {
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

    use mgp_cluster::replication::{ClusterMemberView, MemberStanding};
    use mgp_engine::node_key::NodeKey;

    use super::*;

    /// Of six keys that a node had, all five rows of those before are gone, and its own is not.
    #[test]
    fn only_nodes_that_are_out_are_forgotten() {
        let key = |n| NodeKey::new(&[n; 32]).public();
        let member = |n: u8, standing| {
            let member = ClusterMemberView {
                name: "desk".into(),
                key: key(n),
                role: Some(MemberRole::Member),
                admitted_by: None,
                standing,
                out_ms: None,
            };
            (key(n).node(), member)
        };
        let before = (1..=5).map(|n| member(n, MemberStanding::Cut));
        let here = key(9).node();
        let view = ClusterView {
            members: Arc::new(before.chain([member(6, MemberStanding::In)]).collect()),
            ..ClusterView::alone(here, Duration::from_secs(30))
        };
        assert_eq!(gone(&view, None, |_| false).len(), 5);
        assert_eq!(gone(&view, Some("desk"), |_| false).len(), 5);
        assert_eq!(gone(&view, Some("nas"), |_| false).len(), 0);
        let first = key(1).node();
        assert_eq!(gone(&view, Some(&first.words()), |_| false).len(), 1);
        assert_eq!(gone(&view, None, |node| node == first).len(), 4);
    }
}
