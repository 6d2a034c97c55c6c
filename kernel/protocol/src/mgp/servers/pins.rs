//! `mgp/servers/pins/*`: the definitions of a server's tools that were approved, and what became of them. For the
//! operator, who decides about a changed one by `mgp/approvals/*`.

use serde::{Deserialize, Serialize};

use crate::mcp::methods;

methods! {
    "mgp/servers/pins/list" => List,
    "mgp/servers/pins/show" => Show,
}

/// Most tools of one answer to [`List`].
pub const PAGE_MAX: usize = 1000;

/// `mgp/servers/pins/list`: the pinned tools by name. Answers [`PinnedTools`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// The server.
    pub id: String,
    /// The tools after this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// At most this many; never more than [`PAGE_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Answer of `mgp/servers/pins/list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedTools {
    /// What happens to a tool that changes: `off`, `warn` or `block`; absent while the server has not listed its
    /// tools since the kernel was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// How many tools are pinned in all.
    pub total: u64,
    /// In the order of their names.
    pub pins: Vec<PinnedTool>,
    /// There are more; ask for those after the last one.
    pub has_more: bool,
}

/// A pinned tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedTool {
    /// The server's own name for it.
    pub tool: String,
    /// The first digits of the hash of the approved definition.
    pub pin: String,
    /// Who approved it; absent where it is as it was first listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
    /// The first digits of the hash of the definition that it has now, where that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
    /// In what that differs: `description`, `inputSchema`, `outputSchema`, `security`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// A person said no to it: the tool is gone until its definition is another one again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub denied: bool,
}

/// `mgp/servers/pins/show`: a tool as it was approved and as it is. Answers [`Definitions`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Show {
    /// The server.
    pub id: String,
    /// The server's own name for the tool.
    pub tool: String,
}

/// Answer of `mgp/servers/pins/show`. Both are the text that the server sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definitions {
    /// As it was approved; absent where it is too long to be kept, and where nothing is pinned under this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<String>,
    /// As it is now, where that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
}
