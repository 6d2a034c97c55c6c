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

/// Prefix of every MGP method (MGP §1.5).
pub const PREFIX: &str = "mgp/";

methods! {
    "notifications/mgp.audit" => Audit<'_>,
    "notifications/mgp.lifecycle" => Lifecycle,
    "notifications/mgp.event" => Event<'_>,
}

/// A request with what any request may carry beside its own members. All else is refused: a member
/// that was meant to narrow a request must not be read over.
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

/// `mgp/door/*`: what a connection on the kernel's own socket says before it speaks MCP.
pub mod door {
    use std::path::PathBuf;

    use serde::{Deserialize, Serialize};

    use crate::mcp::methods;

    methods! { "mgp/door/open" => Open }

    /// `mgp/door/open`: chooses what this connection shows. First request on a connection, or never.
    #[derive(Debug, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Open {
        /// Show this one server under its own names instead of everything.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub server: Option<String>,
        /// Show this set and nothing else. Who says so is no operator, and one agent or other from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub set: Option<String>,
        /// The agent that the owner of the socket speaks as from now on, with that agent's access and no
        /// more. Nobody else may say this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub agent: Option<String>,
        /// The folder that its client works in: absolute, without links in it. Only the owner of the socket may
        /// say this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub folder: Option<PathBuf>,
    }
}

/// `mgp/agent/ask` (later drafts): an agent asks another one.
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
            /// What is asked.
            prompt: String,
            /// What goes with it.
            #[serde(default)]
            context: Option<String>,
            /// How long the asker waits.
            #[serde(default)]
            timeout_ms: Option<u64>,
        }
    }

    /// Answer of `mgp/agent/ask`.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct AskResult {
        /// Who answered.
        pub target_agent_id: String,
        /// In its own words.
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

    /// `mgp/agents/add`: makes an agent and its token. Answers [`IssuedToken`].
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Add {
        /// `alice` or `agent.alice`.
        pub name: String,
        /// The token is good for this long; for ever when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires_secs: Option<u64>,
    }

    /// `mgp/agents/list`; answers `{"agents": [`[`Agent`]`, …]}`.
    #[derive(Debug)]
    pub struct List;

    /// `mgp/agents/remove`: the token is good for nothing from now on, and what the agent has under way
    /// ends. Answers the [`Agent`] there was.
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Remove {
        /// The agent's name.
        pub name: String,
    }

    /// `mgp/agents/token`: with `rotate` a new token in place of the one before: answers [`IssuedToken`], and what
    /// the agent has under way ends. Without, answers the [`Agent`]; a token is never shown again.
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Token {
        /// The agent's name.
        pub name: String,
        /// Make a new one.
        #[serde(default)]
        pub rotate: bool,
        /// The new one is good for this long; for ever when absent.
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
        /// When its token was made, RFC 3339.
        pub token_made_at: String,
        /// From then on its token is good for nothing, RFC 3339.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires_at: Option<String>,
        /// It has expired.
        pub expired: bool,
    }

    /// A token that was just made. The only time it is shown.
    #[derive(Serialize, Deserialize)]
    pub struct IssuedToken {
        /// Whose it is.
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

/// `mgp/names/*`: what people type for agents, servers and tools, read by the kernel that has them (A-11).
/// For the operator.
pub mod names {
    use serde::{Deserialize, Serialize};

    use crate::mcp::methods;

    methods! {
        "mgp/names/read" => Read,
        "mgp/names/list" => List,
    }

    /// `mgp/names/read`: reads names in any of their spellings. Answers [`ResolvedNames`]; invalid params, in words, for
    /// what cannot be read or could be two things.
    #[derive(Clone, Debug, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Read {
        /// An agent, with or without `agent.`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub agent: Option<String>,
        /// A server as a whole.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub server: Option<String>,
        /// A server, or a tool as `SERVER:TOOL`, `SERVER/TOOL` or as agents are shown it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub place: Option<String>,
        /// The same, of a tool alone: its bare name is read where only one server has it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tool: Option<String>,
    }

    /// What names mean.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ResolvedNames {
        /// `agent.alice`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub agent_id: Option<String>,
        /// Of `server`, `place` or `tool`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub server_id: Option<String>,
        /// The server's own name for the tool of `place` or `tool`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tool_name: Option<String>,
        /// What of it is not there, in words that name the nearest.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub unknown: Vec<String>,
        /// What of it cannot be looked up now, in words.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub doubts: Vec<String>,
    }

    /// `mgp/names/list`; answers `{"tools": [`[`ToolNames`]`, …]}`: every tool that is offered now.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct List {
        /// Tells of each tool of another node whether this agent was granted it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub agent: Option<String>,
    }

    /// One tool by all its names.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ToolNames {
        /// What agents are shown.
        pub shown: String,
        /// `server:tool`.
        pub tool_id: String,
        /// Its server.
        pub server_id: String,
        /// Of a tool of another node: whether the agent that was asked about was granted it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub granted: Option<bool>,
    }
}

/// `notifications/mgp.lifecycle`: a server went from one state to another (MGP §11.4). From a server
/// it is about itself, from the kernel about one of its servers.
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

