//! MCPL records of the audit log (MCPL §13.2): participants, set, inference, outcome. Of a text only its size and hash are
//! recorded.

use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mcpl::McplError;
use mgp_protocol::mgp::audit::{Actor, ActorKind, EventType, Outcome, Target, TraceId};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::randomness;
use mgp_store::audit::{AuditHandle, agent_actor, kernel_actor, new_event, operator_actor};
use serde_json::{Map, Value};

/// Characters of an external name that a record stores.
const NAME_MAX: usize = 256;

/// An operation of MCPL.
#[derive(Clone, Debug)]
pub struct McplRecord<'a> {
    /// The server.
    pub server: &'a ServerId,
    /// The method.
    pub method: &'a str,
    /// The feature set.
    pub feature_set: Option<&'a str>,
    /// The inference.
    pub inference: Option<&'a str>,
    /// The agent.
    pub agent: Option<&'a AgentId>,
    /// Who started it.
    pub actor: McplActor,
    /// The outcome.
    pub outcome: Outcome,
    /// The reason.
    pub reason: Option<&'a str>,
    /// The disclosed text; only its size and hash are stored.
    pub text: Option<&'a [u8]>,
    /// Further details: an object, or null.
    pub details: Value,
}

/// Who started an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McplActor {
    /// The server.
    Server,
    /// The agent.
    Agent,
    /// The operator.
    Operator,
    /// The kernel.
    Kernel,
}

impl<'a> McplRecord<'a> {
    /// A successful operation of a server without an inference.
    #[must_use]
    pub fn from_server(server: &'a ServerId, method: &'a str) -> Self {
        Self {
            server,
            method,
            feature_set: None,
            inference: None,
            agent: None,
            actor: McplActor::Server,
            outcome: Outcome::Success,
            reason: None,
            text: None,
            details: Value::Null,
        }
    }
}

/// Records it, without waiting.
pub fn record(audit: &AuditHandle, record: &McplRecord<'_>) {
    if !audit.is_enabled() {
        return;
    }
    let mut details = match &record.details {
        Value::Object(more) => more.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    };
    let truncate = |text: &str| match text.len() {
        ..=NAME_MAX => text.to_owned(),
        _ => text.chars().take(NAME_MAX).collect(),
    };
    let mut insert = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            details.insert(name.to_owned(), truncate(value).into());
        }
    };
    insert("method", Some(record.method));
    insert("featureSet", record.feature_set);
    insert("inferenceId", record.inference);
    insert("agent_id", record.agent.map(AgentId::as_str));
    insert("reason", record.reason);
    if let Some(text) = record.text {
        details.insert("text_bytes".into(), text.len().into());
        let hash = blake3::hash(text).to_hex();
        details.insert("text_blake3".into(), hash.as_str().into());
    }
    let actor = match (record.actor, record.agent) {
        (McplActor::Agent, Some(agent)) => agent_actor(agent.as_str()),
        (McplActor::Server, _) => Actor {
            kind: ActorKind::Server,
            id: record.server.to_string(),
        },
        (McplActor::Operator, _) => operator_actor(),
        (McplActor::Agent | McplActor::Kernel, _) => kernel_actor(),
    };
    audit.record(new_event(
        EventType::MCPL_OPERATION,
        actor,
        server_target(record.server),
        &TraceId::from_random(randomness::random_bytes()),
        record.outcome,
        Value::Object(details),
    ));
}

/// The server as the target of an event.
#[must_use]
pub(crate) fn server_target(server: &ServerId) -> Target {
    Target {
        server_id: Some(server.to_string()),
        ..Target::default()
    }
}

/// The outcome of an operation with this error: disabled or undeclared features count as denied.
#[must_use]
pub(crate) fn outcome_of_error(error: &McplError) -> Outcome {
    use mgp_protocol::mcpl::error::{
        CAPABILITY_DENIED, CHANNEL_NOT_PERMITTED, NOT_ENABLED, UNKNOWN_SET,
    };
    match error.code {
        NOT_ENABLED | UNKNOWN_SET | CAPABILITY_DENIED | CHANNEL_NOT_PERMITTED => Outcome::Denied,
        _ => Outcome::Failure,
    }
}

/// The outcome of an operation with this refusal.
#[must_use]
pub(crate) fn outcome_of_refusal(refusal: &Refusal) -> Outcome {
    Outcome::from_refusal(refusal).0
}
