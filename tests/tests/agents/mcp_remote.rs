//! mcp-remote, which gives clients that know only stdio a way to the HTTP door.

use mgp_tests::harness::handshake::FULL;
use mgp_tests::harness::{Agent, Kernel, Need, Peers, Program};
use serde_json::json;
use tempfile::TempDir;

/// MGP-008: calls, progress and what a server asks for pass the bridge and the kernel.
#[tokio::test]
async fn agent_behind_mcp_remote_calls_and_answers_requests() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let home = TempDir::new().unwrap();
    let kernel = Kernel::start(&Program::fixture(&[]).entry("it")).await;
    kernel.connected(&["it"]).await;
    let url = kernel.server_url("it");
    let args = [url.as_str(), "--allow-http", "--transport", "http-only"];
    let bridge = peers.node("mcp-remote/dist/proxy.js", &args);
    let mut agent = Agent::over_stdio(&bridge.env("HOME", home.path().display().to_string()));
    let opened = agent.initialize("2025-11-25", FULL).await.result();
    assert_eq!(opened["serverInfo"]["name"], "conformance-fixture");

    let echo = agent.call("echo", json!({"text": "hi"})).await;
    assert_eq!(echo.text(), "hi");
    let content = json!({"type": "text", "text": "four"});
    let sampled = json!({"role": "assistant", "content": content, "model": "m"});
    agent.answers("sampling/createMessage", sampled);
    let answer = agent.call("test_sampling", json!({"prompt": "2+2"})).await;
    assert_eq!(answer.text(), "LLM response: four");
    let meta = json!({"progressToken": "t"});
    let params = json!({"name": "test_tool_with_progress", "arguments": {}, "_meta": meta});
    agent.request("tools/call", params).await.result();
    let progress = agent.hears("notifications/progress").await;
    assert_eq!(progress["params"]["progressToken"], "t");
    agent.close().await;
}
