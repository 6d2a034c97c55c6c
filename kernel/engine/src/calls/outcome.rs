//! Whether a call took effect, as far as the kernel knows: at its failure, and later from its record. An unknown
//! outcome is never reported as "not executed", and such a call is never retried automatically.

use std::time::Duration;

use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::audit::{Event, EventType, Outcome};
use mgp_protocol::mgp::calls::{CallHistory, CallRecord};
use mgp_protocol::refusal::{CallOutcome, Refusal, UnansweredCall};

use crate::callers::tasks::TaskStatus;
use crate::clock::MonotonicTime;
use crate::cluster::routes::AttemptFailure;

/// Most retries of a call of an idempotent tool.
pub(crate) const RETRIES_MAX: u32 = 3;
/// How long after the first failure it may still be retried: its caller waits meanwhile.
pub(crate) const RETRY_WINDOW: Duration = Duration::from_secs(30);
/// The delay when nobody reports when the server is back.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Shortest delay, even when the server announces its return.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(50);
/// `details` of a record: whether the call took effect, where its result does not say so.
pub const OUTCOME: &str = "outcome";
/// `details` of a record: the task that continues the call.
pub const TASK: &str = "task";

/// The outcome of a call that ended with this refusal.
#[must_use]
pub fn for_refusal(refusal: &Refusal) -> CallOutcome {
    refusal.spec().call_outcome
}

/// The outcome of one request to a server.
#[must_use]
pub fn for_request<T>(answer: &Result<T, Refusal>) -> CallOutcome {
    match answer {
        Ok(_) => CallOutcome::Done,
        Err(refusal) => for_refusal(refusal),
    }
}

/// The refusal of a call that ended after an earlier part had reached its server, which requested more input:
/// whatever stopped the later part, the call was made.
#[must_use]
pub fn mark_dispatched(refusal: Refusal, server: &ServerId) -> Refusal {
    if for_refusal(&refusal) != CallOutcome::NotExecuted {
        return refusal;
    }
    let why = if let Refusal::Owner(owner) = &refusal {
        format!("its node {}", owner.cause.description())
    } else {
        refusal.to_string()
    };
    let reason = format!("after the call had reached it: {why}");
    let server = server.clone();
    let is_away =
        !AttemptFailure::is_closed(&refusal) && AttemptFailure::from_refusal(&refusal).is_some();
    if is_away {
        Refusal::ServerLost { server, reason }
    } else {
        Refusal::InvalidAnswer { server, reason }
    }
}

/// The refusal of a call whose result was not delivered to its caller, although the server answered it.
#[must_use]
pub fn mark_answered(refusal: Refusal, call_id: &str) -> Refusal {
    if for_refusal(&refusal) != CallOutcome::NotExecuted {
        return refusal;
    }
    Refusal::Unanswered(Box::new(UnansweredCall {
        refusal,
        outcome: CallOutcome::Done,
        call_id: call_id.into(),
    }))
}

/// True where the caller gets the outcome of its call: the server should have answered, and did not.
#[must_use]
pub fn should_report_outcome(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::ServerLost { .. }
            | Refusal::InvalidAnswer { .. }
            | Refusal::TimedOut { .. }
            | Refusal::NotReady { .. }
            | Refusal::QueueTimeout { .. }
            | Refusal::TooLarge { .. }
            | Refusal::Undelivered { .. }
    )
}

/// The attempts of one call of a tool that the operator marked as idempotent.
#[derive(Clone, Debug, Default)]
pub struct IdempotentRetries {
    /// When the first one failed.
    first_failure: Option<MonotonicTime>,
    count: u32,
}

impl IdempotentRetries {
    /// Evaluates an attempt that ended at `now`: how long to wait before the next one, or `None` to stop. Only a call
    /// lost with its server is retried, and one that finds the server unavailable after that. A slow or faulty server
    /// would do no better on a retry.
    pub fn next_delay(&mut self, refusal: &Refusal, now: MonotonicTime) -> Option<Duration> {
        let wait = if let Refusal::ServerLost { .. } = refusal {
            RETRY_DELAY
        } else if let Refusal::NotReady { retry_after_ms, .. } = refusal
            && self.first_failure.is_some()
        {
            let announced = retry_after_ms.map(Duration::from_millis);
            announced.unwrap_or(RETRY_DELAY).max(RETRY_DELAY_MIN)
        } else {
            return None;
        };
        let first_failure = *self.first_failure.get_or_insert(now);
        if self.count >= RETRIES_MAX || now.duration_since(first_failure) + wait > RETRY_WINDOW {
            return None;
        }
        self.count += 1;
        Some(wait)
    }

    /// The number of retries.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }
}

