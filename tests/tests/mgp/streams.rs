//! Streaming (MGP §12): results before the result.

mod cancelling;
mod misbehaving;
mod plain;

use mgp_tests::harness::mgp::{declaration, declaring};
use mgp_tests::harness::{Client, Kernel};
use serde_json::{Value, json};

use crate::scene::{self, DOORS, ERAS, kernel_with, of_kind, received, speaking};

const CHUNK: &str = "notifications/mgp.stream.chunk";
const PROGRESS: &str = "notifications/mgp.stream.progress";

/// A kernel in front of a server that speaks all of MGP.
async fn streaming(era: &str, more: &[&str]) -> Kernel {
    let flags = speaking(era);
    let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    flags.extend(more);
    kernel_with("", &flags).await
}

/// A call of the tool that streams, which asks for chunks.
fn asking(steps: &Value) -> Value {
    let mut params = quiet(steps);
    params["_mgp"] = json!({"stream": true});
    params
}

/// The same without asking.
fn quiet(steps: &Value) -> Value {
    json!({"name": "it:stream", "arguments": {"steps": steps}})
}

/// Steps that send these texts in order, the last one as the last.
fn texts(texts: &[&str]) -> Value {
    let last = texts.len() - 1;
    let steps = texts.iter().enumerate();
    let steps = steps.map(|(at, text)| json!({"chunk": at, "text": text, "done": at == last}));
    steps.collect()
}

/// The chunks that were heard, as their index and text.
fn chunks(client: &Client) -> Vec<(u64, String)> {
    let heard = client
        .heard(CHUNK)
        .into_iter()
        .map(|chunk| &chunk["params"]);
    let read = |params: &Value| {
        let text = params["content"]["text"].as_str().unwrap().to_owned();
        (params["index"].as_u64().unwrap(), text)
    };
    heard.map(read).collect()
}

fn indices(client: &Client) -> Vec<u64> {
    chunks(client).into_iter().map(|(index, _)| index).collect()
}

/// What reached the server of this method, as its params.
async fn told(client: &mut Client, method: &str) -> Vec<Value> {
    let frames = received(client, "it:received").await.into_iter();
    let frames = frames.map(|frame| serde_json::from_str::<Value>(&frame).unwrap());
    let of_method = frames.filter(|frame| frame["method"] == method);
    of_method.map(|frame| frame["params"].clone()).collect()
}

/// The streaming calls that reached the server.
async fn calls(client: &mut Client) -> Vec<Value> {
    let mut all = told(client, "tools/call").await;
    all.retain(|params| params["name"] == "stream");
    all
}

/// The texts of the stream in the tests of its parts.
const PARTS: [&str; 3] = ["a", "ä\n", "c"];

/// A streamed call: its id, its result and its chunks.
struct Streamed {
    case: String,
    id: Value,
    result: Value,
    chunks: Vec<Value>,
}

/// That stream, of a server of this kind to clients of every kind.
async fn streamed(era: &str) -> Vec<Streamed> {
    let kernel = streaming(era, &[]).await;
    let mut all = Vec::new();
    for version in ERAS {
        for door in DOORS {
            let mut client = of_kind(&kernel, door, version, true).await;
            let call = asking(&texts(&PARTS));
            let id = client.start("tools/call", call).await;
            let result = client.answer_to(&id).await.result();
            // Those that came before the result.
            let chunks = client.heard(CHUNK).into_iter().cloned().collect();
            let case = format!("{era} {version} {door:?}");
            all.push(Streamed {
                case,
                id,
                result,
                chunks,
            });
        }
    }
    all
}

/// MGP-155, MGP-160.
#[tokio::test]
async fn streamed_call_ends_with_the_whole_result() {
    for era in ["legacy", "modern"] {
        for Streamed { case, result, .. } in streamed(era).await {
            assert_eq!(result["content"][0]["text"], "aä\nc", "{case}");
            let mgp = &result["_mgp"];
            assert_eq!(mgp["streamed"], true, "{case}");
            assert_eq!(mgp["chunks_sent"], 3, "{case}");
            assert!(mgp["duration_ms"].is_u64(), "{case}: {mgp}");
        }
    }
}

