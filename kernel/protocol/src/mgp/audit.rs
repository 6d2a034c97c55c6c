//! `mgp/audit/*` and the data of `notifications/mgp.audit`: actions, their actors and their results (MGP
//! §6).

mod find;
mod trace;
mod verify;

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

pub use self::find::{Find, FindResult};
pub use self::trace::{TraceId, TraceParent};
pub use self::verify::{Verified, Verify};
use crate::mcp::methods;
pub use crate::refusal::{AuditOutcome as Outcome, Failure};

methods! {
    "mgp/audit/replay" => Replay,
    "mgp/audit/last" => Last,
    "mgp/audit/acknowledge" => Acknowledge,
    "mgp/audit/find" => Find,
    "mgp/audit/verify" => Verify,
}

/// `mgp/audit/last`: the end of the log of a running kernel. For the operator.
#[derive(Debug)]
pub struct Last;

/// The answer to `mgp/audit/last`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRecord {
    /// The number of the last record; 0 before the first.
    pub sequence: u64,
    /// Its hash, in hexadecimal.
    pub hash: String,
}

/// `mgp/audit/acknowledge`: the operator acknowledges known damage of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledge {
    /// The operator's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The answer to `mgp/audit/acknowledge`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {
    /// The acknowledged problems, as text; empty if there were none.
    pub acknowledged: Vec<String>,
}

/// `mgp/audit/replay`: the events after one that was received, for an audit server that missed some.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Replay {
    /// Continue after this `_mgp.seq`. Has precedence over `since_timestamp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_seq: Option<u64>,
    /// Continue after this time, in ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_timestamp: Option<String>,
    /// The most events; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// The answer to `mgp/audit/replay`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Replayed {
    /// Oldest first, each with its `seq`.
    pub events: Vec<Box<RawValue>>,
    /// True if there are more events.
    pub has_more: bool,
    /// The number to continue after.
    pub next_seq: u64,
}

/// The type of an event: the standard types of MGP §6.4 and of its later drafts, and custom ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventType {
    /// A tool was called and completed.
    ToolExecuted,
    /// A tool call was blocked by validation or access control.
    ToolBlocked,
    /// A permission was approved.
    PermissionGranted,
    /// A permission was denied.
    PermissionDenied,
    /// A permission was revoked.
    PermissionRevoked,
    /// An agent got access to a server or tool.
    AccessGranted,
    /// An agent's access was revoked.
    AccessRevoked,
    /// A server connected.
    ServerConnected,
    /// A server disconnected.
    ServerDisconnected,
    /// A validator of the kernel rejected a tool call.
    ValidationFailed,
    /// The code safety framework rejected code.
    CodeRejected,
    /// The kernel considers a tool more dangerous than declared (0.8).
    RiskLevelOverride,
    /// A tool was created by an active tool request (0.8).
    ToolCreatedDynamic,
    /// A server rejected a tool call by policy (0.6.1).
    ToolRejected,
    /// A server without a seal has the lowest trust, whatever its entry says (0.6.3).
    TrustLevelDowngradedNoSeal,
    /// A custom type, in reverse-domain notation.
    Custom(CustomType),
}

