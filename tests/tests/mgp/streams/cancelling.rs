//! `mgp/stream/cancel`.

use mgp_tests::harness::Client;
use serde_json::{Value, json};

use super::{CHUNK, asking, quiet, streaming, told};
use crate::scene::{DOORS, Door, ERAS, kernel_with, of_kind, received};

/// Steps that send two texts and never end.
fn endless() -> Value {
    json!([{"chunk": 0, "text": "Quantum "}, {"chunk": 1, "text": "computing"}, {"ms": 60_000}])
}

/// Starts a call and waits for its second chunk.
async fn streamed(client: &mut Client) -> Value {
    let id = client.start("tools/call", asking(&endless())).await;
    client.hears(CHUNK).await;
    client.hears(CHUNK).await;
    id
}

/// MGP-163, MGP-164, A-34: the server is asked under its own id and says what there was; the call itself is
/// answered once, as cancelled.
#[tokio::test]
async fn cancelled_stream_returns_its_partial_result() {
    for era in ["legacy", "modern"] {
        let kernel = streaming(era, &[]).await;
        for version in ERAS {
            for door in DOORS {
                let case = format!("{era} {version} {door:?}");
                let mut client = of_kind(&kernel, door, version, true).await;
                let id = streamed(&mut client).await;
                let params = json!({"request_id": id, "reason": "user_cancelled"});
                let told = client.request("mgp/stream/cancel", params).await.result();
                assert_eq!(told["cancelled"], true, "{case}");
                let partial = &told["partial_result"];
                assert_eq!(partial["content"][0]["text"], "Quantum computing", "{case}");
                assert_eq!(partial["from"], "server", "{case}");
                assert_eq!(client.answer_to(&id).await.code(), 3003, "{case}");
                let again = json!({"request_id": id});
                let again = client.request("mgp/stream/cancel", again).await.result();
                assert_eq!(again["cancelled"], false, "{case}");
            }
        }
    }
}

/// MGP-163: the server reads the id of its own request, and the client's reason.
#[tokio::test]
async fn stream_cancel_reaches_the_server_under_its_own_request_id() {
    let kernel = streaming("legacy", &[]).await;
    let mut client = of_kind(&kernel, Door::Socket, ERAS[0], true).await;
    let id = streamed(&mut client).await;
    let params = json!({"request_id": id, "reason": "user_cancelled"});
    client.request("mgp/stream/cancel", params).await.result();
    client.answer_to(&id).await;
    let frames = received(&mut client, "it:received").await.into_iter();
    let frames: Vec<Value> = frames
        .map(|frame| serde_json::from_str(&frame).unwrap())
        .collect();
    let call = frames
        .iter()
        .find(|frame| frame["params"]["name"] == "stream")
        .unwrap();
    let cancel = frames
        .iter()
        .find(|frame| frame["method"] == "mgp/stream/cancel")
        .unwrap();
    assert_eq!(cancel["params"]["request_id"], call["id"]);
    assert_eq!(cancel["params"]["reason"], "user_cancelled");
    assert!(
        frames
            .iter()
            .all(|frame| frame["method"] != "notifications/cancelled")
    );
}

/// MGP-164: a server that does not answer the cancellation, or knows nothing of it, is cancelled as MCP has
/// it, and the kernel says what came so far.
#[tokio::test]
async fn a_server_that_never_answers_is_cancelled_all_the_same() {
    let slow = json!({"mgp/stream/cancel": 60_000}).to_string();
    let none = json!({"x": {"result": {}}}).to_string();
    for flags in [["--mgp-slow", &slow], ["--mgp-answers", &none]] {
        let kernel = streaming("legacy", &flags).await;
        let mut client = of_kind(&kernel, Door::Http, ERAS[0], true).await;
        let id = streamed(&mut client).await;
        let cancelled = client
            .request("mgp/stream/cancel", json!({"request_id": id}))
            .await;
        let cancelled = cancelled.result();
        assert_eq!(cancelled["cancelled"], true);
        let content = json!([{"type": "text", "text": "Quantum computing"}]);
        assert_eq!(cancelled["partial_result"], json!({"content": content}));
        assert_eq!(client.answer_to(&id).await.code(), 3003);
        assert_ne!(told(&mut client, "notifications/cancelled").await.len(), 0);
    }
}

/// MGP-166: toward servers without streams it is `notifications/cancelled`, with the client's reason.
#[tokio::test]
async fn a_plain_server_reads_a_cancellation_of_mcp() {
    let kernel = kernel_with("", &["--era", "legacy"]).await;
    for door in DOORS {
        let mut client = of_kind(&kernel, door, ERAS[0], true).await;
        let id = client
            .start("tools/call", quiet(&json!([{"ms": 60_000}])))
            .await;
        while told(&mut client, "tools/call")
            .await
            .iter()
            .all(|call| call["name"] != "stream")
        {}
        let params = json!({"request_id": id, "reason": "why not"});
        let cancelled = client.request("mgp/stream/cancel", params).await.result();
        assert_eq!(
            cancelled,
            json!({"cancelled": true, "partial_result": {"content": []}})
        );
        assert_eq!(client.answer_to(&id).await.code(), 3003);
        let heard = told(&mut client, "notifications/cancelled").await;
        assert_eq!(heard.last().unwrap()["reason"], "why not");
        assert!(told(&mut client, "mgp/stream/cancel").await.is_empty());
    }
}

/// MGP-165, A-25: what is over, unknown, another's or an id that only looks the same is not cancelled; what
/// is no id is said so.
#[tokio::test]
async fn stream_cancel_of_an_unknown_or_foreign_request_changes_nothing() {
    let kernel = streaming("legacy", &[]).await;
    let mut owner = of_kind(&kernel, Door::Socket, ERAS[0], true).await;
    let mut other = of_kind(&kernel, Door::Socket, ERAS[0], true).await;
    let id = streamed(&mut owner).await;
    let spelled = json!(id.to_string());
    for (client, id) in [
        (&mut other, id.clone()),
        (&mut owner, spelled),
        (&mut owner_again(&kernel).await, json!(99)),
    ] {
        let told = client
            .request("mgp/stream/cancel", json!({"request_id": id}))
            .await;
        assert_eq!(told.result(), json!({"cancelled": false}));
    }
    for wrong in [
        json!({}),
        json!({"request_id": {}}),
        json!({"request_id": 1.5}),
    ] {
        let told = owner.request("mgp/stream/cancel", wrong).await;
        assert!(told.is_error());
    }
    // As a tool of the kernel, by any of its names; and not of itself.
    for name in ["mgp.stream.cancel", "mgp_stream_cancel"] {
        let told = owner
            .call(name, json!({"request_id": "none"}))
            .await
            .result();
        assert_eq!(
            told["structuredContent"],
            json!({"cancelled": false}),
            "{name}"
        );
    }
    let told = owner
        .call("mgp/stream/cancel", json!({"request_id": id}))
        .await
        .result();
    assert_eq!(told["structuredContent"]["cancelled"], true);
    assert_eq!(owner.answer_to(&id).await.code(), 3003);
}

async fn owner_again(kernel: &mgp_tests::harness::Kernel) -> Client {
    of_kind(kernel, Door::Http, ERAS[0], true).await
}
