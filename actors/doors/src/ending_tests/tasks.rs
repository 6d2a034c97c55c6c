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
use mgp_callers::request::background_call::BackgroundCall;
use mgp_callers::request::{Caller, CallerSession, GuardedAnswer};
use mgp_callers::tasks::{LongCall, NextRound};
use mgp_callers::{CallRound, CallRounds, InFlightCall, ReplyPath, agent};
use mgp_runtime::trace::Trace;
use mgp_runtime::{Queued, TaskSupervisorMsg};

fn caller(agent: &AgentId) -> Arc<Caller> {
    Arc::new(Caller {
        connection: agent::shared_connection(agent, &CatalogView::All),
        agent: agent.clone(),
        operator: false,
        view: CatalogView::All,
        version: Version::STATELESS,
        capabilities: ClientCapabilities::default(),
        mgp: PLAIN,
        mcpl: None,
        session: CallerSession::Stateless,
        activity: Arc::default(),
    })
}

/// A call that answers when it is told to, or taken back.
fn background() -> (Arc<BackgroundCall>, oneshot::Sender<Bytes>) {
    let round = CallRound {
        id: RequestId::from_json("1").unwrap(),
        outlet: None,
        token: None,
        capabilities: ClientCapabilities::default(),
        log_level: None,
        answered_at: None,
    };
    let exchange = InFlightCall::new(ReplyPath::Rounds(Box::new(CallRounds::new(round, true))));
    let (tell, told) = oneshot::channel();
    let own = exchange.clone();
    let answering = GuardedAnswer::new(|| {
        Box::pin(async move {
            tokio::select! {
                told = told => told.map_err(|_| Refusal::Cancelled),
                () = own.wait_until_cancelled() => Err(Refusal::Cancelled),
            }
        })
    });
    (BackgroundCall::start(exchange, answering), tell)
}

/// A task that has ended keeps its result and nothing else, and one that is forgotten, long before its
/// time is over, not even that.
#[tokio::test(start_paused = true)]
async fn a_task_that_has_ended_leaves_its_result_and_then_nothing() {
    let scene = Scene::new().await;
    let tasks = scene.reception.stateless.tasks.clone();
    let who = AgentId::new("agent.local");
    let mut forgotten = Watched::begin();
    let (caller, (background, tell)) = (caller(&who), background());
    forgotten.add("the caller", &caller);
    forgotten.add("the call", &background);
    forgotten.add("its exchange", &background.call);
    let call = LongCall {
        server: ServerId::new("it"),
        tool: "slow".into(),
        threshold: Duration::ZERO,
        ttl: Duration::from_secs(3600),
    };
    let round = NextRound {
        routes: scene.routes.clone(),
        caller: caller.clone(),
        method: ByteString::from_static("tools/call"),
        params: None,
        trace: Trace::from_params(None, None),
    };
    let created = tasks.create(round, &call, background).await.unwrap();
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
    tasks.cancel_for_agent(&who).await;
    assert!(tasks.get((boot, number)).is_none());
    gone.gone().await;
}

/// What follows tasks ends with its supervisor, however that ends.
#[tokio::test(start_paused = true)]
async fn what_follows_a_task_ends_with_the_supervisor_of_tasks() {
    let scene = Scene::new().await;
    let tasks = scene.reception.stateless.tasks.clone();
    let (caller, (background, tell)) = (caller(&AgentId::new("agent.local")), background());
    let call = LongCall {
        server: ServerId::new("it"),
        tool: "slow".into(),
        threshold: Duration::ZERO,
        ttl: Duration::from_secs(3600),
    };
    let again = NextRound {
        routes: scene.routes.clone(),
        caller,
        method: ByteString::from_static("tools/call"),
        params: None,
        trace: Trace::from_params(None, None),
    };
    tasks.create(again, &call, background).await.unwrap();
    let both = Watched::begin().less_tasks(2);
    tell.send(Bytes::from_static(br#"{"content":[]}"#)).unwrap();
    scene
        .following
        .send_message(Queued::<TaskSupervisorMsg>::panic())
        .unwrap();
    both.gone().await;
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
    let exchange = InFlightCall::new(ReplyPath::Discard);
    let own = exchange.clone();
    let answering = GuardedAnswer::new(|| {
        Box::pin(async move {
            own.wait_until_cancelled().await;
            Err(Refusal::Cancelled)
        })
    });
    let background = BackgroundCall::start(exchange, answering);
    let caller = caller(&who);
    watched.add("the call", &background);
    watched.add("its exchange", &background.call);
    let call = LongCall {
        server: ServerId::new("it"),
        tool: "slow".into(),
        threshold: Duration::ZERO,
        ttl: Duration::from_secs(3600),
    };
    let round = NextRound {
        routes: scene.routes.clone(),
        caller: caller.clone(),
        method: ByteString::from_static("tools/call"),
        params: None,
        trace: Trace::from_params(None, None),
    };
    let created = tasks.create(round, &call, background).await.unwrap();
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
    tasks.cancel_for_agent(&who).await;
    assert!(tasks.get((boot, number)).is_none());
}

/// A call that was suspended and whose client came back leaves no clock.
#[tokio::test(start_paused = true)]
async fn a_suspended_call_leaves_nothing() {
    let scene = Scene::new().await;
    let suspended = &scene.reception.stateless.suspended;
    let mut watched = Watched::begin();
    let (caller, (background, tell)) = (caller(&AgentId::new("agent.local")), background());
    watched.add("the caller", &caller);
    watched.add("the call", &background);
    suspended.suspend(1, background, caller, None).unwrap();
    let taken = suspended.take(1).unwrap();
    tell.send(Bytes::new()).unwrap();
    taken.background.wait_for_outcome().await.unwrap();
    drop(taken);
    watched.gone().await;
}
