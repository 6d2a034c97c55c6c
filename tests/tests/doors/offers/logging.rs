//! Log messages of servers, and who hears which.

use mgp_tests::harness::{Agent, DEADLINE, wait_until};
use serde_json::json;

use crate::scene::{self, counts};

const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

async fn set(agent: &mut Agent, level: &str) {
    agent
        .request("logging/setLevel", json!({"level": level}))
        .await
        .result();
}

/// The levels of what was heard since last asked, once all that was said before is there.
async fn heard(agent: &mut Agent) -> Vec<String> {
    agent
        .call("it:echo", json!({"text": "behind it"}))
        .await
        .result();
    let heard = agent.heard("notifications/message");
    let levels = heard
        .iter()
        .map(|m| m["params"]["level"].as_str().unwrap().to_owned());
    let levels = levels.collect();
    agent.forget();
    levels
}

/// The levels the server was told, as it tells this agent.
async fn told(agent: &mut Agent) -> Vec<String> {
    let counted = counts(agent, "it:count").await;
    serde_json::from_value(counted["levels"].clone()).unwrap()
}

/// The levels of a log with one message that is no error and one that is the worst.
async fn logged(agent: &mut Agent) -> Vec<String> {
    agent.call("it:test_logging_tool", json!({})).await.result();
    let worst = agent.call("it:notify", json!({"kind": "log"})).await;
    worst.result();
    heard(agent).await
}

/// MCP-059: its level, its logger and its data.
#[tokio::test]
async fn log_message_of_a_server_reaches_the_agent_whole() {
    let kernel = scene::kernel().await;
    let mut agent = scene::http_agent(&kernel, Some("it"), "{}").await;
    agent.call("notify", json!({"kind": "log"})).await.result();
    let message = agent.hears("notifications/message").await;
    let params = &message["params"];
    assert_eq!(params["level"], "emergency", "{message}");
    assert!(params.get("data").is_some(), "{message}");
}

/// CMCP-094.
#[tokio::test]
async fn log_messages_of_every_level_arrive_before_a_level_is_set() {
    let kernel = scene::kernel().await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    assert_eq!(logged(&mut agent).await, ["info", "emergency"]);
}

/// MCP-060, MCP-061: in the order of the levels, and until another one is set.
#[tokio::test]
async fn log_messages_below_the_set_level_are_dropped() {
    let kernel = scene::kernel().await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    for (n, level) in LEVELS.into_iter().enumerate() {
        set(&mut agent, level).await;
        let expected: &[&str] = if n <= 1 {
            &["info", "emergency"]
        } else {
            &["emergency"]
        };
        assert_eq!(logged(&mut agent).await, expected, "{level}");
    }
    set(&mut agent, "debug").await;
    assert_eq!(logged(&mut agent).await, ["info", "emergency"]);
}

/// CMCP-095.
#[tokio::test]
async fn call_whose_log_is_dropped_succeeds() {
    let kernel = scene::kernel().await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    set(&mut agent, "emergency").await;
    let called = agent.call("it:test_logging_tool", json!({})).await;
    assert_ne!(called.result()["isError"], true, "{}", called.frame);
    assert!(heard(&mut agent).await.is_empty());
}

/// MCP-061, MCP-062: each session has its own level, and the server the most verbose of them.
#[tokio::test]
async fn each_agent_has_its_level_and_the_server_the_most_verbose() {
    let kernel = scene::kernel_with("", &["--log-level-probe"]).await;
    let mut quiet = scene::socket_agent(&kernel, "{}").await;
    let mut curious = scene::socket_agent(&kernel, "{}").await;
    set(&mut curious, "debug").await;
    set(&mut quiet, "error").await;
    assert_eq!(told(&mut quiet).await.last().unwrap(), "debug");
    for (agent, count) in [(&mut quiet, 0), (&mut curious, 3)] {
        agent
            .call("it:test_tool_with_logging", json!({}))
            .await
            .result();
        assert_eq!(heard(agent).await, vec!["info"; count]);
    }
    set(&mut curious, "warning").await;
    assert_eq!(told(&mut quiet).await.last().unwrap(), "warning");
    set(&mut curious, "alert").await;
    assert_eq!(told(&mut quiet).await.last().unwrap(), "error");
}

/// CMCP-094: one agent's level takes nothing from another, who set none.
#[tokio::test]
async fn the_level_of_one_agent_hides_nothing_from_another() {
    let kernel = scene::kernel().await;
    let mut unset = scene::socket_agent(&kernel, "{}").await;
    let mut quiet = scene::socket_agent(&kernel, "{}").await;
    set(&mut quiet, "emergency").await;
    unset.call("it:test_logging_tool", json!({})).await.result();
    assert_eq!(heard(&mut unset).await, ["info"]);
}

/// CMCP-063: a message that could belong to any of several calls goes to everybody at the level they set;
/// one that belongs to a call goes to its caller alone.
#[tokio::test]
async fn a_message_goes_to_its_caller_or_when_that_is_unclear_to_everybody() {
    let kernel = scene::kernel().await;
    let mut caller = scene::socket_agent(&kernel, "{}").await;
    let mut other = scene::socket_agent(&kernel, "{}").await;
    let mut quiet = scene::socket_agent(&kernel, "{}").await;
    set(&mut other, "debug").await;
    set(&mut quiet, "error").await;
    caller
        .call("it:test_logging_tool", json!({}))
        .await
        .result();
    assert_eq!(heard(&mut caller).await, ["info"]);
    assert_eq!(heard(&mut other).await, [""; 0]);
    let busy = other
        .start("tools/call", json!({"name": "it:test_slow"}))
        .await;
    let waiting = async || counts(&mut quiet, "it:count").await["calls"]["test_slow"] == 1;
    wait_until("the other call is there", DEADLINE, waiting).await;
    caller
        .call("it:test_logging_tool", json!({}))
        .await
        .result();
    other.answer_to(&busy).await.result();
    assert_eq!(heard(&mut caller).await, ["info"]);
    assert_eq!(heard(&mut other).await, ["info"]);
    assert_eq!(heard(&mut quiet).await, [""; 0]);
}

/// Where many servers share a door, a message names the one that logged; else it is as it was.
#[tokio::test]
async fn logger_is_prefixed_with_the_server_at_a_merged_endpoint() {
    let kernel = scene::kernel().await;
    for (server, logger) in [(None, "it/fixture"), (Some("it"), "fixture")] {
        let mut agent = scene::http_agent(&kernel, server, "{}").await;
        agent.call("test_logging_tool", json!({})).await.result();
        let message = agent.hears("notifications/message").await;
        let expected = json!({"level": "info", "logger": logger, "data": "one message"});
        assert_eq!(message["params"], expected);
    }
}

/// MCP-062: a server that was restarted is told the level again.
#[tokio::test]
async fn log_level_is_set_again_at_a_restarted_server() {
    let kernel = scene::kernel_with("", &["--log-level-probe"]).await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    set(&mut agent, "critical").await;
    assert_eq!(told(&mut agent).await, ["critical"]);
    let restart = json!({"id": "it"});
    agent.request("mgp/servers/restart", restart).await.result();
    let again = async || told(&mut agent).await == ["critical"];
    wait_until("it is told again", DEADLINE, again).await;
}
