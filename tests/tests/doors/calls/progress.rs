//! Progress of calls.

use futures_util::future::join;
use mgp_tests::harness::Agent;
use serde_json::{Value, json};

use crate::scene;

fn params(token: &Value, steps: u64) -> Value {
    let arguments = json!({"steps": steps, "ms": 2});
    json!({"name": "it:progress", "arguments": arguments, "_meta": {"progressToken": token, "x": 1}})
}

/// What was heard of progress, as token and step.
fn steps(agent: &Agent) -> Vec<(Value, u64)> {
    let heard = agent.heard("notifications/progress").into_iter();
    let heard = heard.map(|p| &p["params"]);
    heard
        .map(|p| (p["progressToken"].clone(), p["progress"].as_u64().unwrap()))
        .collect()
}

/// MCP-056, CMCP-061: progress carries the token of its caller, whatever that is, in order and
/// before the answer; the server sees a token of the kernel's own.
#[tokio::test]
async fn progress_carries_the_token_of_its_caller() {
    let kernel = scene::kernel().await;
    for agent in [
        &mut scene::http_agent(&kernel, None, "{}").await,
        &mut scene::socket_agent(&kernel, "{}").await,
    ] {
        for token in [json!("tökén \"1\""), json!(7), json!(0), json!("")] {
            agent
                .request("tools/call", params(&token, 5))
                .await
                .result();
            let expected: Vec<(Value, u64)> = (1..=5).map(|step| (token.clone(), step)).collect();
            assert_eq!(steps(agent), expected);
            agent.forget();
        }
    }
    let mut agent = scene::http_agent(&kernel, None, "{}").await;
    let heard = scene::received(&mut agent, "received").await;
    let calls = heard
        .iter()
        .filter(|frame| frame.contains(r#""name":"progress""#));
    let calls: Vec<Value> = calls
        .map(|frame| serde_json::from_str(frame).unwrap())
        .collect();
    assert_eq!(calls.len(), 8);
    let mut tokens: Vec<String> = calls
        .iter()
        .map(|c| c["params"]["_meta"]["progressToken"].to_string())
        .collect();
    tokens.dedup();
    assert_eq!(tokens.len(), 8, "{tokens:?}");
    assert!(calls.iter().all(|call| call["params"]["_meta"]["x"] == 1));
}

/// MCP-057: who gave no token hears nothing.
#[tokio::test]
async fn without_a_token_there_is_no_progress() {
    let kernel = scene::kernel().await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    agent
        .call("it:progress", json!({"steps": 20}))
        .await
        .result();
    agent.request("ping", json!({})).await.result();
    assert_eq!(steps(&agent), []);
}

/// MCP-056: two agents with the same token at the same time hear their own steps alone.
#[tokio::test]
async fn agents_with_the_same_progress_token_get_their_own_progress() {
    let kernel = scene::kernel().await;
    let mut one = scene::http_agent(&kernel, None, "{}").await;
    let mut two = scene::socket_agent(&kernel, "{}").await;
    let token = json!("same");
    let calls = join(
        one.request("tools/call", params(&token, 30)),
        two.request("tools/call", params(&token, 50)),
    );
    let (first, second) = calls.await;
    assert_eq!(
        (first.text().as_str(), second.text().as_str()),
        ("30 steps", "50 steps")
    );
    for (agent, last) in [(&one, 30), (&two, 50)] {
        let expected: Vec<(Value, u64)> = (1..=last).map(|step| (token.clone(), step)).collect();
        assert_eq!(steps(agent), expected);
    }
}

/// A server that reports faster than its caller reads may lose some steps; the caller loses nothing
/// else, whichever door it came in by.
#[tokio::test]
async fn flood_of_progress_disconnects_no_client() {
    let kernel = scene::kernel().await;
    for agent in [
        &mut scene::http_agent(&kernel, None, "{}").await,
        &mut scene::socket_agent(&kernel, "{}").await,
    ] {
        for _ in 0..3 {
            let arguments = json!({"steps": 20_000});
            let meta = json!({"progressToken": "flood"});
            let params = json!({"name": "it:progress", "arguments": arguments, "_meta": meta});
            let answer = agent.request("tools/call", params).await;
            assert_eq!(answer.text(), "20000 steps");
            let heard = steps(agent);
            let numbers: Vec<u64> = heard.iter().map(|(_, step)| *step).collect();
            assert!(!numbers.is_empty() && numbers.is_sorted_by(|a, b| a < b));
            agent.forget();
        }
    }
}
