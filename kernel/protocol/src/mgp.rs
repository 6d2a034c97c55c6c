//! The parts of MGP that the kernel reads and writes.

pub mod access;
pub mod approvals;
pub mod audit;
pub mod callback;
pub mod discovery;
pub mod events;
pub mod health;
pub mod index;
pub mod kernel;
pub mod lifecycle;
pub mod negotiation;
pub mod permission;
pub mod servers;
pub mod stream;
pub mod tools;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mcp::methods;

/// The prefix of every MGP method (MGP §1.5).
pub const PREFIX: &str = "mgp/";

methods! {
    "notifications/mgp.audit" => Audit<'_>,
    "notifications/mgp.lifecycle" => Lifecycle,
    "notifications/mgp.event" => Event<'_>,
}

/// Defines a request with the common members of any request. Unknown members are rejected, because an
/// ignored one might have narrowed the request.
macro_rules! request {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $member:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, ::serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$of])* pub $member: $type,)*
            #[serde(default, rename = "_meta")]
            _meta: Option<::serde::de::IgnoredAny>,
            #[serde(default, rename = "_mgp")]
            _mgp: Option<::serde::de::IgnoredAny>,
            #[serde(default, rename = "trace_id")]
            _trace_id: Option<::serde::de::IgnoredAny>,
        }
    };
}
use request;

/// `mgp/door/*`: requests on a connection of the kernel's own socket before MCP.
pub mod door {
    use std::path::PathBuf;

    use serde::{Deserialize, Serialize};

    use crate::mcp::methods;

    methods! { "mgp/door/open" => Open }

    /// `mgp/door/open`: selects the view of this connection. Only as the first request.
    #[derive(Debug, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Open {
        /// Show only this server, under its own names.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub server: Option<String>,
        /// Show only this set. The connection is no operator's from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub set: Option<String>,
        /// The agent that the operator acts as from now on, with that agent's access only. Rejected from
        /// other callers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub agent: Option<String>,
        /// The working folder of the client: absolute, without symbolic links. Rejected from other callers
        /// than the operator.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub folder: Option<PathBuf>,
    }
}

/// `mgp/agent/ask` (later drafts): a request of one agent to another.
pub mod agent {
    use serde::{Deserialize, Serialize};

    use crate::mcp::methods;

    methods! {
        "mgp/agent/ask" => Ask,
    }

    request! {
        /// `mgp/agent/ask`; answers [`AskResult`].
        Ask {
            /// `agent.bob`, or `bob`.
            target_agent_id: String,
            /// The prompt.
            prompt: String,
            /// Additional context.
            #[serde(default)]
            context: Option<String>,
            /// How long the requester waits.
            #[serde(default)]
            timeout_ms: Option<u64>,
        }
    }

    /// The answer to `mgp/agent/ask`.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct AskResult {
        /// The agent that answered.
        pub target_agent_id: String,
        /// The answer.
        pub response: String,
    }
}

/// `mgp/agents/*`: the agents that have a token of their own. For the operator.
pub mod agents {
    use serde::{Deserialize, Serialize};

    use crate::mcp::methods;

    methods! {
        "mgp/agents/add" => Add,
        "mgp/agents/list" => List,
        "mgp/agents/remove" => Remove,
        "mgp/agents/token" => Token,
    }

    /// `mgp/agents/add`: adds an agent and issues its token. Answers [`IssuedToken`].
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Add {
        /// `alice` or `agent.alice`.
        pub name: String,
        /// The lifetime of the token; unlimited if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires_secs: Option<u64>,
    }

    /// `mgp/agents/list`; answers `{"agents": [`[`Agent`]`, …]}`.
    #[derive(Debug)]
    pub struct List;

    /// `mgp/agents/remove`: revokes the token and ends the agent's requests and connections. Answers the
    /// removed [`Agent`].
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Remove {
        /// The agent's name.
        pub name: String,
    }

    /// `mgp/agents/token`: with `rotate` replaces the token, answers [`IssuedToken`], and ends the agent's
    /// requests and connections. Without, answers the [`Agent`]; a token is never shown again.
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Token {
        /// The agent's name.
        pub name: String,
        /// Issue a new token.
        #[serde(default)]
        pub rotate: bool,
        /// The lifetime of the new token; unlimited if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires_secs: Option<u64>,
    }

