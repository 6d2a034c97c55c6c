//! Reads what was typed as one of the agents, servers and tools there are. The two names of a tool
//! itself: [`tool_names`].
//!
//! A name is never guessed: a name that could mean two things is refused with both, and an unknown one with
//! the nearest that exists.

mod of_nodes;
mod unread;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::ids::{AgentId, NodeId, ServerId};

use self::of_nodes::AtNode;
use crate::cluster::node_names::NodeNames;
use crate::doors::nearest::nearest_name;
use crate::policy::tool_pattern::ToolPattern;
use crate::tool_names::{self, Reading, canonical, shown};
use crate::tools::catalog::NAME_MAX;

pub use unread::{NotRead, UnknownName};

/// Everything that has a name right now.
#[derive(Clone, Debug, Default)]
pub struct KnownNames {
    /// Agents that can come in or have come in.
    pub agents: BTreeSet<AgentId>,
    /// Servers, and their own names for their tools; `None` of one that has listed none yet.
    pub servers: BTreeMap<ServerId, Option<BTreeSet<Arc<str>>>>,
    /// The other nodes.
    pub nodes: NodeNames,
    /// Those of them that are away.
    pub away: BTreeMap<NodeId, NodeAbsence>,
    /// What this node is called, where it is in a cluster.
    pub here: Option<NodeName>,
}

/// What is known of a node that is away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAbsence {
    /// How long ago it was last heard, in milliseconds, where that is known.
    pub heard_ms_ago: Option<u64>,
    /// What it shared with this node then.
    pub servers: BTreeSet<ServerId>,
}

/// A server, or one of its tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOrTool {
    /// The server.
    pub server: ServerId,
    /// The server's own name for the tool; the server as a whole without.
    pub tool: Option<String>,
}

impl ServerOrTool {
    /// `server` or `server:tool`, as it is printed everywhere.
    #[must_use]
    pub fn canonical(&self) -> String {
        match &self.tool {
            Some(tool) => canonical(&self.server, tool),
            None => self.server.to_string(),
        }
    }
}

/// What was read, and whether it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meant<T> {
    /// What is meant.
    pub it: T,
    /// Set if it does not exist yet.
    pub unknown: Option<UnknownName>,
}

impl<T> Meant<T> {
    fn known(it: T) -> Self {
        Self { it, unknown: None }
    }

    /// Accepts what exists. If a server has listed no tools yet, nobody can say what it has: that stays a
    /// doubt.
    ///
    /// # Errors
    /// [`NotRead`] for what does not exist.
    pub fn there(self) -> Result<Self, NotRead> {
        match self.unknown {
            Some(unknown) if !unknown.is_doubt() => Err(unknown.into()),
            _ => Ok(self),
        }
    }
}

impl KnownNames {
    /// Reads an agent's name, with or without `agent.`; of another node's agent, with `@` and the node.
    ///
    /// # Errors
    /// [`NotRead`] for a name that no agent can have.
    pub fn agent(&self, typed: &str) -> Result<Meant<AgentId>, NotRead> {
        let name = typed.strip_prefix(AgentId::PREFIX).unwrap_or(typed);
        let id = AgentId::new(format!("{}{name}", AgentId::PREFIX));
        if self.agents.contains(&id) {
            return Ok(Meant::known(id));
        }
        if let Some((name, node)) = name.rsplit_once('@') {
            return self.agent_of_node(name, node);
        }
        judge_agent(&id, name)?;
        let names = self.agents.iter().map(AgentId::as_str);
        let nearest = nearest_name(id.as_str(), names).map(str::to_owned);
        Ok(Meant {
            unknown: Some(UnknownName::Agent(id.clone(), nearest)),
            it: id,
        })
    }

    /// Reads whom a grant is for: an agent, all agents of a node as `*@NODE`, or those of one name as `AGENT@*`. `*` alone
    /// is all of this node.
    ///
    /// # Errors
    /// [`NotRead`] for a name that no agent can have.
    pub fn grantee(&self, typed: &str) -> Result<Meant<AgentId>, NotRead> {
        match typed.rsplit_once('@') {
            None if typed == AgentId::ALL => Ok(Meant::known(AgentId::new(AgentId::ALL))),
            Some((AgentId::ALL, AgentId::ALL)) => Err(NotRead::Everybody),
            Some((AgentId::ALL, node)) => self.agents_at(node),
            Some((name, AgentId::ALL)) => self.agent_everywhere(name),
            Some(_) | None => self.agent(typed),
        }
    }

