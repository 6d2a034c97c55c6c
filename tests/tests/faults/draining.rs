//! Servers that are stopped, started and restarted by the operator while they are in use.

use mgp_tests::harness::Kernel;
use mgp_tests::harness::wait::within;
use serde_json::json;

use crate::scene::{AT_ONCE, begin, echoes, in_flight, in_state, listed, owner, server, shown};

/// MGP-118, MGP-119: a server that is stopped finishes the call under way and takes no new one.
#[tokio::test]
async fn a_draining_server_finishes_its_calls_and_takes_no_new_ones() {
    let kernel = Kernel::start(&(server("it", &[], "") + &server("calm", &[], ""))).await;
    kernel.connected(&["it", "calm"]).await;
    let (mut agent, mut operator) = (owner(&kernel).await, owner(&kernel).await);
    let waiting = begin(&mut agent, "it__slow", json!({"ms": 2000})).await;
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
    let unknown = agent.call("it__echo", json!({"text": "x"})).await;
    assert_eq!(unknown.code(), -32602);
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

/// Told to stop while it starts, a server stops; told to start while it stops, it starts.
#[tokio::test]
async fn the_last_order_counts() {
    let kernel = Kernel::start(&server("it", &["--slow-start", "300"], "autostart = false")).await;
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
    let started = one
        .request("mgp/servers/start", json!({"id": "it"}))
        .await
        .result();
    assert_eq!(started["state"], "connected", "{started:#}");
    let waiting = begin(&mut one, "it__slow", json!({"ms": 500})).await;
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
