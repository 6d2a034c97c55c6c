//! `mgp/kernel/sets/*`: the named sets of servers and tools.

use std::collections::{BTreeMap, BTreeSet};

use mgp_callers::request::Outcome;
use mgp_engine::policy::access::{ToolSet, ToolSets};
use mgp_engine::tool_names::canonical_name;
use mgp_engine::tools::catalog::Availability;
use mgp_protocol::ids::{ServerId, SetName};
use mgp_protocol::mgp::kernel::sets::{ListedSet, ListedSets};

use super::{Operator, json};
use crate::config::mentions_of_set;

impl Operator {
    /// `mgp/kernel/sets/list`; waits for servers that are just starting, like agents' lists.
    ///
    /// # Errors
    /// None at present; the type is that of every answer.
    pub(crate) async fn list_sets(&self) -> Outcome {
        let new: Vec<_> = self.servers.load().values().cloned().collect();
        // Each has its own deadline, so the order does not matter.
        for server in new.iter().filter(|server| server.is_new()) {
            server.wait_for_first_start().await;
        }
        let table = self.directory.access();
        let sets = table.sets();
        let sets = sets
            .by_name
            .iter()
            .map(|(name, set)| self.to_listed_set(sets, name, set));
        json(&ListedSets {
            sets: sets.collect(),
        })
    }

    fn to_listed_set(&self, sets: &ToolSets, name: &SetName, set: &ToolSet) -> ListedSet {
        let assigned = sets
            .by_agent
            .iter()
            .filter(|(_, assigned)| *assigned == name);
        let mut agents: Vec<_> = assigned.map(|(agent, _)| agent.to_string()).collect();
        agents.sort();
        let published = self.catalog.load();
        let tools = published.catalog.offers().flat_map(|offer| offer.tools());
        let tools = tools.filter(|tool| set.contains(&tool.server, Some(&tool.own_name)));
        let mentions: Vec<_> = mentions_of_set(name, set).collect();
        let servers = self.servers.load();
        let coming = servers.values().filter(|server| {
            let named = set.servers.contains(&server.id) || set.tools.contains_key(&server.id);
            named && server.outlook() == Availability::FirstStart
        });
        ListedSet {
            name: name.to_string(),
            servers: set.servers.iter().map(ServerId::to_string).collect(),
            tools: tool_names(&set.tools),
            except: tool_names(&set.except),
            agents,
            offered: tools.map(|tool| tool.merged_name.to_string()).collect(),
            starting: coming.map(|server| server.id.to_string()).collect(),
            unknown: self.unknown_mentions(&mentions),
        }
    }
}

fn tool_names(tools: &BTreeMap<ServerId, BTreeSet<String>>) -> Vec<String> {
    let all = tools.iter();
    let all = all.flat_map(|(server, tools)| tools.iter().map(|tool| canonical_name(server, tool)));
    all.collect()
}
