//! Servers that are stopped, started and restarted by the operator while they are in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mgp_tests::harness::program::Gate;
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{DEADLINE, Kernel, wait_until};
use serde_json::json;
use tokio::task::JoinSet;

use crate::scene::{
    AT_ONCE, begin, echoes, entry, in_flight, in_state, listed, owner, server, shown,
};

/// MGP-118, MGP-119: a server that is stopped finishes the call under way and takes no new one.
#[tokio::test]
async fn a_draining_server_finishes_its_calls_and_takes_no_new_ones() {
    let kernel = Kernel::start(&(server("it", &[], "") + &server("calm", &[], ""))).await;
    kernel.connected(&["it", "calm"]).await;
    let (mut agent, mut operator) = (owner(&kernel).await, owner(&kernel).await);
    let waiting = begin(&mut agent, "it__slow", json!({"ms": 4000})).await;
    in_flight(&mut agent, "it", 1).await;
    let stopping = operator
        .start("mgp/servers/stop", json!({"id": "it"}))
        .await;
    in_state(&mut agent, "it", "draining").await;
    let refused = within(
        "a refusal",
        AT_ONCE,
        agent.call("it__echo", json!({"text": "x"})),
    )
    .await;
    assert_eq!(refused.code(), -32603);
    assert_eq!(refused.error()["data"]["state"], "draining");
    assert!(
        refused.error()["message"].to_string().contains("draining"),
        "{}",
        refused.frame
    );
    echoes(&mut agent, "calm").await;
    assert_eq!(agent.answer_to(&waiting).await.text(), "slept");
    assert_eq!(
        operator.answer_to(&stopping).await.result()["state"],
        "disconnected"
    );
    let it = listed(&kernel, "it").await;
    assert_eq!(
        (&it["state"], &it["pid"]),
        (&json!("disconnected"), &json!(null))
    );
}

/// A server that was stopped stays so until it is started; its tools are gone meanwhile.
#[tokio::test]
async fn a_stopped_server_stays_stopped_until_it_is_started() {
    let kernel = Kernel::start(&server("it", &[], "restart_policy = \"always\"")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let first = shown(&mut agent, "it").await["pid"].clone();
    assert!(
        kernel
            .mgp(&["servers", "stop", "it"])
            .await
            .status
            .success()
    );
    agent.hears("notifications/tools/list_changed").await;
    let tools = agent.request("tools/list", json!({})).await.result();
    assert_eq!(tools["tools"], json!([]));
    let stopped = agent.call("it__echo", json!({"text": "x"})).await.error();
    assert_eq!(
        (&stopped["code"], &stopped["data"]["state"]),
        (&json!(-32603), &json!("disconnected"))
    );
    let nothing = agent.call("it__nothing", json!({})).await;
    assert_eq!(nothing.code(), -32602, "{}", nothing.frame);
    assert!(
        kernel
            .mgp(&["servers", "start", "it"])
            .await
            .status
            .success()
    );
    echoes(&mut agent, "it").await;
    assert_ne!(shown(&mut agent, "it").await["pid"], first);
}

/// A restart by the operator: the call under way is finished by the old process, the next one,
/// made while the server restarts, is answered by the new one.
#[tokio::test]
async fn a_restart_loses_no_call() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let (mut agent, mut operator) = (owner(&kernel).await, owner(&kernel).await);
    let first = shown(&mut agent, "it").await["pid"].clone();
    let waiting = begin(&mut agent, "it__slow", json!({"ms": 500})).await;
    in_flight(&mut agent, "it", 1).await;
    let restarting = operator
        .start("mgp/servers/restart", json!({"id": "it"}))
        .await;
    assert_eq!(agent.answer_to(&waiting).await.text(), "slept");
    let restarted = operator.answer_to(&restarting).await.result();
    assert_eq!(restarted["state"], "connected");
    assert_ne!(restarted["pid"], first);
    echoes(&mut agent, "it").await;
}

