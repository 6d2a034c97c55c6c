//! Patterns in grants: subjects and resources that match more than the names in the entry.
//!
//! An entry with a pattern has a kind of its own (`grant_pattern`): a build that does not know it treats it as a
//! possible revocation, and denies what its issuer allowed.

use mgp_protocol::ids::{AgentId, NodeAgent, NodeId, NodeServer};
use serde::{Serialize, Serializer};

use super::{CONDITIONAL_KIND, GROUP_KIND, Grant, GrantChange, GrantResource, Subject};

/// The kind of an entry without a pattern.
const GRANT_KIND: &str = "grant";
/// The kind of an entry with one.
pub(in crate::policy::grants) const PATTERN_KIND: &str = "grant_pattern";

/// How specific a resource is for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Specificity {
    /// It is the tool itself.
    Tool,
    /// It is several tools, including this one.
    Tools,
    /// It is the tool's server.
    Server,
}

impl Subject {
    /// True when it matches several agents.
    #[must_use]
    pub(crate) fn is_pattern(&self) -> bool {
        match self {
            Self::Agent(_) | Self::Server(_) => false,
            Self::AgentsAt(_) | Self::AgentEverywhere(_) => true,
        }
    }

    /// Whether an agent can match both. Every agent can be in a group; two groups have nothing in common until an agent
    /// is in both.
    #[must_use]
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        if self.is_group() || other.is_group() {
            let is_server = |it: &Self| matches!(it, Self::Server(_));
            let both = self.is_group() && other.is_group();
            return self == other || !both && !is_server(self) && !is_server(other);
        }
        match (self, other) {
            (Self::Agent(agent), pattern @ (Self::AgentsAt(_) | Self::AgentEverywhere(_)))
            | (pattern @ (Self::AgentsAt(_) | Self::AgentEverywhere(_)), Self::Agent(agent)) => {
                pattern.covers(agent)
            }
            (Self::AgentsAt(_), Self::AgentEverywhere(_))
            | (Self::AgentEverywhere(_), Self::AgentsAt(_)) => true,
            (one, other) => one == other,
        }
    }

    /// Whether this agent matches.
    #[must_use]
    pub(crate) fn covers(&self, agent: &NodeAgent) -> bool {
        if agent.agent.is_group() || self.is_group() {
            return false;
        }
        match self {
            Self::Agent(one) => one == agent,
            Self::AgentsAt(node) => *node == agent.node,
            Self::AgentEverywhere(name) => *name == agent.agent,
            Self::Server(_) => false,
        }
    }

    /// Whether it matches every agent that the other one matches.
    #[must_use]
    pub(crate) fn includes(&self, other: &Self) -> bool {
        match other {
            Self::Agent(agent) => self == other || self.covers(agent),
            Self::Server(_) | Self::AgentsAt(_) | Self::AgentEverywhere(_) => self == other,
        }
    }

    /// The subject for the local id of an agent: ids of other nodes' agents end with the node's id.
    #[must_use]
    pub(crate) fn from_agent_id(id: &AgentId, here: NodeId) -> Self {
        let all = id.as_str() == AgentId::ALL;
        match (id.as_remote(), id.pattern_agent()) {
            (Some(agent), _) if agent.agent.as_str() == AgentId::ALL => Self::AgentsAt(agent.node),
            (Some(agent), _) => Self::Agent(agent),
            (None, Some(agent)) => Self::AgentEverywhere(agent),
            (None, None) if all => Self::AgentsAt(here),
            (None, None) => Self::Agent(here.agent(id.clone())),
        }
    }

    /// All subjects that match this agent: their entries decide about it.
    #[must_use]
    pub(crate) fn subjects_for(agent: &NodeAgent) -> [Self; 3] {
        [
            Self::Agent(agent.clone()),
            Self::AgentsAt(agent.node),
            Self::AgentEverywhere(agent.agent.clone()),
        ]
    }

    /// The id that names agents of other nodes, and patterns of agents, in requests and records. `None` for a server.
    #[must_use]
    pub fn agent_id(&self) -> Option<AgentId> {
        match self {
            Self::Agent(agent) => Some(AgentId::from_node_agent(agent)),
            Self::AgentsAt(node) => Some(AgentId::pattern_for_node(*node)),
            Self::AgentEverywhere(agent) => Some(agent.pattern_for_all_nodes()),
            Self::Server(_) => None,
        }
    }
}

