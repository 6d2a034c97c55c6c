//! Keeps the guard process running, which ends all child processes if the kernel is killed. The supervisors of
//! servers report each process group to it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use mgp_transports::guard::Guard;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use mgp_runtime::{Mailbox, Queued, task};

/// Guards that are started without delay. While no guard runs, a killed kernel would leave its children running.
const IMMEDIATE_STARTS_MAX: u32 = 5;
/// The delay before further guards, so that a machine that kills or refuses each one is not kept busy. Their
/// number is not limited.
const RESTART_INTERVAL: Duration = Duration::from_secs(1);
/// A guard that ran this long was healthy, and resets the count of failures.
const HEALTHY_AFTER: Duration = Duration::from_secs(10);

/// Handle of the actor.
#[derive(Debug, Clone)]
pub struct GuardHandle(Mailbox<GuardMsg>);

impl GuardHandle {
    /// Wraps the mailbox of a running actor.
    #[must_use]
    pub fn new(mailbox: Mailbox<GuardMsg>) -> Self {
        Self(mailbox)
    }

    /// Ends this process group when the kernel dies.
    pub(crate) fn watch(&self, group: i32) {
        if let Err(error) = self.0.send(GuardMsg::Watch(group)) {
            tracing::warn!(group, %error, "the guard was not notified of a process group");
        }
    }

    /// Stops watching a process group that has ended.
    pub(crate) fn unwatch(&self, group: i32) {
        let _ = self.0.send(GuardMsg::Unwatch(group));
    }

    /// Dismisses the guard before the kernel shuts down gracefully.
    pub fn dismiss(&self) {
        self.0.stop("bye");
    }
}

/// Messages to the actor.
#[derive(Debug)]
pub enum GuardMsg {
    /// Watch this process group.
    Watch(i32),
    /// Stop watching this process group, which has ended.
    Unwatch(i32),
    /// The guard process died.
    Died,
    /// The restart delay is over.
    RestartDue,
}

/// The fixed settings of the actor.
#[derive(Debug)]
pub struct GuardActor {
    /// The program to run as the guard.
    pub exe: PathBuf,
    /// The arguments of the program.
    pub args: Vec<String>,
    /// Marks all processes of this kernel.
    pub mark: String,
}

/// The state of the actor.
#[derive(Debug)]
pub struct GuardState {
    commands: Option<mpsc::Sender<GuardCommand>>,
    groups: BTreeSet<i32>,
    restarts: RestartBackoff,
    mailbox: Mailbox<GuardMsg>,
}

/// Counts guards that ended early, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RestartBackoff {
    started: u32,
    last: Instant,
}

impl RestartBackoff {
    /// Starts counting with the first guard.
    fn new(now: Instant) -> Self {
        Self {
            started: 1,
            last: now,
        }
    }

    /// The delay before the next guard.
    fn next_delay(&mut self, now: Instant) -> Duration {
        if now.duration_since(self.last) >= HEALTHY_AFTER {
            self.started = 0;
        }
        self.started = self.started.saturating_add(1);
        let wait = match self.started {
            0..=IMMEDIATE_STARTS_MAX => Duration::ZERO,
            _ => RESTART_INTERVAL,
        };
        self.last = now + wait;
        wait
    }
}

