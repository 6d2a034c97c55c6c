//! The record of a call that succeeded, written without an [`Event`] in between: most records are of this kind.

use std::io::Write;

use mgp_protocol::mgp::audit::{Actor, EventType, Outcome, TraceId};
use serde::Serialize;

use super::record::render_hex;
use super::redact::{RecordedArguments, Redaction};
use crate::timestamps::render_rfc3339_ms;

/// A call that succeeded, and of which nothing is known that these fields do not say. Its text is that of the event
/// with the same content.
#[derive(Debug)]
pub struct SuccessfulCall<'a> {
    /// When it ended, in milliseconds since 1970.
    pub at_ms: u64,
    /// Its trace.
    pub trace: &'a TraceId,
    /// The caller.
    pub actor: Actor,
    /// The server.
    pub server: &'a str,
    /// The tool, by the server's own name.
    pub tool: &'a str,
    /// The name that the caller used, if it is another.
    pub shown_as: Option<&'a str>,
    /// The risk level of the tool.
    pub risk_level: &'a str,
    /// The validators of the tool, separated by commas; empty without any.
    pub validators: String,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// The microseconds of each of its parts, if they are recorded.
    pub parts_us: Option<[(&'static str, u64); 5]>,
    /// Its arguments.
    pub arguments: Option<&'a RecordedArguments>,
}

impl SuccessfulCall<'_> {
    /// Writes the event, masked.
    pub(super) fn write_event(&self, redaction: &Redaction, line: &mut Vec<u8>) {
        let mut members = Members { line };
        members.open("timestamp", &render_rfc3339_ms(self.at_ms));
        members.add("trace_id", self.trace);
        members.add("event_type", EventType::ToolExecuted.as_str());
        members.add("actor", &self.actor);
        members.begin("target");
        members.open("server_id", self.server);
        members.add("tool_name", &redaction.masked_text(self.tool));
        members.end();
        members.add("result", &Outcome::Success);
        members.begin("details");
        self.write_details(redaction, &mut members);
        members.end();
        members.end();
    }

    /// In the order of their names, as all details of events.
    fn write_details(&self, redaction: &Redaction, members: &mut Members<'_>) {
        if let Some(arguments) = self.arguments {
            members.open("arguments_bytes", &arguments.len());
            let digest = render_hex(arguments.digest().as_bytes());
            let digest = std::str::from_utf8(&digest).expect("digits are ASCII");
            members.add("arguments_digest", digest);
            members.add("duration_ms", &self.duration_ms);
        } else {
            members.open("duration_ms", &self.duration_ms);
        }
        if let Some(mut parts) = self.parts_us {
            parts.sort_unstable();
            members.begin("parts_us");
            let mut is_first = true;
            for (part, us) in parts.into_iter().filter(|(_, us)| *us > 0) {
                if std::mem::take(&mut is_first) {
                    members.open(part, &us);
                } else {
                    members.add(part, &us);
                }
            }
            if is_first {
                members.line.push(b'{');
            }
            members.end();
        }
        members.add("risk_level", &redaction.masked_text(self.risk_level));
        if let Some(name) = self.shown_as {
            members.add("shown_as", &redaction.masked_text(name));
        }
        if !self.validators.is_empty() {
            members.add(
                "validator_applied",
                &redaction.masked_text(&self.validators),
            );
        }
    }
}

/// Writes members of objects.
struct Members<'a> {
    line: &'a mut Vec<u8>,
}