/// MGP-157: as the server wrote it, under the id of the client.
#[tokio::test]
async fn chunk_has_request_id_index_content_and_done() {
    for era in ["legacy", "modern"] {
        for streamed in streamed(era).await {
            for (at, chunk) in streamed.chunks.iter().enumerate() {
                let content = json!({"type": "text", "text": PARTS[at]});
                let whole = json!({"request_id": streamed.id, "index": at, "content": content, "done": at == 2});
                assert_eq!(chunk["params"], whole, "{}", streamed.case);
            }
        }
    }
}

/// MGP-159.
#[tokio::test]
async fn chunks_precede_the_result_in_order() {
    for era in ["legacy", "modern"] {
        for Streamed { case, chunks, .. } in streamed(era).await {
            let indices: Vec<_> = chunks.iter().map(|one| &one["params"]["index"]).collect();
            assert_eq!(indices, [0, 1, 2], "{case}");
        }
    }
}

/// MGP-154: what was not negotiated is not asked for: not by a client without the extension, nor of a
/// server without it; MGP-156: plain servers answer as ever.
#[tokio::test]
async fn streaming_that_was_not_negotiated_is_not_requested() {
    let without = declaration(&["audit", "lifecycle"]).to_string();
    for flags in [vec!["--mgp", &without], vec![]] {
        let kernel = kernel_with("", &flags).await;
        for version in ERAS {
            let mut client = of_kind(&kernel, scene::Door::Http, version, true).await;
            let result = client
                .request("tools/call", asking(&texts(&["a", "b"])))
                .await;
            assert_eq!(result.text(), "ab");
            assert_eq!(chunks(&client), []);
        }
        let mut client = of_kind(&kernel, scene::Door::Http, ERAS[0], true).await;
        let all = calls(&mut client).await;
        assert!(
            all.iter().all(|call| call["_mgp"]["stream"].is_null()),
            "{all:?}"
        );
    }
    let kernel = streaming("dual", &[]).await;
    for version in ERAS {
        let other = declaring(version, "{}", &declaration(&["audit"]));
        for capabilities in [other.as_str(), "{}"] {
            let door = scene::Door::Http;
            let mut client = scene::client(&kernel, door, version, capabilities).await;
            let mut result = client
                .request("tools/call", asking(&texts(&["a", "b"])))
                .await;
            assert_eq!(result.text(), "ab");
            result = client
                .request("mgp/stream/cancel", json!({"request_id": 1}))
                .await;
            assert!(result.is_error());
            assert_eq!(client.all_heard(), [json!(null); 0]);
        }
    }
    let mut client = of_kind(&kernel, scene::Door::Http, ERAS[0], true).await;
    let all = calls(&mut client).await;
    assert!(
        all.len() == 4 && all.iter().all(|call| call["_mgp"]["stream"].is_null()),
        "{all:?}"
    );
}

/// MGP-155, MGP-161: who does not ask, or reads over chunks, has the whole result.
#[tokio::test]
async fn client_that_does_not_ask_for_a_stream_gets_the_result_alone() {
    let kernel = streaming("dual", &[]).await;
    for version in ERAS {
        for door in DOORS {
            let mut client = of_kind(&kernel, door, version, true).await;
            let result = client
                .request("tools/call", quiet(&texts(&["a", "b"])))
                .await;
            assert_eq!(result.text(), "ab");
            assert_eq!(client.heard(CHUNK), [&json!(null); 0]);
        }
    }
}

/// MGP-158: two clients with the same id of a request each hear their own chunks; a string is not the
/// number it spells.
#[tokio::test]
async fn each_client_gets_its_own_chunks_under_its_own_id() {
    let kernel = streaming("legacy", &[]).await;
    let capabilities = mgp_tests::harness::mgp::speaks_mgp(ERAS[0]);
    let mut agents = Vec::new();
    for id in [json!(7), json!("7"), json!(7), json!("ä \"7\"")] {
        let mut agent = mgp_tests::harness::Agent::over_socket(&kernel.socket()).await;
        agent.initialize(ERAS[0], &capabilities).await;
        let params = asking(
            &json!([{"chunk": 0, "text": id.to_string()}, {"ms": 50}, {"chunk": 1, "text": "end"}]),
        );
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        agent.send(&call.to_string()).await;
        agents.push((agent, id));
    }
    for (agent, id) in &mut agents {
        agent.answer_to(id).await.result();
        let heard = agent.heard(CHUNK);
        assert_eq!(heard.len(), 2);
        assert!(
            heard
                .iter()
                .all(|chunk| chunk["params"]["request_id"] == *id)
        );
        assert_eq!(heard[0]["params"]["content"]["text"], id.to_string());
    }
}