    /// One agent, as shown to the operator.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Agent {
        /// `agent.alice`.
        pub id: String,
        /// When it was added, RFC 3339.
        pub added_at: String,
        /// When its token was issued, RFC 3339.
        pub token_made_at: String,
        /// When its token expires, RFC 3339.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires_at: Option<String>,
        /// True if it has expired.
        pub expired: bool,
        /// The groups that entries put it into, or the default one.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub groups: Vec<String>,
    }

    /// A token that was just issued. It is shown only once.
    #[derive(Serialize, Deserialize)]
    pub struct IssuedToken {
        /// The agent.
        #[serde(flatten)]
        pub agent: Agent,
        /// For `Authorization: Bearer …`.
        pub token: String,
    }

    impl std::fmt::Debug for IssuedToken {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("IssuedToken")
                .field("agent", &self.agent)
                .finish_non_exhaustive()
        }
    }
}

/// `mgp/names/*`: resolves typed names of agents, servers and tools (A-11). For the operator.
pub mod names {
    use serde::{Deserialize, Serialize};

    use crate::mcp::methods;

    methods! {
        "mgp/names/read" => Read,
        "mgp/names/list" => List,
    }

    /// `mgp/names/read`: resolves names in any of their spellings. Answers [`ResolvedNames`]; invalid
    /// params, with a message, for unreadable or ambiguous names.
    #[derive(Clone, Debug, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Read {
        /// An agent, with or without `agent.`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub agent: Option<String>,
        /// A server as a whole.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub server: Option<String>,
        /// A server, or a tool as `SERVER:TOOL`, `SERVER/TOOL` or by its visible name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub place: Option<String>,
        /// A tool: also its bare name, if only one server has it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tool: Option<String>,
    }

    /// The resolved names.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ResolvedNames {
        /// `agent.alice`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub agent_id: Option<String>,
        /// The server of `server`, `place` or `tool`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub server_id: Option<String>,
        /// The server's own name for the tool of `place` or `tool`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tool_name: Option<String>,
        /// Messages about unknown names, with the nearest known one.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub unknown: Vec<String>,
        /// Messages about names that cannot be looked up now.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub doubts: Vec<String>,
    }

    /// `mgp/names/list`; answers `{"tools": [`[`ToolNames`]`, …]}`: all available tools.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct List {
        /// Include for each tool of another node whether this agent has a grant for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub agent: Option<String>,
    }

    /// All names of one tool.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ToolNames {
        /// The name visible to agents.
        pub shown: String,
        /// `server:tool`.
        pub tool_id: String,
        /// Its server.
        pub server_id: String,
        /// For a tool of another node: whether the requested agent has a grant for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub granted: Option<bool>,
    }
}

/// `notifications/mgp.lifecycle`: a state change of a server (MGP §11.4). From a server it concerns the
/// server itself, from the kernel one of its servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifecycle {
    /// The server.
    #[serde(default)]
    pub server_id: String,
    /// The earlier state.
    #[serde(default)]
    pub previous_state: String,
    /// The new state.
    pub new_state: String,
    /// The reason.
    #[serde(default)]
    pub reason: String,
    /// When, in ISO 8601.
    #[serde(default)]
    pub timestamp: String,
}

/// `notifications/mgp.event` of a server (MGP §13.3). Other members are ignored: the sender is known from
/// the connection, and the position in a subscription is assigned by a kernel, this one or the sender.
#[derive(Debug, Deserialize)]
pub struct Event<'a> {
    /// The server's own id of the subscription that it is for.
    #[serde(borrow)]
    pub subscription_id: Cow<'a, str>,
    /// The channel.
    #[serde(borrow)]
    pub channel: Cow<'a, str>,
    /// When, in ISO 8601.
    #[serde(borrow, default)]
    pub timestamp: Option<&'a RawValue>,
    /// The event data; any JSON value.
    #[serde(borrow, default)]
    pub data: Option<&'a RawValue>,
    /// The position in the subscription at another kernel.
    #[serde(borrow, default, rename = "_mgp.seq")]
    pub seq: Option<&'a RawValue>,
}

