//! Promotion and demotion of nodes, as operations.

use mgp_protocol::ids::NodeId;

use super::logs::ClusterLogs;
use super::members::ClusterMember;
use crate::policy::grants::{MemberChange, MemberRole};

/// Why a node's role is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoleChangeError {
    /// It is not in the cluster.
    #[error("that node is not in the cluster")]
    NotMember,
    /// It has that role, or a higher one.
    #[error("it may do that much already")]
    NotPromotion,
    /// It has that role, or a lower one.
    #[error("it may do no more than that already")]
    NotDemotion,
    /// It was demoted under its present key.
    #[error(
        "it was demoted, which is for good under its present key: `mgp nodes leave` and `mgp nodes rekey` there, a restart, then `mgp nodes join` with a ticket of `mgp nodes invite --role`"
    )]
    AlreadyDemoted,
    /// Nobody could admit nodes or grant anything.
    #[error("it is the last admin: `mgp nodes promote` another node first")]
    LastAdmin,
}

/// Returns the operation that promotes a node: an admission, which older versions understand.
///
/// # Errors
/// [`RoleChangeError`].
pub fn promote(
    logs: &ClusterLogs,
    node: NodeId,
    role: MemberRole,
) -> Result<MemberChange, RoleChangeError> {
    let (member, current) = find_member(logs, node)?;
    if role <= current {
        return Err(RoleChangeError::NotPromotion);
    }
    if member.role_max.is_some_and(|max| max < role) {
        return Err(RoleChangeError::AlreadyDemoted);
    }
    Ok(MemberChange::Admit {
        key: member.key,
        role,
        name: member.name.clone(),
    })
}

/// Returns the operation that demotes a node.
///
/// # Errors
/// [`RoleChangeError`].
pub fn demote(
    logs: &ClusterLogs,
    node: NodeId,
    role: MemberRole,
) -> Result<MemberChange, RoleChangeError> {
    let (_, current) = find_member(logs, node)?;
    if role >= current {
        return Err(RoleChangeError::NotDemotion);
    }
    let members = logs.members();
    let is_other_admin =
        |(other, _): (NodeId, &ClusterMember)| other != node && members.is_admin(other);
    if current == MemberRole::Admin && !members.iter().any(is_other_admin) {
        return Err(RoleChangeError::LastAdmin);
    }
    Ok(MemberChange::Cut {
        node,
        at: logs.grants().tip(node),
        stays_as: Some(role),
    })
}

