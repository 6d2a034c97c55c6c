//! Streams between clients and servers of which only one speaks MGP.

use serde_json::{Value, json};

use super::{CHUNK, PROGRESS, asking, calls, chunks, quiet, streaming, texts};
use crate::scene::{DOORS, Door, ERAS, kernel_with, of_kind};

fn with_token(mut params: Value, token: &Value) -> Value {
    params["_meta"] = json!({"progressToken": token});
    params
}

/// MGP-161, A-33: a plain client that gave a progress token reads the chunks as progress, whose numbers
/// rise; it reads no word of MGP.
#[tokio::test]
async fn a_plain_client_reads_chunks_as_progress() {
    for era in ["legacy", "modern"] {
        let kernel = streaming(era, &[]).await;
        for version in ERAS {
            for door in DOORS {
                let mut client = of_kind(&kernel, door, version, false).await;
                let steps = json!([{"progress": 0.5, "message": "half"}, {"chunk": 0, "text": "a"},
                    {"progress": 0.9}, {"chunk": 1, "text": "b"}]);
                let params = with_token(quiet(&steps), &json!("mine"));
                let result = client.request("tools/call", params).await;
                assert_eq!(result.text(), "ab");
                let heard = client.heard("notifications/progress").into_iter();
                let heard: Vec<Value> = heard.map(|told| told["params"].clone()).collect();
                let token = "mine";
                assert_eq!(
                    heard,
                    [
                        json!({"progressToken": token, "progress": 0.5, "total": 1, "message": "half"}),
                        json!({"progressToken": token, "progress": 1, "message": "a"}),
                        json!({"progressToken": token, "progress": 2, "message": "b"}),
                    ],
                    "{era} {version} {door:?}"
                );
                assert_eq!(client.all_heard().len(), 3);
            }
        }
    }
}

/// what a plain server reports comes to a client that asked for a stream in the words of MGP, and in
/// no others; with a token of its own it is the other way round.
#[tokio::test]
async fn progress_of_a_plain_server_streams_to_a_client_of_mgp() {
    for era in ["legacy", "modern"] {
        let kernel = kernel_with("", &["--era", era]).await;
        for version in ERAS {
            for door in DOORS {
                let case = format!("{era} {version} {door:?}");
                let mut client = of_kind(&kernel, door, version, true).await;
                let steps = json!([{"report": 1, "total": 4, "message": "one"}, {"report": 5, "message": "?"}]);
                let id = client.start("tools/call", asking(&steps)).await;
                client.answer_to(&id).await.result();
                let heard = client.heard(PROGRESS).into_iter();
                let heard: Vec<Value> = heard.map(|told| told["params"].clone()).collect();
                assert_eq!(
                    heard,
                    [
                        json!({"request_id": id, "progress": 0.25, "message": "one"}),
                        json!({"request_id": id, "message": "?"}),
                    ],
                    "{case}"
                );
                assert_eq!(client.heard("notifications/progress").len(), 0, "{case}");
                client.forget();
                let own = with_token(asking(&steps), &json!(7));
                client.request("tools/call", own).await.result();
                assert_eq!(client.heard("notifications/progress").len(), 2, "{case}");
                assert_eq!(client.heard(PROGRESS).len(), 0, "{case}");
            }
        }
    }
}

/// A client that did not ask gives the server no reason to report, and hears of nothing.
#[tokio::test]
async fn client_without_a_progress_token_gets_no_progress() {
    let kernel = kernel_with("", &["--era", "legacy"]).await;
    let mut client = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    let steps = json!([{"report": 1, "total": 4}]);
    client.request("tools/call", quiet(&steps)).await.result();
    assert_eq!(client.all_heard(), [json!(null); 0]);
    let all = calls(&mut client).await;
    assert!(all[0]["_meta"]["progressToken"].is_null(), "{all:?}");
}

/// MGP-155: for a plain client with a token the kernel asks itself; the server is given a token, too.
#[tokio::test]
async fn the_kernel_asks_for_a_plain_client() {
    let kernel = streaming("legacy", &[]).await;
    let mut client = of_kind(&kernel, Door::Http, ERAS[0], false).await;
    let params = with_token(quiet(&texts(&["a"])), &json!(1));
    client.request("tools/call", params).await.result();
    let all = calls(&mut client).await;
    assert_eq!(all[0]["_mgp"], json!({"stream": true}));
    assert_ne!(all[0]["_meta"]["progressToken"], 1);
    assert_eq!((chunks(&client), client.heard(CHUNK).len()), (vec![], 0));
}
