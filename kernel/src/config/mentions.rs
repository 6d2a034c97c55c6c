//! Agents and tools that the configuration names, and that may be misspelt: only a running kernel knows
//! who and what there is.

use mgp_engine::doors::known::{KnownNames, Meant, NotRead};
use mgp_engine::servers::spec::ServerSpec;
use mgp_protocol::ids::ServerId;

use super::{Discovery, Loaded};

/// What is named, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mention {
    place: &'static str,
    what: Named,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Named {
    Agent(String),
    /// In any spelling.
    Typed(String),
    Tool(ServerId, String),
}

impl Mention {
    /// What of it is not there. Of an agent without a near one nothing is said: those of other authorities
    /// are known only once they come in.
    #[must_use]
    pub fn unknown(&self, known: &KnownNames) -> Option<String> {
        let why = match &self.what {
            Named::Agent(agent) => missing(known.agent(agent)).filter(NotRead::is_near),
            Named::Typed(typed) => missing(known.typed(typed)),
            Named::Tool(server, tool) => missing(known.place(server.as_str(), Some(tool))),
        };
        why.map(|why| format!("{}: {why}", self.place))
    }
}

fn missing<T>(meant: Result<Meant<T>, NotRead>) -> Option<NotRead> {
    meant.and_then(Meant::there).err()
}

impl Loaded {
    /// Everything that is named and is no definition of it.
    #[must_use]
    pub fn mentions(&self) -> Vec<Mention> {
        let rules = self.servers.iter().flatten().flat_map(ruled);
        let discovery = &self.kernel.discovery;
        let mut all: Vec<Mention> = pinned(discovery)
            .chain(agents(discovery))
            .chain(rules)
            .collect();
        // What is pinned for all is pinned for each agent that is named.
        all.sort();
        all.dedup();
        all
    }
}

fn pinned(discovery: &Discovery) -> impl Iterator<Item = Mention> {
    let showings = discovery.agents.values().chain([&discovery.general]);
    let pinned = showings.flat_map(|showing| &showing.pinned);
    pinned.map(|name| Mention {
        place: "`pinned` in [discovery]",
        what: Named::Typed(name.clone()),
    })
}

fn agents(discovery: &Discovery) -> impl Iterator<Item = Mention> {
    let shown = discovery.agents.keys();
    let shown = shown.map(|agent| ("[discovery.agents]", agent));
    let may = discovery.licence.agents.iter();
    let may = may.map(|agent| ("`may_register` in [discovery]", agent));
    shown.chain(may).map(|(place, agent)| Mention {
        place,
        what: Named::Agent(agent.to_string()),
    })
}

fn ruled(server: &ServerSpec) -> impl Iterator<Item = Mention> {
    let tools = server.tools.tools.keys();
    tools.map(|tool| Mention {
        place: "[servers.tools]",
        what: Named::Tool(server.id.clone(), tool.clone()),
    })
}
