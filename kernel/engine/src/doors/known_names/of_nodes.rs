//! Names of what belongs to other nodes: `AGENT@NODE`, `NODE/SERVER`, `NODE/SERVER:TOOL`. A server of this node
//! goes before a node of its name: what was typed before a node came means the same after it.

use mgp_protocol::ids::{AgentId, NodeId, ServerId};

use super::{KnownNames, Meant, NotRead, UnknownName};
use crate::doors::nearest::nearest_name;
use crate::tool_names::shown_remote;

impl KnownNames {
    /// Reads an agent of the node that is typed behind its name. Which agents another node has is known there
    /// only: one that never called here stays a doubt.
    pub(super) fn agent_of_node(&self, name: &str, node: &str) -> Result<Meant<AgentId>, NotRead> {
        if self.is_here(node) {
            return self.agent(name);
        }
        let home = self.node(node)?;
        let name = name.strip_prefix(AgentId::PREFIX).unwrap_or(name);
        let own = AgentId::new(format!("{}{name}", AgentId::PREFIX));
        // Those that every node has.
        if own.as_str() != AgentId::LOCAL {
            super::judge_agent(&own, name)?;
        }
        let id = AgentId::of_node(&home.agent(own.clone()));
        let unknown = match self.agents.contains(&id) {
            true => None,
            false => Some(UnknownName::Elsewhere(own, self.called(home))),
        };
        Ok(Meant { it: id, unknown })
    }

    /// Reads all agents of a node.
    pub(super) fn agents_at(&self, node: &str) -> Result<Meant<AgentId>, NotRead> {
        if self.is_here(node) {
            return Ok(Meant::known(AgentId::new(AgentId::ALL)));
        }
        Ok(Meant::known(AgentId::all_at(self.node(node)?)))
    }

    /// Reads the agents of a name at every node.
    pub(super) fn agent_everywhere(&self, name: &str) -> Result<Meant<AgentId>, NotRead> {
        let name = name.strip_prefix(AgentId::PREFIX).unwrap_or(name);
        let own = AgentId::new(format!("{}{name}", AgentId::PREFIX));
        if own.as_str() != AgentId::LOCAL {
            super::judge_agent(&own, name)?;
        }
        Ok(Meant::known(own.everywhere()))
    }

    /// Reads `NODE/SERVER`, and what follows; `None` for what names no other node's server.
    pub(super) fn at_node<'t>(&self, typed: &'t str) -> Option<Result<AtNode<'t>, NotRead>> {
        let (node, rest) = typed.split_once('/')?;
        if self.servers.contains_key(node) {
            return None;
        }
        let (server, tool) = match rest.split_once([':', '/']) {
            Some((server, tool)) => (server, Some(tool)),
            None => (rest, None),
        };
        let handle = match self.is_here(node) {
            true => None,
            false => Some(self.nodes.of(self.nodes.read(node).ok()?)?),
        };
        let read = ServerId::parse(server).map_err(NotRead::from);
        Some(read.map(|server| AtNode {
            server: match handle {
                Some(handle) => ServerId::of_node(handle.as_str(), &server),
                None => server,
            },
            tool,
        }))
    }

    /// Why a server of another node is not to be had here: its node is away, or does not share it.
    pub(super) fn not_held(&self, id: &ServerId, typed: &str) -> UnknownName {
        let place = id.at_node();
        let away = place.and_then(|(handle, server)| {
            let away = self.away.get(&self.nodes.get(handle)?)?;
            let shared = away.servers.contains(&server);
            Some((handle.to_owned(), away.heard_ms_ago, shared))
        });
        match away {
            Some((node, heard_ms_ago, shared)) => UnknownName::Away {
                server: id.clone(),
                node,
                heard_ms_ago,
                shared,
            },
            None => UnknownName::Shared(id.clone(), self.near_server(typed)),
        }
    }

    /// What was probably meant by a text that begins with the name of no node and no server.
    pub(super) fn near_node(&self, typed: &str) -> Option<String> {
        let (node, rest) = typed.split_once('/')?;
        let near = self.near_handle(node)?;
        Some(format!("{near}/{rest}"))
    }

    /// What agents are shown for a tool of a server of another node; `None` for one of this node.
    pub(super) fn shown_of_node(&self, server: &ServerId, tool: &str) -> Option<String> {
        let (handle, own) = server.at_node()?;
        let id = self.nodes.get(handle).map(|node| node.to_string());
        Some(shown_remote(handle, &id.unwrap_or_default(), &own, tool))
    }

    /// A server whose id has that of a node before it.
    pub(super) fn node_server(&self, typed: &str) -> Result<ServerId, NotRead> {
        match self.at_node(typed) {
            Some(Ok(AtNode { server, tool: None })) => Ok(server),
            Some(Err(why)) => Err(why),
            Some(Ok(AtNode { tool: Some(_), .. })) | None => {
                let (node, _) = typed.split_once('/').unwrap_or((typed, ""));
                // A node that there is leaves only the rest to be wrong.
                self.node(node)?;
                Ok(ServerId::parse(typed)?)
            }
        }
    }

    fn node(&self, typed: &str) -> Result<NodeId, NotRead> {
        let read = self.nodes.read(typed);
        read.map_err(|why| NotRead::Node(why, self.near_handle(typed).map(str::to_owned)))
    }

    fn near_handle(&self, typed: &str) -> Option<&str> {
        let known: Vec<&str> = self
            .nodes
            .all()
            .map(|(handle, _)| handle.as_str())
            .collect();
        nearest_name(typed, known.into_iter())
    }

    fn called(&self, node: NodeId) -> String {
        let handle = self.nodes.of(node);
        handle.map_or_else(|| node.short(), ToString::to_string)
    }

    fn is_here(&self, typed: &str) -> bool {
        let here = self.here.as_ref();
        here.is_some_and(|name| name.as_str() == typed)
    }
}

/// A server that was named with its node.
pub(super) struct AtNode<'t> {
    /// Its id here.
    pub(super) server: ServerId,
    /// What was typed behind it.
    pub(super) tool: Option<&'t str>,
}
