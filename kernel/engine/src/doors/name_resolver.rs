//! Resolves typed names to agents, servers and tools. For the two names of a tool itself see [`tool_names`].
//!
//! A name is never guessed: an ambiguous name is rejected with both meanings, and an unknown one with the nearest
//! that exists.

mod errors;
mod remote_names;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::ids::{AgentId, GroupName, NodeId, ServerId};

use self::remote_names::NodePath;
use crate::doors::suggestions::nearest_name;
use crate::node_names::NodeNames;
use crate::policy::access::GrantTable;
use crate::policy::tool_pattern::ToolPattern;
use crate::tool_names::{self, ToolNameForm, canonical_name, visible_name};
use crate::tools::catalog::NAME_MAX;

pub use errors::{NameError, UnknownName};

/// Everything that has a name at the moment.
#[derive(Clone, Debug, Default)]
pub struct NameResolver {
    /// Agents that can connect or have connected, whether or not they have grants.
    pub agents: BTreeSet<AgentId>,
    /// Names more agents and groups: those with entries. There may be too many of them to collect for one name.
    pub granted: Option<Arc<GrantTable>>,
    /// Servers, with their own names for their tools; `None` for one that has listed none yet.
    pub servers: BTreeMap<ServerId, Option<BTreeSet<Arc<str>>>>,
    /// The other nodes.
    pub nodes: NodeNames,
    /// Other nodes that are unavailable.
    pub unavailable: BTreeMap<NodeId, UnavailableNode>,
    /// The name of this node, where it is in a cluster.
    pub local_name: Option<NodeName>,
    /// Groups of agents in the configuration.
    pub groups: BTreeSet<GroupName>,
}

/// What is known of an unavailable node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnavailableNode {
    /// The time since its last message in milliseconds, if known.
    pub heard_ms_ago: Option<u64>,
    /// The servers it shared with this node then.
    pub servers: BTreeSet<ServerId>,
}

/// A server, or one of its tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOrTool {
    /// The server.
    pub server: ServerId,
    /// The server's own name for the tool; `None` for the server as a whole.
    pub tool: Option<String>,
}

impl ServerOrTool {
    /// `server` or `server:tool`, as it is printed everywhere.
    #[must_use]
    pub fn canonical_name(&self) -> String {
        match &self.tool {
            Some(tool) => canonical_name(&self.server, tool),
            None => self.server.to_string(),
        }
    }
}

/// A resolved name, and whether it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedName<T> {
    /// What the name refers to.
    pub value: T,
    /// Set if it does not exist yet.
    pub unknown: Option<UnknownName>,
}

impl<T> ResolvedName<T> {
    fn existing(value: T) -> Self {
        Self {
            value,
            unknown: None,
        }
    }

    /// Accepts only what exists. If a server has listed no tools yet, its tools are unknown, and the name is accepted
    /// with that uncertainty.
    ///
    /// # Errors
    /// [`NameError`] for what does not exist.
    pub fn require_existing(self) -> Result<Self, NameError> {
        match self.unknown {
            Some(unknown) if !unknown.is_uncertain() => Err(unknown.into()),
            _ => Ok(self),
        }
    }
}

impl NameResolver {
    /// Resolves an agent's name, with or without `agent.`; for another node's agent, with `@` and the node.
    ///
    /// # Errors
    /// [`NameError`] for a name that no agent can have.
    pub fn resolve_agent(&self, typed: &str) -> Result<ResolvedName<AgentId>, NameError> {
        let name = typed.strip_prefix(AgentId::PREFIX).unwrap_or(typed);
        let id = AgentId::new(format!("{}{name}", AgentId::PREFIX));
        if self.is_known_agent(&id) {
            return Ok(ResolvedName::existing(id));
        }
        if let Some((name, node)) = name.rsplit_once('@') {
            return self.resolve_remote_agent(name, node);
        }
        check_agent_name(&id, name)?;
        let granted = self.granted.iter().flat_map(|table| table.agents());
        // An agent that has a token as well is one name.
        let granted = granted.filter(|agent| !agent.is_group() && !self.agents.contains(*agent));
        let names = self.agents.iter().chain(granted).map(AgentId::as_str);
        let nearest = nearest_name(id.as_str(), names).map(str::to_owned);
        Ok(ResolvedName {
            unknown: Some(UnknownName::Agent(id.clone(), nearest)),
            value: id,
        })
    }

