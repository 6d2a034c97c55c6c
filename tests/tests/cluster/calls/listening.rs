//! What a server of another node offers beside tools, and what it tells of changes.

use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::{Agent, Program};
use serde_json::json;

use super::agents::{legacy, named};

/// As it is listed where servers of other nodes are, too.
const WATCHED: &str = "mcpk://nas/demo/test%3A%2F%2Fwatched-resource";
const UPDATED: &str = "notifications/resources/updated";

async fn nodes(era: &str) -> JoinedNodes {
    let server = Program::fixture(&["--era", era]).entry("demo");
    let nodes = JoinedNodes::sharing(&server, &["demo"]).await;
    named(&nodes, &["alice", "bob"], "demo").await;
    nodes
}

async fn trigger(agent: &mut Agent, what: &str) {
    let tool = format!("nas__demo__test_trigger_{what}");
    agent.call(&tool, json!({})).await.result();
}

/// PRJ-013, FED-064: prompts, completions, resources and templates are those of the server.
#[tokio::test(flavor = "multi_thread")]
async fn prompts_and_resources_are_served_from_another_node() {
    for era in ["legacy", "modern"] {
        let nodes = nodes(era).await;
        let mut alice = legacy(&nodes, "alice", "{}").await;
        let name = "nas__demo__test_prompt_with_arguments";
        let arguments = json!({"arg1": "one", "arg2": "two"});
        let prompt = json!({"name": name, "arguments": arguments});
        let prompt = alice.request("prompts/get", prompt).await.result();
        let text = prompt["messages"][0]["content"]["text"].as_str().unwrap();
        assert!(text.contains("one") && text.contains("two"), "{prompt}");
        let complete = json!({
            "ref": {"type": "ref/prompt", "name": name},
            "argument": {"name": "arg1", "value": ""},
        });
        let completed = alice
            .request("completion/complete", complete)
            .await
            .result();
        let values = &completed["completion"]["values"];
        assert!(!values.as_array().unwrap().is_empty(), "{completed}");
        for uri in ["test://static-text", "test://template/a%20b/data"] {
            let read = alice.request("resources/read", json!({"uri": uri})).await;
            assert_eq!(read.result()["contents"][0]["uri"], uri);
        }
    }
}

/// PRJ-013, FED-064: a change of a resource is told to the agents that subscribed to it and to no other; a change of each
/// list to all who may see the server.
#[tokio::test(flavor = "multi_thread")]
async fn changes_at_another_node_notify_subscribed_agents() {
    for era in ["legacy", "modern"] {
        let nodes = nodes(era).await;
        let mut alice = legacy(&nodes, "alice", "{}").await;
        let mut bob = legacy(&nodes, "bob", "{}").await;
        let watched = json!({"uri": WATCHED});
        let subscribed = alice.request("resources/subscribe", watched.clone()).await;
        subscribed.result();
        trigger(&mut bob, "resource_update").await;
        assert_eq!(alice.hears(UPDATED).await["params"]["uri"], WATCHED);
        alice
            .request("resources/unsubscribe", watched)
            .await
            .result();
        for (what, list) in [
            ("tool_change", "tools"),
            ("prompt_change", "prompts"),
            ("resource_change", "resources"),
        ] {
            trigger(&mut bob, what).await;
            let changed = format!("notifications/{list}/list_changed");
            alice.hears(&changed).await;
            bob.hears(&changed).await;
        }
        trigger(&mut bob, "resource_update").await;
        assert!(alice.heard(UPDATED).is_empty() && bob.heard(UPDATED).is_empty());
    }
}
