//! Follows one task from its beginning until it is forgotten.

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::callers::tasks::TaskStep;
use mgp_protocol::dialect::{Dialect, Version};
use mgp_protocol::refusal::{Refusal, Rendered};

use super::call_retry::{CallRetry, whole};
use super::{KernelTask, MAX_BYTES, Tasks};
use crate::request::Outcome;
use crate::request::background_call::BackgroundCall;
use mgp_runtime::time::unix_ms;

/// Ends when the task's time is over, or it is forgotten before.
pub(super) async fn keep(tasks: Arc<Tasks>, kept: Arc<KernelTask>, again: Option<CallRetry>) {
    let left = kept.expires_ms().saturating_sub(unix_ms());
    let mut time = std::pin::pin!(tokio::time::sleep(Duration::from_millis(left)));
    if let (Some(background), Some(again)) = (kept.background(), again) {
        tokio::select! {
            outcome = follow(&tasks, &kept, &background, &again) => {
                tasks.end(&kept, step(&background, outcome, again.caller.dialect())).await;
            }
            () = &mut time => background.exchange.cancel(),
        }
        kept.let_go();
    }
    tokio::select! {
        () = time => tasks.forget(&kept).await,
        () = kept.forgotten.raised() => {}
    }
}

/// Says what the server asks meanwhile; resolves with the call's outcome.
async fn follow(
    tasks: &Tasks,
    kept: &KernelTask,
    background: &BackgroundCall,
    again: &CallRetry,
) -> Outcome {
    let rounds = background
        .exchange
        .rounds()
        .expect("only calls of stateless clients become tasks");
    let mut outcome = std::pin::pin!(whole(background, again));
    loop {
        let mut changed = std::pin::pin!(rounds.changed());
        changed.as_mut().enable();
        if kept.look() {
            tasks.tell(kept);
        }
        tokio::select! {
            biased;
            outcome = &mut outcome => {
                // What was taken back is cancelled, whatever the server still made of it.
                let taken_back = background.exchange.is_cancelled();
                return match taken_back && background.exchange.lacking().is_none() {
                    true => Err(Refusal::Cancelled),
                    false => outcome,
                };
            }
            () = changed => {}
            () = tokio::time::sleep(tasks.patience), if rounds.is_asking() => {
                background.exchange.cancel();
                let secs = tasks.patience.as_secs();
                return Err(Refusal::Broken(format!(
                    "nobody answered what the server asked within {secs} s"
                )));
            }
        }
    }
}

/// What the outcome of a call means to its task.
fn step(background: &BackgroundCall, outcome: Outcome, dialect: Dialect) -> TaskStep {
    let refusal = match (outcome, background.exchange.lacking()) {
        (Ok(result), _) => {
            return TaskStep::Complete(String::from_utf8_lossy(&result).into_owned());
        }
        (Err(Refusal::Cancelled), None) => return TaskStep::Cancel,
        (Err(Refusal::Cancelled), Some(missing)) => Refusal::MissingCapability {
            required: missing.to_owned(),
        },
        (Err(refusal), _) => refusal,
    };
    failed(&refusal, dialect)
}

/// The end of a task whose call was refused, in the words of who called.
pub(super) fn failed(refusal: &Refusal, dialect: Dialect) -> TaskStep {
    match refusal.render_in(dialect) {
        Rendered::Error(error) => TaskStep::Fail(error),
        Rendered::Result(result) => TaskStep::Complete(result),
    }
}

/// The end of a task whose result is more than can be kept.
pub(super) fn too_large(bytes: usize) -> TaskStep {
    let words = format!(
        "the call is done, but its result of {bytes} bytes finds no room: the results of all tasks together take {MAX_BYTES} bytes at most"
    );
    failed(&Refusal::Broken(words), Version::MODERN.into())
}
