//! The kernel's own channels (MGP §13.5), and the mapping of audit records to them.

use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::audit::{ActorKind, Event, EventType, Outcome};
use mgp_protocol::mgp::events::Severity;
use serde_json::{Map, Value, json};

/// A channel of the kernel's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelChannel {
    /// `system.server_state`.
    ServerState,
    /// `system.lists_changed`.
    ListsChanged,
    /// `system.resources`.
    Resources,
    /// `system.server_connected`.
    ServerConnected,
    /// `system.server_disconnected`.
    ServerDisconnected,
    /// `system.server_registered`.
    ServerRegistered,
    /// `system.server_deregistered`.
    ServerDeregistered,
    /// `system.audit_log`.
    AuditLog,
    /// `system.cluster`.
    Cluster,
    /// `tool.started`.
    ToolStarted,
    /// `tool.completed`.
    ToolCompleted,
    /// `tool.failed`.
    ToolFailed,
    /// `tool.retried`.
    ToolRetried,
    /// `tool.created`.
    ToolCreated,
    /// `security.access_denied`.
    AccessDenied,
    /// `security.call_blocked`.
    CallBlocked,
    /// `security.validation_failed`.
    ValidationFailed,
    /// `security.code_rejected`.
    CodeRejected,
    /// `security.access_changed`.
    AccessChanged,
    /// `security.permission_changed`.
    PermissionChanged,
    /// `security.tool_changed`.
    ToolChanged,
    /// `security.agents_changed`.
    AgentsChanged,
}

use KernelChannel as Of;

impl KernelChannel {
    /// Sorted by name.
    pub const ALL: [Self; 22] = [
        Self::AccessChanged,
        Self::AccessDenied,
        Self::AgentsChanged,
        Self::CallBlocked,
        Self::CodeRejected,
        Self::PermissionChanged,
        Self::ToolChanged,
        Self::ValidationFailed,
        Self::AuditLog,
        Self::Cluster,
        Self::ListsChanged,
        Self::Resources,
        Self::ServerConnected,
        Self::ServerDeregistered,
        Self::ServerDisconnected,
        Self::ServerRegistered,
        Self::ServerState,
        Self::ToolCompleted,
        Self::ToolCreated,
        Self::ToolFailed,
        Self::ToolRetried,
        Self::ToolStarted,
    ];

    /// Its name, its description, and whether its events are audit records.
    const fn definition(self) -> (&'static str, &'static str, bool) {
        match self {
            Self::ServerState => (
                "system.server_state",
                "a server went from one state to another",
                false,
            ),
            Self::ListsChanged => (
                "system.lists_changed",
                "what a server offers changed",
                false,
            ),
            Self::Resources => (
                "system.resources",
                "what the processes of a server use changed notably, or came near its limits",
                false,
            ),
            Self::ServerConnected => ("system.server_connected", "a server connected", true),
            Self::ServerDisconnected => {
                ("system.server_disconnected", "a server disconnected", true)
            }
            Self::ServerRegistered => (
                "system.server_registered",
                "a server was registered while the kernel runs",
                true,
            ),
            Self::ServerDeregistered => (
                "system.server_deregistered",
                "a registered server was taken out",
                true,
            ),
            Self::AuditLog => (
                "system.audit_log",
                "the audit log or a file beside it was hurt, mended or acknowledged",
                true,
            ),
            Self::Cluster => (
                "system.cluster",
                "who is in the cluster changed, or who wants to be",
                true,
            ),
            Self::ToolStarted => ("tool.started", "a call left for its server", false),
            Self::ToolCompleted => ("tool.completed", "a call was answered", true),
            Self::ToolFailed => (
                "tool.failed",
                "a call failed, was cancelled, or got no answer in time",
                true,
            ),
            Self::ToolRetried => ("tool.retried", "the kernel makes a call again", true),
            Self::ToolCreated => (
                "tool.created",
                "a tool came from an active tool request",
                true,
            ),
            Self::AccessDenied => (
                "security.access_denied",
                "a call of a tool that is not there for its caller",
                true,
            ),
            Self::CallBlocked => (
                "security.call_blocked",
                "a call was not made because of what it said, or how often",
                true,
            ),
            Self::ValidationFailed => (
                "security.validation_failed",
                "a validator rejected the arguments of a call",
                true,
            ),
            Self::CodeRejected => (
                "security.code_rejected",
                "code in the arguments of a call was rejected",
                true,
            ),
            Self::AccessChanged => (
                "security.access_changed",
                "an agent's access was given or taken back",
                true,
            ),
            Self::PermissionChanged => (
                "security.permission_changed",
                "a permission of a server was approved, denied or taken back",
                true,
            ),
            Self::ToolChanged => (
                "security.tool_changed",
                "a tool is not what was approved, or was approved or denied as it is",
                true,
            ),
            Self::AgentsChanged => (
                "security.agents_changed",
                "an agent was added, renewed or removed",
                true,
            ),
        }
    }

