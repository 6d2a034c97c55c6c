//! mcp-server-time of PyPI over stdio.

use mgp_tests::harness::{Need, Peers};
use serde_json::{Value, json};

use super::both_ways::BothWays;

/// MCP-026, MCP-032, MCP-033: a Python server's words are relayed to the byte.
#[tokio::test]
async fn times_are_returned_and_converted() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let server = peers.python("mcp_server_time", &["--local-timezone", "UTC"]);
    let mut both = BothWays::start(&server).await;

    both.same_items("tools/list", "tools").await;
    for (way, agent) in both.everybody() {
        let arguments =
            json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
        let told = agent.call("convert_time", arguments).await.text();
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["time_difference"], "+9.0h", "{way}");
        let now = agent
            .call("get_current_time", json!({"timezone": "UTC"}))
            .await
            .text();
        let now: Value = serde_json::from_str(&now).unwrap();
        assert!(
            now["datetime"].as_str().unwrap().ends_with("+00:00"),
            "{way}"
        );
    }
    let unknown = both
        .same_call("get_current_time", json!({"timezone": "Nowhere/At"}))
        .await;
    assert_eq!(unknown.result()["isError"], true);
}
