//! Chunks and callbacks of MGP between an agent and a server of another node.

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::mgp::{NINE, declaration, speaks_mgp};
use mgp_tests::harness::{Client, Program};
use serde_json::{Value, json};

use crate::scene::NEWEST;

const CHUNK: &str = "notifications/mgp.stream.chunk";

/// A server of this era that speaks all of MGP.
async fn nodes(era: &str) -> JoinedNodes {
    let said = declaration(&NINE).to_string();
    let server = Program::fixture(&["--era", era, "--mgp", &said]);
    JoinedNodes::sharing(&server.entry("demo"), &["demo"]).await
}

async fn client(nodes: &JoinedNodes, version: &str) -> Client {
    let capabilities = speaks_mgp(version);
    Client::over_http(nodes.desk.url(), version, &capabilities).await
}

/// A call that asks for chunks.
async fn start(client: &mut Client, steps: Value) -> Value {
    let params = json!({
        "name": "nas__demo__stream",
        "arguments": {"steps": steps},
        "_mgp": {"stream": true},
    });
    client.start("tools/call", params).await
}

/// MGP-155, MGP-157, PRJ-013, FED-064: chunks come under the agent's own id of the request, in order, as the server wrote
/// them, and none after the result.
#[tokio::test(flavor = "multi_thread")]
async fn chunks_come_from_another_node_as_the_server_wrote_them() {
    for era in ["legacy", "modern"] {
        let nodes = nodes(era).await;
        for version in [NEWEST, MODERN] {
            let case = format!("{version} at {era}");
            let mut client = client(&nodes, version).await;
            let texts = ["a", "ä\n", "c"];
            let steps = texts.iter().enumerate();
            let steps = steps.map(|(at, text)| json!({"chunk": at, "text": text, "done": at == 2}));
            let id = start(&mut client, steps.collect()).await;
            let result = client.answer_to(&id).await.result();
            assert_eq!(result["content"][0]["text"], "aä\nc", "{case}");
            assert_eq!(result["_mgp"]["chunks_sent"], 3, "{case}: {result}");
            let heard = client.heard(CHUNK);
            assert_eq!(heard.len(), 3, "{case}: {heard:?}");
            for (at, (chunk, text)) in heard.into_iter().zip(texts).enumerate() {
                let content = json!({"type": "text", "text": text});
                let whole =
                    json!({"request_id": id, "index": at, "content": content, "done": at == 2});
                assert_eq!(chunk["params"], whole, "{case}");
            }
            client.close().await;
        }
    }
}

/// MGP-163, MGP-164, PRJ-013: a stream is stopped at its server, which says what there was.
#[tokio::test(flavor = "multi_thread")]
async fn stream_at_another_node_is_cancelled_with_its_partial_result() {
    for era in ["legacy", "modern"] {
        let nodes = nodes(era).await;
        for version in [NEWEST, MODERN] {
            let case = format!("{version} at {era}");
            let mut client = client(&nodes, version).await;
            let endless = json!([{"chunk": 0, "text": "Quantum "}, {"chunk": 1, "text": "computing"}, {"ms": 60_000}]);
            let id = start(&mut client, endless).await;
            client.hears(CHUNK).await;
            client.hears(CHUNK).await;
            let stop = json!({"request_id": id, "reason": "enough"});
            let told = client.request("mgp/stream/cancel", stop).await.result();
            assert_eq!(told["cancelled"], true, "{case}: {told}");
            let partial = &told["partial_result"];
            assert_eq!(
                partial["content"][0]["text"], "Quantum computing",
                "{case}: {told}"
            );
            assert_eq!(client.answer_to(&id).await.code(), 3003, "{case}");
            client.close().await;
        }
    }
}

/// MGP-175, MGP-182, PRJ-013, FED-064: a callback of a server of another node reaches the agent whose call caused it, and
/// its answer reaches the server.
#[tokio::test(flavor = "multi_thread")]
async fn a_callback_of_another_node_reaches_its_agent_and_the_answer_its_server() {
    for era in ["legacy", "modern"] {
        let nodes = nodes(era).await;
        for version in [NEWEST, MODERN] {
            let case = format!("{version} at {era}");
            let mut client = client(&nodes, version).await;
            let asked = json!({"callback_id": "cb-001", "type": "confirmation",
                "message": "Delete 15 files?", "options": ["confirm", "cancel"], "timeout_ms": 60000});
            let params = json!({"name": "nas__demo__call_back", "arguments": {"params": asked}});
            let id = client.start("tools/call", params).await;
            let came = client.hears("notifications/mgp.callback.request").await;
            let came = &came["params"];
            assert_eq!(came["request_id"], id, "{case}");
            assert_eq!(came["server_id"], "nas/demo", "{case}");
            for same in ["type", "message", "options"] {
                assert_eq!(came[same], asked[same], "{case}");
            }
            let answer = json!({"callback_id": came["callback_id"], "response": "confirm"});
            let taken = client
                .request("mgp/callback/respond", answer)
                .await
                .result();
            assert_eq!(taken["status"], "responded", "{case}");
            let done = client.answer_to(&id).await.result();
            let responses = &done["structuredContent"]["responses"];
            assert_eq!(responses[0]["callback_id"], "cb-001", "{case}: {done}");
            assert_eq!(responses[0]["response"], "confirm", "{case}: {done}");
            client.close().await;
        }
    }
}