/// Restarts by the operator under load: calls under way are finished by the old process, those that
/// come meanwhile wait for the next one, and none fails.
#[tokio::test]
async fn restarts_under_load_fail_no_call() {
    let it = server("it", &["--slow-start", "200"], "");
    let kernel = Kernel::start(&it).await;
    kernel.connected(&["it"]).await;
    let first = shown(&mut owner(&kernel).await, "it").await["pid"].clone();
    let (over, answered) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let mut agent = owner(&kernel).await;
        let (over, answered) = (over.clone(), answered.clone());
        callers.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let ids = [
                    begin(&mut agent, "it__slow", json!({"ms": 30})).await,
                    begin(&mut agent, "it:echo", json!({"text": "slept"})).await,
                    begin(&mut agent, "echo", json!({"text": "slept"})).await,
                ];
                for id in ids {
                    assert_eq!(agent.answer_to(&id).await.text(), "slept");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    for restart in 1..=4 {
        let enough = async || answered.load(Ordering::Relaxed) >= restart * 60;
        wait_until("calls are answered", DEADLINE, enough).await;
        let restarted = kernel.mgp_json(&["servers", "restart", "it"]).await;
        assert_eq!(restarted["state"], "connected", "{restarted:#}");
    }
    over.store(true, Ordering::Relaxed);
    callers.join_all().await;
    println!("{answered:?} calls around 4 restarts, none failed");
    assert_ne!(shown(&mut owner(&kernel).await, "it").await["pid"], first);
}

/// Told to stop while it drains for a restart, a server stops, and calls that waited are told at once.
#[tokio::test]
async fn stop_during_a_restart_fails_waiting_calls() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let (mut agent, mut operator) = (owner(&kernel).await, owner(&kernel).await);
    let under_way = begin(&mut agent, "it__slow", json!({"ms": 4000})).await;
    in_flight(&mut operator, "it", 1).await;
    operator
        .start("mgp/servers/restart", json!({"id": "it"}))
        .await;
    in_state(&mut agent, "it", "draining").await;
    let waits = begin(&mut agent, "it__echo", json!({"text": "x"})).await;
    operator
        .start("mgp/servers/stop", json!({"id": "it"}))
        .await;
    let told = agent.answer_to(&waits).await.error();
    assert_eq!(told["data"]["state"], "draining", "{told}");
    let it = shown(&mut agent, "it").await;
    assert_eq!(it["state"], "draining", "it was told at once");
    assert_eq!(agent.answer_to(&under_way).await.text(), "slept");
    in_state(&mut agent, "it", "disconnected").await;
}

/// Told to stop while it starts, a server stops; told to start while it stops, it starts.
#[tokio::test]
async fn the_last_order_counts() {
    let gate = Gate::default();
    let it = entry("it", &gate.fixture(&[]), "autostart = false");
    let kernel = Kernel::start(&it).await;
    let (mut one, mut other) = (owner(&kernel).await, owner(&kernel).await);
    let starting = one.start("mgp/servers/start", json!({"id": "it"})).await;
    in_state(&mut other, "it", "connecting").await;
    let stopped = other
        .request("mgp/servers/stop", json!({"id": "it"}))
        .await
        .result();
    assert!(["error", "disconnected"].contains(&stopped["state"].as_str().unwrap()));
    let reason = stopped["reason"].as_str().unwrap();
    assert!(reason.contains("operator_request"), "{reason}");
    one.answer_to(&starting).await;
    gate.open();
    let started = one
        .request("mgp/servers/start", json!({"id": "it"}))
        .await
        .result();
    assert_eq!(started["state"], "connected", "{started:#}");
    let waiting = begin(&mut one, "it__slow", json!({"ms": 4000})).await;
    in_flight(&mut other, "it", 1).await;
    let stopping = other.start("mgp/servers/stop", json!({"id": "it"})).await;
    in_state(&mut one, "it", "draining").await;
    let again = one
        .request("mgp/servers/start", json!({"id": "it"}))
        .await
        .result();
    assert_eq!(again["state"], "connected", "{again:#}");
    assert_eq!(one.answer_to(&waiting).await.text(), "slept");
    other.answer_to(&stopping).await.result();
    in_state(&mut one, "it", "connected").await;
    echoes(&mut one, "it").await;
}
