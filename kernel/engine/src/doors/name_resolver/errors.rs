//! Names that do not exist or cannot be resolved, with messages that say what to type instead.

use crate::node_names::NodeNameError;
use mgp_protocol::ids::{
    AgentId, BadAgentName, BadGroupName, BadServerId, GroupName, ServerId, describe_char,
};

/// A name that does not exist yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownName {
    /// No agent of this name has a token or ever connected; with the nearest agent.
    #[error("there is no agent {}{}; `mgp agents list` shows those with a token", .0, render_suggestion(.1))]
    Agent(AgentId, Option<String>),
    /// No entry and no configuration names this group; with the nearest.
    #[error("there is no {}{}; `mgp groups list` shows all, and `mgp groups add` makes one", .0, render_suggestion(.1))]
    Group(GroupName, Option<String>),
    /// With the nearest server or tool.
    #[error("there is no server {}{}; `mgp servers list` shows all", .0, render_suggestion(.1))]
    Server(ServerId, Option<String>),
    /// No such server of another node is available here; with the nearest server or tool.
    #[error(
        "{} is not shared with this node{}; `mgp cluster status` shows what is", .0, render_suggestion(.1)
    )]
    NotShared(ServerId, Option<String>),
    /// A server of another node that is unavailable.
    #[error("{}", render_node_unavailable(.server, .node, *.heard_ms_ago, *.shared))]
    NodeUnavailable {
        /// The server.
        server: ServerId,
        /// The name of its node.
        node: String,
        /// The time since the node's last message in milliseconds, if known.
        heard_ms_ago: Option<u64>,
        /// Whether it shared the server then.
        shared: bool,
    },
    /// An agent of another node that never called here, and the name of the node.
    #[error("only {1} itself knows whether it has an agent {0}")]
    RemoteAgent(AgentId, String),
    /// The server exists, but does not list the tool; with the nearest tool.
    #[error("server {} has no tool {}{}; `mgp tools list` shows all", .0, .1, render_suggestion(.2))]
    Tool(ServerId, String, Option<String>),
    /// The server has listed nothing yet.
    #[error("server {0} has not listed its tools yet, so nobody can say whether it has a tool {1}")]
    Unlisted(ServerId, String),
    /// A pattern, and how many of the server's current tools it matches.
    #[error("{1} stands for {2} of the tools of {0} now, and for those to come")]
    Pattern(ServerId, String, usize),
}

impl UnknownName {
    /// True when it may still exist.
    #[must_use]
    pub fn is_uncertain(&self) -> bool {
        matches!(
            self,
            Self::Unlisted(..) | Self::RemoteAgent(..) | Self::Pattern(..)
        )
    }
}

/// Why a name cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It does not exist.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// No agent can have this name.
    #[error(transparent)]
    Agent(#[from] BadAgentName),
    /// No group can have this name.
    #[error(transparent)]
    Group(#[from] BadGroupName),
    /// A group of one node, where there is none.
    #[error(
        "{0:?}: a group is of this node, as `group.NAME`, or of the cluster, as `group.NAME@*`"
    )]
    GroupOfNode(String),
    /// Every agent of every node.
    #[error("`*@*` would be everybody: grant it to each node, as `*@NODE`")]
    AllAgents,
    /// No node of the cluster has this name; with the nearest.
    #[error("{}{}", .0, render_suggestion(.1))]
    Node(NodeNameError, Option<String>),
    /// No server can have this id.
    #[error(transparent)]
    Server(#[from] BadServerId),
    /// The name of a tool was expected, but the text contains none.
    #[error("no tool is named: write SERVER for all of a server, or SERVER:TOOL")]
    NoTool,
    /// Longer than any tool's name.
    #[error("a tool's name has at most {max} characters, this one has {0}", max = crate::tools::catalog::NAME_MAX)]
    ToolNameTooLong(usize),
    /// An unlisted name with characters that look like others, or are invisible.
    #[error("no tool is called so, and {} is no character of a name that is still to come", describe_char(*.0))]
    Character(char),
    /// It is the id of a server and also the visible name of another server's tool.
    #[error(
        "{0:?} is a server, and what agents are shown for {1}; write {1} for the tool, or add --whole-server for the server"
    )]
    ServerAndTool(String, String),
    /// It is the visible name of two tools.
    #[error("{0:?} can be {1} and {2}; write one of these")]
    Ambiguous(String, String, String),
    /// It has the form of a visible name, but matches no tool; with the nearest tool.
    #[error("nothing is called {:?}{}; a tool is written SERVER:TOOL", .0, render_suggestion(.1))]
    NoMatch(String, Option<String>),
}

impl NameError {
    /// True when a similar name exists.
    #[must_use]
    pub fn has_suggestion(&self) -> bool {
        let nearest = match self {
            Self::Unknown(UnknownName::Agent(_, near) | UnknownName::Server(_, near)) => near,
            Self::Unknown(UnknownName::Group(_, near)) => near,
            Self::Unknown(UnknownName::NotShared(_, near) | UnknownName::Tool(_, _, near))
            | Self::Node(_, near)
            | Self::NoMatch(_, near) => near,
            Self::Unknown(
                UnknownName::Unlisted(..)
                | UnknownName::RemoteAgent(..)
                | UnknownName::Pattern(..)
                | UnknownName::NodeUnavailable { .. },
            )
            | Self::Agent(_)
            | Self::Group(_)
            | Self::GroupOfNode(_)
            | Self::AllAgents
            | Self::Server(_)
            | Self::NoTool
            | Self::ToolNameTooLong(_)
            | Self::Character(_)
            | Self::ServerAndTool(..)
            | Self::Ambiguous(..) => return false,
        };
        nearest.is_some()
    }
}

/// Describes a server whose node is unavailable.
fn render_node_unavailable(
    server: &ServerId,
    node: &str,
    heard_ms_ago: Option<u64>,
    shared: bool,
) -> String {
    let heard = heard_ms_ago.map(|ms| match ms / 1000 {
        secs @ 0..=119 => format!(" and was last heard {secs} s ago"),
        secs @ 120..=7199 => format!(" and was last heard {} min ago", secs / 60),
        secs => format!(" and was last heard {} h ago", secs / 3600),
    });
    let heard = heard.unwrap_or_default();
    let until = match (shared, heard_ms_ago) {
        (true, _) => format!("{server} is back when {node} is linked again"),
        (false, Some(_)) => format!("it did not share {server} then"),
        (false, None) => format!("whether it shares {server} is not known"),
    };
    format!("{node} is away{heard}: {until}; `mgp cluster status` shows why it is away")
}

fn render_suggestion(nearest: &Option<String>) -> String {
    let nearest = nearest.as_ref();
    nearest.map_or_else(String::new, |name| format!(" (did you mean {name}?)"))
}
