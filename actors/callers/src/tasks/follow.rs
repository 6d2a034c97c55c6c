//! Follows one task from its start until it expires or is removed.

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

/// Spawns the follower of a task below the supervisor of all tasks, until the task expires or is removed.
pub(super) fn spawn_follower(
    tasks: &Arc<Tasks>,
    stored: Arc<KernelTask>,
    mut round: Option<NextRound>,
) {
    let task_table = tasks.clone();
    let following = tasks.supervisor.start_child("tasks.follow", move || {
        // Moved out at the first start, so that nothing of the caller is held beyond the call.
        let (tasks, stored, round) = (task_table.clone(), stored.clone(), round.take());
        async move { follow_and_store(&tasks, &stored, round).await }
    });
    // It ends by itself, or with its supervisor.
    drop(following.detach());
}

/// Follows the call, then stores its result. A panic fails the task, which is still stored for its
/// retention.
async fn follow_and_store(tasks: &Tasks, stored: &KernelTask, round: Option<NextRound>) {
    if let Some(background) = stored.background() {
        let followed = match round {
            Some(round) => {
                task::catch_panic("tasks.follow", follow_to_end(tasks, stored, &round)).await
            }
            // The follower panicked outside the guarded call and was restarted.
            None => Err(TaskError::Aborted),
        };
        if let Err(broken) = followed {
            background.call.cancel();
            let end = failed_step(&panic_refusal(&broken), Version::STATELESS.into());
            tasks.finish(stored, end).await;
        }
        stored.release_call();
    }
    tokio::select! {
        () = tokio::time::sleep(remaining_time(stored)) => tasks.forget(stored).await,
        () = stored.forgotten.wait_until_raised() => {}
    }
}

/// The time until the task expires.
fn remaining_time(stored: &KernelTask) -> Duration {
    Duration::from_millis(stored.expires_ms().saturating_sub(unix_ms()))
}

/// Resolves when the call has ended and its end is stored, or when the task expires.
async fn follow_to_end(tasks: &Tasks, stored: &KernelTask, round: &NextRound) {
    let Some(background) = stored.background() else {
        return;
    };
    tokio::select! {
        outcome = follow_call(tasks, stored, &background, round) => {
            tasks.finish(stored, to_step(&background, outcome, round.caller.dialect())).await;
        }
        () = tokio::time::sleep(remaining_time(stored)) => background.call.cancel(),
    }
}

/// Publishes the server's callbacks meanwhile; resolves with the call's outcome.
async fn follow_call(
    tasks: &Tasks,
    stored: &KernelTask,
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
        if stored.update_input_requests() {
            tasks.notify_followers(stored);
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

/// Converts the outcome of a call to the task's next step.
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

/// The failed step of a task whose call was refused, in the caller's dialect.
pub(super) fn failed_step(refusal: &Refusal, dialect: Dialect) -> TaskStep {
    match refusal.render_for_dialect(dialect) {
        Rendered::Error(error) => TaskStep::Fail(error),
        Rendered::Result(result) => TaskStep::Complete(result),
    }
}

/// The failed step of a task whose result is too large to be stored.
pub(super) fn too_large_step(bytes: usize) -> TaskStep {
    let message = format!(
        "the call is done, but its result of {bytes} bytes finds no room: the results of all tasks together take {MAX_BYTES} bytes at most"
    );
    failed_step(&Refusal::Internal(message), Version::STATELESS.into())
}