/// `notifications/mgp.audit`: an event for a server that negotiated `audit` (MGP §6.3).
#[derive(Debug)]
pub struct Audit<'a> {
    /// `_mgp.seq`: one more than in the previous notification, so that a gap is detected.
    pub seq: u64,
    /// An [`audit::Event`], as in the log.
    pub event: &'a RawValue,
}

impl Audit<'_> {
    /// Renders `params` as JSON text: the event's members after `_mgp`.
    #[must_use]
    pub fn params(&self) -> String {
        let members = self.event.get().trim_start().trim_start_matches('{');
        let comma = if members.trim_start().starts_with('}') {
            ""
        } else {
            ","
        };
        format!(r#"{{"_mgp":{{"seq":{}}}{comma}{members}"#, self.seq)
    }
}

/// True if `name` is this method: `mgp/access/grant` itself, or one of the tool names `mgp.access.grant`
/// and `mgp_access_grant` (A-11).
#[must_use]
pub fn matches_method(method: &str, name: &str) -> bool {
    let spelled = |by: char| {
        let same = |(m, n): (char, char)| if m == '/' { n == by } else { m == n };
        method.len() == name.len() && method.chars().zip(name.chars()).all(same)
    };
    method.starts_with(PREFIX) && ['/', '.', '_'].into_iter().any(spelled)
}

/// The prefixes of MGP and MCPL notifications (MGP §1.5, MCPL §3).
const PREFIXES: [&str; 8] = [
    "mgp/",
    "mgp.",
    "notifications/mgp.",
    "notifications/mgp/",
    "mcpl/",
    "notifications/mcpl",
    "featureSets/",
    "notifications/featureSets/",
];
/// The methods of MCPL that have no prefix of their own.
const MCPL_METHODS: [&str; 17] = [
    "channels/changed",
    "channels/close",
    "channels/incoming",
    "channels/list",
    "channels/open",
    "channels/outgoing/chunk",
    "channels/outgoing/complete",
    "channels/publish",
    "channels/register",
    "context/afterInference",
    "context/beforeInference",
    "inference/chunk",
    "inference/request",
    "model/info",
    "push/event",
    "scope/elevate",
    "state/rollback",
];

/// True for a method of MGP or MCPL, in any case: a case-insensitive peer would read it as such.
#[must_use]
pub fn is_extension_method(method: &str) -> bool {
    let begins = |prefix: &&str| {
        let head = method.get(..prefix.len());
        head.is_some_and(|head| head.eq_ignore_ascii_case(prefix))
    };
    let bare = method.strip_prefix("notifications/").unwrap_or(method);
    PREFIXES.iter().any(begins)
        || MCPL_METHODS
            .iter()
            .any(|own| bare.eq_ignore_ascii_case(own))
}

/// `mgp/calls/*`: the outcome of calls whose answer was lost, and truncated results.
pub mod calls {
    use serde::{Deserialize, Serialize};

    use super::audit::Outcome;
    use crate::mcp::methods;
    use crate::refusal::CallOutcome;

    methods! {
        "mgp/calls/show" => Show,
        "mgp/calls/read" => Read,
    }

    request! {
        /// `mgp/calls/show`: for the operator, and for agents about their own calls.
        Show {
            /// The call's id, which is its trace.
            call_id: String,
        }
    }

    request! {
        /// `mgp/calls/read`: reads the next page of a truncated result. For the caller only, over the same
        /// connection.
        Read {
            /// The result's id, from the truncated result.
            result_id: String,
            /// The offset, in bytes.
            from: usize,
        }
    }

    /// The answer to `mgp/calls/show`.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct CallHistory {
        /// The requested id.
        pub call_id: String,
        /// Whether it took effect; unknown if it is unknown for any call with this id.
        pub outcome: CallOutcome,
        /// Why it is unknown, as text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// The records, oldest first: several if a caller used one trace for several calls.
        pub records: Vec<CallRecord>,
    }

    /// A call in the audit log.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct CallRecord {
        /// The number of the record, for the operator only: it would reveal the activity of other agents.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub seq: Option<u64>,
        /// When the call ended.
        pub timestamp: String,
        /// The caller.
        pub actor: String,
        /// Its server; absent if the tool was not found.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub server_id: Option<String>,
        /// The tool, by the server's own name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tool_name: Option<String>,
        /// The result.
        pub result: Outcome,
        /// Whether it took effect.
        pub outcome: CallOutcome,
        /// The reason of a failure, as text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// The task that the call became.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub task_id: Option<String>,
        /// The status of that task, if still stored.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub task_status: Option<String>,
    }
}

