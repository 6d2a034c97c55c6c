//! Views of lists: of all servers, a set or one server, for a protocol version.

use std::fmt;

use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::ids::{ServerId, SetName};
use serde::{Deserialize, Serialize};

use crate::tool_names;

/// The four lists of MCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListKind {
    /// `tools/list`.
    Tools,
    /// `prompts/list`.
    Prompts,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    Templates,
}

impl ListKind {
    /// In order.
    pub(crate) const ALL: [Self; 4] =
        [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    /// The member of the result that holds the list.
    #[must_use]
    pub const fn result_member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The name of one item in a message.
    #[must_use]
    pub(crate) const fn item_noun(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::Prompts => "prompt",
            Self::Resources => "resource",
            Self::Templates => "resource template",
        }
    }
}

/// The clients that get one form of a list: all, unless a definition in it differs for legacy clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Readers {
    /// All clients.
    All,
    /// Clients that sent `initialize`.
    Legacy,
    /// Clients of the stateless version.
    Modern,
}

impl Readers {
    /// Whether they include clients of that protocol family.
    #[must_use]
    pub(crate) fn includes(self, family: ProtocolFamily) -> bool {
        match self {
            Self::All => true,
            Self::Legacy => family == ProtocolFamily::Legacy,
            Self::Modern => family == ProtocolFamily::Stateless,
        }
    }
}

/// The form in which a client gets lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListForm {
    /// Its protocol family.
    pub family: ProtocolFamily,
    /// It negotiated tool security, so it gets the risk level that the kernel's decisions use.
    pub with_levels: bool,
}

impl From<ProtocolFamily> for ListForm {
    fn from(family: ProtocolFamily) -> Self {
        Self {
            family,
            with_levels: false,
        }
    }
}

/// Which servers an endpoint exposes, and under which names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CatalogView {
    /// All, under qualified names.
    All,
    /// One, under its own names.
    One(ServerId),
    /// Those of a set, under the same names as in [`Self::All`]. Access control, which identifies the caller by its set,
    /// denies the rest.
    Set(SetName),
}

impl CatalogView {
    /// Whether it includes the server's items.
    #[must_use]
    pub fn includes(&self, server: &ServerId) -> bool {
        match self {
            Self::All | Self::Set(_) => true,
            Self::One(only) => only == server,
        }
    }

    /// Whether it has several servers, under qualified names.
    #[must_use]
    pub fn is_merged(&self) -> bool {
        match self {
            Self::All | Self::Set(_) => true,
            Self::One(_) => false,
        }
    }

    /// Whether its lists are those of `whole`, or parts of them.
    #[must_use]
    pub fn is_part_of(&self, whole: &Self) -> bool {
        self == whole || matches!((self, whole), (Self::Set(_), Self::All))
    }

    /// The name of a server's tool or prompt in this view.
    #[must_use]
    pub fn name_for(&self, server: &ServerId, own: &str) -> String {
        match self {
            Self::All | Self::Set(_) => tool_names::visible_name(server, own),
            Self::One(_) => own.to_owned(),
        }
    }
}

impl fmt::Display for CatalogView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("(all servers)"),
            Self::One(server) => server.fmt(f),
            Self::Set(set) => write!(f, "(set {set})"),
        }
    }
}