impl Actor for GuardActor {
    type Msg = Queued<GuardMsg>;
    type State = GuardState;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<GuardState, ActorProcessingErr> {
        let mut state = GuardState {
            commands: None,
            groups: BTreeSet::new(),
            restarts: RestartBackoff::new(Instant::now()),
            mailbox: Mailbox::new(myself),
        };
        self.start(&mut state);
        Ok(state)
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut GuardState,
    ) -> Result<(), ActorProcessingErr> {
        match queued.into_message() {
            GuardMsg::Watch(group) => {
                state.groups.insert(group);
                state.send_command(GuardCommand::Watch(group));
            }
            GuardMsg::Unwatch(group) => {
                state.groups.remove(&group);
                state.send_command(GuardCommand::Unwatch(group));
            }
            GuardMsg::Died => self.start_next(state),
            GuardMsg::RestartDue => self.start(state),
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _myself: ActorRef<Self::Msg>,
        state: &mut GuardState,
    ) -> Result<(), ActorProcessingErr> {
        // Closing this channel makes the guard task end the guard.
        state.commands = None;
        Ok(())
    }
}

/// Messages to the guard task.
#[derive(Debug)]
enum GuardCommand {
    Watch(i32),
    Unwatch(i32),
}

/// The capacity of the guard task's queue, so that the actor never blocks.
const COMMAND_QUEUE_CAPACITY: usize = 1024;

impl GuardState {
    fn send_command(&self, command: GuardCommand) {
        let sent = self
            .commands
            .as_ref()
            .map(|orders| orders.try_send(command));
        match sent {
            Some(Err(TrySendError::Full(_))) => {
                tracing::warn!("the guard process does not accept commands");
            }
            // The next guard receives all process groups when it starts.
            None | Some(Ok(()) | Err(TrySendError::Closed(_))) => {}
        }
    }
}

/// Runs one guard process until it dies or the channel is closed.
async fn run_guard(
    mut guard: Guard,
    mut orders: mpsc::Receiver<GuardCommand>,
    me: Mailbox<GuardMsg>,
) {
    loop {
        let outcome = tokio::select! {
            command = orders.recv() => match command {
                Some(GuardCommand::Watch(group)) => guard.watch(group),
                Some(GuardCommand::Unwatch(group)) => guard.unwatch(group),
                None => return guard.dismiss().await,
            },
            _ = guard.exited() => break,
        };
        if outcome.is_err() {
            break;
        }
    }
    drop(guard);
    let _ = me.send_to_self(GuardMsg::Died);
}

impl GuardActor {
    /// Starts the next guard, after a delay if several have failed.
    fn start_next(&self, state: &mut GuardState) {
        state.commands = None;
        let wait = state.restarts.next_delay(Instant::now());
        if wait.is_zero() {
            return self.start(state);
        }
        let me = state.mailbox.clone();
        task::spawn_detached("guard.restart", async move {
            tokio::time::sleep(wait).await;
            let _ = me.send_to_self(GuardMsg::RestartDue);
        });
    }

    fn start(&self, state: &mut GuardState) {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        match Guard::start(&self.exe, &args, &self.mark) {
            Ok(guard) => {
                let (orders, taken) = mpsc::channel(COMMAND_QUEUE_CAPACITY);
                state.commands = Some(orders);
                let me = state.mailbox.clone();
                task::spawn_detached("guard.keep", async move {
                    let keeping = run_guard(guard, taken, me.clone());
                    if task::catch_panic("guard.keep", keeping).await.is_err() {
                        let _ = me.send_to_self(GuardMsg::Died);
                    }
                });
                for group in &state.groups {
                    state.send_command(GuardCommand::Watch(*group));
                }
            }
            Err(error) => {
                tracing::error!(%error, "no guard process: children may outlive a killed kernel");
                state.commands = None;
                let _ = state.mailbox.send_to_self(GuardMsg::Died);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dead guard is replaced at once; one that keeps failing is restarted with a delay.
    #[test]
    fn failing_guards_are_restarted_with_delay() {
        let begun = Instant::now();
        let mut row = RestartBackoff::new(begun);
        let waits: Vec<_> = (0..IMMEDIATE_STARTS_MAX + 2)
            .map(|_| row.next_delay(begun))
            .collect();
        let at_once = waits.iter().filter(|wait| wait.is_zero()).count();
        assert_eq!(at_once, IMMEDIATE_STARTS_MAX as usize - 1);
        assert_eq!(waits.last(), Some(&RESTART_INTERVAL));
        assert_eq!(row.next_delay(row.last + HEALTHY_AFTER), Duration::ZERO);
    }
}
