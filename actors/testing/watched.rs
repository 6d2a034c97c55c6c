//! Looks whether what has ended is gone: nothing holds it beyond its end, and no task of its goes on.
//! Part of the tests of several rooms.

use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long anything may be held beyond its end, by the clock of the test; half an hour is far above
/// it, and the last words of a connection are below.
const SOON: u32 = 20_000;

/// By its name, and whether it is there.
type Thing = (&'static str, Box<dyn Fn() -> bool>);

/// What must be gone when something has ended.
pub(crate) struct Watched {
    tasks: usize,
    things: Vec<Thing>,
}

impl Watched {
    /// Nothing yet; whatever task is started from now on must end, too.
    pub(crate) fn begin() -> Self {
        Self {
            tasks: alive(),
            things: Vec::new(),
        }
    }

    /// This must be gone.
    pub(crate) fn add<T: Send + Sync + 'static>(&mut self, name: &'static str, it: &Arc<T>) {
        self.add_weak(name, Arc::downgrade(it));
    }

    /// The same, by a reference that holds nothing.
    pub(crate) fn add_weak<T: Send + Sync + 'static>(&mut self, name: &'static str, it: Weak<T>) {
        assert!(it.strong_count() > 0, "{name} was never there");
        let there = move || it.strong_count() > 0;
        self.things.push((name, Box::new(there)));
    }

    /// But for so many tasks, which have their reason.
    pub(crate) fn but_tasks(mut self, count: usize) -> Self {
        self.tasks += count;
        self
    }

    /// And so many tasks that went on before.
    pub(crate) fn less_tasks(mut self, count: usize) -> Self {
        self.tasks -= count;
        self
    }

    /// Resolves when all of it is gone. The clock of the test stands still but for this.
    pub(crate) async fn gone(self) {
        for _ in 0..SOON {
            if alive() <= self.tasks && self.held().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let tasks = alive().saturating_sub(self.tasks);
        panic!(
            "still there: {}; tasks that go on: {tasks}",
            self.held().join(", ")
        );
    }

    fn held(&self) -> Vec<&'static str> {
        let held = self.things.iter().filter(|(_, there)| there());
        held.map(|(name, _)| *name).collect()
    }
}

fn alive() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}
