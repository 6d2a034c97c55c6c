//! The recipient of each task of a 2025-11-25 server, for `tasks/list` and notifications. Not stored across
//! restarts; the sealed ids stay valid.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mgp_engine::callers::tasks::{TaskHandle, TaskRef};

/// The most stored tasks; the oldest are dropped from their client's list.
const MAX_TASKS: usize = 10_000;

/// The tasks, oldest first.
#[derive(Debug, Default)]
pub struct IssuedTasks(Mutex<VecDeque<IssuedTask>>);

#[derive(Debug, PartialEq, Eq)]
struct IssuedTask {
    task: TaskHandle,
    principal: String,
    id: String,
}

impl IssuedTasks {
    /// Records that a client received a task under this id.
    pub fn record(&self, task: TaskHandle, principal: String, id: String) {
        let entry = IssuedTask {
            task,
            principal,
            id,
        };
        let mut entries = self.lock_entries();
        if !entries.contains(&entry) {
            entries.push_back(entry);
        }
        if entries.len() > MAX_TASKS {
            entries.pop_front();
        }
    }

    /// A task with the client's id of it; `None` when this client did not receive it.
    #[must_use]
    pub fn find(&self, task: &TaskRef, principal: &str) -> Option<(TaskHandle, String)> {
        let entries = self.lock_entries();
        let found = entries
            .iter()
            .rfind(|entry| entry.task.task == *task && entry.principal == principal);
        found.map(|entry| (entry.task.clone(), entry.id.clone()))
    }

    fn lock_entries(&self) -> MutexGuard<'_, VecDeque<IssuedTask>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
