//! MCP Apps of a server of another node.

use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::{DEADLINE, Program, wait_until};
use serde_json::json;

use super::agents::{legacy, named};

const HOST: &str =
    r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}"#;

/// EXT-020, EXT-021, EXT-022, EXT-025: an app of a shared server is seen and read over the link under its node's name.
#[tokio::test(flavor = "multi_thread")]
async fn app_of_another_node_is_read_over_the_link() {
    let own = "ui://board/view.html";
    let meta = |more| json!({"ui": {"resourceUri": own, "visibility": more}});
    let tool = |name: &str, meta| {
        json!({"name": name, "inputSchema": {"type": "object"}, "_meta": meta}).to_string()
    };
    let page = json!({
        "uri": own, "mimeType": "text/html;profile=mcp-app", "text": "<!DOCTYPE html>\u{e9}",
        "_meta": {"ui": {"csp": {"connectDomains": ["https://api.example"]}}},
    });
    let show = tool("show", meta(["model", "app"].as_slice()));
    let refresh = tool("refresh", meta(["app"].as_slice()));
    let server = Program::fixture(&["--bare", "--tool", &show, "--tool", &refresh])
        .args(&["--resource", &page.to_string()]);
    let nodes = JoinedNodes::sharing(&server.entry("demo"), &["demo"]).await;
    named(&nodes, &["alice"], "demo").await;
    let mut alice = legacy(&nodes, "alice", HOST).await;
    let uri = "ui://nas+demo/board/view.html";
    let mut tools = json!([]);
    wait_until("the app is listed", DEADLINE, async || {
        let list = alice.request("tools/list", json!({})).await.result();
        tools = list["tools"].clone();
        tools.to_string().contains(uri)
    })
    .await;
    assert!(!tools.to_string().contains("refresh"), "{tools}");
    let mut read = json!({});
    wait_until("the page is read", DEADLINE, async || {
        let answer = alice.request("resources/read", json!({"uri": uri})).await;
        read = serde_json::from_str(&answer.frame).unwrap();
        !answer.is_error()
    })
    .await;
    let mut expected = page;
    expected["uri"] = json!(uri);
    assert_eq!(read["result"]["contents"], json!([expected]));
}