    /// The name in subscriptions.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.definition().0
    }

    /// A description of its events.
    #[must_use]
    pub const fn description(self) -> &'static str {
        self.definition().1
    }

    /// Whether its events are audit records: then their cursor is the record's number and survives a restart.
    #[must_use]
    pub const fn is_logged(self) -> bool {
        self.definition().2
    }

    /// Whether agents may receive any of its events.
    #[must_use]
    pub const fn is_visible_to_agents(self) -> bool {
        match self {
            Self::ServerState
            | Self::ListsChanged
            | Self::Resources
            | Self::ServerConnected
            | Self::ServerDisconnected
            | Self::ToolStarted
            | Self::ToolCompleted
            | Self::ToolFailed
            | Self::ToolRetried
            | Self::AccessDenied
            | Self::CallBlocked
            | Self::ValidationFailed
            | Self::CodeRejected => true,
            Self::ServerRegistered
            | Self::ServerDeregistered
            | Self::AuditLog
            | Self::Cluster
            | Self::ToolCreated
            | Self::AccessChanged
            | Self::PermissionChanged
            | Self::ToolChanged
            | Self::AgentsChanged => false,
        }
    }

    /// By its name.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|channel| channel.name() == name)
    }
}

/// Who may receive an event, besides the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventScope {
    /// Agents that may use this server and have it in their view.
    pub server: Option<ServerId>,
    /// This agent only.
    pub agent: Option<AgentId>,
    /// No agent.
    pub operator_only: bool,
}

impl EventScope {
    /// Agents that may use the server.
    #[must_use]
    pub fn for_server(server: ServerId) -> Self {
        Self {
            server: Some(server),
            ..Self::default()
        }
    }

    fn for_operator() -> Self {
        Self {
            operator_only: true,
            ..Self::default()
        }
    }
}

/// An event of the kernel's own.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelEvent {
    /// Its channel.
    pub channel: KernelChannel,
    /// Its severity.
    pub severity: Severity,
    /// Who may receive it.
    pub scope: EventScope,
    /// In ISO 8601.
    pub timestamp: String,
    /// The data for the operator.
    pub data: Value,
    /// The data for agents; `data` if `None`.
    pub for_agents: Option<Value>,
}

impl KernelEvent {
    /// The event for an audit record, if it has one.
    #[must_use]
    pub fn from_record(record: &Event) -> Option<Self> {
        let (channel, severity) = classify(record)?;
        let (scope, for_agents) = audience(channel, record);
        Some(Self {
            channel,
            severity,
            scope,
            timestamp: record.timestamp.clone(),
            data: event_data(record),
            for_agents,
        })
    }
}

fn classify(record: &Event) -> Option<(KernelChannel, Severity)> {
    use Severity::{Info, Warning};
    Some(match &record.event_type {
        EventType::ToolExecuted => match record.result {
            Outcome::Success => (Of::ToolCompleted, Info),
            Outcome::Failure
            | Outcome::Timeout
            | Outcome::Cancelled
            | Outcome::Blocked
            | Outcome::Denied => (Of::ToolFailed, Warning),
        },
        // Agents must not be able to distinguish an unknown tool from a denied one.
        EventType::ToolBlocked
            if record.result == Outcome::Denied || record.target.server_id.is_none() =>
        {
            (Of::AccessDenied, Warning)
        }
        EventType::ToolBlocked => (Of::CallBlocked, Warning),
        EventType::ValidationFailed => (Of::ValidationFailed, Warning),
        EventType::CodeRejected => (Of::CodeRejected, Warning),
        EventType::PermissionGranted
        | EventType::PermissionDenied
        | EventType::PermissionRevoked => (Of::PermissionChanged, Info),
        EventType::AccessGranted | EventType::AccessRevoked => (Of::AccessChanged, Info),
        // The record of the call itself is announced.
        EventType::ToolRejected => return None,
        EventType::TrustLevelDowngradedNoSeal => (Of::ServerConnected, Warning),
        EventType::ServerConnected => (Of::ServerConnected, Info),
        EventType::ServerDisconnected => (Of::ServerDisconnected, Warning),
        EventType::RiskLevelOverride => (Of::ToolChanged, Warning),
        EventType::ToolCreatedDynamic => (Of::ToolCreated, Info),
        custom @ EventType::Custom(_) => {
            let (_, channel, severity) = EVENT_CHANNELS
                .into_iter()
                .find(|(known, ..)| known == custom)?;
            (channel, severity)
        }
    })
}

