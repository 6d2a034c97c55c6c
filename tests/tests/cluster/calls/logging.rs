//! What a server logs in a call at another node.

use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::{Agent, Program};
use serde_json::json;

use crate::scene::NEWEST;

const MESSAGE: &str = "notifications/message";

/// FED-064: an agent that asked for a level is told what is logged, before the answer; for one that never did
/// the owner asks its server for nothing, and keeps no answer back for what might come late.
#[tokio::test(flavor = "multi_thread")]
async fn log_messages_reach_an_agent_that_set_a_level() {
    for era in ["legacy", "modern"] {
        let server = Program::fixture(&["--era", era]).entry("demo");
        let nodes = JoinedNodes::sharing(&server, &["demo"]).await;
        let mut agent = Agent::over_socket(&nodes.desk.socket()).await;
        agent.initialize(NEWEST, "{}").await.result();
        let tool = "nas__demo__test_tool_with_logging";
        agent.call(tool, json!({})).await.result();
        // It comes over the same connection, behind whatever the server said before.
        agent.call("nas__demo__count", json!({})).await.result();
        assert!(agent.heard(MESSAGE).is_empty(), "{era}");
        let level = json!({"level": "info"});
        agent.request("logging/setLevel", level).await.result();
        agent.call(tool, json!({})).await.result();
        assert_eq!(agent.heard(MESSAGE).len(), 3, "{era}");
    }
}
