//! Lite servers that keep to no rule: who called is told, and nobody else notices.

use std::time::Duration;

use mgp_tests::harness::wait::within;
use mgp_tests::harness::{Kernel, Need, Peers, Program};
use serde_json::json;

use super::{LitePeer, legacy};

/// Far less than any limit of the kernel.
const AT_ONCE: Duration = Duration::from_secs(20);

/// LITE-048, LITE-075: torn, huge, foreign, doubled and endless answers are errors that say what came; calls of
/// the same server and of others go on meanwhile.
#[tokio::test]
async fn misbehaving_lite_server_fails_its_own_call_alone() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let peer = LitePeer::http(&peers, &[]).await;
    let calm = Program::fixture(&[]).entry("calm");
    let servers = peer.entry("shop", "max_frame_bytes = 65536\n") + &calm;
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["shop", "calm"]).await;
    let mut agent = legacy(&kernel, "{}").await;
    let hangs = agent
        .start("tools/call", json!({"name": "hang", "arguments": {}}))
        .await;
    for (tool, word) in [
        ("torn", "broke off"),
        ("huge", "65536"),
        ("stream_of_lies", "65536"),
        ("wrong_id", "another request"),
        ("no_json", "cannot be read"),
        ("two_metas", "duplicate"),
        ("nan", "cannot be read"),
        ("moved", "redirected"),
        ("broken", "500"),
        ("unknown_kind", "maybe"),
        ("closes", "without an answer"),
        ("unlisted_error", "Parse error"),
    ] {
        let refused = within(tool, AT_ONCE, agent.call(tool, json!({}))).await;
        assert!(refused.is_error(), "{tool}: {}", refused.frame);
        assert!(refused.frame.contains(word), "{tool}: {}", refused.frame);
        assert!(!refused.frame.contains("another's"), "{}", refused.frame);
        assert_eq!(
            agent.call("plain", json!({})).await.text(),
            "plain",
            "{tool}"
        );
    }
    let mut other = mgp_tests::harness::Agent::over_http(&kernel.server_url("calm"));
    other.initialize(super::NEWEST, "{}").await.result();
    let echo = within(
        "an echo",
        AT_ONCE,
        other.call("echo", json!({"text": "hi"})),
    )
    .await;
    assert_eq!(echo.text(), "hi");
    peer.set(json!({"open": true})).await;
    assert_eq!(agent.answer_to(&hangs).await.text(), "plain");
}

/// A wrong token, a wrong path, and an address where nothing of the kind is: each is told in words that say what to
/// do, by the state of the server.
#[tokio::test]
async fn unusable_lite_server_reports_the_reason() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let peer = LitePeer::http(&peers, &["--token", "s3cret"]).await;
    let never = "restart_policy = \"never\"\n";
    let open = LitePeer::http(&peers, &[]).await;
    let elsewhere = format!(
        "[[servers]]\nid = \"lost\"\ntransport = \"lite\"\nurl = \"http://127.0.0.1:{}/mcp\"\n{never}",
        open.port
    );
    let guarded = format!("headers = {{ Authorization = \"Bearer wrong\" }}\n{never}");
    let kernel = Kernel::start(&(peer.entry("shop", &guarded) + &elsewhere)).await;
    for (id, words) in [
        ("shop", "headers"),
        ("lost", "https://example.com/mcp-lite/v1/"),
    ] {
        let output = kernel.mgp(&["servers", "start", id]).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(words), "{id}: {said}");
        assert!(!said.contains("wrong"), "{said}");
    }
}
