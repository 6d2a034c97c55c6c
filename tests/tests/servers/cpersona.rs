//! cpersona of PyPI over stdio: a server with many long tools and a database of its own.

use mgp_tests::harness::{Need, Peers};
use serde_json::{Value, json};

use super::both_ways::BothWays;

/// MCP-087, MCP-026: it answers unknown methods with -32602, which must not end anything; its tools
/// come through to the byte, and what is stored through one door is recalled through the other.
#[tokio::test]
async fn memory_stored_through_one_endpoint_is_recalled_through_another() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let folder = tempfile::TempDir::new().unwrap();
    let database = folder.path().join("memory.db").display().to_string();
    let server = peers
        .python_command("cpersona", &[])
        .env("CPERSONA_DB_PATH", database)
        .env("CPERSONA_UPDATE_CHECK", "false");
    let mut both = BothWays::start(&server).await;

    both.same_items("tools/list", "tools").await;
    let mut agents: Vec<_> = both.everybody().skip(1).map(|(_, agent)| agent).collect();
    for (number, fact) in ["The kettle is blue", "The teapot is green"]
        .into_iter()
        .enumerate()
    {
        let stored = agents[number]
            .call("store", json!({"agent_id": "t", "content": fact}))
            .await;
        assert!(stored.text().contains("\"stored\""), "{}", stored.frame);
        let query = json!({"agent_id": "t", "query": fact});
        let recalled = agents[1 - number].call("recall", query).await.text();
        let recalled: Value = serde_json::from_str(&recalled).unwrap();
        assert_eq!(recalled["messages"][0]["content"], fact);
    }
    both.same_call("check_health", json!({"agent_id": "nobody"}))
        .await;
    both.kernel.connected(&["it"]).await;
}