impl EventType {
    /// The types of the document.
    pub(crate) const STANDARD: [Self; 15] = [
        Self::ToolExecuted,
        Self::ToolBlocked,
        Self::PermissionGranted,
        Self::PermissionDenied,
        Self::PermissionRevoked,
        Self::AccessGranted,
        Self::AccessRevoked,
        Self::ServerConnected,
        Self::ServerDisconnected,
        Self::ValidationFailed,
        Self::CodeRejected,
        Self::RiskLevelOverride,
        Self::ToolCreatedDynamic,
        Self::ToolRejected,
        Self::TrustLevelDowngradedNoSeal,
    ];
    /// A call is retried (MGP §14.6).
    pub const TOOL_RETRIED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.tool_retried"));
    /// An agent of another node started or stopped following a channel of a server.
    pub const EVENTS_FOLLOWED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.events_followed"));
    /// The operator started or stopped watching the messages of a server or an agent.
    pub const MESSAGES_FOLLOWED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.messages_followed"));
    /// The operator replayed a recorded message to a server.
    pub const MESSAGE_PLAYED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.message_played"));
    /// A replacement of a server failed: its new instance did not start.
    pub const SERVER_NOT_REPLACED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.server_not_replaced"));
    /// A tool's definition differs from the approved one.
    pub const TOOL_CHANGED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.tool_changed"));
    /// A file of a skill differs from the skill's entry, and was not passed on.
    pub const SKILL_REJECTED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.skill_rejected"));
    /// A person approved a changed tool definition.
    pub const TOOL_APPROVED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.tool_approved"));
    /// A person denied a changed tool definition.
    pub const TOOL_DENIED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.tool_denied"));
    /// An event reported by a server, in the details.
    pub const SERVER_REPORTED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.server_reported"));
    /// A server was registered while the kernel ran.
    pub const SERVER_REGISTERED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.server_registered"));
    /// A server that was registered while the kernel ran was removed.
    pub const SERVER_DEREGISTERED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.server_deregistered"));
    /// An agent was added.
    pub const AGENT_ADDED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.agent_added"));
    /// An agent's token was replaced.
    pub const AGENT_RENEWED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.agent_renewed"));
    /// An agent was removed, and its connections were ended.
    pub const AGENT_REMOVED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.agent_removed"));
    /// A person signed in at the identity provider and allowed a client.
    pub const AGENT_SIGNED_IN: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.agent_signed_in"));
    /// What a person allowed a client has ended.
    pub const AGENT_SIGNED_OUT: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.agent_signed_out"));
    /// A browser signed in to the console.
    pub const CONSOLE_SIGNED_IN: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.console_signed_in"));
    /// A browser signed out, or all were signed out.
    pub const CONSOLE_SIGNED_OUT: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.console_signed_out"));
    /// A server of this node, or some of its tools, is shared with other nodes.
    pub const SERVER_SHARED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.server_shared"));
    /// It is no longer shared.
    pub const SERVER_UNSHARED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.server_unshared"));
    /// Parts of another node's index were rejected.
    pub const INDEX_REFUSED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.index_refused"));
    /// A ticket for a node was created, shown, refused, used or ended.
    pub const NODE_PAIRING: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.node_pairing"));
    /// An MCPL request or notification.
    pub const MCPL_OPERATION: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.mcpl_operation"));
    /// The operator enabled or disabled feature sets of a server.
    pub const FEATURE_SETS_SWITCHED: Self = Self::Custom(CustomType::kernel_type(
        "dev.cloto.mgp.feature_sets_switched",
    ));
    /// Old records are about to be removed; names the last of them.
    pub const LOG_TRIMMED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.audit_trimmed"));
    /// The log was found damaged, or was repaired.
    pub const LOG_DAMAGED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.audit_damaged"));
    /// The previous kernel ended without closing the log: calls in flight have no record, and the last
    /// records may be lost.
    pub const LOG_INTERRUPTED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.audit_interrupted"));
    /// The log could not be written for a while; the details list what was refused meanwhile.
    pub const LOG_RESUMED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.audit_resumed"));
    /// The operator acknowledged known damage of the log.
    pub const LOG_ACKNOWLEDGED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.audit_acknowledged"));
    /// The membership of the cluster changed: the details list the node and the change.
    pub const CLUSTER_CHANGED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.cluster_changed"));
    /// Another file of the kernel was found damaged or missing.
    pub const STATE_DAMAGED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.state_damaged"));
    /// A program has taken over from the kernel before it; a failure is recorded by the one that goes on instead.
    pub const KERNEL_UPGRADED: Self =
        Self::Custom(CustomType::kernel_type("dev.cloto.mgp.kernel_upgraded"));