/// `details` of an instance's record: its agent.
const INSTANCE_OF: &str = "instance_of";

const EVENT_CHANNELS: [(EventType, KernelChannel, Severity); 15] = [
    (EventType::TOOL_RETRIED, Of::ToolRetried, Severity::Info),
    (EventType::TOOL_CHANGED, Of::ToolChanged, Severity::Warning),
    (EventType::TOOL_APPROVED, Of::ToolChanged, Severity::Info),
    (EventType::TOOL_DENIED, Of::ToolChanged, Severity::Info),
    (
        EventType::SERVER_REGISTERED,
        Of::ServerRegistered,
        Severity::Info,
    ),
    (
        EventType::SERVER_DEREGISTERED,
        Of::ServerDeregistered,
        Severity::Info,
    ),
    (EventType::AGENT_ADDED, Of::AgentsChanged, Severity::Info),
    (EventType::AGENT_RENEWED, Of::AgentsChanged, Severity::Info),
    (EventType::AGENT_REMOVED, Of::AgentsChanged, Severity::Info),
    (EventType::LOG_DAMAGED, Of::AuditLog, Severity::Error),
    (EventType::STATE_DAMAGED, Of::AuditLog, Severity::Error),
    (EventType::LOG_ACKNOWLEDGED, Of::AuditLog, Severity::Info),
    (EventType::LOG_RESUMED, Of::AuditLog, Severity::Warning),
    (EventType::CLUSTER_CHANGED, Of::Cluster, Severity::Info),
    (EventType::NODE_PAIRING, Of::Cluster, Severity::Info),
];

/// Who may receive a record, and the data for agents. An agent gets events of its own calls and of servers that it may use;
/// all others are for the operator.
fn audience(channel: KernelChannel, record: &Event) -> (EventScope, Option<Value>) {
    let server = record.target.server_id.clone().map(ServerId::new);
    let agent =
        (record.actor.kind == ActorKind::Agent).then(|| AgentId::new(record.actor.id.as_str()));
    match channel {
        Of::ToolStarted
        | Of::ToolCompleted
        | Of::ToolFailed
        | Of::ToolRetried
        | Of::CallBlocked
        | Of::ValidationFailed
        | Of::CodeRejected => {
            let operator_only = agent.is_none();
            let scope = EventScope {
                server,
                agent,
                operator_only,
            };
            (scope, Some(own_call_data(record)))
        }
        // Names neither the server nor the tool, because the caller may not know them.
        Of::AccessDenied => {
            let operator_only = agent.is_none();
            let scope = EventScope {
                server: None,
                agent,
                operator_only,
            };
            let data = json!({"trace_id": record.trace_id, "result": Outcome::Denied});
            (scope, Some(data))
        }
        Of::ServerConnected | Of::ServerDisconnected => {
            let Some(server) = server else {
                return (EventScope::for_operator(), None);
            };
            let data = json!({"server_id": server.as_str()});
            let mut scope = EventScope::for_server(server);
            // Other agents must not learn of calls from the start and stop of an agent's instance.
            scope.agent = record.details.get(INSTANCE_OF).map(|agent| {
                let agent = agent.as_str().unwrap_or_default();
                AgentId::new(agent)
            });
            (scope, Some(data))
        }
        Of::ServerState
        | Of::ListsChanged
        | Of::Resources
        | Of::ServerRegistered
        | Of::ServerDeregistered
        | Of::AuditLog
        | Of::Cluster
        | Of::ToolCreated
        | Of::AccessChanged
        | Of::PermissionChanged
        | Of::ToolChanged
        | Of::AgentsChanged => (EventScope::for_operator(), None),
    }
}

/// A record without its timestamp, which the event has itself.
fn event_data(record: &Event) -> Value {
    let mut data = serde_json::to_value(record).unwrap_or_default();
    if let Some(members) = data.as_object_mut() {
        members.remove("timestamp");
    }
    data
}