    fn is_known_agent(&self, id: &AgentId) -> bool {
        let has_entries = |table: &Arc<GrantTable>| !id.is_group() && table.has_entries(id);
        self.agents.contains(id) || self.granted.as_ref().is_some_and(has_entries)
    }

    /// Resolves the subject of a grant: an agent, all agents of a node as `*@NODE`, or those of one name as
    /// `AGENT@*`. `*` alone means all agents of this node.
    ///
    /// # Errors
    /// [`NameError`] for a name that no agent can have.
    pub fn resolve_grantee(&self, typed: &str) -> Result<ResolvedName<AgentId>, NameError> {
        if typed.starts_with(AgentId::GROUP_PREFIX) {
            return self.resolve_group(typed);
        }
        match typed.rsplit_once('@') {
            None if typed == AgentId::ALL => Ok(ResolvedName::existing(AgentId::new(AgentId::ALL))),
            Some((AgentId::ALL, AgentId::ALL)) => Err(NameError::AllAgents),
            Some((AgentId::ALL, node)) => self.resolve_agents_at(node),
            Some((name, AgentId::ALL)) => self.resolve_agent_everywhere(name),
            Some(_) | None => self.resolve_agent(typed),
        }
    }

    /// Resolves a group, with or without `group.`; that of the cluster with `@*`.
    ///
    /// # Errors
    /// [`NameError`] for a name that no group can have.
    pub fn resolve_group(&self, typed: &str) -> Result<ResolvedName<AgentId>, NameError> {
        let (name, is_cluster) = match typed.split_once('@') {
            Some((name, AgentId::ALL)) => (name, true),
            Some(_) => return Err(NameError::GroupOfNode(typed.to_owned())),
            None => (typed, false),
        };
        let group = GroupName::parse(name)?;
        let id = if is_cluster {
            group.id().pattern_for_all_nodes()
        } else {
            group.id()
        };
        let mut groups = self.groups.clone();
        groups.extend(self.granted.iter().flat_map(|table| table.groups()));
        let unknown = (!groups.contains(&group)).then(|| {
            let names = groups.iter().map(GroupName::as_str);
            let nearest = nearest_name(group.as_str(), names);
            let nearest = nearest.map(|name| format!("{}{name}", AgentId::GROUP_PREFIX));
            UnknownName::Group(group.clone(), nearest)
        });
        Ok(ResolvedName { value: id, unknown })
    }

    /// Resolves a server's id; for another node's server, as `NODE/SERVER`.
    ///
    /// # Errors
    /// [`NameError`] for an id that no server can have.
    pub fn resolve_server(&self, typed: &str) -> Result<ResolvedName<ServerId>, NameError> {
        let id = if typed.contains('/') {
            self.resolve_remote_server(typed)?
        } else {
            ServerId::parse(typed)?
        };
        let unknown = match (self.servers.contains_key(&id), id.is_remote()) {
            (true, _) => None,
            (false, true) => Some(self.unknown_remote_server(&id, typed)),
            (false, false) => Some(UnknownName::Server(id.clone(), self.nearest_server(typed))),
        };
        Ok(ResolvedName { value: id, unknown })
    }

    /// Resolves a server as a whole, or one of its tools by the server's own name.
    ///
    /// # Errors
    /// [`NameError`] for a name that no server or tool can have.
    pub fn resolve_parts(
        &self,
        server: &str,
        tool: Option<&str>,
    ) -> Result<ResolvedName<ServerOrTool>, NameError> {
        let ResolvedName {
            value: server,
            unknown,
        } = self.resolve_server(server)?;
        let Some(tool) = tool else {
            let value = ServerOrTool { server, tool: None };
            return Ok(ResolvedName { value, unknown });
        };
        let unknown = match (unknown, self.servers.get(&server)) {
            (None, Some(Some(tools))) if tools.contains(tool) => None,
            (None, Some(Some(tools))) if count_matches(tool, tools) > 0 => {
                let count = count_matches(tool, tools);
                Some(UnknownName::Pattern(server.clone(), tool.to_owned(), count))
            }
            (unknown, listed) => {
                check_tool_name(tool)?;
                let listed = listed.and_then(Option::as_ref);
                unknown.or_else(|| Some(self.unknown_tool(&server, listed, tool)))
            }
        };
        let tool = Some(tool.to_owned());
        let value = ServerOrTool { server, tool };
        Ok(ResolvedName { value, unknown })
    }

