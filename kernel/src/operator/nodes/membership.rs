//! The membership of this node: by the logs, and by the answers of other nodes to its links.

use mgp_cluster::links::{LinkRefusal, LinkStatus};
use mgp_cluster::replication::{ClusterMemberView, ClusterView, MemberStatus};
use mgp_engine::policy::grants::MemberRole;
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::kernel::nodes::MembershipStatus;

/// This node's membership, and its problem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::operator) struct LocalMembership {
    pub(in crate::operator) membership: MembershipStatus,
    /// A problem, with the remedy.
    pub(in crate::operator) failure: Option<String>,
}

/// How a node that was cut off can join again.
const REJOIN_HINT: &str = "under its present key it never comes back: `mgp nodes leave`, `mgp nodes rekey`, a restart, \
                         then `mgp nodes join` with a new ticket";

/// The membership of the node with this key and configured name.
pub(in crate::operator) fn local_membership(
    view: &ClusterView,
    key: &str,
    name: &str,
    links: &[LinkStatus],
    name_of: impl Fn(NodeId) -> String,
) -> LocalMembership {
    if view.cluster.is_none() || view.members.is_empty() {
        return LocalMembership::default();
    }
    let Some(own) = view.members.get(&view.node) else {
        let command = rekey_command(name, key, &admin_names(view, name_of));
        return LocalMembership {
            membership: MembershipStatus::Unknown,
            failure: Some(format!(
                "the cluster does not know the key of this node: if it got that by `mgp nodes rekey`, an admin takes it, {command}"
            )),
        };
    };
    match own.status {
        MemberStatus::CutOff => LocalMembership {
            membership: MembershipStatus::Revoked,
            failure: Some(format!("this node was cut off; {REJOIN_HINT}")),
        },
        MemberStatus::Left => LocalMembership {
            membership: MembershipStatus::Revoked,
            failure: Some(format!("this node has left its cluster; {REJOIN_HINT}")),
        },
        MemberStatus::Rekeyed => LocalMembership {
            membership: MembershipStatus::Unknown,
            failure: Some(
                "this node goes on under another key from its next start: `mgp down`, then start it as before".into(),
            ),
        },
        MemberStatus::Active
        | MemberStatus::Retired
        | MemberStatus::Doubtful
        | MemberStatus::Forked
        | MemberStatus::DuplicateKey => membership_from_links(links, name_of),
    }
}

/// The answers of other nodes: a node that is cut off learns of it only from them.
fn membership_from_links(
    links: &[LinkStatus],
    name_of: impl Fn(NodeId) -> String,
) -> LocalMembership {
    let by = |refusal| {
        let by = links.iter().filter(|link| link.refusal == Some(refusal));
        let by: Vec<String> = by.map(|link| name_of(link.node)).collect();
        (!by.is_empty()).then(|| by.join(", "))
    };
    let (revoked, not_pinned) = (by(LinkRefusal::Revoked), by(LinkRefusal::NotPinned));
    let revoked = revoked.map(|by| {
        format!(
            "{by} ended the link as that of a node that was cut off: if an admin did that (`mgp cluster status` there), {REJOIN_HINT}"
        )
    });
    let not_pinned = not_pinned.map(|by| {
        format!(
            "{by} takes no link of this node: it was cut off there, or that node has not heard of its admission or of its new key yet; `mgp cluster status` there tells which. If it was cut off, {REJOIN_HINT}"
        )
    });
    let reports: Vec<String> = revoked.into_iter().chain(not_pinned).collect();
    let linked = links.iter().any(|link| link.linked.is_some());
    LocalMembership {
        membership: if reports.is_empty() || linked {
            MembershipStatus::Member
        } else {
            MembershipStatus::Refused
        },
        failure: (!reports.is_empty()).then(|| reports.join(". ")),
    }
}

/// The names of the admins.
pub(in crate::operator) fn admin_names(
    view: &ClusterView,
    name_of: impl Fn(NodeId) -> String,
) -> Vec<String> {
    let admin = |(node, member): &(&NodeId, &ClusterMemberView)| {
        **node != view.node && member.role == Some(MemberRole::Admin) && !member.status.is_out()
    };
    let admins = view.members.iter().filter(admin);
    admins.map(|(node, _)| name_of(*node)).collect()
}