/// The data of an agent's own call: the target and the outcome, but not the reasons of decisions.
fn own_call_data(record: &Event) -> Value {
    let mut data = Map::new();
    let mut add = |name: &str, value: Value| drop(data.insert(name.into(), value));
    add("trace_id", json!(record.trace_id));
    add("server_id", json!(record.target.server_id));
    add("tool_name", json!(record.target.tool_name));
    add("result", json!(record.result));
    for name in ["duration_ms", "failure"] {
        if let Some(value) = record.details.get(name) {
            add(name, value.clone());
        }
    }
    Value::Object(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgp_protocol::mgp::audit::{Actor, Target, TraceId};
    use std::collections::BTreeSet;

    fn record(event_type: EventType, result: Outcome, server: Option<&str>) -> Event {
        let details = json!({"duration_ms": 5, "reason": "denied: secret rule"});
        Event {
            timestamp: "2026-02-27T12:00:00.000Z".into(),
            trace_id: TraceId::parse("550e8400-e29b-41d4-a716-446655440000").unwrap(),
            event_type,
            actor: Actor {
                kind: ActorKind::Agent,
                id: "agent.a".into(),
            },
            target: Target {
                server_id: server.map(Into::into),
                tool_name: Some("secret_tool".into()),
                agent_id: None,
            },
            result,
            details: details.as_object().unwrap().clone(),
        }
    }

    #[test]
    fn names_are_distinct_and_sorted() {
        let names: Vec<_> = Of::ALL.map(Of::name).into();
        let sorted: BTreeSet<_> = names.iter().copied().collect();
        assert_eq!(names, Vec::from_iter(sorted));
        for channel in Of::ALL {
            assert_eq!(Of::from_name(channel.name()), Some(channel));
        }
    }

    /// MGP-184
    #[test]
    fn each_record_maps_to_its_channel() {
        let channel = |event_type, result| {
            let event = KernelEvent::from_record(&record(event_type, result, Some("s")));
            event.map(|event| event.channel.name())
        };
        assert_eq!(
            channel(EventType::ToolExecuted, Outcome::Success),
            Some("tool.completed")
        );
        assert_eq!(
            channel(EventType::ToolExecuted, Outcome::Timeout),
            Some("tool.failed")
        );
        assert_eq!(
            channel(EventType::ToolBlocked, Outcome::Denied),
            Some("security.access_denied")
        );
        assert_eq!(
            channel(EventType::ToolBlocked, Outcome::Blocked),
            Some("security.call_blocked")
        );
        assert_eq!(channel(EventType::SERVER_REPORTED, Outcome::Success), None);
    }

    /// An agent cannot tell a tool that is denied from one that does not exist.
    #[test]
    fn hidden_and_unknown_tools_cause_equal_events_for_agents() {
        let hidden = record(EventType::ToolBlocked, Outcome::Denied, Some("hidden"));
        let unknown = record(EventType::ToolBlocked, Outcome::Blocked, None);
        let [hidden, unknown] = [hidden, unknown].map(|r| KernelEvent::from_record(&r).unwrap());
        assert_eq!(hidden.channel, unknown.channel);
        assert_eq!(hidden.severity, unknown.severity);
        assert_eq!(hidden.scope, unknown.scope);
        assert_eq!(hidden.for_agents, unknown.for_agents);
        assert!(
            hidden.data.to_string().contains("secret"),
            "the operator gets all data"
        );
    }

    #[test]
    fn agents_get_events_of_their_own_calls_without_decisions() {
        let event = KernelEvent::from_record(&record(
            EventType::ToolExecuted,
            Outcome::Success,
            Some("s"),
        ));
        let event = event.unwrap();
        assert_eq!(event.scope.agent, Some(AgentId::new("agent.a")));
        assert_eq!(event.scope.server, Some(ServerId::new("s")));
        let data = event.for_agents.unwrap();
        assert_eq!(data["duration_ms"], 5);
        assert!(data.get("details").is_none() && !data.to_string().contains("rule"));
        let mut own = record(EventType::ServerConnected, Outcome::Success, Some("s"));
        own.details.insert("instance_of".into(), json!("agent.b"));
        let scope = KernelEvent::from_record(&own).unwrap().scope;
        assert_eq!(
            scope.agent,
            Some(AgentId::new("agent.b")),
            "of its own instance"
        );
        let granted = record(EventType::AccessGranted, Outcome::Success, Some("s"));
        assert!(
            KernelEvent::from_record(&granted)
                .unwrap()
                .scope
                .operator_only
        );
    }
}
