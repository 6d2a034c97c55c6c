//! Agents and tools that the configuration names, and that may be misspelt: only a running kernel knows
//! who and what there is.

use std::borrow::Cow;

use mgp_engine::doors::name_resolver::{NameError, NameResolver, ResolvedName};
use mgp_engine::policy::access::{ToolSet, ToolSets};
use mgp_engine::servers::spec::ServerSpec;
use mgp_protocol::ids::{ServerId, SetName};

use super::LoadedConfig;
use super::sections::discovery::DiscoveryConfig;

/// What is named, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mention {
    key: Cow<'static, str>,
    subject: MentionSubject,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MentionSubject {
    Agent(String),
    /// In any spelling.
    AnySpelling(String),
    Tool(ServerId, String),
    Server(ServerId),
}

impl Mention {
    /// What of it is not there. Of an agent without a near one nothing is said: those of other authorities
    /// are known only once they come in.
    #[must_use]
    pub(crate) fn unknown_name(&self, known: &NameResolver) -> Option<String> {
        let why = match &self.subject {
            MentionSubject::Agent(agent) => {
                unresolved_name(known.resolve_agent(agent)).filter(NameError::has_suggestion)
            }
            MentionSubject::AnySpelling(typed) => {
                unresolved_name(known.resolve_server_or_tool(typed))
            }
            MentionSubject::Tool(server, tool) => {
                unresolved_name(known.resolve_parts(server.as_str(), Some(tool)))
            }
            MentionSubject::Server(server) => {
                unresolved_name(known.resolve_parts(server.as_str(), None))
            }
        };
        why.map(|why| format!("{}: {why}", self.key))
    }
}

fn unresolved_name<T>(meant: Result<ResolvedName<T>, NameError>) -> Option<NameError> {
    meant.and_then(ResolvedName::require_existing).err()
}

impl LoadedConfig {
    /// Everything that is named and is no definition of it.
    #[must_use]
    pub(crate) fn mentions(&self) -> Vec<Mention> {
        let rules = self.servers.iter().flatten().flat_map(tool_rule_mentions);
        let discovery = &self.kernel.discovery;
        let mut all: Vec<Mention> = pinned_mentions(discovery)
            .chain(agent_mentions(discovery))
            .chain(set_assignment_mentions(&self.kernel.sets))
            .chain(mentions_of_sets(&self.kernel.sets))
            .chain(rules)
            .collect();
        // What is pinned for all is pinned for each agent that is named.
        all.sort();
        all.dedup();
        all
    }
}

fn pinned_mentions(discovery: &DiscoveryConfig) -> impl Iterator<Item = Mention> {
    let showings = discovery.agents.values().chain([&discovery.general]);
    let pinned = showings.flat_map(|showing| &showing.pinned);
    pinned.map(|name| Mention {
        key: "`pinned` in [discovery]".into(),
        subject: MentionSubject::AnySpelling(name.clone()),
    })
}

fn agent_mentions(discovery: &DiscoveryConfig) -> impl Iterator<Item = Mention> {
    let shown = discovery.agents.keys();
    let shown = shown.map(|agent| ("[discovery.agents]", agent));
    let may = discovery.registration.allowed_agents.iter();
    let may = may.map(|agent| ("`may_register` in [discovery]", agent));
    shown.chain(may).map(|(key, agent)| Mention {
        key: key.into(),
        subject: MentionSubject::Agent(agent.to_string()),
    })
}

fn set_assignment_mentions(sets: &ToolSets) -> impl Iterator<Item = Mention> {
    sets.by_agent.keys().map(|agent| Mention {
        key: "`set` in [agents.*]".into(),
        subject: MentionSubject::Agent(agent.to_string()),
    })
}

fn mentions_of_sets(sets: &ToolSets) -> impl Iterator<Item = Mention> {
    sets.by_name
        .iter()
        .flat_map(|(name, set)| mentions_of_set(name, set))
}

/// What a set names.
pub(crate) fn mentions_of_set(
    name: &SetName,
    set: &ToolSet,
) -> impl Iterator<Item = Mention> + use<> {
    let mut all = Vec::new();
    let mut add = |key: &str, what| {
        let key = format!("`{key}` in [sets.{name}]").into();
        all.push(Mention { key, subject: what });
    };
    for server in &set.servers {
        add("servers", MentionSubject::Server(server.clone()));
    }
    for (key, tools) in [("tools", &set.tools), ("except", &set.except)] {
        for (server, tools) in tools {
            for tool in tools {
                add(key, MentionSubject::Tool(server.clone(), tool.clone()));
            }
        }
    }
    all.into_iter()
}

fn tool_rule_mentions(server: &ServerSpec) -> impl Iterator<Item = Mention> {
    let only = server.tools.offered.iter().flatten();
    let tools = server.tools.tools.keys().chain(only);
    tools.map(|tool| Mention {
        key: "[servers.tools]".into(),
        subject: MentionSubject::Tool(server.id.clone(), tool.clone()),
    })
}
