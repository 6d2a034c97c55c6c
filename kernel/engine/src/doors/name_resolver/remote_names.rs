//! Names on other nodes: `AGENT@NODE`, `NODE/SERVER`, `NODE/SERVER:TOOL`. A server of this node takes precedence over
//! a node of its name: a name keeps its meaning when a node joins.

use mgp_protocol::ids::{AgentId, NodeId, ServerId};

use super::{NameError, NameResolver, ResolvedName, UnknownName};
use crate::doors::suggestions::nearest_name;
use crate::tool_names::visible_remote_name;

impl NameResolver {
    /// Resolves an agent of a named node. Only that node knows its agents: one that never called here stays
    /// uncertain.
    pub(super) fn resolve_remote_agent(
        &self,
        name: &str,
        node: &str,
    ) -> Result<ResolvedName<AgentId>, NameError> {
        if self.is_local(node) {
            return self.resolve_agent(name);
        }
        let home = self.resolve_node(node)?;
        let name = name.strip_prefix(AgentId::PREFIX).unwrap_or(name);
        let own = AgentId::new(format!("{}{name}", AgentId::PREFIX));
        // Agents that every node has.
        if own.as_str() != AgentId::LOCAL {
            super::check_agent_name(&own, name)?;
        }
        let id = AgentId::from_node_agent(&home.agent(own.clone()));
        let unknown = if self.is_known_agent(&id) {
            None
        } else {
            Some(UnknownName::RemoteAgent(own, self.node_label(home)))
        };
        Ok(ResolvedName { value: id, unknown })
    }

    /// Resolves all agents of a node.
    pub(super) fn resolve_agents_at(&self, node: &str) -> Result<ResolvedName<AgentId>, NameError> {
        if self.is_local(node) {
            return Ok(ResolvedName::existing(AgentId::new(AgentId::ALL)));
        }
        Ok(ResolvedName::existing(AgentId::pattern_for_node(
            self.resolve_node(node)?,
        )))
    }

    /// Resolves the agents of a name on every node.
    pub(super) fn resolve_agent_everywhere(
        &self,
        name: &str,
    ) -> Result<ResolvedName<AgentId>, NameError> {
        let name = name.strip_prefix(AgentId::PREFIX).unwrap_or(name);
        let own = AgentId::new(format!("{}{name}", AgentId::PREFIX));
        if own.as_str() != AgentId::LOCAL {
            super::check_agent_name(&own, name)?;
        }
        Ok(ResolvedName::existing(own.pattern_for_all_nodes()))
    }

    /// Parses `NODE/SERVER` and what follows; `None` where no other node is named.
    pub(super) fn parse_node_path<'t>(
        &self,
        typed: &'t str,
    ) -> Option<Result<NodePath<'t>, NameError>> {
        let (node, rest) = typed.split_once('/')?;
        if self.servers.contains_key(node) {
            return None;
        }
        let (server, tool) = match rest.split_once([':', '/']) {
            Some((server, tool)) => (server, Some(tool)),
            None => (rest, None),
        };
        let handle = if self.is_local(node) {
            None
        } else {
            Some(self.nodes.handle_for(self.nodes.resolve(node).ok()?)?)
        };
        let read = ServerId::parse(server).map_err(NameError::from);
        Some(read.map(|server| NodePath {
            server: match handle {
                Some(handle) => ServerId::new_remote(handle.as_str(), &server),
                None => server,
            },
            tool,
        }))
    }

    /// Why a server of another node is not available here: its node is unavailable, or does not share it.
    pub(super) fn unknown_remote_server(&self, id: &ServerId, typed: &str) -> UnknownName {
        let parts = id.remote_parts();
        let away = parts.and_then(|(handle, server)| {
            let away = self.unavailable.get(&self.nodes.get(handle)?)?;
            let shared = away.servers.contains(&server);
            Some((handle.to_owned(), away.heard_ms_ago, shared))
        });
        match away {
            Some((node, heard_ms_ago, shared)) => UnknownName::NodeUnavailable {
                server: id.clone(),
                node,
                heard_ms_ago,
                shared,
            },
            None => UnknownName::NotShared(id.clone(), self.nearest_server(typed)),
        }
    }

    /// The nearest match for a text whose first part is the name of no node and no server.
    pub(super) fn nearest_node_path(&self, typed: &str) -> Option<String> {
        let (node, rest) = typed.split_once('/')?;
        let near = self.nearest_handle(node)?;
        Some(format!("{near}/{rest}"))
    }

    /// The visible name of a tool on a server of another node; `None` for one of this node.
    pub(super) fn visible_remote_tool_name(&self, server: &ServerId, tool: &str) -> Option<String> {
        let (handle, own) = server.remote_parts()?;
        let id = self.nodes.get(handle).map(|node| node.to_string());
        Some(visible_remote_name(
            handle,
            &id.unwrap_or_default(),
            &own,
            tool,
        ))
    }

    /// Resolves a server whose id begins with that of a node.
    pub(super) fn resolve_remote_server(&self, typed: &str) -> Result<ServerId, NameError> {
        match self.parse_node_path(typed) {
            Some(Ok(NodePath { server, tool: None })) => Ok(server),
            Some(Err(why)) => Err(why),
            Some(Ok(NodePath { tool: Some(_), .. })) | None => {
                let (node, _) = typed.split_once('/').unwrap_or((typed, ""));
                // If the node exists, the error must be in the rest.
                self.resolve_node(node)?;
                Ok(ServerId::parse(typed)?)
            }
        }
    }

    fn resolve_node(&self, typed: &str) -> Result<NodeId, NameError> {
        let read = self.nodes.resolve(typed);
        read.map_err(|why| NameError::Node(why, self.nearest_handle(typed).map(str::to_owned)))
    }

    fn nearest_handle(&self, typed: &str) -> Option<&str> {
        let known: Vec<&str> = self
            .nodes
            .iter()
            .map(|(handle, _)| handle.as_str())
            .collect();
        nearest_name(typed, known.into_iter())
    }

    fn node_label(&self, node: NodeId) -> String {
        self.nodes.render(node)
    }

    fn is_local(&self, typed: &str) -> bool {
        let here = self.local_name.as_ref();
        here.is_some_and(|name| name.as_str() == typed)
    }
}

/// A server that was named with its node.
pub(super) struct NodePath<'t> {
    /// Its id here.
    pub(super) server: ServerId,
    /// The text after it.
    pub(super) tool: Option<&'t str>,
}
