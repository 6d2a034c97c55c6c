//! Tasks that a server of another node makes of calls.

use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::{DEADLINE, ModernAgent, Program, wait_until};
use serde_json::{Value, json};

use super::agents::{modern, named};

/// A client that can be given tasks.
const KNOWS: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

async fn nodes() -> JoinedNodes {
    let server = Program::fixture(&["--era", "modern"]).entry("demo");
    let nodes = JoinedNodes::sharing(&server, &["demo"]).await;
    named(&nodes, &["alice", "bob"], "demo").await;
    nodes
}

/// Calls a tool that becomes a task; gives its name.
async fn begin(agent: &mut ModernAgent, seconds: f64) -> String {
    let arguments = json!({"seconds": seconds, "label": "x"});
    let params = json!({"name": "nas__demo__slow_compute", "arguments": arguments});
    let told = agent.ask("tools/call", params).await.result();
    assert_eq!(told["resultType"], "task", "{told}");
    told["taskId"].as_str().unwrap().to_owned()
}

async fn get(agent: &mut ModernAgent, id: &str) -> Value {
    let got = agent.ask("tasks/get", json!({"taskId": id})).await;
    got.result()
}

/// PRJ-013, FED-064: a task is polled to its end by the agent whose call became it, which hears of it, too.
#[tokio::test(flavor = "multi_thread")]
async fn task_at_another_node_is_polled_and_notified() {
    let nodes = nodes().await;
    let mut alice = modern(&nodes, "alice", KNOWS);
    let id = begin(&mut alice, 1.0).await;
    assert_eq!(get(&mut alice, &id).await["status"], "working");
    alice.listen(json!({"taskIds": [id]})).await;
    let acknowledged = alice
        .hears("notifications/subscriptions/acknowledged")
        .await;
    let listened = &acknowledged["params"]["notifications"]["taskIds"];
    assert_eq!(listened, &json!([id]), "{acknowledged}");
    let told = alice.hears("notifications/tasks").await["params"].take();
    assert_eq!(
        (&told["taskId"], &told["status"]),
        (&json!(id), &json!("completed"))
    );
    let done = get(&mut alice, &id).await;
    assert_eq!(done["status"], "completed");
    assert_eq!(done["result"]["content"][0]["text"], "computed x");
}

/// PRJ-013: nobody else's agent asks for it, changes it, cancels it or hears of it, though it may call the same
/// tool; its own agent takes it back, and the server gives it up.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_at_another_node_is_its_agents_alone() {
    let nodes = nodes().await;
    let mut alice = modern(&nodes, "alice", KNOWS);
    let mut bob = modern(&nodes, "bob", KNOWS);
    let id = begin(&mut alice, 60.0).await;
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({"taskId": id, "inputResponses": {}});
        let refused = bob.ask(method, params).await;
        assert_eq!(refused.code(), -32602, "{method}: {}", refused.frame);
    }
    bob.listen(json!({"taskIds": [id], "toolsListChanged": true}))
        .await;
    let heard = bob.hears("notifications/subscriptions/acknowledged").await;
    let listened = &heard["params"]["notifications"]["taskIds"];
    assert!(
        listened.as_array().is_none_or(Vec::is_empty),
        "bob hears of a task of alice: {heard}"
    );
    assert_eq!(get(&mut alice, &id).await["status"], "working");
    let cancelled = alice.ask("tasks/cancel", json!({"taskId": id})).await;
    cancelled.result();
    wait_until("the task is cancelled", DEADLINE, async || {
        get(&mut alice, &id).await["status"] == "cancelled"
    })
    .await;
    bob.call("nas__demo__echo", json!({"text": "done"})).await;
    assert!(bob.heard("notifications/tasks").is_empty());
}