/// The whole command that accepts the key of a node, and where to type it.
fn rekey_command(name: &str, key: &str, admins: &[String]) -> String {
    let location = match admins {
        [] => "an admin".to_owned(),
        [one] => one.clone(),
        some => some.join(" or "),
    };
    format!("on {location}: mgp nodes rekey {name} --to {key}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use mgp_cluster::links::LinkedStatus;
    use mgp_engine::node_key::NodeKey;
    use mgp_engine::policy::grants::ClusterId;
    use mgp_protocol::federation::hello::ReportedRole;
    use mgp_transports::quic::PacketLoss;

    use super::*;

    fn node(n: u8) -> NodeId {
        NodeKey::new(&[n; 32]).public_key().node_id()
    }

    /// `desk`, number 2, in a cluster of the admin `nas`, number 1.
    fn cluster(own: Option<MemberStatus>) -> ClusterView {
        let member = |n: u8, role, status| {
            let member = ClusterMemberView {
                name: ["nas", "desk"][usize::from(n - 1)].to_owned(),
                key: NodeKey::new(&[n; 32]).public_key(),
                role: Some(role),
                admitted_by: None,
                status,
                removed_ms: None,
            };
            (node(n), member)
        };
        let nas = member(1, MemberRole::Admin, MemberStatus::Active);
        let own = own.map(|status| member(2, MemberRole::Member, status));
        ClusterView {
            cluster: Some(ClusterId([1; 32])),
            members: Arc::new([nas].into_iter().chain(own).collect()),
            ..ClusterView::standalone(node(2), Duration::from_secs(30))
        }
    }

    fn link(n: u8, refusal: Option<LinkRefusal>, linked: bool) -> LinkStatus {
        LinkStatus {
            node: node(n),
            name: "nas".to_owned(),
            role: ReportedRole::Admin,
            present: linked,
            linked: linked.then(|| LinkedStatus {
                address: Some(([10, 0, 0, 2], 7332).into()),
                relay: None,
                is_dialer: true,
                since_ms: 0,
                round_trip: Duration::ZERO,
                clock: None,
                loss: PacketLoss::default(),
            }),
            is_blocked: false,
            refusal,
            lost_ms: None,
            problem: None,
        }
    }

    fn describe_membership(view: &ClusterView, links: &[LinkStatus]) -> (MembershipStatus, String) {
        let name_of = |of: NodeId| if of == node(1) { "nas" } else { "den" }.to_owned();
        let membership = local_membership(view, "9c90", "desk", links, name_of);
        (
            membership.membership,
            membership.failure.unwrap_or_default(),
        )
    }

    /// The node learns of it from the answers to its links, and by no entry of a log.
    #[test]
    fn a_rejected_node_reports_by_whom() {
        let view = cluster(Some(MemberStatus::Active));
        assert_eq!(
            describe_membership(&view, &[link(1, None, false)]).0,
            MembershipStatus::Member
        );
        let (membership, failure) =
            describe_membership(&view, &[link(1, Some(LinkRefusal::Revoked), false)]);
        assert_eq!(membership, MembershipStatus::Refused);
        assert!(
            failure.starts_with("nas ended the link as that of a node that was cut off"),
            "{failure}"
        );
        assert!(failure.contains("mgp nodes leave"), "{failure}");
        let links = [
            link(1, Some(LinkRefusal::NotPinned), false),
            link(3, None, true),
        ];
        let (membership, failure) = describe_membership(&view, &links);
        assert_eq!(
            membership,
            MembershipStatus::Member,
            "another node takes it"
        );
        assert!(
            failure.starts_with("nas takes no link of this node"),
            "{failure}"
        );
    }

    #[test]
    fn a_node_that_was_cut_off_learns_it_from_its_log() {
        let view = cluster(Some(MemberStatus::CutOff));
        let (membership, failure) = describe_membership(&view, &[link(1, None, false)]);
        assert_eq!(membership, MembershipStatus::Revoked);
        assert!(failure.starts_with("this node was cut off"), "{failure}");
    }

    #[test]
    fn a_rekeyed_node_names_the_whole_command_and_where_to_type_it() {
        let (membership, failure) = describe_membership(&cluster(None), &[]);
        assert_eq!(membership, MembershipStatus::Unknown);
        assert!(
            failure.ends_with("on nas: mgp nodes rekey desk --to 9c90"),
            "{failure}"
        );
    }
}
