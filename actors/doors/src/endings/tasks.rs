//! Calls that go on without their requests: tasks, and those that wait for their clients.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use mgp_engine::callers::tasks::Maker;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::dialect::Version;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::mcp::ClientCapabilities;
use mgp_protocol::mgp::negotiation::PLAIN;
use mgp_protocol::refusal::Refusal;
use tokio::sync::oneshot;

use super::scene::Scene;
use super::watched::Watched;
use mgp_callers::agent;
use mgp_callers::exchange::rounds::{Attempt, Attempts};
use mgp_callers::exchange::{Exchange, Way};
use mgp_callers::request::background_call::Errand;
use mgp_callers::request::{Back, Caller, GuardedAnswer};
use mgp_callers::tasks::{Again, LongCall};
use mgp_runtime::trace::Trace;

fn caller(agent: &AgentId) -> Arc<Caller> {
    Arc::new(Caller {
        connection: agent::shared_connection(agent, &CatalogView::All),
        agent: agent.clone(),
        operator: false,
        view: CatalogView::All,
        version: Version::MODERN,
        capabilities: ClientCapabilities::default(),
        mgp: PLAIN,
        back: Back::Alone,
        presence: Arc::default(),
    })
}

/// A call that answers when it is told to, or taken back.
fn errand() -> (Arc<Errand>, oneshot::Sender<Bytes>) {
    let attempt = Attempt {
        id: RequestId::from_json("1").unwrap(),
        outlet: None,
        token: None,
        capabilities: ClientCapabilities::default(),
        level: None,
        left: None,
    };
    let exchange = Exchange::new(Way::Attempts(Box::new(Attempts::new(attempt, true))));
    let (tell, told) = oneshot::channel();
    let own = exchange.clone();
    let answering = GuardedAnswer::new(|| {
        Box::pin(async move {
            tokio::select! {
                told = told => told.map_err(|_| Refusal::Cancelled),
                () = own.cancelled() => Err(Refusal::Cancelled),
            }
        })
    });
    (Errand::begin(exchange, answering), tell)
}

/// A task that has ended keeps its result and nothing else, and one that is forgotten, long before its
/// time is over, not even that.
#[tokio::test(start_paused = true)]
async fn a_task_that_has_ended_leaves_its_result_and_then_nothing() {
    let scene = Scene::new().await;
    let tasks = scene.reception.stateless.tasks.clone();
    let who = AgentId::new("agent.local");
    let mut forgotten = Watched::begin();
    let (caller, (errand, tell)) = (caller(&who), errand());
    forgotten.add("the caller", &caller);
    forgotten.add("the call", &errand);
    forgotten.add("its exchange", &errand.exchange);
    let call = LongCall {
        server: ServerId::new("it"),
        tool: "slow".into(),
        after: Duration::ZERO,
        ttl: Duration::from_secs(3600),
    };
    let again = Again {
        routes: scene.routes.clone(),
        caller: caller.clone(),
        method: ByteString::from_static("tools/call"),
        params: None,
        trace: Trace::of(None, None),
    };
    let created = tasks.make(again, &call, errand).await.unwrap();
    let created: serde_json::Value = serde_json::from_slice(&created).unwrap();
    let id = created["taskId"].as_str().unwrap();
    let named = tasks.find(&caller, id).unwrap();
    let Maker::Kernel { boot, number } = named.task.maker else {
        panic!("{named:?}");
    };
    drop(caller);
    tell.send(Bytes::from_static(br#"{"content":[]}"#)).unwrap();
    // Its keeper waits for its time; all else is gone.
    forgotten.but_tasks(1).gone().await;
    let got = tasks.get((boot, number)).unwrap();
    assert!(String::from_utf8_lossy(&got).contains("content"), "{got:?}");
    let gone = Watched::begin().less_tasks(1);
    tasks.end_of(&who).await;
    assert!(tasks.get((boot, number)).is_none());
    gone.gone().await;
}

/// A panic of what follows a task fails the task, takes its call back and lets go of it; the task is kept
/// and can be asked after.
#[tokio::test(start_paused = true)]
async fn a_task_whose_keeper_panics_has_failed() {
    let scene = Scene::new().await;
    let tasks = scene.reception.stateless.tasks.clone();
    let who = AgentId::new("agent.local");
    let mut watched = Watched::begin();
    // No stateless client's: whatever follows it relies on that.
    let exchange = Exchange::new(Way::Nowhere);
    let own = exchange.clone();
    let answering = GuardedAnswer::new(|| {
        Box::pin(async move {
            own.cancelled().await;
            Err(Refusal::Cancelled)
        })
    });
    let errand = Errand::begin(exchange, answering);
    let caller = caller(&who);
    watched.add("the call", &errand);
    watched.add("its exchange", &errand.exchange);
    let call = LongCall {
        server: ServerId::new("it"),
        tool: "slow".into(),
        after: Duration::ZERO,
        ttl: Duration::from_secs(3600),
    };
    let again = Again {
        routes: scene.routes.clone(),
        caller: caller.clone(),
        method: ByteString::from_static("tools/call"),
        params: None,
        trace: Trace::of(None, None),
    };
    let created = tasks.make(again, &call, errand).await.unwrap();
    let created: serde_json::Value = serde_json::from_slice(&created).unwrap();
    let named = tasks.find(&caller, created["taskId"].as_str().unwrap());
    let Maker::Kernel { boot, number } = named.unwrap().task.maker else {
        panic!("the kernel made it");
    };
    watched.but_tasks(1).gone().await;
    let got: serde_json::Value =
        serde_json::from_slice(&tasks.get((boot, number)).unwrap()).unwrap();
    assert_eq!(got["status"], "failed", "{got}");
    assert_eq!(got["error"]["code"], -32603, "{got}");
    tasks.end_of(&who).await;
    assert!(tasks.get((boot, number)).is_none());
}

/// A call that was parked and whose client came back leaves no clock.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_parked_leaves_nothing() {
    let scene = Scene::new().await;
    let parked = &scene.reception.stateless.parked;
    let mut watched = Watched::begin();
    let (caller, (errand, tell)) = (caller(&AgentId::new("agent.local")), errand());
    watched.add("the caller", &caller);
    watched.add("the call", &errand);
    parked.park(1, errand, caller, None).unwrap();
    let taken = parked.take(1).unwrap();
    tell.send(Bytes::new()).unwrap();
    taken.errand.outcome().await.unwrap();
    drop(taken);
    watched.gone().await;
}
