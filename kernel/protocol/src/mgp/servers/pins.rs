//! `mgp/servers/pins/*`: the pinned definitions of a server's tools and skills, and their changes. For the operator,
//! who decides about a changed one by `mgp/approvals/*`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::mcp::methods;

methods! {
    "mgp/servers/pins/list" => List,
    "mgp/servers/pins/show" => Show,
    "mgp/servers/pins/confirm" => Confirm,
    "mgp/servers/pins/scan" => Scan,
}

/// The most tools in one answer to [`List`].
pub const PAGE_MAX: usize = 1000;

/// `mgp/servers/pins/list`: the pinned tools by name. Answers [`PinnedTools`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// The server.
    pub id: String,
    /// Its skills, by their own URIs, in place of its tools.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skills: bool,
    /// The cursor: tools after this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The most tools; never more than [`PAGE_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// The answer to `mgp/servers/pins/list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedTools {
    /// The mode for changed tools: `off`, `warn` or `block`; absent before the server has listed its tools
    /// since the start of the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The number of all pinned tools.
    pub total: u64,
    /// Sorted by name.
    pub pins: Vec<PinnedTool>,
    /// True if there are more; continue after the last one.
    pub has_more: bool,
}

/// A pinned tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedTool {
    /// The server's own name.
    pub tool: String,
    /// A prefix of the hash of the approved definition.
    pub pin: String,
    /// The person who approved it; absent for the first listed definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
    /// A prefix of the hash of the current definition, if different.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
    /// The changed members: `description`, `inputSchema`, `outputSchema`, `security`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// True if a person denied the definition: the tool is hidden until it changes again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub denied: bool,
    /// `read` or `write`: what its annotations say that it does. Absent where they say nothing, so that it may destroy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared_effect: Option<String>,
    /// The same, where a person confirmed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// The first line of the description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// `mgp/servers/pins/confirm`: the annotations of these tools are true. Answers [`Confirmed`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confirm {
    /// The server.
    pub id: String,
    /// The confirmed effect of each tool, by the server's own name: `read`, `write`, or `null` to take it back.
    pub effects: BTreeMap<String, Option<String>>,
}

/// The answer to `mgp/servers/pins/confirm`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmed {
    /// The tools that were asked for.
    pub tools: Vec<String>,
}

/// `mgp/servers/pins/show`: the approved and the current definition of a tool. Answers [`Definitions`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Show {
    /// The server.
    pub id: String,
    /// The server's own name of the tool.
    pub tool: String,
    /// It is the URI of a skill.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skills: bool,
}

/// The answer to `mgp/servers/pins/show`. Both are the server's original text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definitions {
    /// The approved definition; absent if it is too long to be stored, or the tool is not pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<String>,
    /// The current definition, if different.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
}

/// `mgp/servers/pins/scan`: judges all that models read of a server, as it was listed last. Answers [`Scanned`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scan {
    /// The server.
    pub id: String,
}

/// The answer to `mgp/servers/pins/scan`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scanned {
    /// From this score on a definition that nobody approved waits for the operator.
    pub threshold: u32,
    /// How many definitions were judged.
    pub total: u64,
    /// Those with a score, the highest first; at most [`PAGE_MAX`].
    pub found: Vec<ScannedDefinition>,
}

/// A definition in which the scan found something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScannedDefinition {
    /// `tool`, `prompt` or `instructions`.
    pub kind: String,
    /// The server's own name for it.
    pub name: String,
    /// What the findings add up to.
    pub score: u32,
    /// True if agents do not get it now.
    pub blocked: bool,
    /// The findings, what counts most first.
    pub reasons: Vec<ScanReason>,
}

/// Something a person should look at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanReason {
    /// The kind of act, as a word.
    pub act: String,
    /// The same as words.
    pub title: String,
    /// How much it counts.
    pub weight: u32,
    /// Where it stands in the definition.
    pub place: String,
    /// The sentence.
    pub text: String,
}
