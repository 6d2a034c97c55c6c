//! `mgp/servers/*`: the servers under supervision. For the operator.

pub mod pins;

use serde::{Deserialize, Serialize};

use super::health::ResourcesInUse;
use crate::mcp::methods;

methods! {
    "mgp/servers/list" => List,
    "mgp/servers/start" => Start,
    "mgp/servers/wait" => Wait,
    "mgp/servers/stop" => Stop,
    "mgp/servers/restart" => Restart,
    "mgp/servers/logs" => Logs,
    "notifications/mgp.servers.log" => Log,
}

/// `mgp/servers/list`; answers `{"servers": [`[`Server`]`, …]}`.
#[derive(Debug)]
pub struct List;

/// `mgp/servers/start`: starts a server and waits until it is connected or has failed. Progress
/// notifications tell its states. Answers the [`Server`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The server.
    pub id: String,
    /// What it writes meanwhile comes as [`Log`].
    #[serde(default)]
    pub log: bool,
}

/// `mgp/servers/wait`: waits until a server that is being started is connected or has failed, as
/// [`Start`] does, and starts nothing itself. Answers the [`Server`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// The server.
    pub id: String,
    /// What it has written since it was started, and writes meanwhile, comes as [`Log`].
    #[serde(default)]
    pub log: bool,
}

/// `mgp/servers/stop`: drains and stops a server. Answers the [`Server`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// The server.
    pub id: String,
}

/// `mgp/servers/restart`: stop and start in one. Answers the [`Server`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restart {
    /// The server.
    pub id: String,
    /// What it writes meanwhile comes as [`Log`].
    #[serde(default)]
    pub log: bool,
    /// Replace it without a gap: a second life is started beside it and takes over.
    #[serde(default)]
    pub rolling: bool,
}

/// `mgp/servers/logs`: what a server wrote to stderr; answers [`LogLines`]. With `follow` the answer
/// comes only when the server is removed or the request is cancelled, and lines come as [`Log`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Logs {
    /// The server.
    pub id: String,
    /// At most this many of the last lines; 100 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<usize>,
    /// Go on with new lines as they come.
    #[serde(default)]
    pub follow: bool,
}

/// Answer of `mgp/servers/logs`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct LogLines {
    /// Oldest first.
    pub lines: Vec<LogLine>,
}

/// One line of a server's log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogLine {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// `server` (its stderr) or `kernel` (what the kernel noticed about it).
    pub from: String,
    /// The text, control characters made visible.
    pub text: String,
}

/// `notifications/mgp.servers.log`: a new line while following, or while a start is waited for.
#[derive(Debug, Serialize, Deserialize)]
pub struct Log {
    /// The server.
    pub id: String,
    /// The line.
    pub line: LogLine,
}

/// One server, as shown to the operator.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Server {
    /// Its id.
    pub id: String,
    /// MGP state (§11.2): `registered`, `connecting`, `connected`, `draining`, `disconnected`,
    /// `error`, `restarting`.
    pub state: String,
    /// Why it is in this state.
    pub reason: Option<String>,
    /// What it wrote to stderr that tells most of that: its newest line while it starts, the one that says
    /// why after it ended. For the operator alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// How it was found when it was last asked: `healthy`, `degraded` or `unhealthy`.
    #[serde(default)]
    pub health: Option<String>,
    /// How long it has been in this state, in milliseconds.
    pub since_ms: u64,
    /// When the kernel tries again, in milliseconds from now.
    pub next_try_ms: Option<u64>,
    /// Restarts within the window.
    pub restarts: u32,
    /// Where it stands with a rolling restart that is under way or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling: Option<String>,
    /// Who registered it, when that was while the kernel ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered_by: Option<String>,
    /// Its command line, as every user of the machine can read it, or its address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<String>,
    /// `stdio`, `http` or `sse`.
    pub transport: String,
    /// Process id of a child.
    pub pid: Option<u32>,
    /// What its processes use, those of its other instances apart; `None` while it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<ResourcesInUse>,
    /// MCP versions spoken with it, such as `2026-07-28, 2025-11-25`: one of each era it knows.
    pub protocol_version: Option<String>,
    /// `name version` as the server says.
    pub server_info: Option<String>,
    /// How many tools it offers.
    pub tools: u64,
    /// How many resources and templates.
    pub resources: u64,
    /// How many prompts.
    pub prompts: u64,
    /// Calls under way.
    pub in_flight: u64,
    /// Calls that wait for their turn, because it asks without saying in which call.
    #[serde(default)]
    pub waiting_turn: u64,
    /// Lines on stdout that were no messages.
    pub noise_lines: u64,
    /// Messages dropped for their size.
    pub oversized: u64,
    /// Notifications that went to nobody: of MGP or MCPL where that was not agreed to, or of no call
    /// that could be told.
    #[serde(default)]
    pub dropped_notifications: u64,
    /// What was odd about its lists, what was left out among it.
    pub rejected: Vec<String>,
    /// What of it agents do not see, with the reason: lists that could not be had, and broken
    /// definitions.
    #[serde(default)]
    pub left_out: Vec<String>,
    /// What of it had slips that were mended, with what was wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repaired: Vec<String>,
    /// MGP trust level in force: the operator's, or less where the server itself says less.
    pub trust_level: String,
    /// What of MGP is spoken with it; `None` where that is plain MCP.
    pub mgp: Option<NegotiatedMgp>,
    /// What holds a server that is trusted least; `None` for every other one.
    #[serde(default)]
    pub sandbox: Option<Sandbox>,
    /// The instances that agents have for themselves, by agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<Instance>,
    /// The login that it wants of a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<PendingLogin>,
    /// The permissions it needs, each with how it was decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<String>,
    /// Its tools are not pinned: one that changes is taken as it is, in whatever feature set it names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unpinned: bool,
    /// Where its tools can be called that are one of several, itself among them, a line for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<String>,
}

/// A login that a server wants: nothing opens a browser before a person types the command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingLogin {
    /// Why, in words.
    pub why: String,
    /// What to type.
    pub command: String,
    /// Where to sign in instead, while that is open: an agent called, and the answer is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The server takes no calls until then.
    pub parked: bool,
    /// Its tokens are to be bound to a key (RFC 9449).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bound: bool,
    /// The scopes it named, with spaces between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Where it says its metadata is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_metadata: Option<String>,
}

/// An instance of a server that one agent has for itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// Whose it is.
    pub agent: String,
    /// The folder of its caller that it runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// MGP state, as of a server.
    pub state: String,
    /// How long it has been in this state, in milliseconds.
    pub since_ms: u64,
    /// Process id of a child.
    pub pid: Option<u32>,
    /// What its processes use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<ResourcesInUse>,
    /// Calls under way.
    pub in_flight: u64,
}

/// The walls around a sandboxed server, in words. They are those of its last start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// What the system holds it to.
    pub enforced: Vec<String>,
    /// What this machine cannot hold it to.
    pub missing: Vec<String>,
    /// What it was not given for a reason that can be changed.
    pub notes: Vec<String>,
}

/// The MGP spoken with a server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NegotiatedMgp {
    /// The lower of both versions.
    pub version: String,
    /// The extensions in common, in the server's own words.
    pub extensions: Vec<String>,
    /// What the server calls itself.
    pub server_id: Option<String>,
    /// The permissions the server says it needs.
    pub permissions_required: Vec<String>,
    /// The trust level the server claims, as it wrote it.
    pub trust_level: Option<String>,
}
