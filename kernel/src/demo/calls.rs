//! Calls under way: each is a task that can be taken back.

use std::collections::HashMap;
use std::sync::Arc;

use mgp_protocol::jsonrpc::{ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, RequestId};
use mgp_protocol::mcp::{Meta, Method, Progress};
use mgp_protocol::{jsonrpc, mcp::tools};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::{AbortHandle, JoinSet};

use super::server::{Session, refused};
use super::tools::Tool;

/// Calls at once; one more is refused. More than anybody needs to try things out.
const MAX_CALLS: usize = 64;

/// The calls under way.
#[derive(Default)]
pub(super) struct Calls {
    tasks: JoinSet<RequestId>,
    running: HashMap<RequestId, AbortHandle>,
}

/// One call.
pub(super) struct Call {
    /// The client's id of it.
    pub(super) id: RequestId,
    /// The connection it came on.
    pub(super) session: Arc<Session>,
}

impl Calls {
    /// Starts a call; it answers by itself.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start(&mut self, call: Call, params: String) -> Result<(), ErrorObject> {
        if self.running.len() >= MAX_CALLS {
            let busy = format!("{MAX_CALLS} calls are under way; try again");
            return Err(refused(INTERNAL_ERROR, &busy));
        }
        if self.running.contains_key(&call.id) {
            return Err(refused(
                jsonrpc::INVALID_REQUEST,
                "a call with this id is under way",
            ));
        }
        let id = call.id.clone();
        let task = self.tasks.spawn(async move {
            let outcome = call.run(&params).await;
            call.session.outbox.answer(&call.id, outcome).await;
            call.id
        });
        self.running.insert(id, task);
        Ok(())
    }

    /// Takes a call back: no answer comes any more. Unknown ids are those of calls that ended.
    pub(super) fn cancel(&mut self, id: &RequestId) {
        if let Some(task) = self.running.remove(id) {
            task.abort();
        }
    }

    /// Waits until a call ends; forever when none is under way. May be dropped and called again.
    pub(super) async fn ended(&mut self) {
        match self.tasks.join_next().await {
            Some(Ok(id)) => {
                self.running.remove(&id);
            }
            // It was taken back, and is not among the running ones any more.
            Some(Err(_)) => {}
            None => std::future::pending().await,
        }
    }

    /// Waits until every call has ended.
    pub(super) async fn finish(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

impl Call {
    async fn run(&self, params: &str) -> Result<Value, ErrorObject> {
        let asked: tools::Call<'_> =
            serde_json::from_str(params).map_err(|e| refused(INVALID_PARAMS, &e.to_string()))?;
        let name: String = serde_json::from_str(asked.name.get()).unwrap_or_default();
        let tool = Tool::named(&name)
            .ok_or_else(|| refused(INVALID_PARAMS, &format!("Unknown tool: {name}")))?;
        let meta = asked.meta.map_or("{}", RawValue::get);
        let meta: Meta<'_> = serde_json::from_str(meta).unwrap_or_default();
        let token = meta.progress_token.map(RawValue::get);
        let arguments = asked.arguments.map_or("{}", RawValue::get);
        match tool.call(arguments, &self.session, token).await {
            Ok(result) => Ok(result),
            Err(wrong) if self.session.version.reports_input_errors_as_results() => {
                Ok(json!({"content": [{"type": "text", "text": wrong}], "isError": true}))
            }
            Err(wrong) => Err(refused(INVALID_PARAMS, &wrong)),
        }
    }
}

impl Session {
    /// Tells how far the call with this token is.
    pub(super) async fn progress(&self, token: &str, done: u64, total: u64, message: &str) {
        let message = Value::from(message);
        let params = format!(
            r#"{{"progressToken":{token},"progress":{done},"total":{total},"message":{message}}}"#
        );
        let line = jsonrpc::notification(Progress::METHOD, Some(&params));
        self.outbox.send(line).await;
    }
}
