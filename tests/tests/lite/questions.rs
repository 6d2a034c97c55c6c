//! What tools ask in the middle of a call (§3.4, A-37): the call made again with the continuation and the extra
//! arguments goes on with the one that waits.

use mgp_tests::harness::{Kernel, Program};
use serde_json::{Value, json};

use crate::scene::{LiteClient, Said, guarded, kernel, token};

async fn calls(client: &LiteClient, tool: &str) -> Value {
    let counted = client.call("it__count", json!({})).await;
    counted.result()["structuredContent"]["calls"][tool].clone()
}

/// A question in the view of all servers begins with the name of its server.
fn ends(message: &Value, end: &str) {
    assert!(message.as_str().unwrap().ends_with(end), "{message}");
}

fn asked(said: &Said) -> (Value, Value) {
    assert_eq!(said.kind(), "elicitation", "{said:?}");
    let meta = said.meta();
    (
        meta["elicitation"].clone(),
        json!({"continuation": meta["continuation"]}),
    )
}

/// LITE-013, LITE-076: a server of either era asks, the caller reads what is needed, and comes back with it; the
/// server was called once.
#[tokio::test]
async fn a_question_is_answered_by_extra_arguments() {
    for era in ["legacy", "modern"] {
        let kernel = kernel("", &["--era", era]).await;
        let client = LiteClient::new(&kernel);
        let tool = "it__test_elicitation";
        let arguments = json!({"message": "Who?"});
        let said = client.call(tool, arguments).await;
        let (elicitation, meta) = asked(&said);
        ends(&elicitation["message"], "Who?");
        assert!(elicitation["requestedSchema"]["properties"]["email"].is_object());
        ends(&json!(said.text()), "Who?");
        let again = json!({"message": "Who?", "username": "ann", "email": "ann@a.test"});
        let answered = client.call_with(tool, again, meta.clone()).await;
        assert_eq!(answered.kind(), "answer", "{era} {answered:?}");
        assert!(answered.text().contains("ann@a.test"), "{answered:?}");
        let count = calls(&client, "test_elicitation").await;
        // A modern server is asked again with the answer, as its version of MCP has it.
        assert_eq!(count, if era == "legacy" { 1 } else { 2 }, "{era}");
        // The same continuation once more gives how that call stands; to others it is none.
        let twice = client
            .call_with(tool, json!({"message": "Who?"}), meta.clone())
            .await;
        assert_eq!(twice.kind(), "answer", "{era} {twice:?}");
        assert_eq!(twice.text(), answered.text());
        let other = client.call_with("it__echo", json!({}), meta).await;
        assert_eq!(other.error()["code"], -32602);
        assert_eq!(
            calls(&client, "test_elicitation").await,
            count,
            "nothing was done twice"
        );
        // Without it, it is a new call.
        asked(&client.call(tool, json!({"message": "Who?"})).await);
    }
}

/// LITE-076: an answer says outright that it is a no; what does not answer is asked again; questions that come
/// together are asked one after the other.
#[tokio::test]
async fn questions_are_declined_repeated_and_taken_in_turn() {
    let kernel = kernel("", &["--era", "legacy"]).await;
    let client = LiteClient::new(&kernel);
    let tool = "it__test_elicitation";
    let arguments = json!({"message": "Who?"});
    let (_, meta) = asked(&client.call(tool, arguments.clone()).await);
    let (elicitation, meta) = asked(&client.call_with(tool, arguments.clone(), meta).await);
    ends(&elicitation["message"], "Who?");
    let mut no = meta;
    no["elicitation"] = json!({"action": "decline"});
    let declined = client.call_with(tool, arguments, no).await;
    assert!(declined.text().contains("decline"), "{declined:?}");

    let several = "it__multi_input";
    let mut said = client.call(several, json!({})).await;
    for _ in 0..2 {
        let (elicitation, mut meta) = asked(&said);
        let content = json!({"v": elicitation["message"]});
        meta["elicitation"] = json!({"action": "accept", "content": content});
        said = client.call_with(several, json!({}), meta).await;
    }
    assert_eq!(said.kind(), "answer", "{said:?}");
    assert_eq!(said.text(), "first, second");
}

