//! A server of MCP-lite over gRPC: grpcio, with stubs made from the document's own text.

use mgp_tests::harness::{DEADLINE, Kernel, Need, Peers, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{ASKED, LitePeer, legacy, modern, shows_its_tools};

/// LITE-001, LITE-010, LITE-014, LITE-017, LITE-071, LITE-076: over gRPC the same answers, promises and questions;
/// parts of a stream are progress.
#[tokio::test]
async fn grpc_server_is_called_with_promises_elicitations_and_progress() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let peer = LitePeer::grpc(&peers, &["--token", "s3cret"]).await;
    let headers = "headers = { Authorization = \"Bearer s3cret\" }\n";
    let servers = peer.entry("shop", &format!("{headers}max_frame_bytes = 65536\n"));
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["shop"]).await;
    let mut agent = legacy(&kernel, ASKED).await;
    shows_its_tools(&mut agent).await;
    let found = agent
        .call("search_documents", json!({"query": "MCP"}))
        .await;
    let document: Value = serde_json::from_str(&found.text()).unwrap();
    assert_eq!(document["excerpt"], "MCP");
    assert_eq!(agent.call("plain", json!({})).await.text(), "plain");
    assert_eq!(
        agent.call("fails", json!({})).await.result()["isError"],
        true
    );
    let refused = agent.call("refuses", json!({})).await.error();
    assert_eq!(
        (&refused["code"], &refused["message"]),
        (&json!(-32602), &json!("no such thing"))
    );
    let headers = agent.call("headers", json!({})).await.text();
    assert!(headers.contains("Bearer s3cret"), "{headers}");

    let late = agent.call("slow", json!({"polls": 2, "label": "a"})).await;
    assert_eq!(late.text(), "late a");
    agent.answers(
        "elicitation/create",
        json!({"action": "accept", "content": {"size": 42}}),
    );
    assert_eq!(
        agent.call("order", json!({"item": "shoe"})).await.text(),
        "shoe 42"
    );
    let params = json!({"name": "report", "arguments": {}, "_meta": {"progressToken": "mine"}});
    let report = agent.request("tools/call", params).await;
    assert_eq!(
        report.text(),
        "Quarterly Report\n\nSummary\n\nRevenue increased by 15%"
    );
    let heard = agent.hears("notifications/progress").await;
    assert_eq!(heard["params"]["message"], "Quarterly Report\n\nSummary");
    let mut modern = modern(&kernel, "{}");
    let plain = modern.call("plain", json!({})).await.result();
    assert_eq!(plain["content"][0]["text"], "plain");
    misbehaves(&mut agent).await;
}

/// LITE-075: what cannot be said exactly is refused, and every status is told in words; the server is used on.
async fn misbehaves(agent: &mut mgp_tests::harness::Agent) {
    for (tool, arguments, word) in [
        ("huge", json!({}), "65536"),
        ("nan", json!({}), "no number in JSON"),
        ("large", json!({}), "9007199254740994"),
        (
            "echo",
            json!({"n": 9_007_199_254_740_993_u64}),
            "9007199254740993",
        ),
        ("broken", json!({}), "UNKNOWN"),
        ("guarded", json!({}), "PERMISSION_DENIED"),
        ("late", json!({}), "DEADLINE_EXCEEDED"),
        ("unknown_kind", json!({}), "number 9"),
        ("huge_token", json!({}), "5000 bytes"),
        ("no_token", json!({}), "promise_token"),
        ("expires", json!({}), "not kept: the promise has expired"),
    ] {
        let refused = agent.call(tool, arguments).await;
        assert!(refused.is_error(), "{tool}: {}", refused.frame);
        assert!(refused.frame.contains(word), "{tool}: {}", refused.frame);
        assert_eq!(
            agent.call("plain", json!({})).await.text(),
            "plain",
            "{tool}"
        );
    }
    for (tool, word) in [
        ("stream_fails", "the printer burns"),
        ("stream_ends", "without its result"),
    ] {
        let params = json!({"name": tool, "arguments": {}, "_meta": {"progressToken": tool}});
        let refused = agent.request("tools/call", params).await;
        assert!(refused.is_error(), "{tool}: {}", refused.frame);
        assert!(refused.frame.contains(word), "{tool}: {}", refused.frame);
    }
}

/// A gRPC server that is killed is found when it is back; a wrong token, and an address without the service, say what
/// is wrong.
#[tokio::test]
async fn grpc_server_is_reconnected_after_a_restart() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let mut peer = LitePeer::grpc(&peers, &["--token", "s3cret"]).await;
    let headers = "headers = { Authorization = \"Bearer s3cret\" }\n";
    let quick = "max_restarts = 100\nbackoff_base_ms = 20\nbackoff_max_ms = 100\n";
    let wrong = "headers = { Authorization = \"Bearer other\" }\nrestart_policy = \"never\"\n";
    let servers = peer.entry("shop", &format!("{headers}{quick}")) + &peer.entry("wrong", wrong);
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["shop"]).await;
    let output = kernel.mgp(&["servers", "start", "wrong"]).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("UNAUTHENTICATED") && !said.contains("other"),
        "{said}"
    );
    let mut agent = legacy(&kernel, "{}").await;
    assert_eq!(agent.call("plain", json!({})).await.text(), "plain");
    peer.process.signal(Signal::SIGKILL);
    peer.process.end(DEADLINE).await;
    let port = peer.port.to_string();
    let flags = ["--port", &port, "--token", "s3cret"];
    let again = LitePeer::grpc(&peers, &flags).await;
    wait_until("it answers again", DEADLINE, async || {
        let answer = agent.call("plain", json!({})).await;
        !answer.is_error() && answer.text() == "plain"
    })
    .await;
    assert_eq!(again.port, peer.port);
}
