//! `mgp/kernel/groups/*`: the groups of agents, for the operator.

use std::collections::BTreeMap;

use mgp_engine::calls::rate_limits::groups::{GroupLimits, GroupUsage};
use mgp_protocol::ids::{AgentId, GroupName};
use mgp_protocol::mgp::access::{Entry, EntryType};
use mgp_protocol::mgp::kernel::groups::{GroupMember, Limits, ListedGroup, ListedGroups};

use crate::Context;
use crate::answer::json_outcome;
use crate::mgp::access::list_all;
use mgp_callers::request::{Outcome, Request};

/// `mgp/kernel/groups/list`.
///
/// # Errors
/// Grants or logs that are not reachable.
pub async fn list(cx: &Context, _request: &Request) -> Outcome {
    let mut groups: BTreeMap<GroupName, ListedGroup> = BTreeMap::new();
    for (group, claims) in &cx.name_sources.configured_groups {
        listed(&mut groups, group).claims.clone_from(claims);
    }
    let table = cx.policies.access.table();
    let default = table.defaults().group.as_ref();
    if let Some(group) = default.and_then(|(group, _)| group.group()) {
        listed(&mut groups, &group).is_default = true;
    }
    for entry in list_all(cx, Some(EntryType::GroupMember)).await? {
        if let Some(group) = AgentId::new(&*entry.server_id).group() {
            let member = to_member(entry);
            listed(&mut groups, &group).members.push(member);
        }
    }
    for entry in list_all(cx, None).await? {
        if let Some(group) = AgentId::new(&*entry.agent_id).group() {
            listed(&mut groups, &group).entries += 1;
        }
    }
    for (group, listed) in &mut groups {
        if let Some((limits, used)) = cx.policies.rates.group_usage(&group.id()) {
            listed.limits = Some(to_limits(limits));
            listed.used = Some(to_used(used));
        }
    }
    let groups = groups.into_values().collect();
    json_outcome(&ListedGroups { groups })
}

fn listed<'a>(
    groups: &'a mut BTreeMap<GroupName, ListedGroup>,
    group: &GroupName,
) -> &'a mut ListedGroup {
    groups.entry(group.clone()).or_insert_with(|| ListedGroup {
        name: group.as_str().to_owned(),
        ..ListedGroup::default()
    })
}

fn to_member(entry: Entry) -> GroupMember {
    GroupMember {
        is_cluster: AgentId::new(&*entry.server_id).is_pattern(),
        agent_id: entry.agent_id,
        grant_id: entry.grant_id,
        granted_by: entry.granted_by,
        granted_at: entry.granted_at,
        conflict: entry.conflict,
    }
}

fn to_limits(limits: GroupLimits) -> Limits {
    Limits {
        calls_per_minute: limits.calls_per_minute,
        calls_per_day: limits.calls_per_day,
        bytes_per_day: limits.bytes_per_day,
    }
}

fn to_used(used: GroupUsage) -> Limits {
    Limits {
        calls_per_minute: used.calls_minute,
        calls_per_day: used.calls_day,
        bytes_per_day: used.bytes_day,
    }
}