    /// Reads a server's id; of another node's server, as `NODE/SERVER`.
    ///
    /// # Errors
    /// [`NotRead`] for an id that no server can have.
    pub fn server(&self, typed: &str) -> Result<Meant<ServerId>, NotRead> {
        let id = match typed.contains('/') {
            true => self.node_server(typed)?,
            false => ServerId::parse(typed)?,
        };
        let unknown = match (self.servers.contains_key(&id), id.is_of_node()) {
            (true, _) => None,
            (false, true) => Some(self.not_held(&id, typed)),
            (false, false) => Some(UnknownName::Server(id.clone(), self.near_server(typed))),
        };
        Ok(Meant { it: id, unknown })
    }

    /// Reads a server as a whole, or one of its tools by the server's own name.
    ///
    /// # Errors
    /// [`NotRead`] for a name that no server or tool can have.
    pub fn place(&self, server: &str, tool: Option<&str>) -> Result<Meant<ServerOrTool>, NotRead> {
        let Meant {
            it: server,
            unknown,
        } = self.server(server)?;
        let Some(tool) = tool else {
            let it = ServerOrTool { server, tool: None };
            return Ok(Meant { it, unknown });
        };
        let unknown = match (unknown, self.servers.get(&server)) {
            (None, Some(Some(tools))) if tools.contains(tool) => None,
            (None, Some(Some(tools))) if meant_by(tool, tools) > 0 => {
                let count = meant_by(tool, tools);
                Some(UnknownName::Several(server.clone(), tool.to_owned(), count))
            }
            (unknown, listed) => {
                judge_tool(tool)?;
                let listed = listed.and_then(Option::as_ref);
                unknown.or_else(|| Some(self.missing(&server, listed, tool)))
            }
        };
        let tool = Some(tool.to_owned());
        let it = ServerOrTool { server, tool };
        Ok(Meant { it, unknown })
    }

    /// Reads what is typed for a server or one of its tools: `SERVER`, `SERVER:TOOL`, `SERVER/TOOL`, or
    /// `SERVER__TOOL` as agents are shown it; of another node, `NODE/SERVER` or `NODE/SERVER:TOOL`.
    ///
    /// # Errors
    /// [`NotRead`] for what has no such form, and for what could mean two things.
    pub fn typed(&self, typed: &str) -> Result<Meant<ServerOrTool>, NotRead> {
        if let Some(read) = self.at_node(typed) {
            let AtNode { server, tool } = read?;
            return self.place(server.as_str(), tool);
        }
        if let Some((server, tool)) = typed.split_once(['/', ':']) {
            let mut meant = self.place(server, Some(tool))?;
            if let Some(UnknownName::Server(_, near @ None)) = &mut meant.unknown {
                *near = self.near_node(typed);
            }
            return Ok(meant);
        }
        let mut tools = self.shown_so(typed);
        let first = tools.next();
        let whole = self.servers.contains_key(typed);
        match (first, tools.next(), whole) {
            (Some(one), Some(other), _) => Err(NotRead::Two(
                typed.into(),
                one.canonical(),
                other.canonical(),
            )),
            (Some(tool), None, true) => Err(NotRead::Both(typed.into(), tool.canonical())),
            (Some(tool), None, false) => self.place(tool.server.as_str(), tool.tool.as_deref()),
            (None, _, false) if tool_names::is_qualified(typed) => {
                Err(NotRead::Nobodys(typed.into(), self.near_tool(typed)))
            }
            (None, _, _) => self.place(typed, None),
        }
    }

    /// Reads a tool by any of its names; a bare name counts if only one server has it.
    ///
    /// # Errors
    /// [`NotRead`] for what has no such form, for a bare name that no server or several have, and for what
    /// could mean two things.
    pub fn tool(&self, typed: &str) -> Result<Meant<ServerOrTool>, NotRead> {
        if tool_names::is_qualified(typed) || typed.contains('/') {
            return self.typed(typed);
        }
        let mut owners = self.owners(typed);
        let place = |server: &ServerId| ServerOrTool {
            server: server.clone(),
            tool: Some(typed.to_owned()),
        };
        match (owners.next(), owners.next()) {
            (Some(one), None) => Ok(Meant::known(place(one))),
            (Some(one), Some(other)) => {
                let [one, other] = [one, other].map(|server| place(server).canonical());
                Err(NotRead::Two(typed.into(), one, other))
            }
            (None, _) => Err(NotRead::Nobodys(typed.into(), self.near_tool(typed))),
        }
    }

