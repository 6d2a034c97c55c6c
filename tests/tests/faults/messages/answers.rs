//! Answers that break the protocol: repaired where that is safe, refused where it is not.

use mgp_tests::harness::Kernel;
use serde_json::json;

use crate::scene::{begin, echoes, in_flight, listed, owner, server, shown, told};

/// CMCP-007: an answer to a request that nobody made goes to nobody.
#[tokio::test]
async fn answer_to_an_unknown_request_is_dropped() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    for id in [
        json!(999_999_999),
        json!("word"),
        json!(null),
        json!(-1),
        json!(1.5),
    ] {
        let answer = agent.call("it__stray", json!({"id": id})).await;
        assert_eq!(answer.text(), "sent");
    }
    echoes(&mut agent, "it").await;
    assert_eq!(shown(&mut agent, "it").await["restarts"], 0);
}

/// An answer given twice settles its call once: the second one belongs to no later call.
#[tokio::test]
async fn a_second_answer_to_the_same_request_reaches_no_other_call() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let received = told(&agent.call("it__received", json!({"last": 1})).await);
    let frame: serde_json::Value =
        serde_json::from_str(received["frames"][0].as_str().unwrap()).unwrap();
    let its_id = frame["id"].clone();
    let waiting = begin(&mut agent, "it__hang", json!({})).await;
    in_flight(&mut agent, "it", 1).await;
    assert_eq!(
        agent.call("it__stray", json!({"id": its_id})).await.text(),
        "sent"
    );
    echoes(&mut agent, "it").await;
    assert_eq!(shown(&mut agent, "it").await["in_flight"], 1);
    agent
        .notify("notifications/cancelled", json!({"requestId": waiting}))
        .await;
}

/// CMCP-062: progress after the answer is not passed on.
#[tokio::test]
async fn late_progress_is_dropped() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let params = json!({
        "name": "it__late_progress",
        "arguments": {},
        "_meta": {"progressToken": "mine"},
    });
    assert_eq!(agent.request("tools/call", params).await.text(), "answered");
    // The server said it before this answer.
    echoes(&mut agent, "it").await;
    let heard = agent.heard("notifications/progress");
    assert_eq!(heard.len(), 1, "{heard:#?}");
    assert_eq!(heard[0]["params"]["progress"], 1);
    assert_eq!(heard[0]["params"]["progressToken"], "mine");
}

/// CMCP-012: a structured result against the tool's own outputSchema is an error that says where.
#[tokio::test]
async fn a_structured_result_against_its_schema_is_refused() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let refused = agent.call("it__bad_structured", json!({})).await;
    assert_eq!(refused.code(), -32603);
    let data = &refused.error()["data"];
    assert_eq!(data["server"], "it");
    assert_eq!(data["path"], "/sum");
    assert_eq!(data["keyword"], "type");
    assert!(data["message"].is_string(), "{data:#}");
    echoes(&mut agent, "it").await;
}

/// CMCP-013: structured content without content gets a text for clients that do not read it.
#[tokio::test]
async fn a_structured_result_without_content_gets_a_text() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let result = agent.call("it__no_content", json!({})).await.result();
    assert_eq!(result["structuredContent"], json!({"text": "alone"}));
    assert_eq!(result["content"][0]["type"], "text");
    let text = result["content"][0]["text"].as_str().unwrap();
    let read: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(read, result["structuredContent"]);
}

/// CMCP-060: answers in any order find their calls.
#[tokio::test]
async fn answers_in_reverse_order_find_their_calls() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let mut ids = Vec::new();
    for _ in 0..50 {
        ids.push(begin(&mut agent, "it__reverse", json!({"n": 50})).await);
    }
    for (at, id) in ids.iter().enumerate() {
        let text = agent.answer_to(id).await.text();
        assert_eq!(text, format!("came as number {}", at + 1));
    }
}

/// A tool whose inputSchema is no schema is left out, with the reason in sight; its sisters stay.
#[tokio::test]
async fn a_tool_with_a_broken_schema_is_left_out_and_the_others_stay() {
    let kernel = Kernel::start(&server("it", &["--bad-schema"], "")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let tools = agent.request("tools/list", json!({})).await.result();
    let names: Vec<_> = tools["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| &t["name"])
        .collect();
    assert!(names.contains(&&json!("it__echo")), "{names:?}");
    assert!(!names.contains(&&json!("it__bad_schema")), "{names:?}");
    let it = listed(&kernel, "it").await;
    let rejected = it["rejected"].as_array().unwrap();
    assert_eq!(rejected.len(), 1, "{it:#}");
    assert!(
        rejected[0].as_str().unwrap().contains("bad_schema"),
        "{it:#}"
    );
    let unknown = agent.call("it__bad_schema", json!({})).await;
    assert_eq!(unknown.code(), -32602);
    echoes(&mut agent, "it").await;
}

/// A list whose next page is always the same one, or always a new one, ends all the same.
#[tokio::test]
async fn a_list_without_end_is_cut_off() {
    let servers = server("same", &["--page", "30", "--loop-cursor"], "")
        + &server("fresh", &["--page", "30", "--loop-cursor=fresh"], "");
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["same", "fresh"]).await;
    let mut agent = owner(&kernel).await;
    for id in ["same", "fresh"] {
        echoes(&mut agent, id).await;
        let rejected = listed(&kernel, id).await["rejected"].to_string();
        let why = ["the same nextCursor twice", "more than"];
        assert!(
            why.iter().any(|why| rejected.contains(why)),
            "{id}: {rejected}"
        );
    }
}
