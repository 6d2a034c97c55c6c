//! Tasks that a server created on this connection. A connection replaced by a rolling restart stays open for
//! them: no other connection knows them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_engine::callers::tasks::TaskStatus;
use mgp_engine::clock::MonotonicTime;
use mgp_json::{can_contain_string, member};
use tokio::sync::watch;

use super::Link;
use mgp_callers::request::Outcome;
use mgp_runtime::time::monotonic_now;

/// The maximum of remembered tasks of one connection. A replaced connection does not wait for more.
const MAX_OPEN: usize = 10_000;
/// The longest task id, in bytes; clients are not given longer ones.
const MAX_ID: usize = 1024;

/// Tasks whose end their clients have not seen.
#[derive(Debug, Default)]
pub(super) struct LinkTasks {
    /// By the server's own id, with the time when the server may discard it.
    open: Mutex<HashMap<Box<str>, Option<MonotonicTime>>>,
    changed: watch::Sender<()>,
    /// True if requests about tasks are accepted while the connection drains.
    accepts_while_draining: AtomicBool,
}

impl LinkTasks {
    fn open(&self) -> MutexGuard<'_, HashMap<Box<str>, Option<MonotonicTime>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn should_accept(&self, method: &str) -> bool {
        self.accepts_while_draining.load(Ordering::Relaxed) && method.starts_with("tasks/")
    }

    /// Removes all tasks at the end of the connection.
    pub(super) fn clear(&self) {
        self.open().clear();
        self.changed.send_replace(());
    }

    /// Removes the expired tasks. Returns the expiry of the next one, if any task is left.
    fn take_expired(&self, now: MonotonicTime) -> Option<Option<MonotonicTime>> {
        let mut open = self.open();
        open.retain(|_, until| until.is_none_or(|until| until > now));
        (!open.is_empty()).then(|| open.values().filter_map(|until| *until).min())
    }
}

impl Link {
    /// Records the task that a call became, if this answer announces one.
    pub(crate) fn record_created_task(&self, outcome: &Outcome) {
        let Ok(result) = outcome else { return };
        if can_contain_string(result, "\"taskId\"") {
            let created = std::str::from_utf8(result)
                .ok()
                .and_then(parse_created_task);
            if let Some((id, ttl)) = created {
                self.add_task(id, ttl);
            }
        }
    }

    fn add_task(&self, id: String, ttl: Option<Duration>) {
        let until = ttl.map(|ttl| monotonic_now() + ttl);
        let full = self.tasks.open().len() >= MAX_OPEN;
        if full {
            self.tasks.take_expired(monotonic_now());
        }
        let mut open = self.tasks.open();
        if open.len() < MAX_OPEN && id.len() <= MAX_ID {
            open.insert(id.into(), until);
        }
    }

    /// Removes a task after the answer to a request about it, if it failed, was cancelled or is unknown to the
    /// server. `last` says that the client needs nothing more of a completed one.
    pub(crate) fn record_task_answer(&self, id: &str, outcome: &Outcome, last: bool) {
        let over = match outcome {
            Ok(result) => {
                let status = std::str::from_utf8(result).ok().and_then(parse_status);
                match status {
                    Some(TaskStatus::Cancelled | TaskStatus::Failed) => true,
                    Some(TaskStatus::Completed) | None => last,
                    Some(TaskStatus::Working | TaskStatus::InputRequired) => false,
                }
            }
            // The server does not know the task.
            Err(refusal) => refusal.is_answer(),
        };
        if over && self.tasks.open().remove(id).is_some() {
            self.tasks.changed.send_replace(());
        }
    }

    /// True for a task of this connection whose end the client has not seen.
    #[must_use]
    pub(crate) fn has_task(&self, id: &str) -> bool {
        self.tasks.open().contains_key(id)
    }

    /// True while a task is open that its client has not seen to its end.
    #[must_use]
    pub(super) fn has_open_tasks(&self) -> bool {
        self.tasks.take_expired(monotonic_now()).is_some()
    }

    /// Accepts requests about tasks from now on although the connection drains.
    pub(crate) fn accept_task_requests(&self) {
        self.tasks
            .accepts_while_draining
            .store(true, Ordering::Relaxed);
    }

    /// Resolves when no task is open: each was seen to its end by its client, or has expired.
    pub(crate) async fn wait_for_tasks(&self) {
        let mut changed = self.tasks.changed.subscribe();
        while let Some(next) = self.tasks.take_expired(monotonic_now()) {
            let due = async {
                match next {
                    Some(next) => tokio::time::sleep(next.duration_since(monotonic_now())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = changed.changed() => {}
                () = due => {}
            }
        }
    }
}

/// The id and TTL of the task that a result announces, in either protocol family.
fn parse_created_task(result: &str) -> Option<(String, Option<Duration>)> {
    let of_extension = member(result, "resultType") == Some("\"task\"");
    let (task, ttl) = if of_extension {
        (result, "ttlMs")
    } else {
        (member(result, "task")?, "ttl")
    };
    let id = serde_json::from_str(member(task, "taskId")?).ok()?;
    let ttl = member(task, ttl).and_then(|ttl| ttl.parse().ok());
    Some((id, ttl.map(Duration::from_millis)))
}

fn parse_status(result: &str) -> Option<TaskStatus> {
    let word: String = serde_json::from_str(member(result, "status")?).ok()?;
    TaskStatus::parse(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn created_task_is_parsed_in_both_families() {
        let modern = r#"{"resultType":"task","taskId":"a","status":"working","ttlMs":2000}"#;
        assert_eq!(
            parse_created_task(modern),
            Some(("a".into(), Some(Duration::from_secs(2))))
        );
        let legacy = r#"{"task":{"taskId":"b","status":"working","ttl":null}}"#;
        assert_eq!(parse_created_task(legacy), Some(("b".into(), None)));
        assert_eq!(parse_created_task(r#"{"content":[],"taskId":"c"}"#), None);
    }

    /// PRJ-018: a server is not stopped while one of these is open.
    #[tokio::test]
    async fn tasks_and_subscriptions_are_open_work() {
        use crate::link::scripted::ScriptedServer;
        let link = ScriptedServer::stateless("{}").link;
        assert!(!link.has_open_work());
        let created = r#"{"resultType":"task","taskId":"a","status":"working","ttlMs":60000}"#;
        link.record_created_task(&Ok(created.into()));
        assert!(link.has_open_work());
        link.record_task_answer("a", &Ok(r#"{"status":"failed"}"#.into()), true);
        assert!(!link.has_open_work());
        link.set_subscribed("file:///a", true);
        assert!(link.has_open_work());
        link.set_subscribed("file:///a", false);
        link.count_event_subscription(true);
        assert!(link.has_open_work());
        link.count_event_subscription(false);
        assert!(!link.has_open_work());
    }
}