    /// Resolves a server or one of its tools: `SERVER`, `SERVER:TOOL`, `SERVER/TOOL`, or `SERVER__TOOL` as agents see
    /// it; on another node, `NODE/SERVER` or `NODE/SERVER:TOOL`.
    ///
    /// # Errors
    /// [`NameError`] for a text without such a form, and for an ambiguous one.
    pub fn resolve_server_or_tool(
        &self,
        typed: &str,
    ) -> Result<ResolvedName<ServerOrTool>, NameError> {
        if let Some(read) = self.parse_node_path(typed) {
            let NodePath { server, tool } = read?;
            return self.resolve_parts(server.as_str(), tool);
        }
        if let Some((server, tool)) = typed.split_once(['/', ':']) {
            let mut resolved = self.resolve_parts(server, Some(tool))?;
            if let Some(UnknownName::Server(_, near @ None)) = &mut resolved.unknown {
                *near = self.nearest_node_path(typed);
            }
            return Ok(resolved);
        }
        let mut tools = self.tools_with_visible_name(typed);
        let first = tools.next();
        let is_server = self.servers.contains_key(typed);
        match (first, tools.next(), is_server) {
            (Some(one), Some(other), _) => Err(NameError::Ambiguous(
                typed.into(),
                one.canonical_name(),
                other.canonical_name(),
            )),
            (Some(tool), None, true) => Err(NameError::ServerAndTool(
                typed.into(),
                tool.canonical_name(),
            )),
            (Some(tool), None, false) => {
                self.resolve_parts(tool.server.as_str(), tool.tool.as_deref())
            }
            (None, _, false) if tool_names::is_qualified(typed) => {
                Err(NameError::NoMatch(typed.into(), self.nearest_tool(typed)))
            }
            (None, _, _) => self.resolve_parts(typed, None),
        }
    }

    /// Resolves a tool by any of its names; a bare name counts if only one server has it.
    ///
    /// # Errors
    /// [`NameError`] for a text without such a form, for a bare name that no server or several have, and for an
    /// ambiguous one.
    pub fn resolve_tool(&self, typed: &str) -> Result<ResolvedName<ServerOrTool>, NameError> {
        if tool_names::is_qualified(typed) || typed.contains('/') {
            return self.resolve_server_or_tool(typed);
        }
        let mut owners = self.servers_with_tool(typed);
        let to_tool = |server: &ServerId| ServerOrTool {
            server: server.clone(),
            tool: Some(typed.to_owned()),
        };
        match (owners.next(), owners.next()) {
            (Some(one), None) => Ok(ResolvedName::existing(to_tool(one))),
            (Some(one), Some(other)) => {
                let [one, other] = [one, other].map(|server| to_tool(server).canonical_name());
                Err(NameError::Ambiguous(typed.into(), one, other))
            }
            (None, _) => Err(NameError::NoMatch(typed.into(), self.nearest_tool(typed))),
        }
    }

