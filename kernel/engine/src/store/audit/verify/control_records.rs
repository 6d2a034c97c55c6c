//! What a log says of itself: how far it was trimmed, that it was found hurt, and that the operator knows.

use mgp_protocol::mgp::audit::EventType;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{BySequence, LogFault, MAX_SPANS, Report};
use crate::store::audit::chain::Head;
use crate::store::audit::record::{AuditRecord, RecordDigest};

/// Most faults that are acknowledged one by one: they stand in one record. A log with more is to be put
/// aside.
pub const ACKNOWLEDGED_MAX: usize = 128;
/// Records of damage that are named; the first of more are.
const DAMAGE_MAX: usize = 1_024;
/// What the types of all these records begin with.
const PREFIX: &str = "dev.cloto.mgp.audit_";

#[derive(Clone, Debug, Default)]
pub(super) struct ControlRecords {
    pub(super) trimmed: Option<Head>,
    damage: Vec<u64>,
    acknowledged: Vec<Value>,
}

#[derive(Deserialize)]
struct ControlEvent {
    event_type: EventType,
    details: Map<String, Value>,
}

impl ControlRecords {
    pub(super) fn record(&mut self, record: &AuditRecord<'_>) {
        if !record.event.contains(PREFIX) {
            return;
        }
        let Ok(said) = serde_json::from_str::<ControlEvent>(record.event) else {
            return;
        };
        let number = |name: &str| said.details.get(name).and_then(Value::as_u64);
        if said.event_type == EventType::LOG_TRIMMED {
            let hash = said.details.get("hash").and_then(Value::as_str);
            let head = number("through").zip(hash.and_then(RecordDigest::parse));
            // A record cannot have trimmed what came after it.
            let past = head.filter(|(through, _)| *through < record.sequence);
            let head = past.map(|(sequence, hash)| Head { sequence, hash });
            self.trimmed = self.trimmed.max_by_sequence(head);
        } else if said.event_type == EventType::LOG_DAMAGED {
            if is_damage(&said.details) && self.damage.len() < DAMAGE_MAX {
                self.damage.push(record.sequence);
            }
        } else if said.event_type == EventType::LOG_ACKNOWLEDGED {
            let through = number("through").unwrap_or(0).min(record.sequence);
            self.damage.retain(|damage| *damage > through);
            if let Some(Value::Array(faults)) = said.details.get("faults") {
                let room = MAX_SPANS.saturating_sub(self.acknowledged.len());
                self.acknowledged.extend(faults.iter().take(room).cloned());
            }
        }
    }

    /// Takes what was acknowledged out of what is wrong.
    pub(super) fn apply_to(self, report: &mut Report) {
        let is_accepted = |fault: &LogFault| self.acknowledged.contains(&acknowledgment(fault));
        let faults = std::mem::take(&mut report.faults);
        (report.acknowledged, report.faults) = faults.into_iter().partition(is_accepted);
        report.damage = self.damage;
    }
}

/// A fault as the record of the operator names it: what it is, of which records, and where.
#[must_use]
pub fn acknowledgment(fault: &LogFault) -> Value {
    let mut fault = fault.to_json();
    if let Some(fault) = fault.as_object_mut() {
        fault.remove("message");
        fault.sort_keys();
    }
    fault
}

/// Whether what was found is more than the piece of a record that was being written when the power went,
/// or events that found no room.
fn is_damage(details: &Map<String, Value>) -> bool {
    let is_end = |fault: &Value| {
        let name = fault.get("fault").and_then(Value::as_str);
        name.is_some_and(|name| name == "torn" || name == "unterminated")
    };
    match details.get("faults") {
        Some(Value::Array(faults)) => !faults.iter().all(is_end),
        Some(_) => true,
        None => !details.contains_key("not_written"),
    }
}
