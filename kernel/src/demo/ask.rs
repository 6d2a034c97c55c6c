//! `ask_me`: asks the person behind the client for a name and a colour.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use mgp_protocol::dialect::Version;
use mgp_protocol::jsonrpc::{self, RequestId};
use mgp_protocol::mcp::{Cancelled, Method, elicitation};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::server::Session;
use super::tools::{failed, text};

const NOBODY: &str = "I would like to ask you something, but this client cannot be asked.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {}

pub(super) fn definition() -> Value {
    json!({
        "name": "ask_me",
        "title": "Ask me",
        "description": "Asks the person at the client for a name and a favourite colour.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": false},
        "annotations": {"readOnlyHint": true, "idempotentHint": false, "openWorldHint": false},
    })
}

pub(super) async fn call(session: &Session) -> Value {
    if session.version < Version::V2025_06_18 || !session.client.elicitation_form {
        return text(NOBODY);
    }
    let params = json!({
        "message": "Nice to meet you. Who are you?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "title": "Your name", "minLength": 1, "maxLength": 80},
                "colour": {
                    "type": "string",
                    "title": "Favourite colour",
                    "enum": ["red", "green", "blue", "none of these"],
                },
            },
            "required": ["name"],
        },
    });
    match session.ask(&params).await {
        Some(answer) if answer["action"] == "accept" => greet(&answer["content"]),
        Some(_) => text("You would rather not say. That is fine."),
        // A client behind a kernel may turn out to be one that cannot be asked.
        None => text(NOBODY),
    }
}

fn greet(content: &Value) -> Value {
    match (content["name"].as_str(), content["colour"].as_str()) {
        (Some(name), Some(colour)) => text(&format!("Hello {name}, who likes {colour}.")),
        (Some(name), None) => text(&format!("Hello {name}.")),
        (None, _) => failed("The client accepted the question but gave no name."),
    }
}

/// Questions the client has not answered yet, at most one for each call under way.
#[derive(Default)]
pub(super) struct Questions(Mutex<Open>);

#[derive(Default)]
struct Open {
    last: u64,
    waiting: HashMap<u64, oneshot::Sender<Option<Value>>>,
}

impl Questions {
    fn open<T>(&self, change: impl FnOnce(&mut Open) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the client's answer; `None` stands for an error.
    pub(super) fn answer(&self, id: &RequestId, result: Option<&str>) {
        let waiting = id
            .as_u64()
            .and_then(|id| self.open(|open| open.waiting.remove(&id)));
        if let Some(waiting) = waiting {
            // The call may have been taken back meanwhile.
            let _ = waiting.send(result.and_then(|text| serde_json::from_str(text).ok()));
        }
    }
}

/// A question on its way; dropped unanswered, it is taken back.
struct Question<'s> {
    session: &'s Session,
    id: u64,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        let unanswered = self
            .session
            .questions
            .open(|open| open.waiting.remove(&self.id));
        if unanswered.is_some() {
            let params = format!(r#"{{"requestId":{}}}"#, self.id);
            let line = jsonrpc::notification(Cancelled::METHOD, Some(&params));
            self.session.outbox.offer(line);
        }
    }
}

impl Session {
    /// Asks the client; `None` when it answers with an error.
    async fn ask(&self, params: &Value) -> Option<Value> {
        let (sender, answer) = oneshot::channel();
        let id = self.questions.open(|open| {
            open.last += 1;
            open.waiting.insert(open.last, sender);
            open.last
        });
        let _question = Question { session: self, id };
        let method = elicitation::Create::METHOD;
        let line = jsonrpc::request(&id.to_string(), method, Some(&params.to_string()));
        self.outbox.send(line).await;
        answer.await.ok().flatten()
    }
}