/// `notifications/mgp.event` as a server sends it (MGP §13.3). What else it carries is not read: whose it is
/// says the connection, and where it stands in a subscription says the kernel, this one or the one that sent it.
#[derive(Debug, Deserialize)]
pub struct Event<'a> {
    /// The server's own id of the subscription that it is for.
    #[serde(borrow)]
    pub subscription_id: Cow<'a, str>,
    /// Of which channel.
    #[serde(borrow)]
    pub channel: Cow<'a, str>,
    /// When, in ISO 8601.
    #[serde(borrow, default)]
    pub timestamp: Option<&'a RawValue>,
    /// What happened; any JSON value.
    #[serde(borrow, default)]
    pub data: Option<&'a RawValue>,
    /// Where another kernel has it in its subscription.
    #[serde(borrow, default, rename = "_mgp.seq")]
    pub seq: Option<&'a RawValue>,
}

/// `notifications/mgp.audit`: an event, for a server that negotiated `audit` (MGP §6.3).
#[derive(Debug)]
pub struct Audit<'a> {
    /// `_mgp.seq`: one more than that of the notification before, so that a gap is told from silence.
    pub seq: u64,
    /// An [`audit::Event`], as it stands in the log.
    pub event: &'a RawValue,
}

impl Audit<'_> {
    /// `params` as JSON text: the event's members after `_mgp`.
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

/// True when `name` means this method: `mgp/access/grant` itself, or one of the tool names
/// `mgp.access.grant` and `mgp_access_grant` (A-11).
#[must_use]
pub fn matches_method(method: &str, name: &str) -> bool {
    let spelled = |by: char| {
        let same = |(m, n): (char, char)| if m == '/' { n == by } else { m == n };
        method.len() == name.len() && method.chars().zip(name.chars()).all(same)
    };
    method.starts_with(PREFIX) && ['/', '.', '_'].into_iter().any(spelled)
}

/// Prefixes of what MGP and MCPL say unasked (MGP §1.5, MCPL §3).
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

/// True for a method that means something only to peers that agreed to MGP or MCPL. However it is
/// spelled: a peer that does not regard case would read it as that.
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

/// `mgp/calls/*`: what became of a call whose answer did not come.
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
        /// `mgp/calls/show`: for the operator, and for agents about calls of their own.
        Show {
            /// The call's id, which is its trace.
            call_id: String,
        }
    }

    request! {
        /// `mgp/calls/read`: reads on in a result that was cut. For who made the call, over the same connection.
        Read {
            /// The result's id, which stands where it was cut.
            result_id: String,
            /// Where to begin, in bytes.
            from: usize,
        }
    }

    /// Answer of `mgp/calls/show`.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct CallHistory {
        /// As asked for.
        pub call_id: String,
        /// Whether it took effect; unknown where that is so of any call with this id.
        pub outcome: CallOutcome,
        /// Why that is not known, in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// The records of it, oldest first: more than one where a caller gave one trace to several calls.
        pub records: Vec<CallRecord>,
    }

    /// A call as it stands in the audit log.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct CallRecord {
        /// The number of the record, for the operator: to an agent it would count what others do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub seq: Option<u64>,
        /// When the call ended.
        pub timestamp: String,
        /// Who made it.
        pub actor: String,
        /// Its server; absent where no tool of that name was found.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub server_id: Option<String>,
        /// The tool, under the name the server knows it by.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tool_name: Option<String>,
        /// How it ended.
        pub result: Outcome,
        /// Whether it took effect.
        pub outcome: CallOutcome,
        /// Why it did not end well, in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// The task that it goes on as.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub task_id: Option<String>,
        /// How that task stands, where who made it still knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub task_status: Option<String>,
    }
}

/// `mgp/state/*`: what agents without MCPL may do with the states of tools (MCPL §8).
pub mod state {
    use crate::mcp::methods;

    methods! { "mgp/state/rollback" => Rollback }

    request! {
        /// `mgp/state/rollback`; answers [`RolledBack`](crate::mcpl::valid_state::RollbackResult).
        Rollback {
            /// `SERVER.SET`.
            feature_set: String,
            /// Where to go back to.
            checkpoint: String,
        }
    }
}

/// `mgp/channels/*`: what agents without MCPL may do with channels (MCPL §14).
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
    fn what_belongs_to_an_extension_is_known_by_its_name() {
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

    /// MGP-084: the event goes out as it stands in the log, with its number for who watches for gaps.
    #[test]
    fn an_audit_notification_is_numbered() {
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

    /// MGP-143: the members of the document; a server may leave out all but where it stands now.
    #[test]
    fn a_step_of_a_server_is_told_whole() {
        let text = r#"{"server_id":"mind.cerebras","previous_state":"connected","new_state":"draining","reason":"operator_request","timestamp":"2026-02-27T12:00:00.000Z"}"#;
        let step: Lifecycle = crate::mcp::parse_params(Some(text)).unwrap();
        assert_eq!(serde_json::to_string(&step).unwrap(), text);
        let short: Lifecycle =
            crate::mcp::parse_params(Some(r#"{"new_state":"draining"}"#)).unwrap();
        assert_eq!(short.previous_state, "");
        assert!(crate::mcp::parse_params::<Lifecycle>(Some("{}")).is_err());
    }

    /// A-11, A-30: one method, three spellings, none of them mixed.
    #[test]
    fn a_method_is_a_tool_under_two_more_names() {
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
    fn an_ask_names_whom_and_what() {
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
