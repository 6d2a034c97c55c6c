//! Requests that are taken back.

use mgp_tests::harness::Agent;
use serde_json::{Value, json};

use crate::scene::{self, NEWEST, counts, reached, taken_back};

async fn cancel(agent: &mut Agent, id: &Value) {
    let params = json!({"requestId": id, "reason": "changed my mind"});
    agent.notify("notifications/cancelled", params).await;
}

/// MCP-054, MCP-085, CMCP-054, CMCP-069: a cancellation reaches the server under the id it knows and with the
/// reason that its client gave, and nothing more is said about the request.
#[tokio::test]
async fn a_cancelled_call_ends_at_the_server_and_is_not_answered() {
    let kernel = scene::kernel().await;
    let mut watcher = scene::socket_agent(&kernel, "{}").await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    agent
        .send(&scene::call("mine", "it:slow", json!({"ms": 60_000})))
        .await;
    reached(&mut watcher, "slow", 1).await;
    cancel(&mut agent, &json!("mine")).await;
    taken_back(&mut watcher, "slow", 1).await;
    let heard = scene::received(&mut watcher, "it:received").await;
    let frame = |word: &str| -> Value {
        let frame = heard.iter().find(|frame| frame.contains(word));
        serde_json::from_str(frame.unwrap_or_else(|| panic!("{word}: {heard:#?}"))).unwrap()
    };
    let (call, notice) = (frame(r#""name":"slow""#), frame("notifications/cancelled"));
    assert_eq!(notice["params"]["requestId"], call["id"]);
    assert_eq!(notice["params"]["reason"], "changed my mind");
    assert_ne!(call["id"], "mine");
    // The id is free again: its next answer is that of its next request.
    agent
        .send(&scene::call("mine", "it:echo", json!({"text": "another"})))
        .await;
    assert_eq!(agent.answer_to(&json!("mine")).await.text(), "another");
}

/// MCP-004, CMCP-054: an id means the same however its string is written.
#[tokio::test]
async fn a_cancelled_id_may_be_written_otherwise() {
    let kernel = scene::kernel().await;
    let mut watcher = scene::socket_agent(&kernel, "{}").await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    let call = scene::call("a", "it:slow", json!({"ms": 60_000}));
    agent
        .send(&call.replace(r#""id":"a""#, r#""id":"\u0061""#))
        .await;
    reached(&mut watcher, "slow", 1).await;
    cancel(&mut agent, &json!("a")).await;
    taken_back(&mut watcher, "slow", 1).await;
}

/// MCP-085, CMCP-054, CMCP-070: over HTTP the stream of a cancelled request ends without an answer, also when
/// the server gives one all the same.
#[tokio::test]
async fn the_stream_of_a_cancelled_call_ends_without_an_answer() {
    let kernel = scene::kernel().await;
    let mut watcher = scene::socket_agent(&kernel, "{}").await;
    let client = scene::session(&kernel, NEWEST).await;
    for (n, tool) in ["slow", "stubborn", "hang"].into_iter().enumerate() {
        let call = scene::call(n, tool, json!({"ms": 300}));
        let answer = client.post(call).await;
        assert!(answer.is_stream(), "{tool}");
        let params = json!({"requestId": n});
        let notice =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        assert_eq!(client.post(notice.to_string()).await.status, 202);
        assert_eq!(answer.frames().await, [""; 0], "{tool}");
        taken_back(&mut watcher, tool, 1).await;
    }
    let echo = client
        .post(scene::call(0, "echo", json!({"text": "well"})))
        .await;
    assert!(echo.frames().await[0].contains("well"));
}

/// MCP-055: a cancellation of what is unknown, over, or no id at all is nothing.
#[tokio::test]
async fn a_cancellation_of_nothing_is_nothing() {
    let kernel = scene::kernel().await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    let done = agent
        .start(
            "tools/call",
            json!({"name": "it:echo", "arguments": {"text": "x"}}),
        )
        .await;
    agent.answer_to(&done).await.result();
    for id in [
        done,
        json!(999),
        json!("999"),
        Value::Null,
        json!({}),
        json!(1.5),
    ] {
        cancel(&mut agent, &id).await;
    }
    agent.notify("notifications/cancelled", json!({})).await;
    agent
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#)
        .await;
    let heard = scene::received(&mut agent, "it:received").await;
    assert!(
        !heard.iter().any(|frame| frame.contains("cancelled")),
        "{heard:#?}"
    );
}

/// CMCP-058: a question nobody answers keeps no call from being taken back; the question is taken
/// back with it.
#[tokio::test]
async fn call_with_a_pending_elicitation_can_be_cancelled() {
    let kernel = scene::kernel().await;
    let mut watcher = scene::socket_agent(&kernel, "{}").await;
    let client = scene::session_with(&kernel, NEWEST, r#"{"elicitation":{}}"#).await;
    let call = scene::call(1, "test_elicitation", json!({"message": "?"}));
    let mut events = client.post(call).await.events();
    let question = loop {
        let event = events.next().await.unwrap();
        if !event.data.is_empty() {
            break serde_json::from_str::<Value>(&event.data).unwrap();
        }
    };
    assert_eq!(question["method"], "elicitation/create");
    let notice = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(client.post(notice).await.status, 202);
    let mut rest: Vec<Value> = Vec::new();
    while let Some(event) = events.next().await {
        rest.extend(serde_json::from_str::<Value>(&event.data));
    }
    assert!(
        rest.iter()
            .all(|m| m["method"] == "notifications/cancelled"),
        "{rest:?}"
    );
    assert!(
        rest.iter()
            .all(|m| m["params"]["requestId"] == question["id"]),
        "{rest:?}"
    );
    let heard = scene::received(&mut watcher, "it:received").await;
    let settled = |frame: &String| frame.contains("srv-1") || frame.contains("/cancelled");
    assert!(heard.iter().any(settled), "{heard:#?}");
    // It serves one agent at a time since it asked: the next one gets its turn.
    assert_eq!(
        watcher
            .call("it:echo", json!({"text": "next"}))
            .await
            .text(),
        "next"
    );
}

/// CMCP-098: a call that waits for its turn and is taken back is never made.
#[tokio::test]
async fn a_call_that_is_cancelled_while_it_waits_is_never_made() {
    let kernel = scene::kernel().await;
    let mut first = scene::socket_agent(&kernel, r#"{"roots":{}}"#).await;
    let mut second = scene::socket_agent(&kernel, "{}").await;
    first.answers("roots/list", json!({"roots": []}));
    // The server asks, so from now on it gets the calls of one agent at a time.
    first.call("it:ask_roots", json!({})).await.result();
    let slow = json!({"name": "it:test_slow", "arguments": {"seconds": 0.5}});
    let holding = first.start("tools/call", slow).await;
    reached(&mut first, "test_slow", 1).await;
    let waiting = second
        .start("tools/call", json!({"name": "it:greet"}))
        .await;
    second.request("ping", json!({})).await.result();
    cancel(&mut second, &waiting).await;
    first.answer_to(&holding).await.result();
    assert_eq!(
        second.call("it:echo", json!({"text": "next"})).await.text(),
        "next"
    );
    let counted = counts(&mut first, "it:count").await;
    assert_eq!(counted["calls"]["greet"], Value::Null, "{counted}");
}