/// Extracts the call record from an audit event, if it is one of a call.
#[must_use]
pub fn parse_call_record(seq: u64, event: Event) -> Option<CallRecord> {
    let is_call = [EventType::ToolExecuted, EventType::ToolBlocked].contains(&event.event_type);
    let text = |name: &str| event.details.get(name)?.as_str().map(str::to_owned);
    let (outcome, task_id) = (event.details.get(OUTCOME), text(TASK));
    let outcome = outcome.and_then(|outcome| serde_json::from_value(outcome.clone()).ok());
    let reason = ["reason", "failure"].into_iter().find_map(text);
    is_call.then(|| CallRecord {
        seq: Some(seq),
        outcome: match &task_id {
            // The outcome is that of the task.
            Some(_) => CallOutcome::Unknown,
            None => outcome.unwrap_or_else(|| for_result(event.result)),
        },
        timestamp: event.timestamp,
        actor: event.actor.id,
        server_id: event.target.server_id,
        tool_name: event.target.tool_name,
        result: event.result,
        reason,
        task_id,
        task_status: None,
    })
}

/// The outcome of a call with this result, where its record has no outcome of its own.
#[must_use]
pub fn for_result(result: Outcome) -> CallOutcome {
    match result {
        Outcome::Success => CallOutcome::Done,
        Outcome::Blocked | Outcome::Denied => CallOutcome::NotExecuted,
        Outcome::Failure | Outcome::Timeout | Outcome::Cancelled => CallOutcome::Unknown,
    }
}

/// The records of a call id found in the log, and the state of the log itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallLookup {
    /// Its records, oldest first.
    pub records: Vec<CallRecord>,
    /// When the oldest stored record was made.
    pub log_start: Option<String>,
    /// When the kernel last found that an earlier process had ended without closing the log.
    pub interrupted_at: Option<String>,
    /// Calls are answered only after their record is on disk (`calls = "before_reply"`).
    pub logged_before_reply: bool,
}

/// Why nothing is known about an id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no call with the id {call_id} has ended{}: is it copied whole? A call has its record when it ends; the log goes back to {}, and calls of an agent beyond its `agent_bytes_per_day` are only counted",
    if *.own_calls_only { " that is yours" } else { "" },
    .oldest.as_deref().unwrap_or("this moment")
)]
pub struct CallNotFoundError {
    call_id: String,
    oldest: Option<String>,
    own_calls_only: bool,
}

impl CallLookup {
    /// The history of the call with this id; `own_calls_only`: the requester may read only
    /// its own calls.
    ///
    /// # Errors
    /// [`CallNotFoundError`] when there is no record, and none can be missing.
    pub fn into_history(
        mut self,
        call_id: &str,
        own_calls_only: bool,
    ) -> Result<CallHistory, CallNotFoundError> {
        if own_calls_only {
            // Sequence numbers of the log reveal the activity of others.
            self.records.iter_mut().for_each(|record| record.seq = None);
        }
        let (outcome, reason) = match self.records.last() {
            Some(last) => self.final_outcome(last),
            None => match &self.interrupted_at {
                Some(at) => (
                    CallOutcome::Unknown,
                    Some(missing_record_reason(at, self.logged_before_reply)),
                ),
                None => {
                    return Err(CallNotFoundError {
                        call_id: call_id.to_owned(),
                        oldest: self.log_start,
                        own_calls_only,
                    });
                }
            },
        };
        Ok(CallHistory {
            call_id: call_id.to_owned(),
            outcome,
            reason,
            records: self.records,
        })
    }

    fn final_outcome(&self, last: &CallRecord) -> (CallOutcome, Option<String>) {
        let is_unknown = |record: &&CallRecord| record.outcome == CallOutcome::Unknown;
        let record = self.records.iter().rev().find(is_unknown).unwrap_or(last);
        let reason = match &record.task_id {
            Some(task) => Some(format!(
                "it goes on as a task: `tasks/get` of {task} tells how it ends"
            )),
            None => record.reason.clone(),
        };
        (record.outcome, reason)
    }
}

/// Adds the outcome of calls that continued as tasks, in the order of the records: a completed task means the call
/// was answered, any other status is only reported.
#[must_use]
pub fn apply_task_statuses(mut history: CallHistory, tasks: &[Option<TaskStatus>]) -> CallHistory {
    for (record, status) in history.records.iter_mut().zip(tasks) {
        let (Some(status), Some(task)) = (status, &record.task_id) else {
            continue;
        };
        record.task_status = Some(status.as_str().to_owned());
        if *status == TaskStatus::Completed {
            record.outcome = CallOutcome::Done;
        }
        history.reason = Some(format!(
            "it went on as a task, which is {}: `tasks/get` of {task} tells more",
            status.as_str()
        ));
    }
    let is_done = |record: &CallRecord| record.outcome == CallOutcome::Done;
    if history.outcome == CallOutcome::Unknown
        && !history.records.is_empty()
        && history.records.iter().all(is_done)
    {
        history.outcome = CallOutcome::Done;
    }
    history
}

fn missing_record_reason(at: &str, before_reply: bool) -> String {
    let stopped =
        format!("no record: a kernel ended without closing its log, as was found at {at}");
    if before_reply {
        format!(
            "{stopped}; no answer was given to the call (`calls = \"before_reply\"`), but it may have been under way"
        )
    } else {
        format!("{stopped}, and the call may have been made before that")
    }
}

#[cfg(test)]
mod tests;