/// `mgp/state/*`: tool states for agents without MCPL (MCPL §8).
pub mod state {
    use crate::mcp::methods;

    methods! { "mgp/state/rollback" => Rollback }

    request! {
        /// `mgp/state/rollback`; answers [`RolledBack`](crate::mcpl::valid_state::RollbackResult).
        Rollback {
            /// `SERVER.SET`.
            feature_set: String,
            /// The checkpoint to return to.
            checkpoint: String,
        }
    }
}

/// `mgp/channels/*`: channels for agents without MCPL (MCPL §14).
pub mod channels {
    use crate::mcp::methods;

    methods! { "mgp/channels/publish" => Publish }

    /// `mgp/channels/publish`; its params and its answer are those of `channels/publish` of MCPL.
    #[derive(Debug)]
    pub struct Publish;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_methods_are_detected_by_name() {
        for method in [
            "notifications/mgp.stream.chunk",
            "notifications/MGP.event",
            "notifications/mgp.anything",
            "notifications/mcpl.x",
            "featureSets/changed",
            "notifications/featureSets/changed",
            "channels/incoming",
            "notifications/channels/incoming",
            "push/event",
            "mgp/stream/cancel",
        ] {
            assert!(is_extension_method(method), "{method}");
        }
        for method in [
            "notifications/acme/mgp.chunk",
            "notifications/mgpx",
            "notifications/state/changed",
            "push/events",
            "notifications/message",
            "",
        ] {
            assert!(!is_extension_method(method), "{method}");
        }
    }

    /// MGP-084: the event is sent as in the log, with a number for detecting gaps.
    #[test]
    fn audit_notification_is_numbered() {
        let params = |event: &str| {
            let event = RawValue::from_string(event.into()).unwrap();
            let event = &event;
            Audit { seq: 43, event }.params()
        };
        assert_eq!(
            params(r#"{"result":"SUCCESS","n":1e400}"#),
            r#"{"_mgp":{"seq":43},"result":"SUCCESS","n":1e400}"#
        );
        assert_eq!(params("{ }"), r#"{"_mgp":{"seq":43} }"#);
    }

    /// MGP-143: the members of the document; a server may omit all but the new state.
    #[test]
    fn lifecycle_notification_has_all_members() {
        let text = r#"{"server_id":"mind.cerebras","previous_state":"connected","new_state":"draining","reason":"operator_request","timestamp":"2026-02-27T12:00:00.000Z"}"#;
        let step: Lifecycle = crate::mcp::parse_params(Some(text)).unwrap();
        assert_eq!(serde_json::to_string(&step).unwrap(), text);
        let short: Lifecycle =
            crate::mcp::parse_params(Some(r#"{"new_state":"draining"}"#)).unwrap();
        assert_eq!(short.previous_state, "");
        assert!(crate::mcp::parse_params::<Lifecycle>(Some("{}")).is_err());
    }

    /// A-11, A-30: one method has three spellings, which cannot be mixed.
    #[test]
    fn method_matches_its_two_tool_names() {
        let method = "mgp/access/grant";
        for name in [method, "mgp.access.grant", "mgp_access_grant"] {
            assert!(matches_method(method, name), "{name}");
        }
        for name in [
            "mgp.access_grant",
            "mgp.access.grants",
            "access.grant",
            "mgpaccessgrant",
            "",
        ] {
            assert!(!matches_method(method, name), "{name}");
        }
        assert!(!matches_method("tools/call", "tools.call"));
    }

    #[test]
    fn ask_requires_target_and_prompt() {
        let text = r#"{"target_agent_id":"agent.bob","prompt":"how?","_meta":{}}"#;
        let ask: agent::Ask = crate::mcp::parse_params(Some(text)).unwrap();
        assert_eq!(
            (ask.target_agent_id.as_str(), ask.timeout_ms),
            ("agent.bob", None)
        );
        for bad in [
            r#"{"prompt":"x"}"#,
            r#"{"target_agent_id":"a","prompt":"x","agent_id":"b"}"#,
        ] {
            assert!(
                crate::mcp::parse_params::<agent::Ask>(Some(bad)).is_err(),
                "{bad}"
            );
        }
    }
}
