//! A server that matches members without regard to case, as Go's encoding/json does, is told nothing
//! that the kernel has not read (CVE-2026-27896).

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::{Agent, Kernel, ModernAgent, Need, Peers};
use serde_json::{Value, json};

const NEWEST: &str = "2025-11-25";
/// Everybody at an open HTTP door.
const ANYBODY: &str = "agent.anonymous";

async fn deny(kernel: &Kernel) -> Agent {
    let mut owner = Agent::over_socket(&kernel.socket()).await;
    owner.initialize(NEWEST, "{}").await.result();
    let entry = json!({"entry_type": "tool_grant", "agent_id": ANYBODY, "server_id": "go",
        "tool_name": "secret", "permission": "deny"});
    owner.request("mgp/access/grant", entry).await.result();
    owner
}

/// Requests that name one thing to the kernel and another to the server; the member that betrays them.
fn hidden() -> Vec<(&'static str, Value, &'static str)> {
    let mut all = Vec::new();
    for name in ["Name", "NAME", "nAme"] {
        let params = json!({"name": "go__echo", "arguments": {"text": "x"}, name: "secret"});
        all.push(("tools/call", params, name));
    }
    for name in ["Arguments", "argument\u{17f}", "ARGUMENTS"] {
        let params = json!({"name": "go__fetch", "arguments": {"url": "https://a.example/"},
            name: {"url": "http://169.254.169.254/"}});
        all.push(("tools/call", params, name));
    }
    let params = json!({"name": "go__echo", "arguments": {"text": "x"}, "tas\u{212a}": {"ttl": 1}});
    all.push(("tools/call", params, "tas\u{212a}"));
    let params = json!({"uri": "test://open", "Uri": "test://secret"});
    all.push(("resources/read", params, "Uri"));
    all
}

/// Every lookalike of a member is refused by name, in both eras and through every door; what stands
/// within arguments goes through, judged as what it is taken for.
#[tokio::test]
async fn no_lookalike_of_a_member_reaches_a_go_server() {
    let Some(peers) = Peers::find(&[Need::Go]) else {
        return;
    };
    let kernel = Kernel::start(&peers.go_server().entry("go")).await;
    kernel.connected(&["go"]).await;
    let mut owner = deny(&kernel).await;
    for mut agent in [kernel.http_agent(None), kernel.stdio_agent(None)] {
        agent.initialize(NEWEST, "{}").await.result();
        for (method, params, member) in hidden() {
            let refused = agent.request(method, params).await;
            assert_eq!(refused.code(), -32602, "{}", refused.frame);
            let words = refused.error()["message"].as_str().unwrap().to_owned();
            assert!(
                words.contains(&format!("member {member:?} is not")),
                "{words}"
            );
        }
        let call = r#"{"jsonrpc":"2.0","id":77,"method":"ping","Method":"tools/call","Params":{"name":"secret"}}"#;
        agent.send(call).await;
        let refused = agent.answer_to(&json!(77)).await;
        assert_eq!(refused.code(), -32600);
        assert!(
            refused
                .frame
                .contains(r#"member \"Method\" is not \"method\""#),
            "{}",
            refused.frame
        );
        let twice = r#"{"jsonrpc":"2.0","id":78,"method":"tools/call","params":{"name":"go__echo","name":"secret"}}"#;
        agent.send(twice).await;
        assert_eq!(agent.answer_to(&json!(78)).await.code(), -32602);
        let within = json!({"text": "a", "Text": "b"});
        assert_eq!(agent.call("go__echo", within).await.text(), "b");
        for url in ["url", "URL", "uRl"] {
            let inside = json!({ url: "http://169.254.169.254/" });
            let refused = agent.call("go__fetch", inside).await;
            assert!(
                refused.frame.contains("network_restricted"),
                "{}",
                refused.frame
            );
        }
        agent.close().await;
    }
    let mut modern = ModernAgent::over_http(kernel.url(), "{}");
    for (method, params, member) in hidden() {
        let refused = modern.request(method, params).await;
        assert_eq!(refused.code(), -32602, "{}", refused.frame);
        let words = refused.error()["message"].as_str().unwrap().to_owned();
        assert!(
            words.contains(&format!("member {member:?} is not")),
            "{words}"
        );
    }
    assert_eq!(
        modern.call("go__echo", json!({"text": "hi"})).await.text(),
        "hi",
        "{MODERN}"
    );
    let ran = owner.call("go__ran", json!({})).await;
    assert_eq!(ran.text(), "0");
    assert_eq!(
        owner.call("go__secret", json!({})).await.text(),
        "SECRET",
        "the tool is there"
    );
}