/// LITE-013: a modern server that asks several times, and what a promised call asks: its promise is redeemed with
/// the answer.
#[tokio::test]
async fn rounds_and_promised_calls_ask_as_well() {
    let kernel = kernel("", &["--era", "modern"]).await;
    let client = LiteClient::new(&kernel);
    let tool = "it__test_input_required_result_multi_round";
    let mut said = client.call(tool, json!({})).await;
    for _ in 0..2 {
        let (elicitation, mut meta) = asked(&said);
        let wanted = elicitation["requestedSchema"]["properties"]
            .as_object()
            .unwrap();
        let content: Value = wanted
            .keys()
            .map(|key| (key.clone(), json!("blue")))
            .collect();
        meta["elicitation"] = json!({"content": content});
        said = client.call_with(tool, json!({}), meta).await;
    }
    assert_eq!(said.kind(), "answer", "{said:?}");

    let mut said = client
        .prefers("wait=0")
        .call("it__confirm_delete", json!({"filename": "a"}))
        .await;
    for _ in 0..50 {
        if said.kind() != "promise" {
            break;
        }
        said = client.redeem(&said.promise()).await;
    }
    let (elicitation, meta) = asked(&said);
    ends(&elicitation["message"], "Delete a?");
    let promise = said.meta()["promise_token"].clone();
    assert!(promise.is_string(), "{said:?}");
    // Another tool's call does not answer it.
    let other = client
        .call_with("it__echo", json!({"text": "x", "ok": true}), meta.clone())
        .await;
    assert_eq!(other.body["error"]["code"], -32602, "{other:?}");
    let answer = json!({"promise": promise, "ok": true});
    let mut said = client.call_with("redeem", answer, meta).await;
    for _ in 0..50 {
        if said.kind() != "promise" {
            break;
        }
        said = client.redeem(&said.promise()).await;
    }
    assert_eq!(said.text(), "a: accept");
}

/// What MCP-lite has no words for is told, and its call does not wait for anybody.
#[tokio::test]
async fn sampling_during_a_lite_call_is_rejected() {
    for (era, tool) in [
        ("legacy", "it__test_sampling"),
        ("modern", "it__test_input_required_result_sampling"),
    ] {
        let kernel = kernel("", &["--era", era]).await;
        let client = LiteClient::new(&kernel);
        let said = client.call(tool, json!({"prompt": "x"})).await;
        let told = said.body.to_string();
        assert!(
            told.contains("sampling") || told.contains("ampling"),
            "{era} {told}"
        );
        assert!(
            said.body.get("error").is_some() || said.kind() == "failure",
            "{told}"
        );
    }
}

/// LITE-013, LITE-076: a call that a person has to allow asks its caller, in the same words.
#[tokio::test]
async fn a_confirmation_is_an_elicitation() {
    let dangerous = json!({"name": "wipe", "description": "d", "inputSchema": {"type": "object"},
        "security": {"risk_level": "dangerous"}});
    let entry = Program::fixture(&["--tool", &dangerous.to_string()]).entry("it");
    let trusted = "[servers.mgp]\ntrust_level = \"trusted\"\n";
    let kernel = Kernel::start(&format!("{entry}{trusted}")).await;
    kernel.connected(&["it"]).await;
    let client = LiteClient::new(&kernel);
    let arguments = json!({"a": 1});
    let made = async || {
        let received = client.call("it__received", json!({})).await;
        let frames = received.result()["structuredContent"]["frames"].to_string();
        frames.matches(r#"\"name\":\"wipe\""#).count()
    };
    let (elicitation, meta) = asked(&client.call("it__wipe", arguments.clone()).await);
    let message = elicitation["message"].as_str().unwrap();
    assert!(message.contains("wipe"), "{elicitation}");
    // A call that is only repeated is no yes.
    let repeated = client.call_with("it__wipe", arguments.clone(), meta).await;
    let (_, mut meta) = asked(&repeated);
    assert_eq!(made().await, 0, "it waits");
    meta["elicitation"] = json!({"action": "decline"});
    let no = client.call_with("it__wipe", arguments.clone(), meta).await;
    assert_ne!(
        no.body["result"]["_meta"]["response_type"], "answer",
        "{no:?}"
    );
    assert_eq!(made().await, 0);
    let (_, mut meta) = asked(&client.call("it__wipe", arguments.clone()).await);
    meta["elicitation"] = json!({"action": "accept"});
    let yes = client.call_with("it__wipe", arguments, meta).await;
    assert_eq!((yes.kind(), made().await), ("answer", 1));
}

/// LITE-024, decision 10: a continuation is its caller's, for its tool; all others read as one that never was.
#[tokio::test]
async fn a_continuation_is_for_its_caller() {
    let kernel = guarded("", &["--era", "legacy"]).await;
    let client = LiteClient::new(&kernel).with_token(&token(&kernel, "alice").await);
    let bob = LiteClient::new(&kernel).with_token(&token(&kernel, "bob").await);
    let tool = "it__test_elicitation";
    let (_, meta) = asked(&client.call(tool, json!({"message": "m"})).await);
    let filled = json!({"message": "m", "username": "u", "email": "e@e.e"});
    let theirs = bob.call_with(tool, filled.clone(), meta.clone()).await;
    let never = bob
        .call_with(
            tool,
            filled.clone(),
            json!({"continuation": "mgp1.x~elicitation-1"}),
        )
        .await;
    assert_eq!(theirs.error(), never.error());
    assert_eq!(theirs.error()["code"], -32602);
    let other = client
        .call_with("it__echo", json!({"text": "x"}), meta.clone())
        .await;
    assert_eq!(other.error()["code"], -32602, "{other:?}");
    let odd = client
        .call_with(tool, filled.clone(), json!({"continuation": 7}))
        .await;
    assert_eq!(odd.error()["code"], -32602);
    let own = client.call_with(tool, filled, meta).await;
    assert_eq!(own.kind(), "answer", "it waited: {own:?}");
}
