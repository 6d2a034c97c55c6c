//! Actors at the root that panic while they are asked and servers are called: what callers see.

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_callers::agent::shared_connection;
use mgp_cluster::links::LinksMsg;
use mgp_cluster::pairing::PairingMsg;
use mgp_cluster::replication::ReplicationMsg;
use mgp_cluster::{LanMsg, SharesMsg, ToolIndexMsg};
use mgp_doors::agent_registry::AgentRegistryMsg;
use mgp_engine::policy::permissions::PermissionRules;
use mgp_engine::servers::tree_plan::LossPolicy;
use mgp_engine::tools::catalog::CatalogView;
use mgp_kernel::{ROOT_ACTORS, RootActor};
use mgp_policy::AccessMsg;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::audit::TraceId;
use mgp_protocol::mgp::permission::Ask;
use mgp_runtime::{Queued, TaskSupervisorMsg};
use mgp_servers::GuardMsg;
use mgp_store::audit::kernel_actor;
use mgp_tools::registrar::ServerTree;
use mgp_tools::search::SearchMsg;
use mgp_tools::{CatalogMsg, EventsMsg, SubscriptionsMsg};
use ractor::{ActorCell, ActorStatus};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::scene::{DEADLINE, Kernel, Load, connected, spec, until};

/// Each actor at the root panics while calls go on and others wait for it: the kernel ends in good order, or
/// the actor is started again. The calls never fail, and whoever asks the actor itself is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_actor_at_the_root_that_panics_leaves_nobody_waiting() {
    for (at, (name, loss)) in ROOT_ACTORS.into_iter().enumerate() {
        let (called, later) = (format!("called{at}"), format!("later{at}"));
        let kernel = Arc::new(Kernel::grow(&[&called]).await);
        let one = kernel.server(&called);
        connected(&one, 0).await;
        kernel.finds(&called).await;
        let load = Load::begin(&one);
        let callers = Callers::begin(&kernel, name).await;
        let lost = kernel.root.iter().find(|actor| actor.name == name);
        let lost = lost.unwrap_or_else(|| panic!("{name} has no part here"));
        make_panic(lost);
        let gone = || lost.cell.get_status() == ActorStatus::Stopped;
        until("it is gone", gone).await;
        match loss {
            LossPolicy::StopKernel => {
                let closing = kernel.closing.cancelled();
                tokio::time::timeout(DEADLINE, closing).await.unwrap();
            }
            LossPolicy::Restart => {
                assert!(kernel.tree.start_server(spec(&later)).await);
                connected(&kernel.server(&later), 0).await;
                kernel.finds(&later).await;
                assert!(!kernel.closing.is_cancelled());
            }
        }
        let (answered, failed) = load.end().await;
        let heard = callers.end().await;
        println!(
            "{name}: {answered} calls answered, failed: {failed:?}; who asked it heard {heard:?}"
        );
        assert!(answered > 0 && failed.is_empty());
        kernel.tree.stop_servers().await;
    }
}

/// Makes an actor panic over its next message.
fn make_panic(actor: &RootActor) {
    fn by<M: Send + 'static>(cell: &ActorCell) {
        cell.send_message(Queued::<M>::panic()).unwrap();
    }
    let cell = &actor.cell;
    match actor.name {
        "guard" => by::<GuardMsg>(cell),
        "subscriptions" => by::<SubscriptionsMsg>(cell),
        "events" => by::<EventsMsg>(cell),
        "access" => by::<AccessMsg>(cell),
        "agent_registry" => by::<AgentRegistryMsg>(cell),
        "permissions" | "pins" | "registrar" | "tasks" => by::<TaskSupervisorMsg>(cell),
        "catalog" => by::<CatalogMsg>(cell),
        "search" => by::<SearchMsg>(cell),
        "links" => by::<LinksMsg>(cell),
        "replication" => by::<ReplicationMsg>(cell),
        "tool_index" => by::<ToolIndexMsg>(cell),
        "shares" => by::<SharesMsg>(cell),
        "pairing" => by::<PairingMsg>(cell),
        "lan" => by::<LanMsg>(cell),
        // It gets no messages, so it has nothing to panic over.
        "agents" => cell.kill(),
        other => panic!("{other} is new: say how it panics"),
    }
}

