//! Problems of the cluster as this node sees it, with remedies.

use std::collections::BTreeMap;

use mgp_cluster::replication::{ClusterMemberView, ClusterView, MemberStatus};
use mgp_engine::clock::MonotonicTime;
use mgp_engine::policy::grants::MemberRole;
use mgp_protocol::ids::NodeId;

/// One line for each problem, the most severe first.
pub(super) fn find_failures(
    view: &ClusterView,
    name_of: impl Fn(NodeId) -> String,
    now: MonotonicTime,
) -> Vec<String> {
    let mut problems = Vec::new();
    problems.extend(view.loss.iter().map(ToString::to_string));
    if view.cluster.is_none() {
        return problems;
    }
    if let Some(problem) = &view.failure {
        problems.push(format!(
            "the logs of the cluster cannot be written: {problem}"
        ));
    }
    problems.extend(check_admins(view));
    problems.extend(check_silent_admin(view, &name_of, now));
    if view.role == Some(MemberRole::Admin) && !view.is_confirmed {
        problems.push("no other node has confirmed this one's log since its start: it can only revoke until then".into());
    }
    if view.owed_revokes > 0 {
        let owes = view.owed_revokes;
        problems.push(format!(
            "{owes} revocations count here, and wait for another node to confirm this one's log"
        ));
    }
    problems.extend(check_duplicate_names(view, &name_of));
    for node in &view.forked {
        let name = name_of(*node);
        problems.push(format!("{name} signed two different logs: nothing it granted counts; cut it off with `mgp nodes remove {name}`"));
    }
    problems
}

/// No admin is left: two admins demoted each other in a partition, or the last one was cut off.
fn check_admins(view: &ClusterView) -> Option<String> {
    // The role of a member in doubt is unknown.
    let signs = |member: &ClusterMemberView| {
        let in_doubt = member.status == MemberStatus::Doubtful;
        in_doubt || member.role == Some(MemberRole::Admin) && !member.status.is_out()
    };
    (!view.members.is_empty() && !view.members.values().any(signs)).then(|| {
        "no admin is left: nobody can grant, let a node in, or cut one off. `mgp cluster recover` makes this node an \
         admin by the recovery key, which was shown when the cluster was founded"
            .to_owned()
    })
}

/// Names that two nodes were given, which happens in a partition.
fn check_duplicate_names(view: &ClusterView, name_of: impl Fn(NodeId) -> String) -> Vec<String> {
    let mut called: BTreeMap<&str, Vec<NodeId>> = BTreeMap::new();
    for (node, member) in view.members.iter() {
        if !member.status.is_out() {
            called.entry(&member.name).or_default().push(*node);
        }
    }
    let several = called.into_iter().filter(|(_, nodes)| nodes.len() > 1);
    let duplicates = several.map(|(name, nodes)| {
        let nodes: Vec<String> = nodes.into_iter().map(&name_of).collect();
        let (all, last) = (nodes.join(" and "), nodes.last().cloned().unwrap_or_default());
        format!(
            "{all} were both named {name}, and none of them is called so now: `mgp nodes rename OTHER --node {last}` gives one another name"
        )
    });
    duplicates.collect()
}

/// An admin that is silent: what its expired lease has closed, or will close.
fn check_silent_admin(
    view: &ClusterView,
    name_of: impl Fn(NodeId) -> String,
    now: MonotonicTime,
) -> Option<String> {
    if let Some(node) = view.silent_node {
        let (name, secs) = (name_of(node), view.lease.as_secs());
        let way = recovery_hint(view, node, &name_of);
        return Some(format!(
            "{name} may revoke, and was not heard for {secs} s: agents of other nodes may do nothing here until it is, or until {way}"
        ));
    }
    let (end, node) = view.next_silent?;
    let (name, left) = (name_of(node), end.duration_since(now).as_secs());
    let way = recovery_hint(view, node, &name_of);
    Some(format!(
        "{name} may revoke, and is silent: in {left} s agents of other nodes may do nothing here, unless it is heard again, or {way}"
    ))
}

