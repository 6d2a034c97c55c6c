//! Server-sent events (§3.7, §4.3, A.4).

use mgp_tests::harness::mgp::declaration;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, wait_until};
use serde_json::{Value, json};

use crate::scene::{LiteClient, all, kernel, read};

/// A kernel in front of a server that streams.
async fn streaming(sections: &str) -> Kernel {
    let said = declaration(&["streaming"]).to_string();
    kernel(sections, &["--mgp", &said]).await
}

/// What the server tells of itself.
async fn counted(watcher: &mut Agent) -> Value {
    watcher.call("it:count", json!({})).await.result()["structuredContent"].take()
}

/// LITE-004, LITE-027, LITE-028, LITE-041, LITE-043, LITE-044, LITE-046, LITE-073: chunks of a server are `message` events, in
/// order and before `done`, which has the whole result besides `_meta`; a stream that is silent says that it is alive.
#[tokio::test]
async fn chunks_are_events_and_the_last_one_is_whole() {
    let kernel = streaming("[tuning.lite]\nheartbeat_ms = 100\n").await;
    let client = LiteClient::new(&kernel);
    let steps = json!([{"chunk": 0, "text": "a"}, {"ms": 400}, {"chunk": 1, "text": "\u{e4}\n"}, {"chunk": 2, "text": "c", "done": true}]);
    let events = all(client.events("it__stream", json!({"steps": steps})).await).await;
    let named = |name: &str| -> Vec<Value> {
        let all = events.iter().map(read).filter(|(said, _)| *said == name);
        all.map(|(_, data)| data).collect()
    };
    let parts: Vec<Value> = named("message");
    let text = [
        json!({"partial": "a"}),
        json!({"partial": "\u{e4}\n"}),
        json!({"partial": "c"}),
    ];
    assert_eq!(parts, text);
    let beats = named("heartbeat");
    assert!(
        !beats.is_empty() && beats.iter().all(|beat| *beat == json!({})),
        "{events:?}"
    );
    let (last, done) = read(events.last().unwrap());
    assert_eq!(last, "done");
    assert_eq!(done["content"][0]["text"], "a\u{e4}\nc");
    assert_eq!(done["_meta"]["response_type"], "answer");
    assert!(done["_meta"]["timestamp"].is_string());
    // Who did not ask for MGP reads no word of it.
    assert!(done.get("_mgp").is_none(), "{done}");
    assert!(events.iter().all(|event| !event.data.contains('\n')));

    // Without events the same call is answered whole.
    let plain = client.call("it__stream", json!({"steps": steps})).await;
    assert_eq!(plain.text(), "a\u{e4}\nc");
}

/// LITE-045: what goes wrong in the middle of a stream is its last event, an error object.
#[tokio::test]
async fn a_stream_that_fails_ends_with_an_error() {
    let kernel = streaming("").await;
    let client = LiteClient::new(&kernel);
    let unknown = all(client.events("it__nosuch", json!({})).await).await;
    let (name, error) = read(&unknown[0]);
    assert_eq!((name, &error["code"]), ("error", &json!(-32601)));
    let mut events = client
        .events(
            "it__stream",
            json!({"steps": [{"chunk": 0, "text": "a"}, {"ms": 60_000}]}),
        )
        .await;
    assert_eq!(
        read(&events.next().await.unwrap()).1,
        json!({"partial": "a"})
    );
    kernel.mgp(&["servers", "stop", "it"]).await;
    let rest = all(events).await;
    let (name, error) = read(rest.last().unwrap());
    assert_eq!((name, &error["code"]), ("error", &json!(-32603)));
    assert!(error["message"].is_string());
}

/// LITE-029: whoever closes the connection has the call taken back at its server.
#[tokio::test]
async fn closing_the_connection_cancels_the_call() {
    let kernel = streaming("").await;
    let client = LiteClient::new(&kernel);
    let mut watcher = kernel.http_agent(None);
    watcher.initialize("2025-11-25", "{}").await.result();
    let events = client.events("it__test_slow", json!({"seconds": 60})).await;
    let slow =
        async |watcher: &mut Agent, of: &str| counted(watcher).await[of]["test_slow"].clone();
    let there = async || slow(&mut watcher, "calls").await == 1;
    wait_until("the call is there", DEADLINE, there).await;
    drop(events);
    drop(client);
    let gone = async || slow(&mut watcher, "cancelled").await == 1;
    wait_until("the call is taken back", DEADLINE, gone).await;
}

/// LITE-060: a reader that does not read holds up nobody, and the server is told to pause; what it reads in the end
/// is in order, and its result whole.
#[tokio::test]
async fn a_reader_that_does_not_read_holds_up_nobody() {
    let kernel = streaming("").await;
    let sleeping = LiteClient::new(&kernel);
    let steps = json!([{"flood": 20_000, "bytes": 300}, {"ms": 1}]);
    let events = sleeping.events("it__stream", json!({"steps": steps})).await;
    let other = LiteClient::new(&kernel);
    let echo = other.call("it__echo", json!({"text": "meanwhile"})).await;
    assert_eq!(echo.text(), "meanwhile");
    let paused = async || {
        let received = other.call("it__received", json!({})).await;
        let frames = received.result()["structuredContent"]["frames"].to_string();
        frames.contains("mgp.stream.pace") && frames.contains("max_chunks_per_second\\\":0")
    };
    wait_until("the server is told to pause", DEADLINE, paused).await;
    let all = all(events).await;
    let parts = all
        .iter()
        .filter(|event| event.event.as_deref() == Some("message"))
        .count();
    assert!(
        (300..20_000).contains(&parts),
        "{parts}: at most what a stream may hold"
    );
    let (name, done) = read(all.last().unwrap());
    assert_eq!(name, "done");
    assert!(done["content"][0]["text"].as_str().unwrap().len() >= 20_000 * 300);
}
