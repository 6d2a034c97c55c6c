//! Cluster-wide names: of a node, and of its agents and servers.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{AgentId, ServerId};

crate::hex_id! {
    /// A node: the hash of its Ed25519 public key. The only form in which nodes are compared.
    NodeId, 32
}

/// An agent and the node that authenticates it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeAgent {
    /// The node that the agent connects to.
    pub node: NodeId,
    /// Its id there.
    pub agent: AgentId,
}

/// A server and the node that runs it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeServer {
    /// Its owner.
    pub node: NodeId,
    /// Its id there.
    pub server: ServerId,
}

impl NodeId {
    /// The cluster-wide name of an agent.
    #[must_use]
    pub fn agent(self, agent: AgentId) -> NodeAgent {
        NodeAgent { node: self, agent }
    }

    /// The cluster-wide name of a server.
    #[must_use]
    pub fn server(self, server: ServerId) -> NodeServer {
        NodeServer { node: self, server }
    }
}

impl NodeAgent {
    /// True for the node itself: requests without an agent.
    #[must_use]
    pub fn is_node(&self) -> bool {
        self.agent.as_str() == AgentId::NODE
    }
}

impl AgentId {
    /// In place of an agent, for the node itself. Ids of agents have a prefix.
    const NODE: &str = "node";
    /// The separator between an agent's id and its node; not allowed in ids.
    const HOME: char = '@';

    /// The local id of an agent of another node: its id there and all digits of its node. Never equal to
    /// the id of an agent of this node.
    #[must_use]
    pub fn from_node_agent(agent: &NodeAgent) -> Self {
        Self::new(format!("{}{}{}", agent.agent, Self::HOME, agent.node))
    }

    /// The wildcard in place of an agent or a node; not allowed in ids.
    pub const ALL: &str = "*";

    /// The pattern for all agents of a node.
    #[must_use]
    pub fn pattern_for_node(node: NodeId) -> Self {
        Self::new(format!("{}{}{node}", Self::ALL, Self::HOME))
    }

    /// The pattern for the agents with this id on every node.
    #[must_use]
    pub fn pattern_for_all_nodes(&self) -> Self {
        Self::new(format!("{self}{}{}", Self::HOME, Self::ALL))
    }

    /// True for a pattern.
    #[must_use]
    pub fn is_pattern(&self) -> bool {
        let (agent, home) = self
            .as_str()
            .split_once(Self::HOME)
            .unwrap_or((self.as_str(), ""));
        agent == Self::ALL || home == Self::ALL
    }

    /// The agent id in a pattern for all nodes.
    #[must_use]
    pub fn pattern_agent(&self) -> Option<Self> {
        let (agent, home) = self.as_str().split_once(Self::HOME)?;
        (home == Self::ALL).then(|| Self::new(agent))
    }

    /// The id of another node itself, for requests without an agent.
    #[must_use]
    pub fn for_node(node: NodeId) -> Self {
        Self::new(format!("{}{}{node}", Self::NODE, Self::HOME))
    }

    /// True for another node and for its agents.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.as_str().contains(Self::HOME)
    }

    /// The agent of another node with this local id; `None` for an agent of this node.
    #[must_use]
    pub fn as_remote(&self) -> Option<NodeAgent> {
        let (agent, home) = self.as_str().split_once(Self::HOME)?;
        Some(NodeId::parse(home)?.agent(Self::new(agent)))
    }
}

impl fmt::Display for NodeAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node.short_id(), self.agent)
    }
}

impl fmt::Display for NodeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node.short_id(), self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FED-005.
    #[test]
    fn node_id_has_one_canonical_form() {
        let node = NodeId([0xa5; 32]);
        assert_eq!(NodeId::parse(&node.to_string()), Some(node));
        assert_eq!(NodeId::parse(&node.to_string().to_uppercase()), None);
        assert_eq!(NodeId::parse(&node.short_id()), None);
        let agent = node.agent(AgentId::new("agent.a"));
        assert_eq!(agent.to_string(), "a5a5a5a5a5a5/agent.a");
        assert_eq!(AgentId::from_node_agent(&agent).as_remote(), Some(agent));
        assert_eq!(AgentId::new("agent.a").as_remote(), None);
        assert!(AgentId::for_node(node).is_remote());
        assert!(
            AgentId::for_node(node)
                .as_remote()
                .is_some_and(|it| it.is_node())
        );
        assert!(!node.agent(AgentId::new("agent.a")).is_node());
        assert!(!AgentId::new("agent.a").is_remote());
        let all = [
            AgentId::pattern_for_node(node),
            AgentId::new("agent.a").pattern_for_all_nodes(),
        ];
        assert!(all.iter().all(AgentId::is_pattern));
        assert!(!AgentId::from_node_agent(&node.agent(AgentId::new("agent.a"))).is_pattern());
    }
}