    /// The value on the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::ToolExecuted => "TOOL_EXECUTED",
            Self::ToolRejected => "TOOL_REJECTED",
            Self::TrustLevelDowngradedNoSeal => "TRUST_LEVEL_DOWNGRADED_NO_SEAL",
            Self::ToolBlocked => "TOOL_BLOCKED",
            Self::PermissionGranted => "PERMISSION_GRANTED",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::PermissionRevoked => "PERMISSION_REVOKED",
            Self::AccessGranted => "ACCESS_GRANTED",
            Self::AccessRevoked => "ACCESS_REVOKED",
            Self::ServerConnected => "SERVER_CONNECTED",
            Self::ServerDisconnected => "SERVER_DISCONNECTED",
            Self::ValidationFailed => "VALIDATION_FAILED",
            Self::CodeRejected => "CODE_REJECTED",
            Self::RiskLevelOverride => "RISK_LEVEL_OVERRIDE",
            Self::ToolCreatedDynamic => "TOOL_CREATED_DYNAMIC",
            Self::Custom(custom) => custom.as_str(),
        }
    }

    /// Parses a standard or a custom type.
    #[must_use]
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let standard = Self::STANDARD.into_iter().find(|t| t.as_str() == text);
        standard.or_else(|| CustomType::parse(text).map(Self::Custom))
    }
}

impl Serialize for EventType {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for EventType {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(d)?;
        let unknown = || serde::de::Error::custom(format_args!("{text:?} is no event type"));
        Self::parse(&text).ok_or_else(unknown)
    }
}

/// A custom event type in reverse-domain notation: `com.example.custom_event`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomType(Cow<'static, str>);

impl CustomType {
    /// The longest name, in bytes: that of a domain.
    pub(crate) const MAX_LEN: usize = 253;