impl GrantResource {
    /// Whether it includes everything in the other one.
    #[must_use]
    pub(crate) fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Server(on), other) => other.server() == Some(on),
            (Self::Tools(on, tools), Self::Tool(of, tool)) => on == of && tools.matches(tool),
            (Self::Tools(on, tools), Self::Tools(of, others)) => {
                let beginning = others.prefix().unwrap_or_default();
                on == of && tools.matches(beginning)
            }
            (one, other) => one == other,
        }
    }

    /// Its server. `None` for a permission and a group.
    #[must_use]
    pub fn server(&self) -> Option<&NodeServer> {
        match self {
            Self::Server(on) | Self::Tool(on, _) | Self::Tools(on, _) => Some(on),
            Self::Permission(_) | Self::Group(_) => None,
        }
    }

    /// How specific it is for a tool or, without one, for the server as a whole: the tool itself, several, the
    /// server. `None` where it does not match. The most specific one decides.
    #[must_use]
    pub(crate) fn specificity(&self, on: &NodeServer, tool: Option<&str>) -> Option<Specificity> {
        if self.server() != Some(on) {
            return None;
        }
        match (self, tool) {
            (Self::Server(_), _) => Some(Specificity::Server),
            (Self::Tool(_, one), Some(tool)) => (one == tool).then_some(Specificity::Tool),
            (Self::Tools(_, tools), Some(tool)) => {
                tools.matches(tool).then_some(Specificity::Tools)
            }
            (Self::Tool(..) | Self::Tools(..), None)
            | (Self::Permission(_) | Self::Group(_), _) => None,
        }
    }

    /// Whether both have something in common. A server includes all its tools.
    #[must_use]
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Server(on), Self::Tool(of, _) | Self::Tools(of, _))
            | (Self::Tool(of, _) | Self::Tools(of, _), Self::Server(on)) => on == of,
            (Self::Tool(on, tool), Self::Tools(of, tools))
            | (Self::Tools(of, tools), Self::Tool(on, tool)) => on == of && tools.matches(tool),
            (Self::Tools(on, tools), Self::Tools(of, others)) => on == of && tools.overlaps(others),
            (one, other) => one == other,
        }
    }
}

impl Grant {
    /// True when it has a pattern.
    #[must_use]
    pub fn is_pattern(&self) -> bool {
        self.subject.is_pattern() || matches!(self.resource, GrantResource::Tools(..))
    }

    /// The kind of an entry with it.
    fn kind(&self) -> &'static str {
        if self.has_group() {
            GROUP_KIND
        } else if self.is_conditional() {
            CONDITIONAL_KIND
        } else if self.is_pattern() {
            PATTERN_KIND
        } else {
            GRANT_KIND
        }
    }
}

impl GrantChange {
    /// Whether a grant with it is of this kind.
    pub(in crate::policy::grants) fn is_of_kind(&self, kind: &str) -> bool {
        match self {
            Self::Grant(grant) => grant.kind() == kind,
            Self::Revoke(_) => true,
        }
    }
}

impl Serialize for GrantChange {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let name = "GrantChange";
        match self {
            Self::Grant(grant) => to.serialize_newtype_variant(name, 0, grant.kind(), grant),
            Self::Revoke(revoke) => to.serialize_newtype_variant(name, 1, "revoke", revoke),
        }
    }
}

#[cfg(test)]
mod tests {
    use mgp_protocol::ids::{GroupName, ServerId};
    use proptest::prelude::*;

    use super::*;
    use crate::policy::tool_pattern::ToolPattern;

    const NAMES: [&str; 3] = ["a", "b", "ab"];
    const TOOLS: [&str; 6] = ["a", "b", "ab", "aa", "aab", "ba"];

    fn agents() -> impl Iterator<Item = NodeAgent> {
        (0..3).flat_map(|node| {
            let node = NodeId([node; 32]);
            NAMES.map(|name| node.agent(AgentId::new(name)))
        })
    }

    fn subject() -> impl Strategy<Value = Subject> {
        (0..3_u8, 0..3_u8, 0..NAMES.len()).prop_map(|(kind, node, name)| {
            let (node, name) = (NodeId([node; 32]), AgentId::new(NAMES[name]));
            match kind {
                0 => Subject::Agent(node.agent(name)),
                1 => Subject::AgentsAt(node),
                _ => Subject::AgentEverywhere(name),
            }
        })
    }

