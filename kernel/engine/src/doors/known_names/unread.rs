//! What is not there, and what cannot be read, in words that say what to type instead.

use mgp_protocol::ids::{AgentId, BadAgentName, BadServerId, ServerId, told};

/// A name that means nothing yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownName {
    /// No token is for it, and nobody of this name has come in; with the nearest agent.
    #[error("there is no agent {}{}; `mgp agents list` shows those with a token", .0, meant(.1))]
    Agent(AgentId, Option<String>),
    /// With the nearest server or tool.
    #[error("there is no server {}{}; `mgp servers list` shows all", .0, meant(.1))]
    Server(ServerId, Option<String>),
    /// The server is there, and the tool is not among those it listed; with the nearest tool.
    #[error("server {} has no tool {}{}; `mgp tools list` shows all", .0, .1, meant(.2))]
    Tool(ServerId, String, Option<String>),
    /// The server has listed nothing yet.
    #[error("server {0} has not listed its tools yet, so nobody can say whether it has a tool {1}")]
    Unlisted(ServerId, String),
}

impl UnknownName {
    /// It may be there.
    #[must_use]
    pub fn is_doubt(&self) -> bool {
        matches!(self, Self::Unlisted(..))
    }
}

/// Why what was typed is not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRead {
    /// It is not there.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// No agent can be called so.
    #[error(transparent)]
    Agent(#[from] BadAgentName),
    /// No server can be called so.
    #[error(transparent)]
    Server(#[from] BadServerId),
    /// A tool was to be named, and none is.
    #[error("no tool is named: write SERVER for all of a server, or SERVER:TOOL")]
    NoTool,
    /// Longer than any tool's name.
    #[error("a tool's name has at most {max} characters, this one has {0}", max = crate::tools::catalog::NAME_MAX)]
    LongTool(usize),
    /// What stands for another character, or for none, in a name that nobody lists.
    #[error("no tool is called so, and {} is no character of a name that is still to come", told(*.0))]
    Character(char),
    /// It is the id of a server and the shown name of another one's tool.
    #[error(
        "{0:?} is a server, and what agents are shown for {1}; write {1} for the tool, or add --whole-server for the server"
    )]
    Both(String, String),
    /// It is the shown name of two tools.
    #[error("{0:?} can be {1} and {2}; write one of these")]
    Two(String, String, String),
    /// It has the form of a shown name and is none; with the nearest tool.
    #[error("nothing is called {:?}{}; a tool is written SERVER:TOOL", .0, meant(.1))]
    Nobodys(String, Option<String>),
}

impl NotRead {
    /// Something like it is there.
    #[must_use]
    pub fn is_near(&self) -> bool {
        let nearest = match self {
            Self::Unknown(UnknownName::Agent(_, near) | UnknownName::Server(_, near)) => near,
            Self::Unknown(UnknownName::Tool(_, _, near)) | Self::Nobodys(_, near) => near,
            Self::Unknown(UnknownName::Unlisted(..))
            | Self::Agent(_)
            | Self::Server(_)
            | Self::NoTool
            | Self::LongTool(_)
            | Self::Character(_)
            | Self::Both(..)
            | Self::Two(..) => return false,
        };
        nearest.is_some()
    }
}

fn meant(nearest: &Option<String>) -> String {
    let nearest = nearest.as_ref();
    nearest.map_or_else(String::new, |name| format!(" (did you mean {name}?)"))
}
