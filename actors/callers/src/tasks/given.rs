//! Tasks that servers of 2025-11-25 made, and whom they were given to: for the lists and the news of
//! their clients. Forgotten with the kernel; their names serve on.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mgp_engine::callers::tasks::{NamedTask, TaskRef};

/// Tasks remembered; of more the oldest leave their client's list.
const MAX_GIVEN: usize = 10_000;

/// The tasks, oldest first.
#[derive(Debug, Default)]
pub struct IssuedTasks(Mutex<VecDeque<Entry>>);

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    task: NamedTask,
    principal: String,
    id: String,
}

impl IssuedTasks {
    /// A client was given a task under this name.
    pub fn note(&self, task: NamedTask, principal: String, id: String) {
        let entry = Entry {
            task,
            principal,
            id,
        };
        let mut given = self.entries();
        if !given.contains(&entry) {
            given.push_back(entry);
        }
        if given.len() > MAX_GIVEN {
            given.pop_front();
        }
    }

    /// A task as this client was given it, and what it calls it; `None` when it was not given it.
    #[must_use]
    pub fn name(&self, task: &TaskRef, principal: &str) -> Option<(NamedTask, String)> {
        let given = self.entries();
        let found = given
            .iter()
            .rfind(|entry| entry.task.task == *task && entry.principal == principal);
        found.map(|entry| (entry.task.clone(), entry.id.clone()))
    }

    fn entries(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
