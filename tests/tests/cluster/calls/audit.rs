//! What stands in the audit logs of both nodes.

use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::mgp::trace;
use mgp_tests::harness::{DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

use super::agents::{legacy, named};

/// The records of calls of this tool.
pub(super) async fn records(kernel: &Kernel, tool: &str) -> Vec<Value> {
    let tail = kernel.mgp(&["audit", "tail", "-n", "1000", "--json"]).await;
    let text = String::from_utf8(tail.stdout).unwrap();
    let events = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_tool = events.filter(|event| event["target"]["tool_name"] == tool);
    of_tool.collect()
}

/// The last one that ended so.
async fn record(kernel: &Kernel, tool: &str, result: &str) -> Value {
    let mut found = None;
    let what = format!("{tool} is recorded as {result}");
    wait_until(&what, DEADLINE, async || {
        let records = records(kernel, tool).await;
        found = records.into_iter().rfind(|event| event["result"] == result);
        found.is_some()
    })
    .await;
    found.unwrap()
}

/// PRJ-014, FED-064: a call is recorded at both nodes under one trace, the caller's own or one its home made; the owner's
/// record names the agent and its node.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_in_both_audit_logs_under_one_trace() {
    let nodes = JoinedNodes::sharing(&Program::fixture(&[]).entry("demo"), &["demo"]).await;
    named(&nodes, &["alice"], "demo").await;
    let mut alice = legacy(&nodes, "alice", "{}").await;
    let desk = nodes.desk.mgp_json(&["nodes", "show"]).await["id"].take();
    let own = trace("a call across nodes");
    let (tools, traces) = (
        ["test_simple_text", "test_error_handling"],
        [None, Some(&own)],
    );
    for (tool, said) in tools.into_iter().zip(traces) {
        let mut params = json!({"name": format!("nas__demo__{tool}"), "arguments": {}});
        if let Some(said) = said {
            params["trace_id"] = json!(said);
        }
        alice.request("tools/call", params).await.result();
        let result = if said.is_some() { "FAILURE" } else { "SUCCESS" };
        let (home, owner) = tokio::join!(
            record(&nodes.desk, tool, result),
            record(&nodes.nas, tool, result)
        );
        assert_eq!(home["trace_id"], owner["trace_id"], "{home:#} {owner:#}");
        if let Some(said) = said {
            assert_eq!(home["trace_id"], json!(said));
        }
        assert_eq!(home["target"]["server_id"], "nas/demo");
        assert_eq!(owner["target"]["server_id"], "demo");
        assert_eq!(home["actor"]["id"], "agent.alice");
        let called = format!("agent.alice@{}", desk.as_str().unwrap());
        assert_eq!(owner["actor"], json!({"type": "agent", "id": called}));
    }
}

/// PRJ-013, PRJ-014, FED-064: a call that is taken back ends at the server of the other node, and both logs say that it
/// was cancelled, under one trace.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_is_cancelled_in_both_audit_logs() {
    for era in ["legacy", "modern"] {
        let server = Program::fixture(&["--era", era]).entry("demo");
        let nodes = JoinedNodes::sharing(&server, &["demo"]).await;
        named(&nodes, &["alice"], "demo").await;
        let mut alice = legacy(&nodes, "alice", "{}").await;
        let params = json!({"name": "nas__demo__slow", "arguments": {"ms": 60_000}});
        let id = alice.start("tools/call", params).await;
        let count = async |alice: &mut mgp_tests::harness::Agent, kind: &str| {
            let counts = alice.call("nas__demo__count", json!({})).await.result();
            counts["structuredContent"][kind]["slow"].as_u64()
        };
        wait_until("the call is there", DEADLINE, async || {
            count(&mut alice, "calls").await == Some(1)
        })
        .await;
        let notice = json!({"requestId": id, "reason": "changed my mind"});
        alice.notify("notifications/cancelled", notice).await;
        wait_until("the server gives it up", DEADLINE, async || {
            count(&mut alice, "cancelled").await == Some(1)
        })
        .await;
        let (home, owner) = tokio::join!(
            record(&nodes.desk, "slow", "CANCELLED"),
            record(&nodes.nas, "slow", "CANCELLED")
        );
        assert_eq!(home["trace_id"], owner["trace_id"], "{home:#} {owner:#}");
    }
}

/// Decision 0069: where the time of a call went at the node that was called is in the record of the caller's node, as the
/// other one measured it; the agent reads nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn record_of_a_remote_call_has_the_times_of_the_other_node() {
    let nodes = JoinedNodes::sharing(&Program::fixture(&[]).entry("demo"), &["demo"]).await;
    named(&nodes, &["alice"], "demo").await;
    let mut alice = legacy(&nodes, "alice", "{}").await;
    let params = json!({"name": "nas__demo__slow", "arguments": {"ms": 50}});
    let answer = alice.request("tools/call", params).await.result();
    for word in ["whole", "parts", "checks"] {
        assert!(!answer.to_string().contains(word), "{answer}");
    }
    let (home, owner) = tokio::join!(
        record(&nodes.desk, "slow", "SUCCESS"),
        record(&nodes.nas, "slow", "SUCCESS")
    );
    let (own, told) = (
        &owner["details"]["parts_us"],
        &home["details"]["node_parts_us"],
    );
    let mut told = told
        .as_array()
        .unwrap_or_else(|| panic!("{home:#}"))
        .clone();
    assert_eq!(told.len(), 1, "{home:#}");
    let there = told[0].as_object_mut().unwrap();
    assert_eq!(there.remove("node"), Some(json!("nas")));
    let whole = there.remove("whole").unwrap().as_u64().unwrap();
    assert_eq!(&told[0], own, "{home:#} {owner:#}");
    let us = |parts: &Value, part: &str| parts[part].as_u64().unwrap_or(0);
    assert!(us(own, "server") >= 50_000, "{owner:#}");
    assert!(whole >= us(own, "server"), "{home:#}");
    assert!(
        us(&home["details"]["parts_us"], "server") >= whole,
        "{home:#}"
    );
    assert_eq!(owner["details"]["node_parts_us"], Value::Null, "{owner:#}");
    let find = ["audit", "find", "--server", "nas/demo", "--parts"];
    let found = String::from_utf8(nodes.desk.mgp(&find).await.stdout).unwrap();
    for told in ["of it the way there and back)", "\n      at nas "] {
        assert!(found.contains(told), "{found}");
    }
}
