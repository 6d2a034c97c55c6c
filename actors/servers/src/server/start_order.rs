//! Start order: a server that starts after others waits until they are connected, will not be, or have exceeded
//! the start timeout.

use std::time::Duration;

use futures_util::future::select_all;
use mgp_engine::servers::start_order::{AwaitedStart, describe_waiting};
use mgp_engine::servers::supervision::SupervisionInput;
use mgp_protocol::ids::ServerId;

use super::{ServerActor, ServerMsg, ServerState, ServerTable};
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::{Mailbox, task};

/// How often to check for a server that is not registered yet.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The dependencies a server waits for before its start.
#[derive(Debug, Default)]
pub(super) struct StartWait {
    /// Dropped with the supervisor, and when a command takes precedence.
    wait_task: Option<SupervisedTask<()>>,
    dependencies: Vec<ServerId>,
}

impl StartWait {
    /// Describes the dependencies it waits for.
    pub(super) fn describe(&self) -> Option<String> {
        (!self.dependencies.is_empty()).then(|| describe_waiting(&self.dependencies))
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.wait_task.is_some()
    }
}

impl ServerActor {
    /// Starts the server at the kernel's start, after its dependencies.
    pub(super) fn start_in_order(&self, state: &mut ServerState) {
        self.restore_offer(state);
        // An instance is started only while its server runs.
        if state.spec.start_after.is_empty() || self.handle.agent().is_some() {
            return self.apply_input(state, SupervisionInput::Start { by_operator: false });
        }
        let (others, mailbox) = (state.spec.start_after.clone(), state.mailbox.clone());
        let (servers, timeout) = (self.servers.clone(), state.spec.limits.start_timeout);
        let waiting = async move {
            let waiting = wait_for_dependencies(&servers, others, &mailbox);
            let _ = tokio::time::timeout(timeout, waiting).await;
            let _ = mailbox.send(ServerMsg::DependenciesReady);
        };
        state.start_wait = StartWait {
            wait_task: Some(task::spawn_supervised("server.start_order", waiting)),
            dependencies: state.spec.start_after.clone(),
        };
        self.publish(state);
    }

    /// Sets the dependencies that are not connected yet.
    pub(super) fn set_pending_dependencies(&self, state: &mut ServerState, others: Vec<ServerId>) {
        if state.start_wait.is_waiting() {
            state.start_wait.dependencies = others;
            self.publish(state);
        }
    }

    /// Ends the wait and starts the server, even if dependencies are missing.
    pub(super) fn finish_start_wait(&self, state: &mut ServerState) {
        if !state.start_wait.is_waiting() {
            return;
        }
        if let Some(missing) = state.start_wait.describe() {
            let note = format!("{missing} no longer; it is started anyway");
            self.log().push_note(&note);
        }
        state.start_wait = StartWait::default();
        self.apply_input(state, SupervisionInput::Start { by_operator: false });
    }
}

/// Resolves when no dependency is pending; reports the missing ones at each change.
async fn wait_for_dependencies(
    servers: &ServerTable,
    mut others: Vec<ServerId>,
    mailbox: &Mailbox<ServerMsg>,
) {
    loop {
        let known = servers.load();
        let mut changes = Vec::new();
        let before = others.len();
        others.retain(|id| {
            let Some(handle) = known.get(id) else {
                return AwaitedStart::Unknown.is_pending();
            };
            let mut status = handle.watch_status();
            let (state, due, awaits_approval) = {
                let now = status.borrow_and_update();
                (now.state, now.starts_automatically, now.awaits_operator)
            };
            let comes = AwaitedStart::Known {
                state,
                will_start: due,
                awaits_approval,
            }
            .is_pending();
            if comes {
                changes.push(Box::pin(async move { status.changed().await.is_ok() }));
            }
            comes
        });
        if others.len() < before {
            let _ = mailbox.send(ServerMsg::DependenciesPending(others.clone()));
        }
        let unseen = changes.len() < others.len();
        match (others.is_empty(), changes.is_empty()) {
            (true, _) => return,
            (false, true) => tokio::time::sleep(POLL_INTERVAL).await,
            (false, false) if unseen => {
                let _ = tokio::time::timeout(POLL_INTERVAL, select_all(changes)).await;
            }
            (false, false) => {
                let (still_there, ..) = select_all(changes).await;
                if !still_there {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            }
        }
    }
}
