//! Which client each task of a 2025-11-25 server was given to, for `tasks/list` and notifications. Not kept
//! over a restart; the sealed ids stay valid.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mgp_engine::callers::tasks::{TaskHandle, TaskRef};

/// Tasks remembered; the oldest are dropped from their client's list.
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
    /// A client was given a task with this id.
    pub fn record(&self, task: TaskHandle, principal: String, id: String) {
        let entry = IssuedTask {
            task,
            principal,
            id,
        };
        let mut given = self.lock_entries();
        if !given.contains(&entry) {
            given.push_back(entry);
        }
        if given.len() > MAX_TASKS {
            given.pop_front();
        }
    }

    /// A task with the client's id for it; `None` when it was not given to this client.
    #[must_use]
    pub fn find(&self, task: &TaskRef, principal: &str) -> Option<(TaskHandle, String)> {
        let given = self.lock_entries();
        let found = given
            .iter()
            .rfind(|entry| entry.task.task == *task && entry.principal == principal);
        found.map(|entry| (entry.task.clone(), entry.id.clone()))
    }

    fn lock_entries(&self) -> MutexGuard<'_, VecDeque<IssuedTask>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
