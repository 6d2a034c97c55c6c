//! `mgp/servers/*`: management of servers. For the operator.

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
/// notifications report its states. Answers the [`Server`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The server.
    pub id: String,
    /// Send its output meanwhile as [`Log`].
    #[serde(default)]
    pub log: bool,
}

/// `mgp/servers/wait`: waits until a starting server is connected or has failed, like [`Start`], without
/// starting it. Answers the [`Server`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// The server.
    pub id: String,
    /// Send its output since the start, and meanwhile, as [`Log`].
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

/// `mgp/servers/restart`: stops and starts a server. Answers the [`Server`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restart {
    /// The server.
    pub id: String,
    /// Send its output meanwhile as [`Log`].
    #[serde(default)]
    pub log: bool,
    /// Replace it without downtime: a second instance is started beside it and takes over.
    #[serde(default)]
    pub rolling: bool,
}

/// `mgp/servers/logs`: the stderr output of a server; answers [`LogLines`]. With `follow` the answer is
/// sent when the server is removed or the request is cancelled, and lines are sent as [`Log`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Logs {
    /// The server.
    pub id: String,
    /// The most lines, counted from the end; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<usize>,
    /// Follow new lines.
    #[serde(default)]
    pub follow: bool,
}

/// The answer to `mgp/servers/logs`.
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
    /// `server` (its stderr) or `kernel` (the kernel's messages about it).
    pub from: String,
    /// The text, control characters made visible.
    pub text: String,
}

/// `notifications/mgp.servers.log`: a new line while following, or while waiting for a start.
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
    /// True if it does not run because nobody uses it, and a call starts it. Its state is then `registered` or
    /// `disconnected`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sleeping: bool,
    /// How long its last start took, in milliseconds: what a call waits that starts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ms: Option<u64>,
    /// The reason of this state.
    pub reason: Option<String>,
    /// The most relevant line of its stderr: the newest one while it starts, the cause after it ended. For
    /// the operator only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// Its last known health: `healthy`, `degraded` or `unhealthy`.
    #[serde(default)]
    pub health: Option<String>,
    /// The duration of this state, in milliseconds.
    pub since_ms: u64,
    /// The time until the next retry, in milliseconds.
    pub next_try_ms: Option<u64>,
    /// The restarts within the window.
    pub restarts: u32,
    /// The stage of a rolling restart that is running or has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling: Option<String>,
    /// The agent that registered it at runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered_by: Option<String>,
    /// Its command line, as visible to every user of the machine, or its address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<String>,
    /// `stdio`, `http` or `sse`.
    pub transport: String,
    /// Process id of a child.
    pub pid: Option<u32>,
    /// The resources used by its processes, without those of its other instances; `None` without processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<ResourcesInUse>,
    /// The MCP versions it supports, such as `2026-07-28, 2025-11-25`: one of each protocol family.
    pub protocol_version: Option<String>,
    /// The reported `name version`.
    pub server_info: Option<String>,
    /// The number of its tools.
    pub tools: u64,
    /// The number of its resources and templates.
    pub resources: u64,
    /// The number of its prompts.
    pub prompts: u64,
    /// The number of in-flight calls.
    pub in_flight: u64,
    /// The calls that wait for their turn, because its callbacks do not identify their calls.
    #[serde(default)]
    pub waiting_turn: u64,
    /// The lines on stdout that were no messages.
    pub noise_lines: u64,
    /// The messages dropped for their size.
    pub oversized: u64,
    /// Notifications without a receiver: of MGP or MCPL without negotiation, or of an unidentified call.
    #[serde(default)]
    pub dropped_notifications: u64,
    /// Problems of its lists, including omitted entries.
    pub rejected: Vec<String>,
    /// Its entries hidden from agents, with the reasons: unavailable lists, and malformed definitions.
    #[serde(default)]
    pub left_out: Vec<String>,
    /// Its definitions with repaired errors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repaired: Vec<String>,
    /// The effective trust level: the operator's, or a lower one requested by the server.
    pub trust_level: String,
    /// The negotiated MGP; `None` without MGP.
    pub mgp: Option<NegotiatedMgp>,
    /// The sandbox of a server with the lowest trust level; `None` for others.
    #[serde(default)]
    pub sandbox: Option<Sandbox>,
    /// The per-agent instances, by agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<Instance>,
    /// The pending login, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<PendingLogin>,
    /// The permissions it needs, each with its decision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<String>,
    /// True if its tools are not pinned: changed definitions are accepted, in any feature set.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unpinned: bool,
    /// How its results are guarded, and what was found since it was connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<String>,
    /// The replicas of its tools, itself included, one line for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<String>,
}

/// A login that a server needs: no browser is opened before a person types the command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingLogin {
    /// The reason, as text.
    pub why: String,
    /// The command to type.
    pub command: String,
    /// The URL to sign in at, while it is open: an agent called, and waits for the login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// True if the server accepts no calls until then.
    pub parked: bool,
    /// True if its tokens are to be bound to a key (RFC 9449).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bound: bool,
    /// The requested scopes, separated by spaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The URL of its metadata, as reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_metadata: Option<String>,
}

/// A server instance of one agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// The agent.
    pub agent: String,
    /// The working folder of its caller, in which it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The MGP state, as for a server.
    pub state: String,
    /// The duration of this state, in milliseconds.
    pub since_ms: u64,
    /// Process id of a child.
    pub pid: Option<u32>,
    /// The resources used by its processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<ResourcesInUse>,
    /// The number of in-flight calls.
    pub in_flight: u64,
}

/// The sandbox of a server at its last start, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// The enforced restrictions.
    pub enforced: Vec<String>,
    /// The restrictions that this machine cannot enforce.
    pub missing: Vec<String>,
    /// Permissions that were not given for a changeable reason.
    pub notes: Vec<String>,
    /// Destinations outside of `egress` to which it wanted to connect, at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
}

/// The negotiated MGP of a server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NegotiatedMgp {
    /// The lower of both versions.
    pub version: String,
    /// The common extensions, with the server's names.
    pub extensions: Vec<String>,
    /// The server's own id.
    pub server_id: Option<String>,
    /// The permissions that the server declares.
    pub permissions_required: Vec<String>,
    /// The trust level that the server requests, as written.
    pub trust_level: Option<String>,
}