/// MGP-159: many chunks at once, with calls beside them: all are there, in order, before the result.
#[tokio::test]
async fn a_thousand_chunks_come_in_order_before_the_result() {
    let kernel = streaming("legacy", &[]).await;
    for version in ERAS {
        for door in DOORS {
            let mut client = of_kind(&kernel, door, version, true).await;
            let steps = json!([{"flood": 1000, "bytes": 20}]);
            let id = client.start("tools/call", asking(&steps)).await;
            let echo = client.call("it:echo", json!({"text": "beside"})).await;
            assert_eq!(echo.text(), "beside");
            client.answer_to(&id).await.result();
            let all: Vec<u64> = (0..1000).collect();
            assert_eq!(indices(&client), all, "{version} {door:?}");
        }
    }
}

/// MGP-162: progress of a server comes under the client's own id, with all the server said.
#[tokio::test]
async fn progress_comes_under_the_clients_own_id() {
    for era in ["legacy", "modern"] {
        let kernel = streaming(era, &[]).await;
        for version in ERAS {
            for door in DOORS {
                let mut client = of_kind(&kernel, door, version, true).await;
                let steps =
                    json!([{"progress": 0.65, "message": "13/20", "estimated_remaining_ms": 4500}]);
                let id = client.start("tools/call", quiet(&steps)).await;
                client.answer_to(&id).await.result();
                let heard = client.hears(PROGRESS).await;
                let whole = json!({"request_id": id, "progress": 0.65, "message": "13/20", "estimated_remaining_ms": 4500});
                assert_eq!(heard["params"], whole);
            }
        }
    }
}

/// Later drafts, 12.8 and 12.9: the reader's pace is told to the server under the kernel's id of the call;
/// a chunk that it misses comes again, from the kernel or from the server.
#[tokio::test]
async fn reader_sets_its_pace_and_requests_missing_chunks() {
    let kernel = streaming("legacy", &[]).await;
    let mut client = of_kind(&kernel, scene::Door::Socket, ERAS[0], true).await;
    let Client::Legacy(agent) = &mut client else {
        panic!("a client of the handshake");
    };
    let steps = json!([{"chunk": 0, "text": "a"}, {"until": "pace"}, {"chunk": 1, "text": "b"},
        {"until": "gap"}, {"chunk": 7, "text": "never asked"}]);
    let id = agent.start("tools/call", asking(&steps)).await;
    agent.hears(CHUNK).await;
    let pace = json!({"request_id": id, "max_chunks_per_second": 1000, "reason": "rendering"});
    agent.notify("notifications/mgp.stream.pace", pace).await;
    agent.hears(CHUNK).await;
    let gap = |missing: Value| json!({"request_id": id, "missing_indices": missing});
    agent
        .notify("notifications/mgp.stream.gap", gap(json!([0])))
        .await;
    let again = agent.hears(CHUNK).await;
    assert_eq!(
        (
            &again["params"]["index"],
            &again["params"]["content"]["text"]
        ),
        (&json!(0), &json!("a"))
    );
    // The reader's gap is served here, so the server hears of that of its own chunk alone: 2 to 6.
    let stop = json!({"request_id": id});
    agent.request("mgp/stream/cancel", stop).await.result();
    agent.answer_to(&id).await;
    let call = told(&mut client, "notifications/mgp.stream.pace").await;
    assert_eq!(call[0]["max_chunks_per_second"], 1000);
    assert_ne!(call[0]["request_id"], id);
    assert_eq!(
        told(&mut client, "notifications/mgp.stream.gap").await,
        [json!(null); 0]
    );
}
