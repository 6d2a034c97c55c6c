//! server-everything of npm over Streamable HTTP.

use std::net::TcpListener;

use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{Agent, DEADLINE, Need, Peers, Process, wait_until};
use serde_json::json;
use tokio::net::TcpStream;

use super::both_ways::BothWays;

/// The server, which ends when dropped, and everybody who talks to it.
async fn everything() -> Option<(Process, BothWays)> {
    let peers = Peers::find(&[Need::Node])?;
    let script = "@modelcontextprotocol/server-everything/dist/index.js";
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let program = peers
        .node(script, &["streamableHttp"])
        .env("PORT", port.to_string());
    let process = Process::start("server-everything", &program);
    wait_until("server-everything listens", DEADLINE, async || {
        TcpStream::connect(("127.0.0.1", port)).await.is_ok()
    })
    .await;
    let url = format!("http://127.0.0.1:{port}/mcp");
    let both = BothWays::with(&remote_entry("it", &url), Agent::over_http(&url)).await;
    Some((process, both))
}

/// MCP-084, MCP-026, MCP-032: lists and answers of a remote server are the same to the byte.
#[tokio::test]
async fn lists_and_answers_are_the_same_to_the_byte() {
    let Some((_server, mut both)) = everything().await else {
        return;
    };
    both.same_items("tools/list", "tools").await;
    both.same_items("resources/list", "resources").await;
    both.same_items("prompts/list", "prompts").await;
    both.same_call("echo", json!({"message": "hi"})).await;
    both.same_call("get-structured-content", json!({"location": "New York"}))
        .await;
    both.same("prompts/get", json!({"name": "simple-prompt"}))
        .await;
    let uri = "demo://resource/static/document/startup.md";
    both.same("resources/read", json!({"uri": uri})).await;
}

/// MCP-048, MCP-056, CMCP-087: what a remote server asks and tells while it is called.
#[tokio::test]
async fn a_remote_server_asks_and_reports_while_it_is_called() {
    let Some((_server, mut both)) = everything().await else {
        return;
    };
    both.same_items("tools/list", "tools").await;
    let content = json!({"type": "text", "text": "four"});
    let sampled = json!({"role": "assistant", "content": content, "model": "m"});
    both.answer("sampling/createMessage", &sampled);
    let answer = both
        .same_call("trigger-sampling-request", json!({"prompt": "2+2"}))
        .await;
    assert!(answer.text().contains("four"));
    both.answer("elicitation/create", &json!({"action": "decline"}));
    both.same_call("trigger-elicitation-request", json!({}))
        .await;
    for (way, agent) in both.everybody() {
        let params = json!({
            "name": "trigger-long-running-operation",
            "arguments": {"duration": 0.2, "steps": 2},
            "_meta": {"progressToken": "t"},
        });
        agent.request("tools/call", params).await.result();
        for step in 1..=2 {
            let progress = agent.hears("notifications/progress").await["params"].take();
            assert_eq!(
                (&progress["progressToken"], &progress["progress"]),
                (&json!("t"), &json!(step)),
                "{way}"
            );
        }
    }
}
