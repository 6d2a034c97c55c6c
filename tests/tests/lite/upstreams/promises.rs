//! Promises of a lite server: waited for, handed on as tasks, taken back.

use mgp_tests::harness::{DEADLINE, Kernel, Need, Peers, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{LitePeer, legacy, modern};

/// A client that can be given tasks.
const TASKS: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

/// LITE-017: a promise is redeemed until it is kept; who can have a task has one at once, and taking it back, like
/// going away, is told to the server (A-36).
#[tokio::test]
async fn a_promise_is_waited_for_or_becomes_a_task_and_can_be_taken_back() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let peer = LitePeer::http(&peers, &[]).await;
    let kernel = Kernel::start(&peer.entry("shop", "task_after_ms = 600000\n")).await;
    kernel.connected(&["shop"]).await;
    let mut agent = legacy(&kernel, "{}").await;
    let late = agent.call("slow", json!({"polls": 3, "label": "a"})).await;
    assert_eq!(late.text(), "late a");
    assert_eq!(peer.told().await["redeemed"]["slow:3:a"], 3);
    let mut plain = modern(&kernel, "{}");
    let late = plain
        .call("slow", json!({"polls": 1, "label": "b"}))
        .await
        .result();
    assert_eq!(late["content"][0]["text"], "late b");

    let mut knows = modern(&kernel, TASKS);
    let task = task(&mut knows, "yes").await;
    peer.set(json!({"ready": "yes"})).await;
    let kept = stands(&mut knows, &task, "completed").await;
    assert_eq!(kept["result"]["content"][0]["text"], "opened", "{kept}");
    let taken_back = self::task(&mut knows, "no").await;
    knows
        .ask("tasks/cancel", json!({"taskId": taken_back}))
        .await
        .result();
    cancelled(&peer, "gated:no").await;

    let gone = agent
        .start("tools/call", json!({"name": "endless", "arguments": {}}))
        .await;
    wait_until("it is redeemed", DEADLINE, async || {
        peer.told().await["redeemed"]["endless"].as_u64() > Some(0)
    })
    .await;
    agent
        .notify("notifications/cancelled", json!({"requestId": gone}))
        .await;
    cancelled(&peer, "endless").await;
    for (tool, word) in [
        (
            "expires",
            "the promise that it gave for this call is not kept: the promise has expired",
        ),
        ("huge_token", "5000 bytes"),
        ("no_token", "promise_token"),
    ] {
        let refused = agent.call(tool, json!({})).await;
        assert!(
            refused.is_error() && refused.frame.contains(word),
            "{}",
            refused.frame
        );
    }
    assert_eq!(agent.call("plain", json!({})).await.text(), "plain");
    let told = peer.told().await;
    assert!(
        told["counts"].get("cancelled expired").is_none(),
        "{told:#}"
    );
}

/// LITE-017: a promise without end is over with its call's longest time, and is taken back; a server that was
/// started again knows its promises still, and their calls do not end with it.
#[tokio::test]
async fn a_promise_outlives_its_server_and_not_its_calls_time() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let mut peer = LitePeer::http(&peers, &[]).await;
    let limits = "call_timeout_secs = 2\ncall_timeout_max_secs = 3\n";
    let long = peer.entry("shop", "") + &peer.entry("short", limits);
    let kernel = Kernel::start(&long).await;
    kernel.connected(&["shop", "short"]).await;
    let mut agent = legacy(&kernel, "{}").await;
    let waits = agent
        .start(
            "tools/call",
            json!({"name": "slow", "arguments": {"polls": 2, "label": "c"}}),
        )
        .await;
    wait_until("it is promised", DEADLINE, async || {
        peer.told().await["counts"]["slow"] == 1
    })
    .await;
    let port = peer.port.to_string();
    peer.process.signal(Signal::SIGKILL);
    peer.process.end(DEADLINE).await;
    let down = agent.call("plain", json!({})).await;
    assert!(down.frame.contains(&port), "{}", down.frame);
    let again = LitePeer::http(&peers, &["--port", &port]).await;
    assert_eq!(agent.answer_to(&waits).await.text(), "late c");
    assert_eq!(agent.call("plain", json!({})).await.text(), "plain");

    let mut short = mgp_tests::harness::Agent::over_http(&kernel.server_url("short"));
    short.initialize(super::NEWEST, "{}").await.result();
    kernel.connected(&["short"]).await;
    let late = short.call("endless", json!({})).await;
    assert!(late.frame.contains("3000 ms"), "{}", late.frame);
    cancelled(&again, "endless").await;
}

/// Calls the tool that opens when it is told to; gives the task it becomes.
async fn task(agent: &mut mgp_tests::harness::ModernAgent, gate: &str) -> String {
    let params = json!({"name": "gated", "arguments": {"gate": gate}});
    let told = agent.ask("tools/call", params).await.result();
    assert_eq!(told["resultType"], "task", "{told}");
    told["taskId"].as_str().unwrap().to_owned()
}

async fn stands(agent: &mut mgp_tests::harness::ModernAgent, task: &str, wanted: &str) -> Value {
    let mut seen = Value::Null;
    wait_until(&format!("the task is {wanted}"), DEADLINE, async || {
        seen = agent
            .ask("tasks/get", json!({"taskId": task}))
            .await
            .result();
        seen["status"] == wanted
    })
    .await;
    seen
}

async fn cancelled(peer: &LitePeer, token: &str) {
    wait_until(&format!("{token} is cancelled"), DEADLINE, async || {
        peer.told().await["counts"][format!("cancelled {token}")] == 1
    })
    .await;
}
