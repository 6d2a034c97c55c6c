//! Names that hold in a cluster: of a node, and of what belongs to it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{AgentId, ServerId};

crate::hex_id! {
    /// A node: the hash of its Ed25519 public key. The only form in which nodes are compared.
    NodeId, 32
}

/// An agent and the node that knows who it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeAgent {
    /// Its home: the node whose door it came in by.
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
    /// The name of one of its agents.
    #[must_use]
    pub fn agent(self, agent: AgentId) -> NodeAgent {
        NodeAgent { node: self, agent }
    }

    /// The name of one of its servers.
    #[must_use]
    pub fn server(self, server: ServerId) -> NodeServer {
        NodeServer { node: self, server }
    }
}

impl AgentId {
    /// Between an agent's id at home and the node that is its home; in no id that is given.
    const HOME: char = '@';

    /// How an agent of another node is known here: by its id there and all digits of its home. Never the
    /// same as the id of an agent of this node.
    #[must_use]
    pub fn from_node_agent(agent: &NodeAgent) -> Self {
        Self::new(format!("{}{}{}", agent.agent, Self::HOME, agent.node))
    }

    /// What stands for all, where an agent or a node is named; in no id that is given.
    pub const ALL: &str = "*";

    /// How all agents of a node are named together.
    #[must_use]
    pub fn pattern_for_node(node: NodeId) -> Self {
        Self::new(format!("{}{}{node}", Self::ALL, Self::HOME))
    }

    /// How the agents of this id at every node are named together.
    #[must_use]
    pub fn pattern_for_all_nodes(&self) -> Self {
        Self::new(format!("{self}{}{}", Self::HOME, Self::ALL))
    }

    /// True for what names several agents together.
    #[must_use]
    pub fn is_pattern(&self) -> bool {
        let (agent, home) = self
            .as_str()
            .split_once(Self::HOME)
            .unwrap_or((self.as_str(), ""));
        agent == Self::ALL || home == Self::ALL
    }

    /// The id that the agents have which are named together, at every node.
    #[must_use]
    pub fn pattern_agent(&self) -> Option<Self> {
        let (agent, home) = self.as_str().split_once(Self::HOME)?;
        (home == Self::ALL).then(|| Self::new(agent))
    }

    /// The other node itself, where it asks what no agent of it does.
    #[must_use]
    pub fn for_node(node: NodeId) -> Self {
        Self::new(format!("node{}{node}", Self::HOME))
    }

    /// True for another node and for its agents.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.as_str().contains(Self::HOME)
    }

    /// The agent of another node that has this id here; `None` for an agent of this node.
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
    fn a_node_is_named_by_all_its_digits_in_one_way() {
        let node = NodeId([0xa5; 32]);
        assert_eq!(NodeId::parse(&node.to_string()), Some(node));
        assert_eq!(NodeId::parse(&node.to_string().to_uppercase()), None);
        assert_eq!(NodeId::parse(&node.short_id()), None);
        let agent = node.agent(AgentId::new("agent.a"));
        assert_eq!(agent.to_string(), "a5a5a5a5a5a5/agent.a");
        assert_eq!(AgentId::from_node_agent(&agent).as_remote(), Some(agent));
        assert_eq!(AgentId::new("agent.a").as_remote(), None);
        assert!(AgentId::for_node(node).is_remote());
        assert!(!AgentId::new("agent.a").is_remote());
        let all = [
            AgentId::pattern_for_node(node),
            AgentId::new("agent.a").pattern_for_all_nodes(),
        ];
        assert!(all.iter().all(AgentId::is_pattern));
        assert!(!AgentId::from_node_agent(&node.agent(AgentId::new("agent.a"))).is_pattern());
    }
}
