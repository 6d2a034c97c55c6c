//! Constructors of audit events.

use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::mgp::audit::{Actor, ActorKind, Event, EventType, Outcome, Target, TraceId};
use mgp_runtime::randomness;
use serde_json::{Map, Value};

use mgp_runtime::time::unix_ms;

/// An event with the current time. `details` is an object, or null for none.
#[must_use]
pub fn new_event(
    event_type: EventType,
    actor: Actor,
    target: Target,
    trace: &TraceId,
    result: Outcome,
    details: Value,
) -> Event {
    let details = match details {
        Value::Object(details) => details,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    };
    Event {
        timestamp: render_rfc3339_ms(unix_ms()),
        trace_id: trace.clone(),
        event_type,
        actor,
        target,
        result,
        details,
    }
}

/// The actor of the event is the kernel.
#[must_use]
pub fn kernel_actor() -> Actor {
    Actor {
        kind: ActorKind::Kernel,
        id: "kernel".into(),
    }
}

/// The actor of the event is the person at the kernel's command line.
#[must_use]
pub fn operator_actor() -> Actor {
    Actor {
        kind: ActorKind::Operator,
        id: "operator".into(),
    }
}

/// The actor of the event is an agent.
#[must_use]
pub fn agent_actor(id: &str) -> Actor {
    Actor {
        kind: ActorKind::Agent,
        id: id.into(),
    }
}

/// A file beside the log was damaged or missing; `what` names it, the damage and the remedy taken.
#[must_use]
pub fn state_damaged_event(what: &str) -> Event {
    new_event(
        EventType::STATE_DAMAGED,
        kernel_actor(),
        Target::default(),
        &TraceId::from_random(randomness::random_bytes()),
        Outcome::Failure,
        serde_json::json!({"reason": what}),
    )
}

/// A program has taken over from the kernel before it, or should have.
#[must_use]
pub fn kernel_upgraded_event(result: Outcome, details: Value) -> Event {
    new_event(
        EventType::KERNEL_UPGRADED,
        operator_actor(),
        Target::default(),
        &TraceId::from_random(randomness::random_bytes()),
        result,
        details,
    )
}

/// A file beside the log is used as it is, though it may be incomplete; `what` says why.
#[must_use]
pub fn state_accepted_event(what: &str) -> Event {
    Event {
        result: Outcome::Success,
        ..state_damaged_event(what)
    }
}
