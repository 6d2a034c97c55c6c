//! The published views of the members.

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_engine::node_key::PublicKey;
use mgp_engine::policy::grants::MemberChange;
use mgp_engine::replication::members::{ClusterMember, RemovalReason};
use mgp_engine::replication::replica::Replica;
use mgp_protocol::ids::NodeId;

use super::view::{ClusterMemberView, MemberStatus};

/// The views of all members.
pub(super) fn member_views(replica: &Replica) -> Arc<BTreeMap<NodeId, ClusterMemberView>> {
    let mut admitted: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    for (place, _, change) in replica.logs().grants().member_changes() {
        let (MemberChange::Found { key, .. }
        | MemberChange::Admit { key, .. }
        | MemberChange::Rekey { key, .. }
        | MemberChange::Recover { key, .. }) = &change.change
        else {
            continue;
        };
        if replica.logs().members().can_possibly_issue(place.issuer) {
            admitted.entry(key.node_id()).or_insert(place.issuer);
        }
    }
    let all = replica.logs().members().iter().map(|(node, member)| {
        let view = ClusterMemberView {
            name: member.name.clone(),
            key: member.key,
            role: member.role,
            admitted_by: admitted.get(&node).copied(),
            status: member_status(replica, node, member),
            removed_ms: member.removal.map(|removal| removal.at_ms),
        };
        (node, view)
    });
    Arc::new(all.collect())
}

fn member_status(replica: &Replica, node: NodeId, member: &ClusterMember) -> MemberStatus {
    let grants = replica.logs().grants();
    if member.cut_at.is_some() {
        match member.removal.map(|removal| removal.reason) {
            Some(RemovalReason::Left) => MemberStatus::Left,
            Some(RemovalReason::Rekeyed(_)) => MemberStatus::Rekeyed,
            Some(RemovalReason::CutOff) | None => MemberStatus::CutOff,
        }
    } else if grants.is_forked(node) {
        MemberStatus::Forked
    } else if replica.has_duplicate_key(node) {
        MemberStatus::DuplicateKey
    } else if member.role.is_none() {
        MemberStatus::Doubtful
    } else if replica.is_shut_down(node) {
        MemberStatus::Retired
    } else {
        MemberStatus::Active
    }
}

/// The nodes to link to. The inviter of this node is known by its key before the logs name it.
pub(super) fn link_peers(
    replica: &Replica,
    inviter: Option<PublicKey>,
) -> Arc<BTreeMap<NodeId, PublicKey>> {
    let members = replica.logs().members();
    let keyed = replica.contacts().into_iter().filter_map(|node| {
        let known = members.get(node).map(|member| member.key);
        let key = known.or(inviter.filter(|key| key.node_id() == node))?;
        Some((node, key))
    });
    Arc::new(keyed.collect())
}
