//! Tools that are one entry wherever they are called.

use std::collections::HashMap;
use std::sync::Arc;

use super::item::CatalogTool;
use super::replica_group::ReplicaGroup;

/// Names of members that are gone which still lead to the others. Who holds an older name lists anew.
const FORMER_NAMES_MAX: usize = 8;

/// All groups.
#[derive(Debug, Default)]
pub(super) struct ToolReplicas(HashMap<ReplicaGroup, ReplicaMembers>);

#[derive(Debug, Default)]
struct ReplicaMembers {
    /// Those of this node first, then in the order they came. The first one lends the entry its name.
    tools: Vec<Arc<CatalogTool>>,
    /// Shown and canonical names of those that are gone.
    former: Vec<(Arc<str>, Arc<str>)>,
}

impl ToolReplicas {
    /// The groups of these tools, each in the order it had.
    pub(super) fn rebuild<'a>(&self, tools: impl Iterator<Item = &'a Arc<CatalogTool>>) -> Self {
        let mut groups: HashMap<ReplicaGroup, ReplicaMembers> = HashMap::new();
        for tool in tools {
            if let Some(replica) = &tool.replica {
                let members = groups.entry(replica.group.clone()).or_default();
                members.tools.push(Arc::clone(tool));
            }
        }
        for (group, members) in &mut groups {
            if let Some(before) = self.0.get(group) {
                members.carry_over(before);
            }
            members.tools.sort_by_key(|tool| tool.server.is_remote());
        }
        Self(groups)
    }

    /// Where a tool can be called, the one that lends the name first; nothing for one that stands alone.
    pub(super) fn members(&self, tool: &CatalogTool) -> &[Arc<CatalogTool>] {
        let group = tool.replica.as_ref().map(|replica| &replica.group);
        let members = group.and_then(|group| self.0.get(group));
        members.map_or(&[], |members| &members.tools)
    }

    /// Whether the tool is the entry that is shown.
    pub(super) fn is_listed(&self, tool: &CatalogTool) -> bool {
        let first = self.members(tool).first();
        first.is_none_or(|first| first.server == tool.server)
    }

    /// The first of each group.
    pub(super) fn groups(&self) -> impl Iterator<Item = &[Arc<CatalogTool>]> {
        self.0.values().map(|members| &*members.tools)
    }

    /// Names that only a group still has, and what they lead to now.
    pub(super) fn former_names(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<CatalogTool>)> {
        self.0.values().flat_map(|members| {
            let names = members.former.iter();
            let names = names.flat_map(|(shown, canonical)| [shown, canonical]);
            members
                .tools
                .first()
                .into_iter()
                .flat_map(move |first| names.clone().map(move |name| (name, first)))
        })
    }
}

impl ReplicaMembers {
    /// Those that were there keep their order, and those that are gone leave their names.
    fn carry_over(&mut self, before: &Self) {
        let place = |tool: &Arc<CatalogTool>| {
            let mut those = before.tools.iter();
            those.position(|known| known.server == tool.server)
        };
        self.tools
            .sort_by_key(|tool| place(tool).unwrap_or(usize::MAX));
        let is_there = |shown: &Arc<str>| self.tools.iter().any(|tool| tool.merged_name == *shown);
        let left = before.tools.iter();
        let left = left.map(|tool| {
            (
                Arc::clone(&tool.merged_name),
                Arc::clone(&tool.canonical_name),
            )
        });
        let former = before.former.iter().cloned().chain(left);
        let former: Vec<_> = former.filter(|(shown, _)| !is_there(shown)).collect();
        self.former = former[former.len().saturating_sub(FORMER_NAMES_MAX)..].to_vec();
    }
}