    /// The tools with this visible name, listed or not. A tool that its server does not list only counts if there is
    /// no other.
    fn tools_with_visible_name<'a>(
        &'a self,
        typed: &'a str,
    ) -> impl Iterator<Item = ServerOrTool> + 'a {
        let is_server = self.servers.contains_key(typed);
        self.servers.iter().filter_map(move |(server, listed)| {
            let has = |own: &str| listed.as_ref().is_none_or(|tools| tools.contains(own));
            if server.is_remote() {
                let mut tools = listed.iter().flatten();
                let tool = tools.find(|tool| self.visible_tool_name(server, tool) == typed)?;
                return Some(ServerOrTool {
                    server: server.clone(),
                    tool: Some(tool.to_string()),
                });
            }
            let tool = match tool_names::parse(server, typed)? {
                ToolNameForm::Plain(own) => (!is_server || has(own)).then(|| own.to_owned()),
                ToolNameForm::Hashed => {
                    let mut tools = listed.iter().flatten();
                    let tool = tools.find(|tool| visible_name(server, tool) == typed);
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

    /// The visible name of a tool.
    fn visible_tool_name(&self, server: &ServerId, tool: &str) -> String {
        let remote_name = self.visible_remote_tool_name(server, tool);
        remote_name.unwrap_or_else(|| visible_name(server, tool))
    }

    fn unknown_tool(
        &self,
        server: &ServerId,
        listed: Option<&BTreeSet<Arc<str>>>,
        tool: &str,
    ) -> UnknownName {
        let (server, name) = (server.clone(), tool.to_owned());
        let Some(listed) = listed else {
            return UnknownName::Unlisted(server, name);
        };
        let names = listed.iter().map(|tool| &**tool);
        let near = nearest_name(tool, names).map(|tool| canonical_name(&server, tool));
        UnknownName::Tool(server, name, near.or_else(|| self.only_tool_named(tool)))
    }

    fn nearest_server(&self, typed: &str) -> Option<String> {
        let names = self.servers.keys().map(ServerId::as_str);
        let near = nearest_name(typed, names).map(str::to_owned);
        near.or_else(|| self.only_tool_named(typed))
    }

    /// The only tool with this bare name.
    fn only_tool_named(&self, tool: &str) -> Option<String> {
        let mut owners = self.servers_with_tool(tool);
        let only = owners.next().filter(|_| owners.next().is_none());
        only.map(|server| canonical_name(server, tool))
    }

    /// The servers with a tool of this bare name. Those of other nodes count only where none of this node has one:
    /// the meaning of a name does not change because a node joined.
    fn servers_with_tool<'a>(&'a self, tool: &'a str) -> impl Iterator<Item = &'a ServerId> + 'a {
        let has = move |listed: &Option<BTreeSet<Arc<str>>>| {
            listed.as_ref().is_some_and(|own| own.contains(tool))
        };
        let servers = self.servers.iter().filter(move |(_, listed)| has(listed));
        let servers = servers.map(|(server, _)| server);
        let local = servers.clone().any(|server| !server.is_remote());
        servers.filter(move |server| !local || !server.is_remote())
    }

    /// The tool with the most similar name.
    fn nearest_tool(&self, typed: &str) -> Option<String> {
        let bare = !tool_names::is_qualified(typed);
        let tools = self.servers.iter().flat_map(|(server, listed)| {
            let own = listed.iter().flatten();
            own.map(move |tool| {
                if bare {
                    (tool.to_string(), canonical_name(server, tool))
                } else {
                    (
                        self.visible_tool_name(server, tool),
                        canonical_name(server, tool),
                    )
                }
            })
        });
        let names: BTreeMap<String, String> = tools.collect();
        let near = nearest_name(typed, names.keys().map(String::as_str))?;
        names.get(near).cloned()
    }
}

/// How many tools a pattern matches.
fn count_matches(typed: &str, tools: &BTreeSet<Arc<str>>) -> usize {
    let pattern = ToolPattern::try_from(typed.to_owned()).ok();
    let pattern = pattern.filter(|pattern| pattern.prefix().is_some());
    pattern.map_or(0, |pattern| {
        tools.iter().filter(|tool| pattern.matches(tool)).count()
    })
}

/// Checks a name that no agent has yet.
fn check_agent_name(id: &AgentId, name: &str) -> Result<(), NameError> {
    // Everybody, where agents are not identified.
    if id.as_str() != AgentId::ANONYMOUS {
        // Names from other authorities escape bytes as `%` and two digits.
        let plain: String = name.chars().filter(|c| *c != '%').collect();
        AgentId::parse(&plain)?;
    }
    Ok(())
}

/// An unlisted tool can be named only in an unambiguous form.
fn check_tool_name(tool: &str) -> Result<(), NameError> {
    match tool.chars().find(|c| !c.is_ascii_graphic()) {
        _ if tool.is_empty() => Err(NameError::NoTool),
        _ if tool.len() > NAME_MAX => Err(NameError::ToolNameTooLong(tool.len())),
        Some(c) => Err(NameError::Character(c)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
