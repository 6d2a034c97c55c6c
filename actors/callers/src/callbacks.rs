//! Open callbacks to agents (`mgp/callback`), and the delivery of each answer to its requester.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_engine::callers::callbacks::{
    CallbackAnswer, OpenCallback, OpenCallbackError, OpenCallbacks, ResponseError,
};
use mgp_protocol::mgp::callback::{PendingCallbacks, Respond, Responded};
use mgp_protocol::refusal::Refusal;
use tokio::sync::oneshot;

use crate::request::Caller;
use mgp_runtime::ids::new_session_id;
use mgp_runtime::time::monotonic_now;

/// All open callbacks; bounded by the engine.
#[derive(Debug, Clone, Default)]
pub struct Callbacks(Arc<Mutex<CallbackTable>>);

#[derive(Debug, Default)]
struct CallbackTable {
    engine: OpenCallbacks,
    waiting: HashMap<String, oneshot::Sender<CallbackAnswer>>,
}

/// An open callback. Dropping it closes it.
#[derive(Debug)]
pub struct OpenCallbackGuard {
    id: String,
    answer: oneshot::Receiver<CallbackAnswer>,
    callbacks: Callbacks,
}

impl OpenCallbackGuard {
    /// The id sent to the agent, which cannot be guessed.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Resolves with the answer.
    pub async fn wait_for_answer(&mut self) -> CallbackAnswer {
        match (&mut self.answer).await {
            Ok(answer) => answer,
            // The callback was closed: the waiting task has a deadline of its own.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for OpenCallbackGuard {
    fn drop(&mut self) {
        let mut table = self.callbacks.lock_table();
        table.waiting.remove(&self.id);
        table.engine.close(&self.id, monotonic_now());
    }
}

impl Callbacks {
    /// Opens a callback; it can be answered from now on.
    ///
    /// # Errors
    /// [`OpenCallbackError`].
    pub fn open(&self, callback: OpenCallback) -> Result<OpenCallbackGuard, OpenCallbackError> {
        let id = format!("cb-{}", new_session_id().as_str());
        let (sender, answer) = oneshot::channel();
        let mut table = self.lock_table();
        table.engine.open(&id, callback)?;
        table.waiting.insert(id.clone(), sender);
        drop(table);
        let all = self.clone();
        Ok(OpenCallbackGuard {
            id,
            answer,
            callbacks: all,
        })
    }

    /// Handles `mgp/callback/respond`. Only the connection that received the callback may answer, because
    /// only the person there has read it; the stateless requests of an agent in one view count as one
    /// connection.
    ///
    /// # Errors
    /// Why the answer is rejected.
    pub fn respond(&self, caller: &Caller, response: &Respond) -> Result<Responded, Refusal> {
        let mut table = self.lock_table();
        let (id, response) = (&response.callback_id, response.response.get());
        let (callback, answer) = table
            .engine
            .respond(id, caller.connection, response, monotonic_now())
            .map_err(response_refusal)?;
        if let Some(waiting) = table.waiting.remove(id) {
            let _ = waiting.send(answer);
        }
        Ok(Responded {
            callback_id: id.clone(),
            server_id: callback.requester,
            status: "responded".into(),
        })
    }

    /// Handles `mgp/events/pending_callbacks`: lists the caller's open callbacks.
    #[must_use]
    pub fn pending(&self, caller: &Caller) -> PendingCallbacks {
        self.lock_table()
            .engine
            .pending(caller.connection, monotonic_now())
    }

    fn lock_table(&self) -> MutexGuard<'_, CallbackTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn response_refusal(error: ResponseError) -> Refusal {
    match error {
        ResponseError::Unknown | ResponseError::Answered | ResponseError::CallEnded => {
            Refusal::UnknownId(error.to_string())
        }
        ResponseError::TooLate { .. } => Refusal::WindowExpired(error.to_string()),
        ResponseError::Invalid(words) => Refusal::BadParams(words.to_string()),
    }
}
