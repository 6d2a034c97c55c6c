//! What MGP leaves to be built on discovery, access control and audit: here, a federation.

use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::mgp::trace;
use mgp_tests::harness::{Agent, DEADLINE, Program, wait_until};
use serde_json::{Value, json};

use super::agents::{legacy, named};
use super::audit::records;

const SPEAKS_DISCOVERY: &str =
    r#"{"mgp":{"version":"0.2.0","extensions":["discovery","access_control","audit"]}}"#;

/// The servers that this agent is listed.
async fn list_servers(agent: &mut Agent, filter: Value) -> Vec<Value> {
    let params = json!({"filter": filter});
    let listed = agent.request("mgp/discovery/list", params).await.result();
    listed["servers"].as_array().unwrap().clone()
}

/// Waits until so many servers are listed; gives them.
async fn wait_for_servers(agent: &mut Agent, count: usize) -> Vec<Value> {
    let mut servers = Vec::new();
    wait_until(
        &format!("{count} servers are listed"),
        DEADLINE,
        async || {
            servers = list_servers(agent, json!({})).await;
            servers.len() == count
        },
    )
    .await;
    servers
}

/// MGP-222, MGP-275: an agent lists a server of another node with its node, its state and the tools it may call, by the
/// filters that hold for all; it calls one, both nodes have that call in their logs under its trace, and without its
/// grant it calls it no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_another_node_is_listed_called_and_recorded_as_granted() {
    let nodes = JoinedNodes::sharing(&Program::fixture(&[]).entry("demo"), &["demo"]).await;
    named(&nodes, &["alice"], "demo").await;
    let mut alice = legacy(&nodes, "alice", SPEAKS_DISCOVERY).await;
    let found = wait_for_servers(&mut alice, 1).await[0].clone();
    assert_eq!(
        (&found["id"], &found["node"], &found["status"]),
        (&json!("nas/demo"), &json!("nas"), &json!("connected")),
        "{found:#}"
    );
    for (filter, count) in [
        (json!({"status": "connected"}), 1),
        (json!({"status": "draining"}), 0),
        (json!({"extensions": ["audit"]}), 0),
    ] {
        let servers = list_servers(&mut alice, filter.clone()).await;
        assert_eq!(servers.len(), count, "{filter}: {servers:#?}");
    }
    let tools = found["tools"].as_array().unwrap().iter();
    let mut names = tools.filter_map(Value::as_str);
    let name = names.find(|name| name.ends_with("test_simple_text"));
    let own = trace("found and called");
    let params = json!({"name": name, "arguments": {}, "trace_id": own});
    alice.request("tools/call", params).await.result();
    for kernel in [&nodes.desk, &nodes.nas] {
        wait_until("it is recorded", DEADLINE, async || {
            let records = records(kernel, "test_simple_text").await;
            records.iter().any(|record| record["trace_id"] == own)
        })
        .await;
    }
    nodes
        .nas
        .mgp_json(&["grants", "remove", "alice@desk", "demo"])
        .await;
    let again = json!({"name": name, "arguments": {}});
    let refused = alice.request("tools/call", again).await;
    assert!(refused.is_error(), "{}", refused.frame);
}
