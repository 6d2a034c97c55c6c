//! Arguments against a tool's inputSchema never leave the kernel.

use mgp_tests::harness::Kernel;
use serde_json::json;

use crate::scene::{echoes, owner, server, told};

/// CMCP-009, CMCP-010: up to 2025-06-18 an error with path, keyword and message; from 2025-11-25 on
/// a result that the model can read. The server never hears of the call.
#[tokio::test]
async fn arguments_against_the_schema_never_reach_the_server() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    for version in ["2024-11-05", "2025-03-26", "2025-06-18"] {
        let mut agent = kernel.http_agent(Some("it"));
        agent.initialize(version, "{}").await.result();
        let refused = agent.call("echo", json!({"text": 7})).await;
        assert_eq!(refused.code(), -32602, "{version}");
        let data = &refused.error()["data"];
        assert_eq!(
            (&data["path"], &data["keyword"]),
            (&json!("/text"), &json!("type"))
        );
        assert!(data["message"].is_string(), "{data:#}");
        let missing = agent.call("echo", json!({})).await;
        assert_eq!(missing.error()["data"]["keyword"], "required", "{version}");
    }
    let mut agent = kernel.http_agent(Some("it"));
    agent.initialize("2025-11-25", "{}").await.result();
    let readable = agent.call("echo", json!({"text": 7})).await;
    assert_eq!(readable.result()["isError"], true);
    assert!(readable.text().contains("/text"), "{}", readable.frame);

    let received = told(&agent.call("received", json!({})).await)["frames"].to_string();
    assert!(!received.contains("echo"), "{received}");
    assert!(received.contains("received"), "{received}");
    let mut owner = owner(&kernel).await;
    echoes(&mut owner, "it").await;
    let counted = told(&agent.call("count", json!({})).await);
    assert_eq!(counted["calls"]["echo"], 1, "{counted:#}");
}

/// An entry can leave the judgement to its server: some read a number written as text.
#[tokio::test]
async fn argument_validation_can_be_switched_off_for_a_server() {
    let kernel = Kernel::start(&server("it", &[], "check_arguments = false")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    agent.call("it__echo", json!({"text": 7})).await;
    let counted = told(&agent.call("it__count", json!({})).await);
    assert_eq!(counted["calls"]["echo"], 1, "{counted:#}");
}
