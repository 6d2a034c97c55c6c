//! The end of a log, and how records are added.

use mgp_protocol::mgp::audit::Event;
use serde_json::{Map, Value};

use super::record::{self, EVENT_MAX, RecordDigest};
use super::redact::Redaction;
use super::successful_call::SuccessfulCall;

/// The last record of a log, or of a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The number; 0 before the first.
    pub sequence: u64,
    /// The hash.
    pub hash: RecordDigest,
}

impl Head {
    /// For a log without records.
    pub const START: Self = Self {
        sequence: 0,
        hash: RecordDigest::START,
    };
}

/// A line to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLine {
    /// The record of the line.
    pub head: Head,
    /// The bytes, newline included.
    pub text: Vec<u8>,
}

/// The end of a log, to which records are added. Its owner writes the lines in this order.
#[derive(Clone, Debug)]
pub struct Chain {
    head: Head,
}

impl Chain {
    /// Continues after a record.
    #[must_use]
    pub fn new(head: Head) -> Self {
        Self { head }
    }

    /// The last record.
    #[must_use]
    pub fn head(&self) -> Head {
        self.head
    }

    /// Appends an event. Members of its details are sorted, so that equal events have equal text. If the event exceeds
    /// [`EVENT_MAX`], the details are replaced by their size.
    ///
    /// # Panics
    /// Never: an event is a plain struct, which is always JSON.
    pub fn append(&mut self, mut event: Event) -> AuditLine {
        sort_members(&mut event.details);
        let sequence = self.head.sequence + 1;
        let (text, hash) = record::write_line(sequence, self.head.hash, |line| {
            let start = line.len();
            write_event(line, &event);
            let len = line.len() - start;
            if len > EVENT_MAX {
                line.truncate(start);
                event.details = Map::new();
                let dropped = "details_dropped_bytes".into();
                event.details.insert(dropped, len.into());
                write_event(line, &event);
            }
        });
        self.advance(sequence, text, hash)
    }

    /// Appends a call that succeeded, masked.
    pub fn append_call(&mut self, call: &SuccessfulCall<'_>, redaction: &Redaction) -> AuditLine {
        let sequence = self.head.sequence + 1;
        let (text, hash) = record::write_line(sequence, self.head.hash, |line| {
            call.write_event(redaction, line);
        });
        self.advance(sequence, text, hash)
    }

    fn advance(&mut self, sequence: u64, text: Vec<u8>, hash: RecordDigest) -> AuditLine {
        self.head = Head { sequence, hash };
        AuditLine {
            head: self.head,
            text,
        }
    }
}

fn sort_members(details: &mut Map<String, Value>) {
    if !details.keys().is_sorted() {
        details.sort_keys();
    }
    details.values_mut().for_each(Value::sort_all_objects);
}

fn write_event(line: &mut Vec<u8>, event: &Event) {
    serde_json::to_writer(line, event).expect("an event is always JSON");
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::store::audit::record::AuditRecord;
    use mgp_protocol::mgp::audit::{Actor, ActorKind, EventType, Outcome, Target, TraceId};
    use serde_json::json;

    pub(in crate::store::audit) fn event(details: Value) -> Event {
        Event {
            timestamp: "2026-02-27T12:00:00.000Z".into(),
            trace_id: TraceId::from_random([7; 16]),
            event_type: EventType::ToolExecuted,
            actor: Actor {
                kind: ActorKind::Agent,
                id: "a".into(),
            },
            target: Target::default(),
            result: Outcome::Success,
            details: details.as_object().unwrap().clone(),
        }
    }

    #[test]
    fn equal_events_have_equal_text() {
        let line = |details| Chain::new(Head::START).append(event(details));
        let event = |line: &AuditLine| {
            let record = AuditRecord::parse(line.text.trim_ascii_end()).unwrap();
            record.event.to_owned()
        };
        let one = line(json!({"b": {"y": 1, "x": [{"d": 1, "c": 2}]}, "a": 1}));
        let two = line(json!({"a": 1, "b": {"x": [{"c": 2, "d": 1}], "y": 1}}));
        assert_eq!(one, two);
        assert!(event(&one).ends_with(r#""details":{"a":1,"b":{"x":[{"c":2,"d":1}],"y":1}}}"#));
        assert_eq!(one.head.sequence, 1);
    }

    #[test]
    fn details_that_are_too_long_are_dropped() {
        let line = Chain::new(Head::START).append(event(json!({"long": "x".repeat(EVENT_MAX)})));
        assert!(line.text.len() < 1000);
        let text = String::from_utf8(line.text).unwrap();
        assert!(text.contains("details_dropped_bytes"));
    }
}
