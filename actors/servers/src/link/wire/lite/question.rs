//! What a lite server needs is asked of the caller, in the words of an elicitation (A-37).

use std::sync::{Arc, MutexGuard, PoisonError};

use bytes::Bytes;
use mgp_protocol::jsonrpc::{self, Message, RequestId};
use mgp_protocol::splice::{member, members, quoted};
use mgp_runtime::ids::new_id;
use tokio::sync::oneshot;

use super::answer::ForeignNeed;
use super::{LiteQuestions, LiteWire};
use crate::link::Link;

/// What became of a question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallersAnswer {
    /// The arguments to be added, as the JSON text of an object.
    Given(String),
    /// The person does not want to say it.
    Declined,
    /// The caller cannot be asked.
    Unasked,
}

impl LiteWire {
    /// Asks the caller of the call `id`.
    pub(super) async fn ask(&self, link: &Arc<Link>, id: u64, need: &ForeignNeed) -> CallersAnswer {
        let Some(schema) = &need.schema else {
            return CallersAnswer::Unasked;
        };
        let own = new_id().as_str().to_owned();
        let (answered, answer) = oneshot::channel();
        self.questions().insert(own.as_str().into(), answered);
        let _forget = ForgetForeign {
            wire: self,
            own: &own,
        };
        let message = need.message.as_deref().unwrap_or(NO_WORDS);
        let params = format!(
            r#"{{"message":{},"requestedSchema":{schema}}}"#,
            quoted(message)
        );
        let frame = jsonrpc::request(&quoted(&own), "elicitation/create", Some(&params));
        link.receive(&Bytes::from(frame), Some(id));
        answer.await.unwrap_or(CallersAnswer::Unasked)
    }

    /// An answer of the caller. Of anything else a lite server cannot be told.
    pub(in crate::link) fn tell(&self, frame: &Bytes) {
        let Ok(Message::Response {
            id: Some(id),
            outcome,
        }) = jsonrpc::parse(frame)
        else {
            return;
        };
        let Some(waits) = named(&id).and_then(|own| self.questions().remove(&*own)) else {
            return;
        };
        let answer = match outcome {
            Ok(result) => read(result.get()),
            Err(_) => CallersAnswer::Unasked,
        };
        let _ = waits.send(answer);
    }

    fn questions(&self) -> MutexGuard<'_, LiteQuestions> {
        self.questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is asked where the server says no words.
const NO_WORDS: &str = "This tool needs more before it can go on.";

/// The question is forgotten with its call.
struct ForgetForeign<'a> {
    wire: &'a LiteWire,
    own: &'a str,
}

impl Drop for ForgetForeign<'_> {
    fn drop(&mut self) {
        self.wire.questions().remove(self.own);
    }
}

fn named(id: &RequestId) -> Option<String> {
    serde_json::from_str(id.as_json()).ok()
}

fn read(result: &str) -> CallersAnswer {
    match member(result, "action") {
        Some("\"accept\"") => {
            let content = member(result, "content").filter(|content| content.starts_with('{'));
            CallersAnswer::Given(content.unwrap_or("{}").to_owned())
        }
        _ => CallersAnswer::Declined,
    }
}

/// The arguments with those that were asked for: of an answer only what the schema names.
pub(super) fn merged(arguments: &str, given: &str, schema: &str) -> String {
    let asked = member(schema, "properties").and_then(members);
    let asked = asked.unwrap_or_default();
    let given = members(given).unwrap_or_default();
    let given: Vec<_> = given
        .into_iter()
        .filter(|(name, _)| asked.iter().any(|(known, _)| known == name))
        .collect();
    let before = members(arguments).unwrap_or_default();
    let kept = before
        .into_iter()
        .filter(|(name, _)| !given.iter().any(|(new, _)| new == name));
    let all: Vec<String> = kept
        .chain(given.iter().cloned())
        .map(|(name, value)| format!("{}:{}", quoted(&name), value.get()))
        .collect();
    format!("{{{}}}", all.join(","))
}

/// What a caller that cannot be asked, or does not answer, reads as the result.
pub(super) fn needed(need: &ForeignNeed, answer: &CallersAnswer) -> String {
    let message = need.message.as_deref().unwrap_or(NO_WORDS);
    if *answer == CallersAnswer::Declined {
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

    /// LITE-076: what was asked for is added, to the digit, and nothing else.
    #[test]
    fn only_what_was_asked_for_is_added() {
        let schema = r#"{"type":"object","properties":{"size":{"type":"number"},"why":{}}}"#;
        let arguments = r#"{"item":"shoe", "size":null,"big":12345678901234567890123}"#;
        let given = r#"{"size":1.0e1,"admin":true,"w\u0068y":"x"}"#;
        assert_eq!(
            merged(arguments, given, schema),
            r#"{"item":"shoe","big":12345678901234567890123,"size":1.0e1,"why":"x"}"#
        );
        assert_eq!(merged("{}", "{}", "{}"), "{}");
    }

    #[test]
    fn an_answer_is_accepted_or_it_is_none() {
        let accepted = r#"{"action":"accept","content":{"a":1}}"#;
        assert_eq!(read(accepted), CallersAnswer::Given(r#"{"a":1}"#.into()));
        assert_eq!(
            read(r#"{"action":"accept"}"#),
            CallersAnswer::Given("{}".into())
        );
        for no in [
            r#"{"action":"decline"}"#,
            r#"{"action":"cancel","content":{"a":1}}"#,
            "{}",
        ] {
            assert_eq!(read(no), CallersAnswer::Declined, "{no}");
        }
    }
}
