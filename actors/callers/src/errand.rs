//! A call that goes on without its request: suspended until its client answers a question, or run as a
//! task.

use std::sync::{Arc, Mutex, PoisonError};

use crate::exchange::{Exchange, Flag};
use crate::request::{Answering, Outcome};

/// One such call.
#[derive(Debug)]
pub struct BackgroundCall {
    /// The call's own state.
    pub exchange: Arc<Exchange>,
    outcome: Mutex<Option<Outcome>>,
    done: Flag,
}

impl BackgroundCall {
    /// Lets the call go on by itself.
    #[must_use]
    pub fn begin(exchange: Arc<Exchange>, answering: Answering) -> Arc<Self> {
        let background = Arc::new(Self {
            exchange,
            outcome: Mutex::new(None),
            done: Flag::default(),
        });
        let own = background.clone();
        tokio::spawn(async move {
            let outcome = answering.await;
            *own.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            own.done.raise();
        });
        background
    }

    /// Resolves when the call has its answer.
    pub async fn outcome(&self) -> Outcome {
        self.done.raised().await;
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.clone().expect("it is there before the flag is up")
    }
}
