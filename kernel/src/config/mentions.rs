//! Agents and tools that the configuration names. Misspelled ones are found only by a running kernel, which knows the
//! existing names.

use std::borrow::Cow;

use mgp_engine::doors::name_resolver::{NameError, NameResolver, ResolvedName};
use mgp_engine::policy::access::{ToolSet, ToolSets};
use mgp_engine::servers::spec::ServerSpec;
use mgp_protocol::ids::{ServerId, SetName};

use super::LoadedConfig;
use super::sections::discovery::DiscoveryConfig;

/// A name, and where it is used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mention {
    key: Cow<'static, str>,
    subject: MentionSubject,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MentionSubject {
    Agent(String),
    /// A server or tool in any notation.
    AnySpelling(String),
    Tool(ServerId, String),
    Server(ServerId),
}

impl Mention {
    /// Reports an unknown name. An agent without a similar name is not reported: agents of other authorities become
    /// known only when they connect.
    #[must_use]
    pub(crate) fn unknown_name(&self, resolver: &NameResolver) -> Option<String> {
        let why = match &self.subject {
            MentionSubject::Agent(agent) => {
                unresolved_name(resolver.resolve_agent(agent)).filter(NameError::has_suggestion)
            }
            MentionSubject::AnySpelling(typed) => {
                unresolved_name(resolver.resolve_server_or_tool(typed))
            }
            MentionSubject::Tool(server, tool) => {
                unresolved_name(resolver.resolve_parts(server.as_str(), Some(tool)))
            }
            MentionSubject::Server(server) => {
                unresolved_name(resolver.resolve_parts(server.as_str(), None))
            }
        };
        why.map(|why| format!("{}: {why}", self.key))
    }
}

fn unresolved_name<T>(resolved: Result<ResolvedName<T>, NameError>) -> Option<NameError> {
    resolved.and_then(ResolvedName::require_existing).err()
}

impl LoadedConfig {
    /// All names that are used without being defined there.
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
        // A tool that is pinned for all agents is also pinned for each named agent.
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
    let exposed = discovery.agents.keys();
    let exposed = exposed.map(|agent| ("[discovery.agents]", agent));
    let registering = discovery.registration.allowed_agents.iter();
    let registering = registering.map(|agent| ("`may_register` in [discovery]", agent));
    exposed.chain(registering).map(|(key, agent)| Mention {
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

/// The names in a tool set.
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
