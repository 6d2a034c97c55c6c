//! The client of one demo connection: its negotiated version and capabilities, and how to reach it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mgp_protocol::dialect::Version;
use mgp_protocol::jsonrpc::{self, ErrorObject, INVALID_PARAMS, RequestId};
use mgp_protocol::mcp::{Cancelled, ClientCapabilities, Method, Progress, elicitation};
use mgp_transports::lines::LineSink;
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// The client of one connection.
pub(super) struct DemoSession {
    /// The negotiated version.
    pub(super) version: Version,
    /// Its capabilities.
    pub(super) client_capabilities: ClientCapabilities,
    /// The folder that may be searched; canonical.
    pub(super) root: PathBuf,
    sink: LineSink,
    callbacks: Mutex<PendingCallbacks>,
}

/// Callbacks without an answer, at most one for each running call.
#[derive(Default)]
struct PendingCallbacks {
    last_id: u64,
    pending: HashMap<u64, oneshot::Sender<Option<Value>>>,
}

impl DemoSession {
    pub(super) fn new(
        version: Version,
        client_capabilities: ClientCapabilities,
        root: PathBuf,
        sink: LineSink,
    ) -> Self {
        Self {
            version,
            client_capabilities,
            root,
            sink,
            callbacks: Mutex::default(),
        }
    }

    /// Reports progress of the call with this token.
    pub(super) fn notify_progress(&self, token: &Value, done: u64, total: u64, message: &str) {
        let params = json!({
            "progressToken": token, "progress": done, "total": total, "message": message,
        });
        self.notify(Progress::METHOD, &params);
    }

    /// Elicits an answer from the user; `None` if the client answers with an error. Cancelled when dropped unanswered.
    pub(super) async fn elicit(&self, params: &Value) -> Option<Value> {
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut questions = self.lock_callbacks();
            questions.last_id += 1;
            let id = questions.last_id;
            questions.pending.insert(id, sender);
            id
        };
        let _open = PendingCallback { session: self, id };
        let (method, params) = (elicitation::Create::METHOD, params.to_string());
        send_line(
            &self.sink,
            jsonrpc::request(&id.to_string(), method, Some(&params)),
        );
        answer.await.ok().flatten()
    }

    /// Receives the client's answer to a callback; `None` for an error.
    pub(super) fn resolve_callback(&self, id: &RequestId, result: Option<&str>) {
        let id = id.as_u64();
        if let Some(waiting) = id.and_then(|id| self.lock_callbacks().pending.remove(&id)) {
            // The call may have been cancelled meanwhile.
            let _ = waiting.send(result.and_then(|text| serde_json::from_str(text).ok()));
        }
    }

    pub(super) fn respond(&self, id: &RequestId, outcome: Result<Value, ErrorObject>) {
        send_response(&self.sink, id, outcome);
    }

    /// Dropped if the queue is full: the client does not read.
    fn notify(&self, method: &str, params: &Value) {
        let line = jsonrpc::notification(method, Some(&params.to_string()));
        let _ = self.sink.send_low_priority(line.into());
    }

    fn lock_callbacks(&self) -> MutexGuard<'_, PendingCallbacks> {
        self.callbacks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A required text of `params`.
pub(super) fn required_text<'p>(params: &'p Value, key: &str) -> Result<&'p str, ErrorObject> {
    let missing = || format!("Invalid params: missing field `{key}`");
    let text = params[key].as_str();
    text.ok_or_else(|| ErrorObject::new(INVALID_PARAMS, missing()))
}

pub(super) fn send_response(sink: &LineSink, id: &RequestId, outcome: Result<Value, ErrorObject>) {
    send_line(
        sink,
        match outcome {
            Ok(result) => jsonrpc::result(id.as_json(), &result.to_string()),
            Err(error) => {
                let error = serde_json::to_string(&error).expect("an error object is always JSON");
                jsonrpc::error(id.as_json(), &error)
            }
        },
    );
}

/// Sends a line. A client that lets the queue fill up does not read, and is disconnected.
pub(super) fn send_line(sink: &LineSink, line: Vec<u8>) {
    if sink.send(line.into()).is_err() {
        sink.close();
    }
}

/// A callback in flight.
struct PendingCallback<'s> {
    session: &'s DemoSession,
    id: u64,
}

impl Drop for PendingCallback<'_> {
    fn drop(&mut self) {
        let unanswered = self.session.lock_callbacks().pending.remove(&self.id);
        if unanswered.is_some() {
            let params = json!({ "requestId": self.id });
            self.session.notify(Cancelled::METHOD, &params);
        }
    }
}
