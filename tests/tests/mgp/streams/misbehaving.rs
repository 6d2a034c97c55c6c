//! Servers that stream as nobody should.

use serde_json::{Value, json};

use super::{CHUNK, asking, calls, chunks, indices, streaming, told};
use crate::scene::{DOORS, Door, ERAS, of_kind, reported};

async fn dropped(kernel: &mgp_tests::harness::Kernel) -> u64 {
    reported(kernel, "it").await["dropped_notifications"]
        .as_u64()
        .unwrap()
}

/// MGP-159: chunks out of order, twice and after the last one are put right.
#[tokio::test]
async fn chunks_are_put_in_order_and_come_once() {
    let kernel = streaming("legacy", &[]).await;
    for version in ERAS {
        for door in DOORS {
            let mut client = of_kind(&kernel, door, version, true).await;
            let steps = json!([{"chunk": 1, "text": "b"}, {"chunk": 0, "text": "a"}, {"chunk": 1, "text": "b"},
                {"chunk": 2, "text": "c", "done": true}, {"chunk": 3, "text": "too late"}, {"chunk": 2, "text": "c"}]);
            client.request("tools/call", asking(&steps)).await.result();
            let all = ["a", "b", "c"].map(str::to_owned);
            let all: Vec<(u64, String)> = (0..).zip(all).collect();
            assert_eq!(chunks(&client), all, "{version} {door:?}");
        }
    }
}

/// Later drafts, 12.9: the server is asked for a chunk that is missing; when it does not come, the others
/// go on, and their index shows the gap.
#[tokio::test]
async fn missing_chunk_is_requested_and_then_skipped() {
    let kernel = streaming("legacy", &[]).await;
    let mut client = of_kind(&kernel, Door::Socket, ERAS[0], true).await;
    let steps = json!([{"chunk": 0}, {"chunk": 2}, {"until": "gap"}, {"chunk": 1}, {"chunk": 5}, {"ms": 600}, {"chunk": 6}]);
    client.request("tools/call", asking(&steps)).await.result();
    assert_eq!(indices(&client), [0, 1, 2, 5, 6]);
    let asked = told(&mut client, "notifications/mgp.stream.gap").await;
    let missing: Vec<&Value> = asked.iter().map(|gap| &gap["missing_indices"]).collect();
    assert_eq!(missing, [&json!([1]), &json!([3, 4])]);
}

/// A chunk of another's call, of none, of an own call that did not ask, and after the answer reach nobody,
/// and are counted.
#[tokio::test]
async fn chunks_of_other_calls_are_dropped() {
    let kernel = streaming("legacy", &[]).await;
    let mut victim = of_kind(&kernel, Door::Socket, ERAS[0], true).await;
    let quiet = json!({"name": "it:stream", "arguments": {"steps": [{"ms": 1000}, {"chunk": 0, "text": "own"}], "unasked": true}});
    let waiting = victim.start("tools/call", quiet).await;
    let mut other = of_kind(&kernel, Door::Socket, ERAS[0], true).await;
    let id = loop {
        if let Some(call) = calls_with_ids(&mut other).await.pop() {
            break call;
        }
    };
    let before = dropped(&kernel).await;
    let steps = json!([{"chunk": 0, "of": id, "text": "for the victim"}, {"chunk": 0, "of": 1}, {"chunk": 0, "of": "x"},
        {"reply": true}, {"chunk": 0, "text": "after the answer"}]);
    other.request("tools/call", asking(&steps)).await.result();
    victim.answer_to(&waiting).await.result();
    for client in [&mut victim, &mut other] {
        client
            .call("it:echo", json!({"text": "then"}))
            .await
            .result();
        assert_eq!(client.heard(CHUNK).len(), 0);
    }
    assert_eq!(dropped(&kernel).await - before, 5);
    assert_eq!(calls(&mut other).await.len(), 2);
}

async fn calls_with_ids(client: &mut mgp_tests::harness::Client) -> Vec<Value> {
    let frames = crate::scene::received(client, "it:received")
        .await
        .into_iter();
    let frames = frames.map(|frame| serde_json::from_str::<Value>(&frame).unwrap());
    let of_tool = frames.filter(|frame| frame["params"]["name"] == "stream");
    of_tool.map(|frame| frame["id"].clone()).collect()
}

/// A flood for a reader that does not read: others are served meanwhile, the server is told to pause,
/// and the result is whole.
#[tokio::test]
async fn flood_of_chunks_for_a_slow_reader_delays_no_other_call() {
    let kernel = streaming("legacy", &[]).await;
    let mut sleeping = mgp_tests::harness::HttpClient::new(kernel.url());
    let capabilities = mgp_tests::harness::mgp::speaks_mgp(ERAS[0]);
    sleeping.open_session("2025-06-18", &capabilities).await;
    let steps = json!([{"flood": 20_000, "bytes": 300}, {"ms": 1}]);
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asking(&steps)});
    let answer = sleeping.post(call.to_string()).await;
    let mut other = of_kind(&kernel, Door::Socket, ERAS[0], true).await;
    let echo = other.call("it:echo", json!({"text": "meanwhile"})).await;
    assert_eq!(echo.text(), "meanwhile");
    let paces = told(&mut other, "notifications/mgp.stream.pace").await;
    let rates: Vec<u64> = paces
        .iter()
        .filter_map(|pace| pace["max_chunks_per_second"].as_u64())
        .collect();
    assert!(rates.contains(&0), "{rates:?}");
    let frames = answer.frames().await;
    let last: Value = serde_json::from_str(frames.last().unwrap()).unwrap();
    assert_eq!(last["result"]["_mgp"]["chunks_sent"], 20_000);
    let read =
        |frame: &String| serde_json::from_str::<Value>(frame).ok()?["params"]["index"].as_u64();
    let indices: Vec<u64> = frames.iter().filter_map(read).collect();
    assert!(
        indices.len() >= 300 && indices.is_sorted_by(|one, next| one < next),
        "{}",
        indices.len()
    );
}

/// Chunks without a last one, and a call that fails after some: the answer is the server's own.
#[tokio::test]
async fn a_stream_without_an_end_ends_with_its_call() {
    let kernel = streaming("legacy", &[]).await;
    let mut client = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    for _ in 0..2 {
        client
            .request("tools/call", asking(&json!([{"chunk": 0}, {"chunk": 1}])))
            .await
            .result();
        assert_eq!(indices(&client), [0, 1]);
        client.forget();
    }
    let tree = kernel.mgp_json(&["status", "--tree"]).await;
    assert!(!tree.to_string().contains("call_stream"), "{tree:#}");
}
