//! What goes on around an inference while servers are asked about it (MCPL §10).

use mgp_tests::harness::Kernel;
use serde_json::{Value, json};

use crate::scene::{Driver, Host, answering};

const BEFORE: &str = "context/beforeInference";
const AFTER: &str = "context/afterInference";
const INFER: &str = "inference/request";

fn model() -> Value {
    json!({"id": "m", "vendor": "v", "contextWindow": 1, "capabilities": []})
}

fn before(inference: &str) -> Value {
    json!({"inferenceId": inference, "conversationId": "conv_1", "turnIndex": 0, "userMessage": "hi", "model": model()})
}

fn after(inference: &str) -> Value {
    json!({"inferenceId": inference, "conversationId": "conv_1", "turnIndex": 0, "userMessage": "hi",
        "assistantMessage": "the key is sk-1", "model": model()})
}

/// A server that observes its channel, and one that is waited for behind each inference.
fn observed(verdicts: &Value) -> String {
    let observes = json!({
        "version": "0.4",
        "channels": {"register": true, "observe": true, "streaming": true},
        "featureSets": {"see": {"description": "d", "uses": ["channels.observe"], "scoped": true}},
    });
    let judges = json!({
        "version": "0.4",
        "contextHooks": {"afterInference": {"blocking": true}},
        "featureSets": {"on": {"description": "d", "uses": ["contextHooks.afterInference"]}},
    });
    let entries = [
        answering(&observes, &json!({})).entry("chat"),
        answering(&judges, &json!({AFTER: verdicts})).entry("judge"),
        "[mcpl.servers.judge]\nenable = [\"on\"]\n".into(),
        "[mcpl.servers.chat]\nenable = [\"see\"]\n[mcpl.servers.chat.scopes.see]\nwhitelist = [\"**\"]\n".into(),
        "[mcpl.hooks]\nfail_closed = [\"judge\"]\n[tuning.mcpl.hooks]\nafter_timeout_ms = 2000\n".into(),
    ];
    entries.concat()
}

/// MCPL-093, MCPL-130: while a server behind an inference has not answered, nothing of it reaches who observes the
/// channel: no part at all, and the whole only as the server left it, or not.
#[tokio::test]
async fn outgoing_text_is_withheld_from_observers_until_the_blocking_hook_answers() {
    let verdict = |text: &str| json!({"result": {"featureSet": "on", "modifiedResponse": text}});
    let refused = json!({"error": {"code": -1, "message": "no"}});
    let unchanged = json!({"result": {"featureSet": "on"}});
    let verdicts = json!([verdict("the key is [REDACTED]"), refused, unchanged]);
    let kernel = Kernel::start(&observed(&verdicts)).await;
    kernel.connected(&["chat", "judge"]).await;
    let mut chat = Driver::at(&kernel, "chat").await;
    let channel = json!({"id": "room", "type": "chat", "label": "room", "direction": "bidirectional", "address": {}});
    chat.ask("channels/register", json!({"channels": [channel]}))
        .await;
    let host = Host::start(&kernel).await;
    let writes = |inference: &str| {
        let part = json!({"inferenceId": inference, "conversationId": "conv_1", "channelId": "chat:room", "index": 0, "delta": "the key"});
        host.tell("channels/outgoing/chunk", part);
        let whole = json!({"inferenceId": inference, "conversationId": "conv_1", "channelId": "chat:room", "content": "the key is sk-1"});
        host.tell("channels/outgoing/complete", whole);
    };
    // Written before the servers are asked, and not even then told as it was.
    writes("inf_1");
    host.request("ping", json!({})).await;
    assert!(chat.heard_of("channels/outgoing/complete").await.is_empty());
    host.request(AFTER, after("inf_1")).await;
    chat.hears("channels/outgoing/complete", 1).await;
    // Withheld, and then one that is left as it is.
    assert!(
        host.request(AFTER, after("inf_2"))
            .await
            .get("error")
            .is_some()
    );
    writes("inf_2");
    host.request(AFTER, after("inf_3")).await;
    writes("inf_3");
    let told = chat.hears("channels/outgoing/complete", 2).await;
    let texts: Vec<&Value> = told
        .iter()
        .map(|whole| &whole["params"]["content"][0]["text"])
        .collect();
    assert_eq!(texts, ["the key is [REDACTED]", "the key is sk-1"]);
    assert!(chat.heard_of("channels/outgoing/chunk").await.is_empty());
}

/// MCPL-099: a server that is asked before an inference gets none of its own meanwhile, and may ask again afterwards.
#[tokio::test]
async fn inference_of_a_server_is_rejected_while_its_hook_is_pending() {
    let declared = json!({
        "version": "0.4", "inferenceRequest": {"streaming": true}, "contextHooks": {"beforeInference": true},
        "featureSets": {"on": {"description": "d", "uses": ["contextHooks.beforeInference", "inferenceRequest"]}},
    });
    let entries = [
        answering(&declared, &json!({BEFORE: {"silent": true}})).entry("memory"),
        "[mcpl.servers.memory]\nenable = [\"on\"]\n".into(),
        "[tuning.mcpl.hooks]\nbefore_timeout_ms = 1500\n".into(),
    ];
    let kernel = Kernel::start(&entries.concat()).await;
    kernel.connected(&["memory"]).await;
    let mut memory = Driver::at(&kernel, "memory").await;
    let host = Host::start(&kernel).await;
    let asks =
        json!({"featureSet": "on", "messages": [{"role": "user", "content": "what matters?"}]});
    let waits = host.begin(BEFORE, before("inf_1"));
    memory.hears(BEFORE, 1).await;
    let answer = memory.ask(INFER, asks.clone()).await;
    assert_eq!(answer["error"]["data"]["reason"], "nested", "{answer}");
    let said = waits.await.unwrap();
    assert!(said.get("result").is_some(), "{said}");
    let answer = memory.ask(INFER, asks).await;
    assert_eq!(answer["error"]["data"]["reason"], "noRoute", "{answer}");
}

/// MCPL-091, MCPL-097: 10 MiB that a server would add to a context are left out, those that fit are taken, and the
/// server is called as before.
#[tokio::test]
async fn injections_beyond_the_byte_limit_are_left_out() {
    let declared = json!({
        "version": "0.4", "contextHooks": {"beforeInference": true},
        "featureSets": {"on": {"description": "d", "uses": ["contextHooks.beforeInference"]}},
    });
    let adds = |text: &str| json!({"result": {"featureSet": "on", "contextInjections": [{"namespace": "n", "position": "system", "content": text}]}});
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("answers.json");
    let answers = json!({BEFORE: [adds(&"x".repeat(10 << 20)), adds("short")]});
    std::fs::write(&file, answers.to_string()).unwrap();
    let big =
        crate::scene::server(&declared).args(&["--mcpl-answers", &format!("@{}", file.display())]);
    let config = format!(
        "{}[mcpl.servers.big]\nenable = [\"on\"]\n",
        big.entry("big")
    );
    let kernel = Kernel::start(&config).await;
    kernel.connected(&["big"]).await;
    let host = Host::start(&kernel).await;
    let added = async |inference: &str| {
        let said = host.request(BEFORE, before(inference)).await;
        said["result"]["contextInjections"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(added("inf_1").await, 0);
    assert_eq!(added("inf_2").await, 1);
    let echo = host.call("big__echo", json!({"text": "still here"})).await;
    assert_eq!(echo["result"]["content"][0]["text"], "still here");
}