/// Which nodes can continue the cluster without an admin, and how.
fn recovery_hint(view: &ClusterView, silent: NodeId, name_of: impl Fn(NodeId) -> String) -> String {
    let name = name_of(silent);
    let others = view.members.iter().filter(|(node, member)| {
        let takes_part = member.status == MemberStatus::Active;
        **node != silent && takes_part && member.role == Some(MemberRole::Admin)
    });
    let others: Vec<String> = others.map(|(node, _)| name_of(*node)).collect();
    match others.as_slice() {
        [] => format!(
            "the recovery key makes another admin (`mgp cluster recover - --without {name}`)"
        ),
        others => format!(
            "it is cut off with `mgp nodes remove {name}`, at {}",
            others.join(" or ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use mgp_engine::node_key::{NodeKey, PublicKey};
    use mgp_engine::policy::grants::ClusterId;

    use super::*;

    fn at(seconds: u64) -> MonotonicTime {
        MonotonicTime::new(Duration::from_secs(seconds))
    }

    /// A cluster of so many admins, the first of which is silent; their names are their numbers.
    fn with_admins(admins: u8) -> (ClusterView, Vec<NodeId>) {
        let keys: Vec<_> = (1..=admins)
            .map(|n| NodeKey::new(&[n; 32]).public_key())
            .collect();
        let member = |key: &PublicKey| ClusterMemberView {
            name: "a node".into(),
            key: *key,
            role: Some(MemberRole::Admin),
            admitted_by: None,
            status: MemberStatus::Active,
            removed_ms: None,
        };
        let nodes: Vec<NodeId> = keys.iter().map(PublicKey::node_id).collect();
        let members = keys.iter().map(|key| (key.node_id(), member(key)));
        let view = ClusterView {
            cluster: Some(ClusterId([1; 32])),
            members: Arc::new(members.collect()),
            next_silent: Some((at(42), nodes[0])),
            ..ClusterView::standalone(nodes[0], Duration::from_secs(30))
        };
        (view, nodes)
    }

    /// FED-055.
    #[test]
    fn a_cluster_without_an_admin_reports_how_to_get_one() {
        let (mut view, nodes) = with_admins(2);
        view.next_silent = None;
        let of = |view: &ClusterView| {
            let all = find_failures(view, |node| node.short_id(), at(30));
            all.into_iter()
                .find(|it| it.starts_with("no admin is left"))
        };
        assert_eq!(of(&view), None);
        let mut members = BTreeMap::clone(&view.members);
        members.get_mut(&nodes[0]).unwrap().status = MemberStatus::CutOff;
        members.get_mut(&nodes[1]).unwrap().role = Some(MemberRole::Member);
        view.members = Arc::new(members);
        let report = of(&view).unwrap();
        assert!(report.contains("`mgp cluster recover`"), "{report}");
    }

    /// FED-048.
    #[test]
    fn a_silent_admin_is_reported_with_effect_and_remedy() {
        let report = |admins: u8| {
            let (view, nodes) = with_admins(admins);
            let name_of = |node| {
                let at = nodes.iter().position(|one| *one == node);
                ["nas", "desk", "attic"][at.unwrap()].to_owned()
            };
            find_failures(&view, name_of, at(30)).remove(0)
        };
        assert_eq!(
            report(1),
            "nas may revoke, and is silent: in 12 s agents of other nodes may do nothing here, unless it is heard again, or the recovery key makes another admin (`mgp cluster recover - --without nas`)"
        );
        let two = report(2);
        assert!(
            two.ends_with("or it is cut off with `mgp nodes remove nas`, at desk"),
            "{two}"
        );
        let three = report(3);
        let both = ["at desk or attic", "at attic or desk"];
        assert!(both.iter().any(|both| three.ends_with(both)), "{three}");
    }
}