    /// The tools that agents are shown under this name, or would be. A tool that its server does not list
    /// only counts if there is no other.
    fn shown_so<'a>(&'a self, typed: &'a str) -> impl Iterator<Item = ServerOrTool> + 'a {
        let whole = self.servers.contains_key(typed);
        self.servers.iter().filter_map(move |(server, listed)| {
            let has = |own: &str| listed.as_ref().is_none_or(|tools| tools.contains(own));
            if server.is_of_node() {
                let mut tools = listed.iter().flatten();
                let tool = tools.find(|tool| self.shown(server, tool) == typed)?;
                return Some(ServerOrTool {
                    server: server.clone(),
                    tool: Some(tool.to_string()),
                });
            }
            let tool = match tool_names::read(server, typed)? {
                Reading::Own(own) => (!whole || has(own)).then(|| own.to_owned()),
                Reading::Closed => {
                    let mut tools = listed.iter().flatten();
                    let tool = tools.find(|tool| shown(server, tool) == typed);
                    tool.map(ToString::to_string)
                }
            };
            let server = server.clone();
            Some(ServerOrTool {
                server,
                tool: Some(tool?),
            })
        })
    }

    /// What agents are shown for a tool.
    fn shown(&self, server: &ServerId, tool: &str) -> String {
        let of_node = self.shown_of_node(server, tool);
        of_node.unwrap_or_else(|| shown(server, tool))
    }

    fn missing(
        &self,
        server: &ServerId,
        listed: Option<&BTreeSet<Arc<str>>>,
        tool: &str,
    ) -> UnknownName {
        let (server, name) = (server.clone(), tool.to_owned());
        let Some(listed) = listed else {
            return UnknownName::Unlisted(server, name);
        };
        let own = listed.iter().map(|tool| &**tool);
        let near = nearest_name(tool, own).map(|tool| canonical(&server, tool));
        UnknownName::Tool(server, name, near.or_else(|| self.elsewhere(tool)))
    }

    fn near_server(&self, typed: &str) -> Option<String> {
        let names = self.servers.keys().map(ServerId::as_str);
        let near = nearest_name(typed, names).map(str::to_owned);
        near.or_else(|| self.elsewhere(typed))
    }

    /// The only tool of this bare name.
    fn elsewhere(&self, tool: &str) -> Option<String> {
        let mut owners = self.owners(tool);
        let only = owners.next().filter(|_| owners.next().is_none());
        only.map(|server| canonical(server, tool))
    }

    /// The servers that have a tool of this bare name. Those of other nodes only where none of this node has:
    /// what the name means does not change because a node came.
    fn owners<'a>(&'a self, tool: &'a str) -> impl Iterator<Item = &'a ServerId> + 'a {
        let has = move |listed: &Option<BTreeSet<Arc<str>>>| {
            listed.as_ref().is_some_and(|own| own.contains(tool))
        };
        let servers = self.servers.iter().filter(move |(_, listed)| has(listed));
        let servers = servers.map(|(server, _)| server);
        let local = servers.clone().any(|server| !server.is_of_node());
        servers.filter(move |server| !local || !server.is_of_node())
    }

    /// The tool with the most similar name.
    fn near_tool(&self, typed: &str) -> Option<String> {
        let bare = !tool_names::is_qualified(typed);
        let tools = self.servers.iter().flat_map(|(server, listed)| {
            let own = listed.iter().flatten();
            own.map(move |tool| match bare {
                true => (tool.to_string(), canonical(server, tool)),
                false => (self.shown(server, tool), canonical(server, tool)),
            })
        });
        let names: BTreeMap<String, String> = tools.collect();
        let near = nearest_name(typed, names.keys().map(String::as_str))?;
        names.get(near).cloned()
    }
}

/// How many tools a pattern means.
fn meant_by(typed: &str, tools: &BTreeSet<Arc<str>>) -> usize {
    let pattern = ToolPattern::try_from(typed.to_owned()).ok();
    let pattern = pattern.filter(|pattern| pattern.beginning().is_some());
    pattern.map_or(0, |pattern| {
        tools.iter().filter(|tool| pattern.covers(tool)).count()
    })
}

/// A name that no agent has yet.
fn judge_agent(id: &AgentId, name: &str) -> Result<(), NotRead> {
    // Everybody, where agents are not identified.
    if id.as_str() != AgentId::ANONYMOUS {
        // Names of other authorities escape bytes as `%` and two digits.
        let plain: String = name.chars().filter(|c| *c != '%').collect();
        AgentId::parse(&plain)?;
    }
    Ok(())
}

/// An unlisted tool can be named only in a form that has one meaning.
fn judge_tool(tool: &str) -> Result<(), NotRead> {
    match tool.chars().find(|c| !c.is_ascii_graphic()) {
        _ if tool.is_empty() => Err(NotRead::NoTool),
        _ if tool.len() > NAME_MAX => Err(NotRead::LongTool(tool.len())),
        Some(c) => Err(NotRead::Character(c)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
