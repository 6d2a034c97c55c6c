//! A call that continues without its request: suspended until its client answers a callback, or as a task.

use std::sync::{Arc, Mutex, PoisonError};

use super::{GuardedAnswer, Outcome};
use crate::in_flight_call::{Flag, InFlightCall};
use mgp_runtime::task;

/// A call that runs without its request.
#[derive(Debug)]
pub struct BackgroundCall {
    /// The call.
    pub call: Arc<InFlightCall>,
    outcome: Mutex<Option<Outcome>>,
    done: Flag,
}

impl BackgroundCall {
    /// Continues the call as a task of the runtime.
    #[must_use]
    pub fn start(call: Arc<InFlightCall>, answering: GuardedAnswer) -> Arc<Self> {
        let background = Arc::new(Self {
            call,
            outcome: Mutex::new(None),
            done: Flag::default(),
        });
        let running = background.clone();
        task::spawn_detached("calls.background", async move {
            let outcome = answering.await;
            *running
                .outcome
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            running.done.raise();
        });
        background
    }

    /// Resolves when the call has its answer.
    pub async fn wait_for_outcome(&self) -> Outcome {
        self.done.wait_until_raised().await;
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.clone().expect("it is there before the flag is up")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::in_flight_call::ReplyPath;
    use mgp_protocol::refusal::Refusal;

    #[tokio::test(start_paused = true)]
    async fn panicking_call_resolves_with_an_outcome() {
        let answering = GuardedAnswer::new(|| {
            Box::pin(async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                panic!("injected panic")
            })
        });
        let call = BackgroundCall::start(InFlightCall::new(ReplyPath::Discard), answering);
        let outcome = tokio::time::timeout(Duration::from_secs(60), call.wait_for_outcome()).await;
        let outcome = outcome.expect("nobody waits for ever");
        assert!(matches!(outcome, Err(Refusal::Internal(_))), "{outcome:?}");
    }
}