    const fn kernel_type(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// Parses a name: three or more words of lower-case letters, digits, `_` and `-`, separated by dots.
    #[must_use]
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let word = |w: &str| {
            !w.is_empty()
                && w.bytes()
                    .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
        };
        let good = text.len() <= Self::MAX_LEN
            && text.split('.').count() >= 3
            && text.split('.').all(word);
        good.then(|| Self(text.to_owned().into()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The kind of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// A client that calls tools.
    Agent,
    /// A person at the kernel's own command line or console.
    Operator,
    /// A server.
    Server,
    /// Another kernel.
    Node,
    /// This kernel itself.
    Kernel,
}

/// The actor, as authenticated by the connection: never read from a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// Its kind.
    #[serde(rename = "type")]
    pub kind: ActorKind,
    /// Its name.
    pub id: String,
}

/// The target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<String>,
    /// The tool, by the server's own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// The agent, for changes of access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

/// `params` of `notifications/mgp.audit` (MGP §6.3), without its sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, as ISO 8601 in UTC with milliseconds.
    pub timestamp: String,
    /// The trace of the request, across servers and nodes.
    pub trace_id: TraceId,
    /// The type of the event.
    pub event_type: EventType,
    /// The actor.
    pub actor: Actor,
    /// The target.
    pub target: Target,
    /// The result.
    pub result: Outcome,
    /// Further details, specific to the type.
    #[serde(default)]
    pub details: serde_json::Map<String, serde_json::Value>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ServerId;
    use crate::refusal::{Denial, Refusal};
    use serde_json::{Value, json};

    fn event() -> Event {
        Event {
            timestamp: "2026-02-27T12:00:00.000Z".into(),
            trace_id: TraceId::parse("550e8400-e29b-41d4-a716-446655440000").unwrap(),
            event_type: EventType::ToolExecuted,
            actor: Actor {
                kind: ActorKind::Agent,
                id: "agent.cloto_default".into(),
            },
            target: Target {
                server_id: Some("tool.terminal".into()),
                tool_name: Some("execute_command".into()),
                agent_id: None,
            },
            result: Outcome::Success,
            details: json!({"risk_level": "dangerous", "duration_ms": 1200})
                .as_object()
                .unwrap()
                .clone(),
        }
    }

    /// MGP-083, MGP-084, MGP-085: the event of §6.3 round-trips.
    #[test]
    fn event_has_the_form_of_the_document() {
        let text = serde_json::to_string(&event()).unwrap();
        let want = json!({
            "timestamp": "2026-02-27T12:00:00.000Z",
            "trace_id": "550e8400-e29b-41d4-a716-446655440000",
            "event_type": "TOOL_EXECUTED",
            "actor": {"type": "agent", "id": "agent.cloto_default"},
            "target": {"server_id": "tool.terminal", "tool_name": "execute_command"},
            "result": "SUCCESS",
            "details": {"risk_level": "dangerous", "duration_ms": 1200}
        });
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), want);
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event());
    }

    /// MGP-089 to MGP-100: the standard types round-trip; others need a domain.
    #[test]
    fn event_types_are_standard_or_reverse_domains() {
        let document = [
            "TOOL_EXECUTED",
            "TOOL_BLOCKED",
            "PERMISSION_GRANTED",
            "PERMISSION_DENIED",
            "PERMISSION_REVOKED",
            "ACCESS_GRANTED",
            "ACCESS_REVOKED",
            "SERVER_CONNECTED",
            "SERVER_DISCONNECTED",
            "VALIDATION_FAILED",
            "CODE_REJECTED",
        ];
        for name in document {
            let read = EventType::parse(name).unwrap();
            assert!(!matches!(read, EventType::Custom(_)), "{name}");
            assert_eq!(read.as_str(), name);
        }
        for own in [
            EventType::TOOL_RETRIED,
            EventType::SERVER_REPORTED,
            EventType::LOG_TRIMMED,
            EventType::LOG_DAMAGED,
            EventType::LOG_RESUMED,
            EventType::LOG_ACKNOWLEDGED,
            EventType::STATE_DAMAGED,
            EventType::KERNEL_UPGRADED,
        ] {
            assert_eq!(EventType::parse(own.as_str()), Some(own));
        }
        assert!(EventType::parse("com.example.custom_event").is_some());
        for bad in [
            "",
            "SOMETHING",
            "tool_executed",
            "com.example",
            "com..x",
            "Com.Example.X",
            "a.b.c\n",
        ] {
            assert_eq!(EventType::parse(bad), None, "{bad}");
        }
    }

    /// MGP-086, A-23, MCP-033, MCP-034: transport, protocol and tool failures are distinguished.
    #[test]
    fn failure_results_are_distinguished() {
        use self::Failure::{Protocol, Tool, Transport};
        use self::Outcome::{Blocked, Cancelled, Denied, Failure as Failed, Success, Timeout};
        let server = || ServerId::new("s");
        let denied = |d| Refusal::Denied(Box::new(d));
        let peer = RawValue::from_string(r#"{"code":1,"message":"m"}"#.into()).unwrap();
        let cases = [
            (Refusal::Peer(peer), Failed, Some(Protocol)),
            (
                Refusal::ServerLost {
                    server: server(),
                    reason: "exit 1".into(),
                },
                Failed,
                Some(Transport),
            ),
            (
                Refusal::TimedOut {
                    server: server(),
                    after_ms: 1,
                    remote: false,
                },
                Timeout,
                Some(Transport),
            ),
            (
                Refusal::QueueTimeout {
                    server: server(),
                    after_ms: 1,
                },
                Timeout,
                Some(Transport),
            ),
            (Refusal::Cancelled, Cancelled, None),
            (Refusal::Forbidden("no".into()), Denied, None),
            (Refusal::UnknownTool("x".into()), Blocked, None),
            (
                denied(Denial::NotGranted {
                    tool: "x".into(),
                    rule: "r".into(),
                }),
                Denied,
                None,
            ),
            (
                Refusal::TimedOut {
                    server: server(),
                    after_ms: 1,
                    remote: true,
                },
                Timeout,
                Some(Transport),
            ),
            (
                Refusal::InvalidAnswer {
                    server: server(),
                    reason: "HTTP 500".into(),
                },
                Failed,
                Some(Protocol),
            ),
            (
                denied(Denial::OverQuota {
                    what: "m".into(),
                    limit: 1,
                    next: None,
                }),
                Blocked,
                None,
            ),
        ];
        for (refusal, outcome, failure) in cases {
            assert_eq!(
                Outcome::from_refusal(&refusal),
                (outcome, failure),
                "{refusal}"
            );
        }
        assert_eq!(Outcome::from_result(true), (Failed, Some(Tool)));
        assert_eq!(Outcome::from_result(false), (Success, None));
        let all = [Success, Failed, Blocked, Denied, Timeout, Cancelled];
        let words = all.map(|o| serde_json::to_string(&o).unwrap()).join(",");
        assert_eq!(
            words,
            r#""SUCCESS","FAILURE","BLOCKED","DENIED","TIMEOUT","CANCELLED""#
        );
    }
}
