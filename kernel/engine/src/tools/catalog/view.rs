//! The view of a list: of all servers, of a set or of one, for an era.

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
    /// All of them, in their order.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

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

    /// One of the list, in a message.
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

/// Who reads one form of a list: all, unless a definition in it has to be told to legacy clients in
/// another form than to modern ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Readers {
    /// There is only one form.
    All,
    /// Clients that opened with `initialize`.
    Legacy,
    /// Clients of the stateless version.
    Modern,
}

impl Readers {
    /// Whether a client of that era is one of them.
    #[must_use]
    pub(crate) fn includes(self, era: ProtocolFamily) -> bool {
        match self {
            Self::All => true,
            Self::Legacy => era == ProtocolFamily::Legacy,
            Self::Modern => era == ProtocolFamily::Stateless,
        }
    }
}

/// In which form a client reads lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListForm {
    /// Its era.
    pub family: ProtocolFamily,
    /// It negotiated the security of tools, so it is told the level that the kernel's decisions on a
    /// tool rest on.
    pub with_levels: bool,
}

impl From<ProtocolFamily> for ListForm {
    fn from(era: ProtocolFamily) -> Self {
        Self {
            family: era,
            with_levels: false,
        }
    }
}

/// Which servers a door shows, and under whose names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CatalogView {
    /// All, under names that tell them apart.
    All,
    /// One, under its own names.
    One(ServerId),
    /// Those of a set, under the same names as in [`Self::All`]. What the set leaves out is kept away by access
    /// control, which knows the caller by its set.
    Set(SetName),
}

impl CatalogView {
    /// Whether what this server offers is in it.
    #[must_use]
    pub fn includes(&self, server: &ServerId) -> bool {
        match self {
            Self::All | Self::Set(_) => true,
            Self::One(only) => only == server,
        }
    }

    /// Whether it shows several servers, under names that tell them apart.
    #[must_use]
    pub fn is_merged(&self) -> bool {
        match self {
            Self::All | Self::Set(_) => true,
            Self::One(_) => false,
        }
    }

    /// Whether who looks through this one sees a list of the other one, or a part of it.
    #[must_use]
    pub fn is_part_of(&self, whole: &Self) -> bool {
        self == whole || matches!((self, whole), (Self::Set(_), Self::All))
    }

    /// What a tool, or a prompt, of this server is called here.
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
