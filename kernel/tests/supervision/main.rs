//! What happens when an actor fails: a tree like that of `mgp up`, with real children.
#![allow(clippy::unwrap_used)]

mod lost;
mod node;
mod scene;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mgp_callers::Streams;
use mgp_callers::agent::{Agent, AgentChannel};
use mgp_engine::servers::spec::ServerTransport;
use mgp_engine::tools::subscriptions::PER_CONNECTION_MAX;
use mgp_policy::{AccessMsg, GrantQuery};
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_runtime::Reply;
use mgp_servers::ServerMsg;
use mgp_tools::registrar::ServerTree;

use self::scene::{DEADLINE, Kernel, Load, alive, call, connected, pid, spec, until};

/// PRJ-002: a supervisor that panics takes its own server along and is started again with it; the
/// others go on, with the same process and the call they are working on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_supervisor_that_panics_takes_nobody_else_along() {
    let kernel = Kernel::grow(&["one", "other"]).await;
    let (one, other) = (kernel.server("one"), kernel.server("other"));
    let first = connected(&one, 0).await;
    let stays = connected(&other, 0).await;
    let job = tokio::spawn({
        let other = other.clone();
        async move { call(&other, "slow_job", r#"{"steps":10,"step_ms":100}"#).await }
    });

    let load = Load::begin(&one);
    let beside = Load::begin(&other);
    one.supervisor().unwrap().panic();
    let second = connected(&one, first).await;
    assert!(!Path::new(&format!("/proc/{}", first)).exists());
    assert!(call(&one, "time", "{}").await.contains("content"));

    let undisturbed = beside.end().await;
    assert!(undisturbed.0 > 0 && undisturbed.1.is_empty());
    let done = tokio::time::timeout(DEADLINE, job).await.unwrap().unwrap();
    assert!(done.contains("content"), "{done}");
    assert_eq!(pid(&other.status()), stays);
    let status = one.status();
    assert_eq!(
        (pid(&status), status.restarts),
        (second, 0),
        "nothing of the old life reaches into the new one"
    );
    let (answered, failed) = load.end().await;
    println!(
        "its callers: {answered} answered, {failed:?}; those of another server: {undisturbed:?}"
    );
    assert!(answered > 0);
    assert!(!kernel.closing.is_cancelled());
    kernel.tree.stop_servers().await;
}

/// What the lives of a server held is gone with them, and with the server all that is known of it: its
/// connections, its face, and every task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_taken_out_leaves_nothing() {
    let kernel = Kernel::grow(&[]).await;
    let before = alive();
    assert!(kernel.tree.start_server(spec("taken")).await);
    let one = kernel.server("taken");
    let mut process = connected(&one, 0).await;
    let mut links = Vec::new();
    for _ in 0..3 {
        assert!(call(&one, "time", "{}").await.contains("content"));
        links.push(Arc::downgrade(&one.link().unwrap()));
        one.send(ServerMsg::Restart).unwrap();
        process = connected(&one, process).await;
    }
    let held = || links.iter().filter(|link| link.strong_count() > 0).count();
    until("the connections of earlier lives are gone", || held() == 0).await;
    let last = Arc::downgrade(&one.link().unwrap());
    let face = Arc::downgrade(&one);
    drop(one);
    let stopped = kernel
        .tree
        .stop_server(ServerId::new("taken"))
        .await
        .unwrap();
    stopped.await.unwrap();
    until("its last connection is gone", || last.strong_count() == 0).await;
    until("its face is gone", || face.strong_count() == 0).await;
    until("its tasks have ended", || alive() <= before).await;
}

/// What an agent follows of a server ends when that is taken out: the next server of its name is not asked for
/// it, and the agent has its room back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_follows_a_server_that_was_taken_out() {
    let kernel = Kernel::grow(&[]).await;
    let agent = AgentId::new("agent.follows");
    let agent = Agent::new(agent, false, AgentChannel::Session(Streams::new(1, None)));
    kernel.directory.insert(agent.clone());
    let gone = ServerId::new("gone");
    let follow = |n: usize| {
        let (server, uri) = (gone.clone(), format!("a:{n}"));
        kernel
            .asked
            .subscriptions
            .subscribe(agent.connection, server, uri)
    };
    assert!(kernel.tree.start_server(spec("gone")).await);
    connected(&kernel.server("gone"), 0).await;
    for n in 0..PER_CONNECTION_MAX {
        follow(n).await.unwrap();
    }
    assert!(follow(PER_CONNECTION_MAX).await.is_err());
    let stopped = kernel.tree.stop_server(gone.clone()).await.unwrap();
    stopped.await.unwrap();
    follow(PER_CONNECTION_MAX).await.unwrap();
}

/// A registered server whose start fails half-way leaves nothing behind: it is not shown, and no reload
/// starts it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registered_server_that_could_not_be_started_leaves_nothing() {
    let kernel = Kernel::grow(&["beside"]).await;
    let (release, held) = std::sync::mpsc::channel::<()>();
    kernel.hold_access(held);
    let look = || {
        let query = GrantQuery::Barrier(Reply::new().0);
        kernel.access.send(AccessMsg::Read(query))
    };
    while look().is_ok() {}
    assert!(!kernel.tree.start_server(spec("half")).await);
    drop(release);
    let heard = || look().is_ok();
    until("access control answers again", heard).await;
    let half = ServerId::new("half");
    assert!(!kernel.servers.load().contains_key(&half));
    kernel.tree.reload().await.unwrap();
    assert!(!kernel.servers.load().contains_key(&half));
    assert!(
        kernel.tree.start_server(spec("half")).await,
        "its name is free"
    );
    kernel.tree.stop_servers().await;
}

/// A server that keeps failing waits for its next try; taken out meanwhile it leaves no clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_failed_leaves_no_clock() {
    let kernel = Kernel::grow(&[]).await;
    let before = alive();
    let mut spec = spec("failing");
    spec.transport = ServerTransport::Stdio {
        command: "/bin/false".into(),
        args: Vec::new(),
        env: BTreeMap::new(),
        inherit_env: Vec::new(),
        cwd: None,
    };
    spec.restart.backoff_base = Duration::from_secs(3600);
    spec.restart.backoff_max = Duration::from_secs(3600);
    assert!(kernel.tree.start_server(spec).await);
    let one = kernel.server("failing");
    let mut status = one.watch_status();
    let waits = status.wait_for(|status| status.next_start.is_some());
    tokio::time::timeout(DEADLINE, waits)
        .await
        .unwrap()
        .unwrap();
    let face = Arc::downgrade(&one);
    drop((one, status));
    let stopped = kernel
        .tree
        .stop_server(ServerId::new("failing"))
        .await
        .unwrap();
    stopped.await.unwrap();
    until("its face is gone", || face.strong_count() == 0).await;
    until("its clock has ended", || alive() <= before).await;
}