    /// A group may have every agent in it, but no other group and no server; and nothing else is in it by its name.
    #[test]
    fn groups_overlap_with_agents_alone() {
        let node = NodeId([0; 32]);
        let group = |name: &str| {
            let name = GroupName::parse(name).unwrap();
            [
                Subject::cluster_group(&name),
                Subject::local_group(&name, node),
            ]
        };
        let single = [
            Subject::Agent(node.agent(AgentId::new("a"))),
            Subject::AgentsAt(node),
            Subject::AgentEverywhere(AgentId::new("a")),
        ];
        let server = Subject::Server(node.server(ServerId::new("files")));
        for (one, other) in group("x").iter().zip(&group("y")) {
            assert!(one.overlaps(one));
            assert!(!one.overlaps(other) && !one.overlaps(&server) && !server.overlaps(one));
            for agent in &single {
                assert!(one.overlaps(agent) && agent.overlaps(one), "{agent:?}");
            }
        }
        let [everywhere, here] = group("x");
        assert!(!everywhere.overlaps(&here) && !here.overlaps(&everywhere));
        let Subject::Agent(member) = &here else {
            panic!("a group of a node is named as an agent of it");
        };
        for subject in [&everywhere, &here, &single[0], &single[1], &single[2]] {
            assert!(!subject.covers(member), "{subject:?}");
        }
        assert!(agents().all(|agent| !everywhere.covers(&agent) && !here.covers(&agent)));
    }

    fn resource() -> impl Strategy<Value = GrantResource> {
        (0..3_u8, 0..2_u8, "[ab]{1,3}").prop_map(|(kind, node, name)| {
            let on = NodeId([node; 32]).server(ServerId::new("files"));
            match kind {
                0 => GrantResource::Server(on),
                1 => GrantResource::Tool(on, name),
                _ => {
                    let tools = ToolPattern::try_from(format!("{name}*"));
                    GrantResource::Tools(on, tools.unwrap())
                }
            }
        })
    }

    fn means(resource: &GrantResource, node: u8, name: &str) -> bool {
        let here = NodeId([node; 32]);
        match resource {
            GrantResource::Server(on) => on.node == here,
            GrantResource::Tool(on, tool) => on.node == here && tool == name,
            GrantResource::Tools(on, tools) => on.node == here && tools.matches(name),
            GrantResource::Permission(_) | GrantResource::Group(_) => false,
        }
    }

    proptest! {
        /// Two subjects overlap exactly if there is an agent that both mean.
        #[test]
        fn subjects_overlap_when_an_agent_is_meant_by_both(one in subject(), other in subject()) {
            let both = agents().any(|agent| one.covers(&agent) && other.covers(&agent));
            prop_assert_eq!(one.overlaps(&other), both);
            prop_assert_eq!(other.overlaps(&one), both);
            let included = agents().all(|agent| !other.covers(&agent) || one.covers(&agent));
            prop_assert_eq!(one.includes(&other), included);
            for agent in agents() {
                prop_assert_eq!(Subject::subjects_for(&agent).contains(&one), one.covers(&agent));
            }
        }

        /// Where a tool is meant by both, two resources overlap. `TOOLS` alone would not find all that do.
        #[test]
        fn resources_overlap_when_a_tool_is_meant_by_both(
            one in resource(),
            other in resource(),
            more in "[ab]{1,4}",
        ) {
            prop_assert_eq!(one.overlaps(&other), other.overlaps(&one));
            let mut tools = TOOLS.into_iter().chain([more.as_str()]);
            let both = tools.any(|tool| {
                (0..2).any(|node| means(&one, node, tool) && means(&other, node, tool))
            });
            prop_assert!(!both || one.overlaps(&other));
            let longest = |it: &GrantResource| match it {
                GrantResource::Tool(_, tool) => tool.clone(),
                GrantResource::Tools(_, tools) => tools.prefix().unwrap().to_owned(),
                GrantResource::Server(_)
                | GrantResource::Permission(_)
                | GrantResource::Group(_) => "a".to_owned(),
            };
            let certain = [longest(&one), longest(&other)].into_iter().any(|tool| {
                (0..2).any(|node| means(&one, node, &tool) && means(&other, node, &tool))
            });
            prop_assert_eq!(one.overlaps(&other), certain);
        }
    }
}
