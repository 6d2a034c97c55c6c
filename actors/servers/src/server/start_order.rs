//! A server that the kernel starts after others: waits until they are connected, will not be, or have taken
//! as long as a start may take.

use std::time::Duration;

use futures_util::future::select_all;
use mgp_engine::servers::start_order::{AwaitedStart, waiting_words};
use mgp_engine::servers::supervision::SupervisionInput;
use mgp_protocol::ids::ServerId;

use super::{ServerActor, ServerMsg, ServerState, ServerTable};
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::task::{self, SupervisedTask};

/// How often it is looked for a server that nobody has seen yet.
const LOOK: Duration = Duration::from_millis(100);

/// What a server waits for before the kernel starts it.
#[derive(Debug, Default)]
pub(super) struct StartWait {
    /// Dropped with the supervisor, and when somebody else decides.
    waiting: Option<SupervisedTask<()>>,
    others: Vec<ServerId>,
}

impl StartWait {
    /// What it waits for, in words.
    pub(super) fn words(&self) -> Option<String> {
        (!self.others.is_empty()).then(|| waiting_words(&self.others))
    }

    pub(super) fn is_on(&self) -> bool {
        self.waiting.is_some()
    }
}

impl ServerActor {
    /// The kernel starts it, after those that come before.
    pub(super) fn start_in_order(&self, state: &mut ServerState) {
        self.restore_offer(state);
        // An instance is started only while its server runs.
        if state.spec.after.is_empty() || self.handle.agent().is_some() {
            return self.decide(state, SupervisionInput::Start { by_operator: false });
        }
        let (others, me) = (state.spec.after.clone(), state.me.clone());
        let (servers, patience) = (self.servers.clone(), state.spec.limits.start_timeout);
        let waiting = async move {
            let waiting = all_there(&servers, others, &me);
            let _ = tokio::time::timeout(patience, waiting).await;
            let _ = me.tell(ServerMsg::InTurn);
        };
        state.wait = StartWait {
            waiting: Some(task::supervised("server.start_order", waiting)),
            others: state.spec.after.clone(),
        };
        self.publish(state);
    }

    /// Those that it still waits for.
    pub(super) fn waits_for(&self, state: &mut ServerState, others: Vec<ServerId>) {
        if state.wait.is_on() {
            state.wait.others = others;
            self.publish(state);
        }
    }

    /// The wait is over; it is started now, whoever is missing.
    pub(super) fn in_turn(&self, state: &mut ServerState) {
        if !state.wait.is_on() {
            return;
        }
        if let Some(words) = state.wait.words() {
            let note = format!("{words} no longer: it is started without");
            self.log().note(&note);
        }
        state.wait = StartWait::default();
        self.decide(state, SupervisionInput::Start { by_operator: false });
    }
}

/// Resolves when nobody is to come any more; says who is missing whenever that changes.
async fn all_there(servers: &ServerTable, mut others: Vec<ServerId>, me: &Mailbox<ServerMsg>) {
    loop {
        let known = servers.load();
        let mut changes = Vec::new();
        let before = others.len();
        others.retain(|id| {
            let Some(handle) = known.get(id) else {
                return AwaitedStart::Unseen.is_to_come();
            };
            let mut status = handle.follow();
            let (state, due, held) = {
                let now = status.borrow_and_update();
                (now.state, now.due, now.waiting)
            };
            let comes = AwaitedStart::Seen { state, due, held }.is_to_come();
            if comes {
                changes.push(Box::pin(async move { status.changed().await.is_ok() }));
            }
            comes
        });
        if others.len() < before {
            let _ = me.tell(ServerMsg::WaitsFor(others.clone()));
        }
        let unseen = changes.len() < others.len();
        match (others.is_empty(), changes.is_empty()) {
            (true, _) => return,
            (false, true) => tokio::time::sleep(LOOK).await,
            (false, false) if unseen => {
                let _ = tokio::time::timeout(LOOK, select_all(changes)).await;
            }
            (false, false) => {
                let (still_there, ..) = select_all(changes).await;
                if !still_there {
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }
}
