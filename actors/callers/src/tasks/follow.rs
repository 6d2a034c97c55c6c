//! Follows one task from its start until it is forgotten.

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::callers::tasks::TaskStep;
use mgp_protocol::dialect::{Dialect, Version};
use mgp_protocol::refusal::{Refusal, Rendered};

use super::next_round::{NextRound, wait_for_final_outcome};
use super::{KernelTask, MAX_BYTES, Tasks};
use crate::request::Outcome;
use crate::request::background_call::BackgroundCall;
use crate::request::panic_refusal;
use mgp_runtime::task::{self, TaskError};
use mgp_runtime::time::unix_ms;

/// Follows a task until its time is over or it is forgotten, below the supervisor of all tasks.
pub(super) fn spawn_follower(
    tasks: &Arc<Tasks>,
    kept: Arc<KernelTask>,
    mut round: Option<NextRound>,
) {
    let own = tasks.clone();
    let following = tasks.supervisor.start_child("tasks.follow", move || {
        // Given away at the first start, so that nothing of the caller is held beyond the call.
        let (tasks, kept, round) = (own.clone(), kept.clone(), round.take());
        async move { follow_and_store(&tasks, &kept, round).await }
    });
    // It ends by itself, or with its supervisor.
    drop(following.detach());
}

/// Follows the call, then keeps its result. A panic fails the task, which is kept for its time all the same.
async fn follow_and_store(tasks: &Tasks, kept: &KernelTask, round: Option<NextRound>) {
    if let Some(background) = kept.background() {
        let followed = match round {
            Some(round) => {
                task::catch_panic("tasks.follow", follow_to_end(tasks, kept, &round)).await
            }
            // It panicked where nothing catches that, and was started again.
            None => Err(TaskError::Aborted),
        };
        if let Err(broken) = followed {
            background.call.cancel();
            let end = failed_step(&panic_refusal(&broken), Version::STATELESS.into());
            tasks.finish(kept, end).await;
        }
        kept.release_call();
    }
    tokio::select! {
        () = tokio::time::sleep(remaining_time(kept)) => tasks.forget(kept).await,
        () = kept.forgotten.wait_until_raised() => {}
    }
}

/// How long the task is still kept.
fn remaining_time(kept: &KernelTask) -> Duration {
    Duration::from_millis(kept.expires_ms().saturating_sub(unix_ms()))
}

/// Resolves when the call has ended and that is recorded, or the task's time is over.
async fn follow_to_end(tasks: &Tasks, kept: &KernelTask, round: &NextRound) {
    let Some(background) = kept.background() else {
        return;
    };
    tokio::select! {
        outcome = follow_call(tasks, kept, &background, round) => {
            tasks.finish(kept, to_step(&background, outcome, round.caller.dialect())).await;
        }
        () = tokio::time::sleep(remaining_time(kept)) => background.call.cancel(),
    }
}

/// Publishes the server's questions meanwhile; resolves with the call's outcome.
async fn follow_call(
    tasks: &Tasks,
    kept: &KernelTask,
    background: &BackgroundCall,
    round: &NextRound,
) -> Outcome {
    let rounds = background
        .call
        .rounds()
        .expect("only calls of stateless clients become tasks");
    let mut outcome = std::pin::pin!(wait_for_final_outcome(background, round));
    loop {
        let mut changed = std::pin::pin!(rounds.change_notified());
        changed.as_mut().enable();
        if kept.update_input_requests() {
            tasks.notify_followers(kept);
        }
        tokio::select! {
            biased;
            outcome = &mut outcome => {
                // A cancelled task counts as cancelled, whatever the server answered.
                let taken_back = background.call.is_cancelled();
                return match taken_back && background.call.missing_capabilities().is_none() {
                    true => Err(Refusal::Cancelled),
                    false => outcome,
                };
            }
            () = changed => {}
            () = tokio::time::sleep(tasks.input_timeout), if rounds.has_open_callbacks() => {
                background.call.cancel();
                let secs = tasks.input_timeout.as_secs();
                return Err(Refusal::Internal(format!(
                    "nobody answered what the server asked within {secs} s"
                )));
            }
        }
    }
}

/// The task's new state after this outcome.
fn to_step(background: &BackgroundCall, outcome: Outcome, dialect: Dialect) -> TaskStep {
    let refusal = match (outcome, background.call.missing_capabilities()) {
        (Ok(result), _) => {
            return TaskStep::Complete(String::from_utf8_lossy(&result).into_owned());
        }
        (Err(Refusal::Cancelled), None) => return TaskStep::Cancel,
        (Err(Refusal::Cancelled), Some(missing)) => Refusal::MissingCapability {
            required: missing.to_owned(),
        },
        (Err(refusal), _) => refusal,
    };
    failed_step(&refusal, dialect)
}

/// The end of a task whose call was refused, in the caller's dialect.
pub(super) fn failed_step(refusal: &Refusal, dialect: Dialect) -> TaskStep {
    match refusal.render_for_dialect(dialect) {
        Rendered::Error(error) => TaskStep::Fail(error),
        Rendered::Result(result) => TaskStep::Complete(result),
    }
}

/// The end of a task whose result is too large to be kept.
pub(super) fn too_large_step(bytes: usize) -> TaskStep {
    let words = format!(
        "the call is done, but its result of {bytes} bytes finds no room: the results of all tasks together take {MAX_BYTES} bytes at most"
    );
    failed_step(&Refusal::Internal(words), Version::STATELESS.into())
}