/// Those who ask an actor, again and again, or wait for what hangs below it.
struct Callers {
    ended: CancellationToken,
    asking: JoinHandle<BTreeMap<String, usize>>,
}

impl Callers {
    /// Resolves when the first of them waits or was answered.
    async fn begin(kernel: &Arc<Kernel>, name: &'static str) -> Self {
        let ended = CancellationToken::new();
        let (told, kernel) = (ended.clone(), kernel.clone());
        let first = Arc::new(tokio::sync::Notify::new());
        let begun = first.clone();
        let asking = tokio::spawn(async move {
            let mut heard = BTreeMap::new();
            while !told.is_cancelled() {
                let asked = tokio::time::timeout(DEADLINE, ask(&kernel, name, &begun)).await;
                let answer = asked.unwrap_or_else(|_| panic!("whoever asked {name} heard nothing"));
                begun.notify_one();
                *heard.entry(answer).or_default() += 1;
                tokio::task::yield_now().await;
            }
            heard
        });
        tokio::time::timeout(DEADLINE, first.notified())
            .await
            .unwrap();
        Self { ended, asking }
    }

    /// What they heard, and how often.
    async fn end(self) -> BTreeMap<String, usize> {
        self.ended.cancel();
        self.asking.await.unwrap()
    }
}

/// Asks an actor, or waits for what is under way below it; gives what is heard. `begun` is told when there
/// is nothing left but to wait.
async fn ask(kernel: &Kernel, name: &'static str, begun: &tokio::sync::Notify) -> String {
    let (asked, who) = (&kernel.asked, AgentId::new("agent.asks"));
    match name {
        "subscriptions" => {
            let who = shared_connection(&who, &CatalogView::All);
            let asked = asked
                .subscriptions
                .unsubscribe(who, ServerId::new("it"), "a:b".into());
            said(asked.await)
        }
        "events" => {
            let who = shared_connection(&who, &CatalogView::All);
            said(asked.events.unsubscribe(who, "sub-none".into()).await)
        }
        "access" => said(asked.access.flush().await),
        "agent_registry" => {
            let trace = TraceId::parse("550e8400-e29b-41d4-a716-446655440000").unwrap();
            said(asked.agents.renew(&who, None, &trace).await.map(|_| ()))
        }
        "permissions" => {
            let it = ServerId::new("asks");
            let _gate = asked
                .permissions
                .open(&it, &PermissionRules::default())
                .await
                .unwrap();
            begun.notify_one();
            let ask = Ask {
                request_id: "1".into(),
                permissions: vec!["network.outbound".into()],
                policy: None,
                message: None,
            };
            let decided = asked.permissions.request(&it, &ask).await;
            format!("{:?}", decided)
        }
        "pins" | "registrar" | "tasks" => {
            let waiting = asked.tasks[name].start_child("asks", std::future::pending);
            begun.notify_one();
            waiting
                .await
                .map_or_else(|broken| broken.to_string(), |()| "its end".into())
        }
        "search" => said(kernel.search("nothing").await.map(|_| ())),
        "links" => said(asked.cluster.links.status().await.map(|_| ())),
        "replication" => said(asked.cluster.replication.read_logs(|_| ()).await),
        "tool_index" => said(asked.cluster.tool_index.status().await.map(|_| ())),
        "shares" => {
            let nobody = asked.cluster.local_node;
            said(
                asked
                    .cluster
                    .shares
                    .remove_node(nobody, kernel_actor())
                    .await,
            )
        }
        "pairing" => said(asked.cluster.pairing.list_tickets().await.map(|_| ())),
        "lan" => said(asked.cluster.lan.status().await.map(|_| ())),
        // They are only told: nobody waits for them.
        "guard" | "catalog" | "agents" => "nothing is asked".into(),
        other => panic!("{other} is new: say who waits for it"),
    }
}

fn said<E: std::fmt::Display>(answer: Result<(), E>) -> String {
    answer.map_or_else(|why| why.to_string(), |()| "answered".into())
}
