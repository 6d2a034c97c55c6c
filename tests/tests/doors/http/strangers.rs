//! Agents that use what belongs to another: its session, its ids, its tokens. All without effect.

use http::StatusCode;
use mgp_tests::harness::handshake::FULL;
use mgp_tests::harness::http::SESSION;
use mgp_tests::harness::http::events::Events;
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{DEADLINE, HttpClient};
use serde_json::{Value, json};

use crate::scene::{self, NEWEST, counts, request};

async fn message(events: &mut Events) -> Value {
    loop {
        let event = within("an event", DEADLINE, events.next()).await;
        let event = event.expect("the stream goes on");
        if !event.data.is_empty() {
            return serde_json::from_str(&event.data).unwrap();
        }
    }
}

fn note(method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
}

/// CMCP-021: a session is unknown at any endpoint but its own, and none the worse for being asked
/// for there.
#[tokio::test]
async fn a_session_is_unknown_at_another_endpoint() {
    let kernel = scene::kernel_of_two().await;
    let own = scene::session(&kernel, NEWEST).await;
    for elsewhere in ["one", "two"] {
        let mut stranger = HttpClient::new(&kernel.server_url(elsewhere));
        stranger.headers = own.headers.clone();
        for answer in [
            stranger.post(request(1, "tools/list", json!({}))).await,
            stranger.get(None).await,
            stranger.delete().await,
        ] {
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{elsewhere}");
        }
    }
    let list = own.post(request(1, "tools/list", json!({}))).await;
    assert_eq!(list.status, StatusCode::OK);
}

/// The ids of another agent's requests and questions, and its progress tokens, mean nothing.
#[tokio::test]
async fn ids_and_tokens_of_another_agent_mean_nothing() {
    let kernel = scene::kernel().await;
    let mut watcher = scene::socket_agent(&kernel, "{}").await;
    let one = scene::session_with(&kernel, NEWEST, FULL).await;
    let other = scene::session_with(&kernel, NEWEST, FULL).await;
    let call = scene::call("its id", "ask_slow", json!({"after": 100}));
    let mut events = one.post(call).await.events();
    let question = message(&mut events).await;
    for theft in [
        note("notifications/cancelled", json!({"requestId": "its id"})),
        note(
            "notifications/cancelled",
            json!({"requestId": question["id"]}),
        ),
        note(
            "notifications/progress",
            json!({"progressToken": "its token", "progress": 1}),
        ),
        json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
            .to_string(),
        json!({"jsonrpc": "2.0", "id": question["id"], "error": {"code": 1, "message": "x"}})
            .to_string(),
        json!({"jsonrpc": "2.0", "id": "srv-1", "result": {"action": "decline"}}).to_string(),
    ] {
        assert_eq!(other.post(theft).await.status, StatusCode::ACCEPTED);
    }
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}});
    one.post(answer.to_string()).await;
    let told = message(&mut events).await;
    assert_eq!(told["id"], "its id");
    assert_eq!(told["result"]["content"][0]["text"], "action=accept");
    let counted = counts(&mut watcher, "it:count").await;
    assert_eq!(counted["cancelled"], json!({}));
}

/// The same id in use by two agents names two requests: taking one back leaves the other.
#[tokio::test]
async fn equal_ids_of_two_agents_are_two_requests() {
    let kernel = scene::kernel().await;
    let mut watcher = scene::socket_agent(&kernel, "{}").await;
    let one = scene::session(&kernel, NEWEST).await;
    let other = scene::session(&kernel, NEWEST).await;
    let kept = one
        .post(scene::call(5, "test_slow", json!({"seconds": 0.5})))
        .await;
    let taken_back = other
        .post(scene::call(5, "slow", json!({"ms": 60_000})))
        .await;
    other
        .post(note("notifications/cancelled", json!({"requestId": 5})))
        .await;
    assert_eq!(taken_back.frames().await, [""; 0]);
    assert!(kept.frames().await.last().unwrap().contains("slept"));
    let counted = counts(&mut watcher, "it:count").await;
    assert_eq!(counted["cancelled"], json!({"slow": 1}));
}

/// The number of another session's event replays nothing of it.
#[tokio::test]
async fn the_event_id_of_another_session_replays_nothing_of_it() {
    let kernel = scene::kernel().await;
    let one = scene::session(&kernel, NEWEST).await;
    let other = scene::session(&kernel, NEWEST).await;
    let mut events = one
        .post(scene::call(1, "slow", json!({"ms": 200})))
        .await
        .events();
    let primer = loop {
        let event = events.next().await.unwrap();
        if let Some(id) = event.id {
            break id;
        }
    };
    assert!(message(&mut events).await.to_string().contains("slept"));
    let mut stolen = other.get(Some(&primer)).await.events();
    other.delete().await;
    while let Some(event) = within("the end", DEADLINE, stolen.next()).await {
        assert_eq!(event.data, "");
    }
}

/// An agent that ends its session ends its own, not the one whose id it puts into a body.
#[tokio::test]
async fn a_session_id_in_a_body_is_no_identity() {
    let kernel = scene::kernel().await;
    let one = scene::session(&kernel, NEWEST).await;
    let other = scene::session(&kernel, NEWEST).await;
    let id = one.headers[&SESSION].to_str().unwrap();
    let meta = json!({"sessionId": id, "Mcp-Session-Id": id, "agent_id": "operator"});
    let params = json!({"name": "mgp/kernel/stop", "_meta": meta, "sessionId": id});
    let refused = other
        .post(request(1, "mgp/kernel/stop", params))
        .await
        .frames()
        .await;
    assert!(refused[0].contains("-32601"), "{refused:?}");
    other.delete().await;
    assert_eq!(
        one.post(request(1, "tools/list", json!({}))).await.status,
        200
    );
}
