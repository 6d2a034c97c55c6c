//! Keeps the guard process alive: what ends every child when the kernel is killed.
//! Asked by: server supervisors.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use mgp_transports::guard::Guard;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;

use crate::mailbox::{Letter, Mailbox};

/// Wait before a guard that died is started again.
const AGAIN: Duration = Duration::from_millis(200);

/// The way to the guard.
#[derive(Debug, Clone)]
pub struct GuardHandle(Mailbox<GuardMsg>);

impl GuardHandle {
    /// The handle of a running actor.
    #[must_use]
    pub fn new(mailbox: Mailbox<GuardMsg>) -> Self {
        Self(mailbox)
    }

    /// This process group dies with the kernel.
    pub fn watch(&self, group: i32) {
        if let Err(error) = self.0.tell(GuardMsg::Watch(group)) {
            tracing::warn!(group, %error, "the guard does not know of a process group");
        }
    }

    /// This process group has ended.
    pub fn unwatch(&self, group: i32) {
        let _ = self.0.tell(GuardMsg::Unwatch(group));
    }

    /// The kernel ends in good order.
    pub fn bye(&self) {
        self.0.stop("bye");
    }
}

/// What the actor is told.
#[derive(Debug)]
pub enum GuardMsg {
    /// A process group to end with the kernel.
    Watch(i32),
    /// It has ended.
    Unwatch(i32),
    /// The guard process died.
    Died,
}

/// What never changes.
#[derive(Debug)]
pub struct GuardActor {
    /// The program to run as guard.
    pub exe: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Marks every process of this kernel.
    pub mark: String,
}

/// What does.
#[derive(Debug)]
pub struct GuardState {
    orders: Option<mpsc::Sender<Order>>,
    groups: BTreeSet<i32>,
    me: Mailbox<GuardMsg>,
}

impl Actor for GuardActor {
    type Msg = Letter<GuardMsg>;
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
            me: Mailbox::new(myself),
        };
        self.start(&mut state);
        Ok(state)
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        letter: Self::Msg,
        state: &mut GuardState,
    ) -> Result<(), ActorProcessingErr> {
        match letter.message {
            GuardMsg::Watch(group) => {
                state.groups.insert(group);
                state.order(Order::Watch(group));
            }
            GuardMsg::Unwatch(group) => {
                state.groups.remove(&group);
                state.order(Order::Unwatch(group));
            }
            GuardMsg::Died => self.start(state),
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _myself: ActorRef<Self::Msg>,
        state: &mut GuardState,
    ) -> Result<(), ActorProcessingErr> {
        // Without orders to come the guard's keeper sends it home.
        state.orders = None;
        Ok(())
    }
}

/// What the guard's keeper is told.
#[derive(Debug)]
enum Order {
    Watch(i32),
    Unwatch(i32),
}

/// Orders that may wait for the keeper, which never waits itself.
const ORDERS: usize = 1024;

impl GuardState {
    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders
            && orders.try_send(order).is_err()
        {
            tracing::warn!("the guard process does not take its orders");
        }
    }
}

/// Holds one guard process until it dies or there is nothing more to order.
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
    tokio::time::sleep(AGAIN).await;
    let _ = me.tell(GuardMsg::Died);
}

impl GuardActor {
    fn start(&self, state: &mut GuardState) {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        match Guard::start(&self.exe, &args, &self.mark) {
            Ok(guard) => {
                let (orders, taken) = mpsc::channel(ORDERS);
                state.orders = Some(orders);
                tokio::spawn(keep(guard, taken, state.me.clone()));
                for group in &state.groups {
                    state.order(Order::Watch(*group));
                }
            }
            Err(error) => {
                tracing::error!(%error, "no guard process: children may outlive a killed kernel");
                state.orders = None;
            }
        }
    }
}