fn find_member(
    logs: &ClusterLogs,
    node: NodeId,
) -> Result<(&ClusterMember, MemberRole), RoleChangeError> {
    let member = logs.members().get(node).filter(|member| member.is_active());
    let member = member.ok_or(RoleChangeError::NotMember)?;
    let role = member.role.ok_or(RoleChangeError::NotMember)?;
    Ok((member, role))
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mgp::access::Permission;

    use super::super::test_logs::{
        LogWriter, admit_change, allow_change, cluster_id, found_cluster, grant_change, key, node,
        revoke_change,
    };
    use super::*;
    use crate::policy::grants::{GrantId, GrantStatus, LogChange, SignedOperation};

    /// Node 0 is the founder, 1 a second admin, 2 a member.
    fn three() -> (Vec<SignedOperation>, LogWriter, LogWriter) {
        let (founding, mut founder) = found_cluster();
        let second = founder.write(admit_change(1, MemberRole::Admin));
        let third = founder.write(admit_change(2, MemberRole::Member));
        (
            vec![founding, second, third],
            founder,
            LogWriter::new(1, cluster_id()),
        )
    }

    /// Merges the entries at node 2, in two orders.
    fn known(entries: &[SignedOperation]) -> ClusterLogs {
        let mut logs = ClusterLogs::new(node(2), cluster_id());
        logs.merge_all(entries.iter().rev());
        let mut other = ClusterLogs::new(node(2), cluster_id());
        other.merge_all(entries);
        assert_eq!(logs.members(), other.members(), "whatever the order");
        logs
    }

    fn demoted(entries: &[SignedOperation], writer: &mut LogWriter, number: u8) -> SignedOperation {
        let change = demote(&known(entries), node(number), MemberRole::Member).unwrap();
        writer.write(LogChange::Members(change))
    }

    fn status(logs: &ClusterLogs, id: u8) -> GrantStatus {
        let granted = logs.find_grant(GrantId([id; 16])).unwrap();
        logs.grants().status(&granted, logs.authority(), 0)
    }

    /// Its later grants do not count, and no lease depends on it.
    #[test]
    fn a_demoted_admin_keeps_its_revokes_and_grants_nothing_more() {
        let (mut all, mut founder, mut second) = three();
        all.push(founder.write(allow_change(1)));
        all.push(second.write(revoke_change(1)));
        all.push(second.write(grant_change(2, Permission::Allow, &[])));
        all.push(demoted(&all.clone(), &mut founder, 1));
        let logs = known(&all);
        let members = logs.members();
        assert!(members.is_member(node(1)) && !members.is_admin(node(1)));
        assert_eq!(members.get(node(1)).unwrap().role, Some(MemberRole::Member));
        let could: Vec<_> = members.possible_revokers().collect();
        assert_eq!(could, [node(0)], "no lease depends on it");
        assert!(matches!(status(&logs, 1), GrantStatus::Revoked(_)));
        assert_eq!(
            status(&logs, 2),
            GrantStatus::InForce,
            "it was an admin then"
        );
        all.push(second.write(grant_change(3, Permission::Allow, &[])));
        all.push(second.write(revoke_change(2)));
        all.push(second.write(admit_change(3, MemberRole::Admin)));
        let logs = known(&all);
        assert_eq!(status(&logs, 3), GrantStatus::NotAuthorised);
        assert!(
            matches!(status(&logs, 2), GrantStatus::Revoked(_)),
            "its revokes still count"
        );
        assert!(!logs.members().is_admin(node(3)));
    }

    #[test]
    fn a_demotion_wins_over_a_promotion_and_over_another_key() {
        let (mut all, mut founder, mut second) = three();
        let promoted = promote(&known(&all), node(2), MemberRole::Admin).unwrap();
        all.push(founder.write(LogChange::Members(promoted)));
        assert!(known(&all).members().is_admin(node(2)));
        all.push(demoted(&all.clone(), &mut founder, 1));
        all.push(founder.write(admit_change(1, MemberRole::Admin)));
        let at = known(&all).grants().tip(node(1));
        let rekey = MemberChange::Rekey {
            node: node(1),
            at,
            key: key(4),
        };
        all.push(founder.write(LogChange::Members(rekey)));
        let logs = known(&all);
        assert!(logs.members().is_member(node(4)) && !logs.members().is_admin(node(4)));
        assert!(!logs.members().possible_revokers().any(|it| it == node(4)));
        assert_eq!(
            promote(&logs, node(4), MemberRole::Admin),
            Err(RoleChangeError::AlreadyDemoted)
        );
        all.push(second.write(grant_change(5, Permission::Allow, &[])));
        assert_eq!(status(&known(&all), 5), GrantStatus::NotAuthorised);
    }

    #[test]
    fn the_last_admin_is_not_demoted() {
        let (mut all, mut founder, _) = three();
        all.push(demoted(&all.clone(), &mut founder, 1));
        let logs = known(&all);
        let demote = |of| demote(&logs, node(of), MemberRole::Member);
        assert_eq!(demote(0), Err(RoleChangeError::LastAdmin));
        assert_eq!(demote(1), Err(RoleChangeError::NotDemotion));
        assert_eq!(demote(7), Err(RoleChangeError::NotMember));
        assert_eq!(
            promote(&logs, node(2), MemberRole::Member),
            Err(RoleChangeError::NotPromotion)
        );
    }

    /// An older version reads a demotion as a cut.
    #[test]
    fn an_older_version_reads_a_demotion_as_a_cut() {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum OlderChange {
            Cut { node: NodeId },
        }
        let (all, _, _) = three();
        let change = demote(&known(&all), node(1), MemberRole::Member).unwrap();
        let bytes = rmp_serde::to_vec_named(&change).unwrap();
        let OlderChange::Cut { node: of } = rmp_serde::from_slice(&bytes).unwrap();
        assert_eq!(of, node(1));
    }
}
