//! The callbacks that agents are asked: the way of each answer back to who asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_engine::callers::callbacks::{
    CallbackAnswer, NotOpened, OpenCallback, OpenCallbacks, ResponseRefused,
};
use mgp_protocol::mgp::callback::{PendingCallbacks, Respond, Responded};
use mgp_protocol::refusal::Refusal;
use tokio::sync::oneshot;

use crate::request::Caller;
use mgp_runtime::ids::new_id;
use mgp_runtime::time::moment;

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
pub struct AwaitedCallback {
    id: String,
    answer: oneshot::Receiver<CallbackAnswer>,
    all: Callbacks,
}

impl AwaitedCallback {
    /// Its id toward the agent, which cannot be guessed.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Resolves with the answer.
    pub async fn answered(&mut self) -> CallbackAnswer {
        match (&mut self.answer).await {
            Ok(answer) => answer,
            // It was closed: whoever waits has a clock of its own.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for AwaitedCallback {
    fn drop(&mut self) {
        let mut table = self.all.table();
        table.waiting.remove(&self.id);
        table.engine.close(&self.id, moment());
    }
}

impl Callbacks {
    /// Opens a callback; from now on it can be answered.
    ///
    /// # Errors
    /// [`NotOpened`].
    pub fn ask(&self, callback: OpenCallback) -> Result<AwaitedCallback, NotOpened> {
        let id = format!("cb-{}", new_id().as_str());
        let (sender, answer) = oneshot::channel();
        let mut table = self.table();
        table.engine.ask(&id, callback)?;
        table.waiting.insert(id.clone(), sender);
        drop(table);
        let all = self.clone();
        Ok(AwaitedCallback { id, answer, all })
    }

    /// `mgp/callback/respond`: only the connection that was asked answers, for only the person there has
    /// read the question; the stateless requests of an agent in one view are one.
    ///
    /// # Errors
    /// Why the answer is not taken.
    pub fn respond(&self, caller: &Caller, said: &Respond) -> Result<Responded, Refusal> {
        let mut table = self.table();
        let (id, response) = (&said.callback_id, said.response.get());
        let (callback, answer) = table
            .engine
            .respond(id, caller.connection, response, moment())
            .map_err(refused)?;
        if let Some(waiting) = table.waiting.remove(id) {
            let _ = waiting.send(answer);
        }
        Ok(Responded {
            callback_id: id.clone(),
            server_id: callback.asker,
            status: "responded".into(),
        })
    }

    /// `mgp/events/pending_callbacks`: what the caller is asked.
    #[must_use]
    pub fn pending(&self, caller: &Caller) -> PendingCallbacks {
        self.table().engine.pending(caller.connection, moment())
    }

    fn table(&self) -> MutexGuard<'_, CallbackTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(why: ResponseRefused) -> Refusal {
    match why {
        ResponseRefused::Unknown | ResponseRefused::Answered | ResponseRefused::CallOver => {
            Refusal::Gone(why.to_string())
        }
        ResponseRefused::TooLate { .. } => Refusal::TooLate(why.to_string()),
        ResponseRefused::Unfit(words) => Refusal::BadParams(words.to_string()),
    }
}
