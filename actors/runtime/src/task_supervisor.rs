//! Supervises tasks of a part of the kernel with shared state instead of an actor: they end with this actor and are
//! restarted after a panic.

use std::time::Duration;

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::mailbox::{Mailbox, Queued};
use crate::task::{self, SupervisedTask};

/// The maximum number of starts of a task, and the wait after each panic.
const MAX_STARTS: usize = 5;
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Handle for the owner of the tasks.
#[derive(Debug, Clone)]
pub struct TaskSupervisorHandle {
    mailbox: Mailbox<TaskSupervisorMsg>,
    end_token: CancellationToken,
}

/// Messages to the actor.
#[derive(Debug)]
pub enum TaskSupervisorMsg {
    /// A permanent task panicked at each start.
    Lost(&'static str),
}

#[derive(Debug)]
struct TaskSupervisorActor;

impl TaskSupervisorHandle {
    /// Starts the actor.
    ///
    /// # Errors
    /// It cannot be started.
    pub async fn start() -> Result<(Self, ActorCell), SpawnErr> {
        let ended = CancellationToken::new();
        let children = ended.clone().drop_guard();
        let (actor, _) = Actor::spawn(None, TaskSupervisorActor, children).await?;
        let cell = actor.get_cell();
        let mailbox = Mailbox::new(actor);
        Ok((
            Self {
                mailbox,
                end_token: ended,
            },
            cell,
        ))
    }

    /// Resolves when the actor has ended.
    pub async fn wait_until_stopped(&self) {
        self.end_token.cancelled().await;
    }

    /// Starts a task that ends when the returned handle is dropped. It is abandoned after a panic at each start.
    pub fn start_child<F>(
        &self,
        name: &'static str,
        start: impl FnMut() -> F + Send + 'static,
    ) -> SupervisedTask<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (ended, child) = (self.end_token.clone(), run_with_restarts(name, start));
        task::spawn_supervised(name, async move {
            ended.run_until_cancelled(child).await;
        })
    }

    /// Starts a task that must run as long as this actor: if it panics at each start, the actor fails.
    pub fn start_permanent<F>(&self, name: &'static str, start: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (ended, child, actor) = (
            self.end_token.clone(),
            run_with_restarts(name, start),
            self.mailbox.clone(),
        );
        task::spawn_detached(name, async move {
            if ended.run_until_cancelled(child).await == Some(false) {
                let _ = actor.send_to_self(TaskSupervisorMsg::Lost(name));
            }
        });
    }
}

/// Runs a task to its end; false when it panicked each time.
async fn run_with_restarts<F: Future<Output = ()>>(
    name: &'static str,
    mut start: impl FnMut() -> F,
) -> bool {
    for _ in 0..MAX_STARTS {
        if task::catch_panic(name, start()).await.is_ok() {
            return true;
        }
        tokio::time::sleep(RESTART_DELAY).await;
    }
    tracing::error!(
        task = name,
        "it panicked {MAX_STARTS} times and is abandoned"
    );
    false
}

impl Actor for TaskSupervisorActor {
    type Msg = Queued<TaskSupervisorMsg>;
    /// Dropped with the actor, which ends the tasks.
    type State = DropGuard;
    type Arguments = DropGuard;

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        children: DropGuard,
    ) -> Result<DropGuard, ActorProcessingErr> {
        Ok(children)
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        _children: &mut DropGuard,
    ) -> Result<(), ActorProcessingErr> {
        match queued.into_message() {
            TaskSupervisorMsg::Lost(name) => Err(format!("{name} is lost").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ractor::ActorStatus;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_restarted_and_finally_abandoned() {
        let (supervisor, cell) = TaskSupervisorHandle::start().await.unwrap();
        let starts = Arc::new(AtomicUsize::new(0));
        let counted = starts.clone();
        let child = supervisor.start_child("second time", move || {
            let first = counted.fetch_add(1, Ordering::Relaxed) == 0;
            async move { assert!(!first, "at first it breaks") }
        });
        assert_eq!(child.await, Ok(()));
        assert_eq!(starts.load(Ordering::Relaxed), 2);
        let never = supervisor.start_child("never", || async { panic!("each time") });
        assert_eq!(never.await, Ok(()));
        assert_eq!(task::task_counts()["never"].panicked, MAX_STARTS);
        assert_eq!(
            cell.get_status(),
            ActorStatus::Running,
            "it was only one of many"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_actor_fails_without_a_permanent_task() {
        let (supervisor, cell) = TaskSupervisorHandle::start().await.unwrap();
        supervisor.start_permanent("lasting", || async { panic!("each time") });
        while cell.get_status() != ActorStatus::Stopped {
            tokio::time::sleep(RESTART_DELAY).await;
        }
    }

    #[tokio::test]
    async fn tasks_end_with_the_actor() {
        let (supervisor, cell) = TaskSupervisorHandle::start().await.unwrap();
        let child = supervisor.start_child("ends", std::future::pending);
        cell.kill();
        assert_eq!(child.await, Ok(()));
    }
}
