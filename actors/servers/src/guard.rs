//! Keeps the guard process running, which ends every child process when the kernel is killed.
//! The supervisors of servers send it each process group.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use mgp_transports::guard::Guard;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use mgp_runtime::mailbox::{Mailbox, Queued};
use mgp_runtime::task;

/// Guards that are started without a wait between them. While none runs, nobody would end the
/// children of a kernel that is killed.
const AT_ONCE: u32 = 5;
/// Wait before each further guard, so that a machine that kills or refuses every one is not kept busy.
/// There is no limit to their number.
const PAUSE: Duration = Duration::from_secs(1);
/// A guard that lived this long was healthy: the count of failed ones starts again.
const WELL: Duration = Duration::from_secs(10);

/// Handle of the actor.
#[derive(Debug, Clone)]
pub struct GuardHandle(Mailbox<GuardMsg>);

impl GuardHandle {
    /// The handle of a running actor.
    #[must_use]
    pub fn new(mailbox: Mailbox<GuardMsg>) -> Self {
        Self(mailbox)
    }

    /// Has this process group ended when the kernel dies.
    pub fn watch(&self, group: i32) {
        if let Err(error) = self.0.tell(GuardMsg::Watch(group)) {
            tracing::warn!(group, %error, "the guard does not know of a process group");
        }
    }

    /// This process group has ended.
    pub fn unwatch(&self, group: i32) {
        let _ = self.0.tell(GuardMsg::Unwatch(group));
    }

    /// The kernel ends in good order: the guard may go.
    pub fn bye(&self) {
        self.0.stop("bye");
    }
}

/// Messages to the actor.
#[derive(Debug)]
pub enum GuardMsg {
    /// End this process group with the kernel.
    Watch(i32),
    /// This process group has ended.
    Unwatch(i32),
    /// The guard process died.
    Died,
    /// The wait is over: start the next guard.
    Again,
}

/// Fixed at construction.
#[derive(Debug)]
pub struct GuardActor {
    /// The program to run as guard.
    pub exe: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Marks every process of this kernel.
    pub mark: String,
}

/// The state of the actor.
#[derive(Debug)]
pub struct GuardState {
    orders: Option<mpsc::Sender<Order>>,
    groups: BTreeSet<i32>,
    row: Row,
    me: Mailbox<GuardMsg>,
}

/// Guards started one after the other, none of which lived long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    started: u32,
    last: Instant,
}

impl Row {
    /// The count for the first guard.
    fn begin(now: Instant) -> Self {
        Self {
            started: 1,
            last: now,
        }
    }

    /// How long to wait before the next one.
    fn wait(&mut self, now: Instant) -> Duration {
        if now.duration_since(self.last) >= WELL {
            self.started = 0;
        }
        self.started = self.started.saturating_add(1);
        let wait = match self.started {
            0..=AT_ONCE => Duration::ZERO,
            _ => PAUSE,
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
            orders: None,
            groups: BTreeSet::new(),
            row: Row::begin(Instant::now()),
            me: Mailbox::new(myself),
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
        match queued.open() {
            GuardMsg::Watch(group) => {
                state.groups.insert(group);
                state.order(Order::Watch(group));
            }
            GuardMsg::Unwatch(group) => {
                state.groups.remove(&group);
                state.order(Order::Unwatch(group));
            }
            GuardMsg::Died => self.start_next(state),
            GuardMsg::Again => self.start(state),
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _myself: ActorRef<Self::Msg>,
        state: &mut GuardState,
    ) -> Result<(), ActorProcessingErr> {
        // Closing this channel makes the keeper end the guard.
        state.orders = None;
        Ok(())
    }
}

/// Messages to the keeper task.
#[derive(Debug)]
enum Order {
    Watch(i32),
    Unwatch(i32),
}

/// Messages that may wait for the keeper, so that the actor never waits.
const ORDERS: usize = 1024;

impl GuardState {
    fn order(&self, order: Order) {
        let said = self.orders.as_ref().map(|orders| orders.try_send(order));
        match said {
            Some(Err(TrySendError::Full(_))) => {
                tracing::warn!("the guard process does not take its orders");
            }
            // The next guard is told all process groups when it starts.
            None | Some(Ok(()) | Err(TrySendError::Closed(_))) => {}
        }
    }
}

/// Runs one guard process until it dies or the channel is closed.
async fn keep(mut guard: Guard, mut orders: mpsc::Receiver<Order>, me: Mailbox<GuardMsg>) {
    loop {
        let said = tokio::select! {
            order = orders.recv() => match order {
                Some(Order::Watch(group)) => guard.watch(group),
                Some(Order::Unwatch(group)) => guard.unwatch(group),
                None => return guard.bye().await,
            },
            _ = guard.exited() => break,
        };
        if said.is_err() {
            break;
        }
    }
    drop(guard);
    let _ = me.remind(GuardMsg::Died);
}

impl GuardActor {
    /// Starts the next guard, after a wait if there were many already.
    fn start_next(&self, state: &mut GuardState) {
        state.orders = None;
        let wait = state.row.wait(Instant::now());
        if wait.is_zero() {
            return self.start(state);
        }
        let me = state.me.clone();
        task::detached("guard.restart", async move {
            tokio::time::sleep(wait).await;
            let _ = me.remind(GuardMsg::Again);
        });
    }

    fn start(&self, state: &mut GuardState) {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        match Guard::start(&self.exe, &args, &self.mark) {
            Ok(guard) => {
                let (orders, taken) = mpsc::channel(ORDERS);
                state.orders = Some(orders);
                let me = state.me.clone();
                task::detached("guard.keep", async move {
                    let keeping = keep(guard, taken, me.clone());
                    if task::caught("guard.keep", keeping).await.is_err() {
                        let _ = me.remind(GuardMsg::Died);
                    }
                });
                for group in &state.groups {
                    state.order(Order::Watch(*group));
                }
            }
            Err(error) => {
                tracing::error!(%error, "no guard process: children may outlive a killed kernel");
                state.orders = None;
                let _ = state.me.remind(GuardMsg::Died);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guard that dies is replaced at once; one that keeps failing is not started in a tight loop.
    #[test]
    fn guards_are_started_at_once_but_not_without_end() {
        let begun = Instant::now();
        let mut row = Row::begin(begun);
        let waits: Vec<_> = (0..AT_ONCE + 2).map(|_| row.wait(begun)).collect();
        let at_once = waits.iter().filter(|wait| wait.is_zero()).count();
        assert_eq!(at_once, AT_ONCE as usize - 1);
        assert_eq!(waits.last(), Some(&PAUSE));
        assert_eq!(row.wait(row.last + WELL), Duration::ZERO);
    }
}
