//! The callbacks that agents are asked: the way of each answer back to who asked.

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

/// A callback that waits for its answer. Dropping it closes it.
#[derive(Debug)]
pub struct OpenCallbackGuard {
    id: String,
    answer: oneshot::Receiver<CallbackAnswer>,
    callbacks: Callbacks,
}

impl OpenCallbackGuard {
    /// Its id toward the agent, which cannot be guessed.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Resolves with the answer.
    pub async fn wait_for_answer(&mut self) -> CallbackAnswer {
        match (&mut self.answer).await {
            Ok(answer) => answer,
            // It was closed: whoever waits has a clock of its own.
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
    /// Opens a callback; from now on it can be answered.
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

    /// `mgp/callback/respond`: only the connection that was asked answers, for only the person there has
    /// read the question; the stateless requests of an agent in one view are one.
    ///
    /// # Errors
    /// Why the answer is not taken.
    pub fn respond(&self, caller: &Caller, said: &Respond) -> Result<Responded, Refusal> {
        let mut table = self.lock_table();
        let (id, response) = (&said.callback_id, said.response.get());
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

    /// `mgp/events/pending_callbacks`: what the caller is asked.
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

fn response_refusal(why: ResponseError) -> Refusal {
    match why {
        ResponseError::Unknown | ResponseError::Answered | ResponseError::CallEnded => {
            Refusal::UnknownId(why.to_string())
        }
        ResponseError::TooLate { .. } => Refusal::WindowExpired(why.to_string()),
        ResponseError::Invalid(words) => Refusal::BadParams(words.to_string()),
    }
}
