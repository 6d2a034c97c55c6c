//! Server-sent events (§3.7, §4.3, A.4).

use http::header::ACCEPT;
use mgp_tests::harness::http::events::Event;
use mgp_tests::harness::mgp::declaration;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, wait_until};
use serde_json::{Value, json};

use crate::scene::{LiteClient, all, body, kernel, read};

/// A kernel in front of a server that streams.
async fn streaming(sections: &str) -> Kernel {
    let said = declaration(&["streaming"]).to_string();
    kernel(sections, &["--mgp", &said]).await
}

/// What the server tells of itself.
async fn counted(watcher: &mut Agent) -> Value {
    watcher.call("it:count", json!({})).await.result()["structuredContent"].take()
}

/// The steps of a stream with three chunks.
fn three_chunks() -> Value {
    json!({"steps": [{"chunk": 0, "text": "a"}, {"chunk": 1, "text": "\u{e4}\n"}, {"chunk": 2, "text": "c", "done": true}]})
}

/// The events of that stream.
async fn three_chunk_events(kernel: &Kernel) -> Vec<Event> {
    let client = LiteClient::new(kernel);
    all(client.events("it__stream", three_chunks()).await).await
}

/// LITE-041: at `/rpc` of the example as well, and otherwise the call is answered whole.
#[tokio::test]
async fn call_is_streamed_only_where_events_are_accepted() {
    let kernel = streaming("").await;
    let events = three_chunk_events(&kernel).await;
    assert!(events.len() > 1, "{events:?}");
    let client = LiteClient::new(&kernel);
    let plain = client.call("it__stream", three_chunks()).await;
    assert_eq!(plain.text(), "a\u{e4}\nc");
}

/// LITE-039.
#[tokio::test]
async fn rpc_path_streams_a_call() {
    let kernel = streaming("").await;
    let client = LiteClient::at(&kernel, "/rpc");
    let events = all(client.events("it__stream", three_chunks()).await).await;
    assert_eq!(read(&events[0]), ("message", json!({"partial": "a"})));
}

/// LITE-027, LITE-043.
#[tokio::test]
async fn chunks_are_message_events_in_order_before_the_complete_one() {
    let kernel = streaming("").await;
    let events = three_chunk_events(&kernel).await;
    let events: Vec<(&str, Value)> = events.iter().map(read).collect();
    let (last, parts) = events.split_last().unwrap();
    let texts = ["a", "\u{e4}\n", "c"];
    let expected = texts.map(|text| ("message", json!({"partial": text})));
    assert_eq!(parts, expected);
    assert_eq!(last.0, "done");
}

/// LITE-028, LITE-044: and a caller that did not ask for MGP reads no member of it.
#[tokio::test]
async fn done_event_has_the_whole_result_and_its_meta() {
    let kernel = streaming("").await;
    let events = three_chunk_events(&kernel).await;
    let (name, done) = read(events.last().unwrap());
    assert_eq!(name, "done");
    assert_eq!(done["content"][0]["text"], "a\u{e4}\nc");
    assert_eq!(done["_meta"]["response_type"], "answer");
    assert!(done["_meta"]["timestamp"].is_string());
    assert!(done.get("_mgp").is_none(), "{done}");
}

/// LITE-046.
#[tokio::test]
async fn silent_stream_sends_heartbeats() {
    let kernel = streaming("[lite]\nheartbeat_ms = 100\n").await;
    let client = LiteClient::new(&kernel);
    let steps =
        json!([{"chunk": 0, "text": "a"}, {"ms": 400}, {"chunk": 1, "text": "b", "done": true}]);
    let events = all(client.events("it__stream", json!({"steps": steps})).await).await;
    let events: Vec<(&str, Value)> = events.iter().map(read).collect();
    assert_eq!(events[0].0, "message");
    assert_eq!(events[1], ("heartbeat", json!({})));
    assert_eq!(events.last().unwrap().0, "done");
}

/// LITE-073.
#[tokio::test]
async fn stream_is_written_as_in_the_example() {
    let kernel = streaming("").await;
    let mut client = LiteClient::new(&kernel);
    client.http.set(ACCEPT, "text/event-stream");
    let call = body("it__stream", three_chunks(), json!({}));
    let text = client.http.post(call).await.text().await;
    let chunk = "event: message\ndata: {\"partial\":\"a\"}\n\n";
    assert!(text.contains(chunk), "{text}");
    let done = text.rsplit("event: ").next().unwrap();
    assert!(done.starts_with("done\ndata: {"), "{text}");
    assert!(done.ends_with("}\n\n"), "{text}");
    assert_eq!(done.lines().count(), 3, "{text}");
}

/// LITE-045: what goes wrong in the middle of a stream is its last event, an error object.
#[tokio::test]
async fn failed_stream_ends_with_an_error_event() {
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
async fn slow_reader_delays_no_other_call_and_pauses_the_server() {
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
