//! Agents and tools that the configuration names, and that may be misspelt: only a running kernel knows
//! who and what there is.

use std::borrow::Cow;

use mgp_engine::doors::known_names::{KnownNames, Meant, NotRead};
use mgp_engine::policy::access::{ToolSet, ToolSets};
use mgp_engine::servers::spec::ServerSpec;
use mgp_protocol::ids::{ServerId, SetName};

use super::LoadedConfig;
use super::sections::discovery::DiscoveryConfig;

/// What is named, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mention {
    key: Cow<'static, str>,
    what: Mentioned,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mentioned {
    Agent(String),
    /// In any spelling.
    Typed(String),
    Tool(ServerId, String),
    Server(ServerId),
}

impl Mention {
    /// What of it is not there. Of an agent without a near one nothing is said: those of other authorities
    /// are known only once they come in.
    #[must_use]
    pub fn unknown(&self, known: &KnownNames) -> Option<String> {
        let why = match &self.what {
            Mentioned::Agent(agent) => missing(known.agent(agent)).filter(NotRead::is_near),
            Mentioned::Typed(typed) => missing(known.typed(typed)),
            Mentioned::Tool(server, tool) => missing(known.place(server.as_str(), Some(tool))),
            Mentioned::Server(server) => missing(known.place(server.as_str(), None)),
        };
        why.map(|why| format!("{}: {why}", self.key))
    }
}

fn missing<T>(meant: Result<Meant<T>, NotRead>) -> Option<NotRead> {
    meant.and_then(Meant::there).err()
}

impl LoadedConfig {
    /// Everything that is named and is no definition of it.
    #[must_use]
    pub fn mentions(&self) -> Vec<Mention> {
        let rules = self.servers.iter().flatten().flat_map(ruled);
        let discovery = &self.kernel.discovery;
        let mut all: Vec<Mention> = pinned(discovery)
            .chain(agents(discovery))
            .chain(held(&self.kernel.sets))
            .chain(of_sets(&self.kernel.sets))
            .chain(rules)
            .collect();
        // What is pinned for all is pinned for each agent that is named.
        all.sort();
        all.dedup();
        all
    }
}

fn pinned(discovery: &DiscoveryConfig) -> impl Iterator<Item = Mention> {
    let showings = discovery.agents.values().chain([&discovery.general]);
    let pinned = showings.flat_map(|showing| &showing.pinned);
    pinned.map(|name| Mention {
        key: "`pinned` in [discovery]".into(),
        what: Mentioned::Typed(name.clone()),
    })
}

fn agents(discovery: &DiscoveryConfig) -> impl Iterator<Item = Mention> {
    let shown = discovery.agents.keys();
    let shown = shown.map(|agent| ("[discovery.agents]", agent));
    let may = discovery.registration.agents.iter();
    let may = may.map(|agent| ("`may_register` in [discovery]", agent));
    shown.chain(may).map(|(key, agent)| Mention {
        key: key.into(),
        what: Mentioned::Agent(agent.to_string()),
    })
}

fn held(sets: &ToolSets) -> impl Iterator<Item = Mention> {
    sets.held.keys().map(|agent| Mention {
        key: "`set` in [agents.*]".into(),
        what: Mentioned::Agent(agent.to_string()),
    })
}

fn of_sets(sets: &ToolSets) -> impl Iterator<Item = Mention> {
    sets.named.iter().flat_map(|(name, set)| of_set(name, set))
}

/// What a set names.
pub(crate) fn of_set(name: &SetName, set: &ToolSet) -> impl Iterator<Item = Mention> + use<> {
    let mut all = Vec::new();
    let mut add = |key: &str, what| {
        let key = format!("`{key}` in [sets.{name}]").into();
        all.push(Mention { key, what });
    };
    for server in &set.servers {
        add("servers", Mentioned::Server(server.clone()));
    }
    for (key, tools) in [("tools", &set.tools), ("except", &set.except)] {
        for (server, tools) in tools {
            for tool in tools {
                add(key, Mentioned::Tool(server.clone(), tool.clone()));
            }
        }
    }
    all.into_iter()
}

fn ruled(server: &ServerSpec) -> impl Iterator<Item = Mention> {
    let only = server.tools.only.iter().flatten();
    let tools = server.tools.tools.keys().chain(only);
    tools.map(|tool| Mention {
        key: "[servers.tools]".into(),
        what: Mentioned::Tool(server.id.clone(), tool.clone()),
    })
}
