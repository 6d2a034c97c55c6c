//! Groups of replicated tools, each of which is one list entry.

use std::collections::HashMap;
use std::sync::Arc;

use super::item::CatalogTool;
use super::replica_group::ReplicaGroup;

/// Names of removed members that still resolve to the group. Clients with older names have to list again.
const FORMER_NAMES_MAX: usize = 8;

#[derive(Debug, Default)]
pub(super) struct ToolReplicas(HashMap<ReplicaGroup, ReplicaMembers>);

#[derive(Debug, Default)]
struct ReplicaMembers {
    /// Tools of this node first, then in order of arrival. The entry has the name of the first.
    tools: Vec<Arc<CatalogTool>>,
    /// Visible and canonical names of removed members.
    former: Vec<(Arc<str>, Arc<str>)>,
}

impl ToolReplicas {
    /// The groups of these tools, which keep their previous order.
    pub(super) fn rebuild<'a>(&self, tools: impl Iterator<Item = &'a Arc<CatalogTool>>) -> Self {
        let mut groups: HashMap<ReplicaGroup, ReplicaMembers> = HashMap::new();
        for tool in tools {
            if let Some(replica) = &tool.replica {
                let members = groups.entry(replica.group.clone()).or_default();
                members.tools.push(Arc::clone(tool));
            }
        }
        for (group, members) in &mut groups {
            if let Some(previous) = self.0.get(group) {
                members.carry_over(previous);
            }
            members.tools.sort_by_key(|tool| tool.server.is_remote());
        }
        Self(groups)
    }

    /// The replicas of a tool, the listed one first; empty without replicas.
    pub(super) fn members(&self, tool: &CatalogTool) -> &[Arc<CatalogTool>] {
        let group = tool.replica.as_ref().map(|replica| &replica.group);
        let members = group.and_then(|group| self.0.get(group));
        members.map_or(&[], |members| &members.tools)
    }

    /// Whether the tool is the listed one of its group.
    pub(super) fn is_listed(&self, tool: &CatalogTool) -> bool {
        let first = self.members(tool).first();
        first.is_none_or(|first| first.server == tool.server)
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &[Arc<CatalogTool>]> {
        self.0.values().map(|members| &*members.tools)
    }

    /// Names of removed members, and the tools they resolve to.
    pub(super) fn former_names(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<CatalogTool>)> {
        self.0.values().flat_map(|members| {
            let names = members.former.iter();
            let names = names.flat_map(|(visible, canonical)| [visible, canonical]);
            members
                .tools
                .first()
                .into_iter()
                .flat_map(move |first| names.clone().map(move |name| (name, first)))
        })
    }
}

impl ReplicaMembers {
    /// Keeps the order of previous members and the names of removed ones.
    fn carry_over(&mut self, previous: &Self) {
        let position = |tool: &Arc<CatalogTool>| {
            let mut tools = previous.tools.iter();
            tools.position(|known| known.server == tool.server)
        };
        self.tools
            .sort_by_key(|tool| position(tool).unwrap_or(usize::MAX));
        let is_current = |name: &Arc<str>| self.tools.iter().any(|tool| tool.merged_name == *name);
        let names = previous.tools.iter();
        let names = names.map(|tool| {
            (
                Arc::clone(&tool.merged_name),
                Arc::clone(&tool.canonical_name),
            )
        });
        let former = previous.former.iter().cloned().chain(names);
        let former: Vec<_> = former.filter(|(visible, _)| !is_current(visible)).collect();
        self.former = former[former.len().saturating_sub(FORMER_NAMES_MAX)..].to_vec();
    }
}
