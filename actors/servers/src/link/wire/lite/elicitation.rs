//! Elicitations for lite servers: the input that a call needs is requested from its caller (A-37).

use std::sync::{Arc, MutexGuard, PoisonError};

use bytes::Bytes;
use mgp_json::{member, members, quote, render_object};
use mgp_protocol::jsonrpc::{self, Message, RequestId};
use mgp_runtime::ids::new_session_id;
use tokio::sync::oneshot;

use super::answer::InputNeed;
use super::{LiteWire, PendingElicitations};
use crate::link::Link;

/// The outcome of an elicitation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ElicitationAnswer {
    /// The additional arguments, as the JSON text of an object.
    Provided(String),
    /// The person declined.
    Declined,
    /// The caller does not support elicitation.
    Unsupported,
}

impl LiteWire {
    /// Sends an elicitation to the caller of the call `id`.
    pub(super) async fn ask(
        &self,
        link: &Arc<Link>,
        id: u64,
        need: &InputNeed,
    ) -> ElicitationAnswer {
        let Some(schema) = &need.schema else {
            return ElicitationAnswer::Unsupported;
        };
        let own = new_session_id().as_str().to_owned();
        let (answered, answer) = oneshot::channel();
        self.lock_elicitations()
            .insert(own.as_str().into(), answered);
        let _forget = ElicitationGuard {
            wire: self,
            id: &own,
        };
        let message = need.message.as_deref().unwrap_or(DEFAULT_MESSAGE);
        let params = format!(
            r#"{{"message":{},"requestedSchema":{schema}}}"#,
            quote(message)
        );
        let frame = jsonrpc::request(&quote(&own), "elicitation/create", Some(&params));
        link.receive(&Bytes::from(frame), Some(id));
        answer.await.unwrap_or(ElicitationAnswer::Unsupported)
    }

    /// Handles the caller's answer to an elicitation. Other messages do not exist in MCP-lite.
    pub(in crate::link) fn handle_message(&self, frame: &Bytes) {
        let Ok(Message::Response {
            id: Some(id),
            outcome,
        }) = jsonrpc::parse(frame)
        else {
            return;
        };
        let Some(waits) = id_text(&id).and_then(|own| self.lock_elicitations().remove(&*own))
        else {
            return;
        };
        let answer = match outcome {
            Ok(result) => parse_answer(result.get()),
            Err(_) => ElicitationAnswer::Unsupported,
        };
        let _ = waits.send(answer);
    }

    fn lock_elicitations(&self) -> MutexGuard<'_, PendingElicitations> {
        self.elicitations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The message if the server sends none.
const DEFAULT_MESSAGE: &str = "This tool needs more before it can go on.";

/// Removes the elicitation with its call.
struct ElicitationGuard<'a> {
    wire: &'a LiteWire,
    id: &'a str,
}

impl Drop for ElicitationGuard<'_> {
    fn drop(&mut self) {
        self.wire.lock_elicitations().remove(self.id);
    }
}

fn id_text(id: &RequestId) -> Option<String> {
    serde_json::from_str(id.as_json()).ok()
}

fn parse_answer(result: &str) -> ElicitationAnswer {
    match member(result, "action") {
        Some("\"accept\"") => {
            let content = member(result, "content").filter(|content| content.starts_with('{'));
            ElicitationAnswer::Provided(content.unwrap_or("{}").to_owned())
        }
        _ => ElicitationAnswer::Declined,
    }
}

/// Merges the given arguments into the call's, limited to those that the schema names.
pub(super) fn merge_arguments(arguments: &str, given: &str, schema: &str) -> String {
    let properties = member(schema, "properties").and_then(members);
    let properties = properties.unwrap_or_default();
    let given = members(given).unwrap_or_default();
    let given: Vec<_> = given
        .into_iter()
        .filter(|(name, _)| properties.iter().any(|(known, _)| known == name))
        .collect();
    let before = members(arguments).unwrap_or_default();
    let unchanged = before
        .into_iter()
        .filter(|(name, _)| !given.iter().any(|(new, _)| new == name));
    let all = unchanged.chain(given.iter().cloned());
    render_object(all.map(|(name, value)| (name, value.get())))
}

/// The result for a caller that cannot be asked or did not answer.
pub(super) fn render_unanswered(need: &InputNeed, answer: &ElicitationAnswer) -> String {
    let message = need.message.as_deref().unwrap_or(DEFAULT_MESSAGE);
    if *answer == ElicitationAnswer::Declined {
        return format!(
            "Not done: the tool asked for more, and the answer was no. It asked: {message}"
        );
    }
    match &need.schema {
        Some(schema) => format!(
            "Not done yet: the tool needs more. {message}\nCall it again with the same arguments and with those \
             that this schema describes: {schema}"
        ),
        None => format!("Not done yet: the tool needs more. {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LITE-076: the requested arguments are added exactly, and nothing else.
    #[test]
    fn only_requested_arguments_are_merged() {
        let schema = r#"{"type":"object","properties":{"size":{"type":"number"},"why":{}}}"#;
        let arguments = r#"{"item":"shoe", "size":null,"big":12345678901234567890123}"#;
        let given = r#"{"size":1.0e1,"admin":true,"w\u0068y":"x"}"#;
        assert_eq!(
            merge_arguments(arguments, given, schema),
            r#"{"item":"shoe","big":12345678901234567890123,"size":1.0e1,"why":"x"}"#
        );
        assert_eq!(merge_arguments("{}", "{}", "{}"), "{}");
    }

    #[test]
    fn only_accepted_answers_provide_arguments() {
        let accepted = r#"{"action":"accept","content":{"a":1}}"#;
        assert_eq!(
            parse_answer(accepted),
            ElicitationAnswer::Provided(r#"{"a":1}"#.into())
        );
        assert_eq!(
            parse_answer(r#"{"action":"accept"}"#),
            ElicitationAnswer::Provided("{}".into())
        );
        for declined in [
            r#"{"action":"decline"}"#,
            r#"{"action":"cancel","content":{"a":1}}"#,
            "{}",
        ] {
            assert_eq!(
                parse_answer(declined),
                ElicitationAnswer::Declined,
                "{declined}"
            );
        }
    }
}
