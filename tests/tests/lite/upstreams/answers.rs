//! Lists and answers of a lite server, as agents see them.

use mgp_tests::harness::{Kernel, Need, Peers};
use serde_json::json;

use super::{LitePeer, NEWEST, legacy, modern, shows_its_tools};

/// LITE-010, LITE-014, LITE-071, LITE-075: the tools of a lite server are listed, found, checked and called like
/// any other's; `redeem` is nobody's to call; any content is read, and numbers keep their digits.
#[tokio::test]
async fn lite_server_is_called_like_any_other() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let peer = LitePeer::http(&peers, &["--token", "s3cret"]).await;
    let headers =
        "pass_headers = [\"x-tenant\"]\nheaders = { Authorization = \"Bearer ${SHOP}\" }\n";
    let config = format!(
        "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n{}",
        peer.entry("shop", headers)
    );
    let kernel = Kernel::with_environment(&config, &[("SHOP", "s3cret")]).await;
    kernel.connected(&["shop"]).await;
    let mut agent = legacy(&kernel, "{}").await;
    shows_its_tools(&mut agent).await;
    let unknown = agent.call("redeem", json!({"promise": "slow:1:x"})).await;
    assert!(unknown.is_error(), "{}", unknown.frame);

    let found = agent
        .call("search_documents", json!({"query": "MCP"}))
        .await;
    let document: serde_json::Value = serde_json::from_str(&found.text()).unwrap();
    assert_eq!(document["excerpt"], "MCP");
    let wrong = agent.call("search_documents", json!({"query": 7})).await;
    assert!(wrong.frame.contains("/query"), "{}", wrong.frame);
    assert_eq!(agent.call("plain", json!({})).await.text(), "plain");
    let failed = agent.call("fails", json!({})).await.result();
    assert_eq!(failed["isError"], true);
    assert_eq!(failed["content"][0]["text"], "out of stock");
    let refused = agent.call("refuses", json!({})).await.error();
    assert_eq!(
        (&refused["code"], &refused["message"]),
        (&json!(-32602), &json!("no such thing"))
    );
    let odd = agent.call("odd", json!({})).await.result();
    assert_eq!(odd["content"][0]["text"], "not a task");
    assert!(odd.get("taskId").is_none() && odd.get("resultType").is_none());
    let absent = agent.call("says_404", json!({})).await.error();
    assert_eq!(absent["code"], -32601, "{absent}");

    let mut modern = modern(&kernel, "{}");
    let plain = modern.call("plain", json!({})).await.result();
    assert_eq!(
        (&plain["resultType"], &plain["content"][0]["text"]),
        (&json!("complete"), &json!("plain"))
    );
    exact(&kernel).await;
    let mut found = mgp_tests::harness::Agent::over_http(kernel.url());
    found.initialize(NEWEST, "{}").await.result();
    let everywhere = found.call("shop__plain", json!({})).await;
    assert_eq!(everywhere.text(), "plain");
    let headers = agent.call("headers", json!({})).await.text();
    assert!(headers.contains("Bearer s3cret"), "{headers}");
    for other in [
        "mcp-session-id",
        "mcp-protocol-version",
        "mcp-method",
        "user-agent",
        "cookie",
    ] {
        assert!(!headers.contains(other), "{headers}");
    }
}

/// LITE-075: the arguments that arrive are those that were sent, digit by digit.
async fn exact(kernel: &Kernel) {
    let sent = r#"{"big":9007199254740993,"one":1.0e2,"long":12345678901234567890.5}"#;
    let mut agent = legacy(kernel, "{}").await;
    let arguments: Box<serde_json::value::RawValue> = serde_json::from_str(sent).unwrap();
    let frame = format!(
        r#"{{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{{"name":"exact","arguments":{arguments}}}}}"#
    );
    agent.send(&frame).await;
    let answer = agent.answer_to(&json!("x")).await;
    let said: serde_json::Value = serde_json::from_str(&answer.text()).unwrap();
    assert_eq!(said["said"], sent);
}

/// LITE-036, LITE-038, LITE-039, A-18: a server that has only the paths of the examples, and lists an array, is
/// found, and not asked for the others again.
#[tokio::test]
async fn the_paths_of_the_examples_are_found_and_remembered() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let peer = LitePeer::http(&peers, &["--paths", "examples", "--array"]).await;
    let kernel = Kernel::start(&peer.entry("shop", "")).await;
    kernel.connected(&["shop"]).await;
    let mut agent = legacy(&kernel, "{}").await;
    for _ in 0..5 {
        assert_eq!(agent.call("plain", json!({})).await.text(), "plain");
    }
    let told = peer.told().await;
    let asked = |path: &str| {
        told["paths"][format!("/mcp-lite/v1/{path}")]
            .as_u64()
            .unwrap_or(0)
    };
    assert_eq!(
        (asked("listtools"), asked("calltools"), asked("rpc")),
        (1, 1, 5),
        "{told:#}"
    );
    assert!(asked("tools") >= 1, "{told:#}");
}

/// LITE-041 to LITE-046: what a stream says before its end reaches who asked to hear it, and its parts are the
/// result where `done` brings none.
#[tokio::test]
async fn the_parts_of_a_stream_arrive_as_progress() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let peer = LitePeer::http(&peers, &[]).await;
    let kernel = Kernel::start(&peer.entry("shop", "")).await;
    kernel.connected(&["shop"]).await;
    let mut agent = legacy(&kernel, "{}").await;
    let whole = "Quarterly Report\n\nSummary\n\nRevenue increased by 15%";
    let params = json!({"name": "report", "arguments": {}, "_meta": {"progressToken": "mine"}});
    let report = agent.request("tools/call", params).await;
    assert_eq!(report.text(), whole);
    for part in [
        "Quarterly Report\n\nSummary",
        "\n\nRevenue increased by 15%",
    ] {
        let heard = agent.hears("notifications/progress").await;
        assert_eq!(heard["params"]["progressToken"], "mine");
        assert_eq!(heard["params"]["message"], part);
    }
    // Who does not ask to hear it is answered without a stream, so that the server may promise.
    assert_eq!(agent.call("report", json!({})).await.text(), "not streamed");
    assert_eq!(
        agent.call("whole_report", json!({})).await.text(),
        "all of it"
    );
    let failed = agent.call("stream_fails", json!({})).await.error();
    assert_eq!(
        (&failed["code"], &failed["message"]),
        (&json!(-32603), &json!("the printer burns"))
    );
    let ended = agent.call("stream_ends", json!({})).await;
    assert!(ended.frame.contains("without `done`"), "{}", ended.frame);
}