impl Members<'_> {
    /// Begins an object with its first member.
    fn open<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        self.line.push(b'{');
        self.value(name, value);
    }

    fn add<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        self.line.push(b',');
        self.value(name, value);
    }

    /// Begins a member whose value is an object.
    fn begin(&mut self, name: &str) {
        write!(self.line, ",\"{name}\":").expect("writing to memory succeeds");
    }

    fn end(&mut self) {
        self.line.push(b'}');
    }

    fn value<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        self.line.push(b'"');
        self.line.extend_from_slice(name.as_bytes());
        self.line.extend_from_slice(b"\":");
        serde_json::to_writer(&mut *self.line, value).expect("texts and numbers are always JSON");
    }
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mgp::audit::{ActorKind, Event, Target};
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::store::audit::chain::{Chain, Head};
    use crate::store::audit::redact::ArgumentRetention;

    const SECRET: &str = "hunter2-hunter2";

    fn redaction() -> Redaction {
        Redaction::new(ArgumentRetention::Digest, &[7; 32], [SECRET.to_owned()])
    }

    /// The line that the event of the same content has.
    fn line_of_event(call: &SuccessfulCall<'_>) -> Vec<u8> {
        let redaction = redaction();
        let mut details = Map::new();
        details.insert("duration_ms".into(), call.duration_ms.into());
        if let Some(parts) = call.parts_us {
            let parts = parts.into_iter().filter(|(_, us)| *us > 0);
            let parts: Map<String, Value> = parts.map(|(p, us)| (p.into(), us.into())).collect();
            details.insert("parts_us".into(), parts.into());
        }
        if let Some(name) = call.shown_as {
            details.insert("shown_as".into(), name.into());
        }
        details.insert("risk_level".into(), call.risk_level.into());
        if !call.validators.is_empty() {
            details.insert("validator_applied".into(), call.validators.clone().into());
        }
        redaction.scrub(&mut details);
        if let Some(arguments) = call.arguments {
            let mut recorded = redaction.render_arguments(arguments);
            recorded.append(&mut details);
            details = recorded;
        }
        let mut tool = call.tool.to_owned();
        redaction.mask_text(&mut tool);
        let event = Event {
            timestamp: render_rfc3339_ms(call.at_ms),
            trace_id: call.trace.clone(),
            event_type: EventType::ToolExecuted,
            actor: call.actor.clone(),
            target: Target {
                server_id: Some(call.server.to_owned()),
                tool_name: Some(tool),
                agent_id: None,
            },
            result: Outcome::Success,
            details,
        };
        Chain::new(Head::START).append(event).text
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            ".{0,40}",
            Just(format!("before {SECRET} after")),
            Just("é".repeat(1_000)),
            Just("a\"b\\c\u{7f}\u{202e}\n".to_owned()),
        ]
    }

    proptest! {
        #[test]
        fn text_equals_that_of_the_event(
            at_ms in 0u64..4_102_444_800_000,
            server in "[a-z.]{1,20}",
            (tool, shown_as, agent) in (text(), proptest::option::of(text()), "[a-z@.]{1,20}"),
            validators in prop_oneof![Just(String::new()), Just("code_safety,sandbox".to_owned())],
            (duration_ms, parts) in (any::<u64>(), proptest::option::of(proptest::array::uniform5(0u64..3))),
            arguments in proptest::option::of(".{0,60}"),
        ) {
            let (trace, redaction) = (TraceId::from_random([9; 16]), redaction());
            let recorded = arguments.map(|text| redaction.argument_recorder().record(&text));
            let names = ["door", "checks", "queue", "server", "answer"];
            let parts_us = parts.map(|us| std::array::from_fn(|at| (names[at], us[at])));
            let actor = Actor { kind: ActorKind::Agent, id: agent };
            let call = SuccessfulCall {
                at_ms,
                trace: &trace,
                actor,
                server: &server,
                tool: &tool,
                shown_as: shown_as.as_deref(),
                risk_level: "dangerous",
                validators,
                duration_ms,
                parts_us,
                arguments: recorded.as_ref(),
            };
            let written = Chain::new(Head::START).append_call(&call, &redaction);
            let (written, wanted) = (String::from_utf8(written.text), String::from_utf8(line_of_event(&call)));
            prop_assert_eq!(written, wanted);
        }
    }

    /// A configured secret that is also a word of the record is masked in both ways.
    #[test]
    fn secret_that_is_a_risk_level_is_masked() {
        let redaction = Redaction::new(ArgumentRetention::Digest, &[7; 32], ["dangerous".into()]);
        let trace = TraceId::from_random([9; 16]);
        let call = SuccessfulCall {
            at_ms: 0,
            trace: &trace,
            actor: Actor {
                kind: ActorKind::Operator,
                id: "operator".into(),
            },
            server: "files",
            tool: "read",
            shown_as: None,
            risk_level: "dangerous",
            validators: String::new(),
            duration_ms: 1,
            parts_us: None,
            arguments: None,
        };
        let mut line = Vec::new();
        call.write_event(&redaction, &mut line);
        let event: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(
            event["details"],
            json!({"duration_ms": 1, "risk_level": "[redacted]"})
        );
    }
}
