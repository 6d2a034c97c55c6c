//! Records of the log about itself: trims, damage, and the operator's acknowledgments.

use mgp_protocol::mgp::audit::EventType;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{BySequence, LogFault, MAX_SPANS, Report};
use crate::store::audit::chain::Head;
use crate::store::audit::record::{AuditRecord, RecordDigest};

/// Most faults acknowledged individually: they share one record. A log with more should be replaced.
pub const ACKNOWLEDGED_MAX: usize = 128;
/// Most reported records of damage; the first ones.
const DAMAGE_MAX: usize = 1_024;
/// The prefix of the types of these records.
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
        let Ok(event) = serde_json::from_str::<ControlEvent>(record.event) else {
            return;
        };
        let number = |name: &str| event.details.get(name).and_then(Value::as_u64);
        if event.event_type == EventType::LOG_TRIMMED {
            let hash = event.details.get("hash").and_then(Value::as_str);
            let head = number("through").zip(hash.and_then(RecordDigest::parse));
            // A record cannot have trimmed later ones.
            let earlier = head.filter(|(through, _)| *through < record.sequence);
            let head = earlier.map(|(sequence, hash)| Head { sequence, hash });
            self.trimmed = self.trimmed.max_by_sequence(head);
        } else if event.event_type == EventType::LOG_DAMAGED {
            if is_damage(&event.details) && self.damage.len() < DAMAGE_MAX {
                self.damage.push(record.sequence);
            }
        } else if event.event_type == EventType::LOG_ACKNOWLEDGED {
            let through = number("through").unwrap_or(0).min(record.sequence);
            self.damage.retain(|damage| *damage > through);
            if let Some(Value::Array(faults)) = event.details.get("faults") {
                let capacity = MAX_SPANS.saturating_sub(self.acknowledged.len());
                self.acknowledged
                    .extend(faults.iter().take(capacity).cloned());
            }
        }
    }

    /// Moves acknowledged faults out of the faults of the report.
    pub(super) fn apply_to(self, report: &mut Report) {
        let is_acknowledged = |fault: &LogFault| self.acknowledged.contains(&acknowledgment(fault));
        let faults = std::mem::take(&mut report.faults);
        (report.acknowledged, report.faults) = faults.into_iter().partition(is_acknowledged);
        report.damage = self.damage;
    }
}

/// A fault as the operator's record contains it: its kind, records and offset.
#[must_use]
pub fn acknowledgment(fault: &LogFault) -> Value {
    let mut fault = fault.to_json();
    if let Some(fault) = fault.as_object_mut() {
        fault.remove("message");
        fault.sort_keys();
    }
    fault
}

/// Whether the record reports more than a torn end after a power cut, or events that were dropped.
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
