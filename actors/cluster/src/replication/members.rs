//! The members as they are published.

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_engine::node_key::PublicKey;
use mgp_engine::policy::grants::MemberChange;
use mgp_engine::replication::members::{ClusterMember, OutHow};
use mgp_engine::replication::replica::Replica;
use mgp_protocol::ids::NodeId;

use super::view::{ClusterMemberView, MemberStanding};

/// All of them.
pub(super) fn members(replica: &Replica) -> Arc<BTreeMap<NodeId, ClusterMemberView>> {
    let mut admitted: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    for (place, _, told) in replica.logs().grants().member_changes() {
        let (MemberChange::Found { key, .. }
        | MemberChange::Admit { key, .. }
        | MemberChange::Rekey { key, .. }
        | MemberChange::Recover { key, .. }) = &told.change
        else {
            continue;
        };
        if replica.logs().members().is_heard(place.issuer) {
            admitted.entry(key.node()).or_insert(place.issuer);
        }
    }
    let all = replica.logs().members().all().map(|(node, member)| {
        let view = ClusterMemberView {
            name: member.name.clone(),
            key: member.key,
            role: member.role,
            admitted_by: admitted.get(&node).copied(),
            standing: standing(replica, node, member),
            out_ms: member.out.map(|out| out.at_ms),
        };
        (node, view)
    });
    Arc::new(all.collect())
}

fn standing(replica: &Replica, node: NodeId, member: &ClusterMember) -> MemberStanding {
    let grants = replica.logs().grants();
    if member.cut.is_some() {
        match member.out.map(|out| out.how) {
            Some(OutHow::Left) => MemberStanding::Left,
            Some(OutHow::Rekeyed(_)) => MemberStanding::Rekeyed,
            Some(OutHow::Cut) | None => MemberStanding::Cut,
        }
    } else if grants.is_forked(node) {
        MemberStanding::Forked
    } else if replica.is_twice(node) {
        MemberStanding::Twice
    } else if member.role.is_none() {
        MemberStanding::Doubtful
    } else if replica.is_resting(node) {
        MemberStanding::Resting
    } else {
        MemberStanding::In
    }
}

/// The nodes to link to. The one that invited this one is known by its key before the logs name it.
pub(super) fn speaks_with(
    replica: &Replica,
    inviter: Option<PublicKey>,
) -> Arc<BTreeMap<NodeId, PublicKey>> {
    let members = replica.logs().members();
    let keyed = replica.speaks_with().into_iter().filter_map(|node| {
        let known = members.get(node).map(|member| member.key);
        let key = known.or(inviter.filter(|key| key.node() == node))?;
        Some((node, key))
    });
    Arc::new(keyed.collect())
}
