//! The gRPC door, as clients of other makers use it.

pub(crate) mod client;

use std::time::{SystemTime, UNIX_EPOCH};

use mgp_tests::harness::mgp::declaration;
use mgp_tests::harness::{DEADLINE, Kernel, Program, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use self::client::{RpcClient, code, kind, promise, text};
use crate::scene::{self, LiteClient};

/// LITE-053: to stubs that protoc made from the document's own text, as in all tests here.
#[tokio::test]
async fn get_tools_lists_the_tools_of_http() {
    let kernel = scene::kernel("", &[]).await;
    let Some(mut client) = RpcClient::python(&kernel) else {
        return;
    };
    let listed = client.ask(json!({"op": "tools"})).await;
    let tools = listed["tools"].as_array().unwrap();
    assert_eq!(
        (&tools[0]["name"], &tools[0]["type"]),
        (&json!("redeem"), &json!("system"))
    );
    let over_http = LiteClient::at(&kernel, "/mcp-lite/v1/listtools")
        .post("{}")
        .await;
    let over_http = over_http.body["tools"].as_array().unwrap();
    assert_eq!(tools.len(), over_http.len(), "both list the same");
    for (tool, same) in tools.iter().zip(over_http) {
        assert_eq!(tool["name"], same["name"]);
        assert_eq!(tool["description"], same["description"]);
        assert_eq!(
            as_doubles(&tool["input_schema"]),
            as_doubles(&same["inputSchema"])
        );
    }
}

/// LITE-054, LITE-057.
#[tokio::test]
async fn call_tool_returns_an_answer_or_a_failure() {
    let kernel = scene::kernel("", &[]).await;
    let Some(mut client) = RpcClient::python(&kernel) else {
        return;
    };
    let answer = client.call("it__echo", json!({"text": "grüße"})).await;
    assert_eq!((kind(&answer), text(&answer)), ("ANSWER", "grüße"));
    // LITE-058: milliseconds since 1970, and how many it took.
    let timestamp: u128 = answer["meta"]["timestamp"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis();
    assert!(now.abs_diff(timestamp) < 60_000, "{answer}");
    assert!(answer["meta"]["processing_time_ms"].as_i64().unwrap() < 30_000);
    let meta = &answer["result"]["_meta"];
    assert!(meta.get("response_type").is_none(), "said once: {answer}");

    let failed = client.call("it__test_error_handling", json!({})).await;
    assert_eq!(kind(&failed), "FAILURE");
}

/// LITE-062.
#[tokio::test]
async fn unknown_tool_is_not_found_with_details() {
    let kernel = scene::kernel("", &[]).await;
    let Some(mut client) = RpcClient::python(&kernel) else {
        return;
    };
    let missing = client.call("it__ecko", json!({})).await;
    assert_eq!(code(&missing), "NOT_FOUND");
    assert_eq!(missing["error"]["message"], "Tool not found: it__ecko");
    let info = &missing["error"]["info"];
    assert_eq!(
        (&info["reason"], &info["domain"]),
        (&json!("TOOL_NOT_FOUND"), &json!("mcplite"))
    );
    let available = info["available_tools"].as_str().unwrap();
    assert!(available.contains(r#""redeem""#), "{info}");
    assert_eq!(info["suggestion"], "Did you mean 'it__echo'?");
}

/// LITE-056: protoc finds every field of our bytes in the document's text.
#[tokio::test]
async fn messages_have_no_field_that_the_document_has_not() {
    let kernel = scene::kernel("", &[]).await;
    let Some(mut client) = RpcClient::python(&kernel) else {
        return;
    };
    let wire = json!({"op": "wire", "method": "CallTool", "message": "ToolResponse", "name": "it__echo", "arguments": {"text": "a"}});
    let decoded = client.ask(wire).await["text"].as_str().unwrap().to_owned();
    assert!(
        decoded.contains("string_value: \"a\"") && decoded.contains("timestamp: "),
        "{decoded}"
    );
    assert!(
        !decoded
            .lines()
            .any(|line| line.trim().starts_with(|c: char| c.is_ascii_digit())),
        "an unknown field: {decoded}"
    );
    let wire = json!({"op": "wire", "method": "GetTools", "message": "ToolsList"});
    let decoded = client.ask(wire).await["text"].as_str().unwrap().to_owned();
    assert!(
        decoded.starts_with("tools {\n  name: \"redeem\"\n  type: \"system\""),
        "{decoded}"
    );
}

/// Numbers are doubles on the other side.
fn as_doubles(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.iter().map(as_doubles).collect(),
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(name, value)| (name.clone(), as_doubles(value)));
            Value::Object(members.collect())
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

/// LITE-053: a client that knows nothing beforehand learns all from reflection, in both its versions; health is told.
#[tokio::test]
async fn reflection_and_health_services_are_offered() {
    let kernel = scene::guarded("", &[]).await;
    let token = scene::token(&kernel, "alice").await;
    let Some(mut stranger) = RpcClient::python(&kernel) else {
        return;
    };
    for service in ["", "mcplite.MCPLite"] {
        let health = stranger
            .ask(json!({"op": "health", "service": service}))
            .await;
        assert_eq!(health["status"], "SERVING", "nobody has to say who asks");
    }
    let reflect = json!({"op": "reflect", "name": "redeem", "arguments": {}});
    assert_eq!(code(&stranger.ask(reflect).await), "UNAUTHENTICATED");
    let unknown = stranger
        .ask(json!({"op": "health", "service": "other"}))
        .await;
    assert_eq!(code(&unknown), "NOT_FOUND");

    let mut client = stranger.with_token(&token);
    let reflect = json!({"op": "reflect", "name": "it__echo", "arguments": {"text": "found"}});
    let answer = client.ask(reflect).await;
    assert_eq!(text(&answer), "found");
    let services = answer["services"].to_string();
    for service in [
        "mcplite.MCPLite",
        "grpc.health.v1.Health",
        "ServerReflection",
    ] {
        assert!(services.contains(service), "{services}");
    }
    // LITE-069: prompts are under consideration only.
    let prompts = client
        .ask(json!({"op": "raw", "method": "mcplite.MCPLite/GetPrompts", "hex": ""}))
        .await;
    assert_eq!(code(&prompts), "UNIMPLEMENTED");
    // Who watches is told when the door closes, at once.
    assert_eq!(client.ask(json!({"op": "watch"})).await["status"], 1);
    kernel.end(Signal::SIGTERM, DEADLINE).await;
    let ended = client.ask(json!({"op": "unwatch"})).await;
    assert_eq!(code(&ended), "UNAVAILABLE");
    assert_eq!(ended["error"]["message"], "the kernel is stopping");
}

/// LITE-059: a promise is redeemed early and late by CallTool, and awaited by CallToolStream; one of HTTP is the same.
#[tokio::test]
async fn promise_is_redeemed_by_call_stream_and_over_http() {
    let kernel = scene::kernel("", &[]).await;
    let Some(mut client) = RpcClient::python(&kernel) else {
        return;
    };
    let slow = |ms: u64| json!({"ms": ms});
    let soon = json!({"metadata": {"prefer": "respond-async"}});
    let given = client.call_on("it__slow", slow(1500), &soon).await;
    let token = promise(&given);
    assert!(given["result"].get("content").is_none());
    let early = client
        .call_on("redeem", json!({"promise": token}), &soon)
        .await;
    let again = promise(&early);
    let late = client.call("redeem", json!({"promise": again})).await;
    assert_eq!((kind(&late), text(&late)), ("ANSWER", "slept"));

    let token = promise(&client.call_on("it__slow", slow(500), &soon).await);
    let pushed = client.stream("redeem", json!({"promise": token})).await;
    let last = pushed["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(text(last), "slept", "{pushed}");

    let over_http = LiteClient::new(&kernel).prefers("respond-async");
    let token = over_http.call("it__slow", slow(300)).await.promise();
    assert_eq!(
        text(&client.call("redeem", json!({"promise": token})).await),
        "slept"
    );
    let unknown = client
        .call("redeem", json!({"promise": "prom_a7b9c2d4e6f8"}))
        .await;
    assert_eq!(code(&unknown), "INVALID_ARGUMENT");
}

/// LITE-063, LITE-029: a promise comes before the caller's time is over; who refuses promises gets DEADLINE_EXCEEDED,
/// and its call is taken back, as that of a client that goes.
#[tokio::test]
async fn deadline_ends_a_call_or_makes_it_a_promise() {
    let kernel = scene::kernel("", &[]).await;
    let Some(mut client) = RpcClient::python(&kernel) else {
        return;
    };
    let hang = json!({"seconds": 60});
    let given = client
        .call_on("it__test_slow", hang.clone(), &json!({"timeout": 1.0}))
        .await;
    let token = promise(&given);
    let cancelled = json!({"promise": token, "action": "cancel"});
    client.call("redeem", cancelled).await;
    taken_back(&mut client, 1).await;

    // The door's own deadline is sooner than that of the client's machine, which would say the same by itself.
    let refuses = json!({"metadata": {"prefer": "respond-sync, wait=1"}, "timeout": 20});
    let late = client
        .call_on("it__test_slow", hang.clone(), &refuses)
        .await;
    assert_eq!(code(&late), "DEADLINE_EXCEEDED");
    assert_eq!(late["error"]["info"]["reason"], "TIMEOUT", "{late}");
    taken_back(&mut client, 2).await;

    let sync = json!({"metadata": {"prefer": "respond-sync"}, "timeout": 0.5});
    assert_eq!(
        code(&client.call_on("it__test_slow", hang.clone(), &sync).await),
        "DEADLINE_EXCEEDED"
    );
    taken_back(&mut client, 3).await;

    client
        .ask(json!({"op": "begin", "key": "a", "name": "it__test_slow", "arguments": hang}))
        .await;
    let began = async |client: &mut RpcClient| {
        counts(client).await["calls"]["test_slow"].as_f64() == Some(4.0)
    };
    reaches("the fourth call", &mut client, began).await;
    client.ask(json!({"op": "cancel", "key": "a"})).await;
    taken_back(&mut client, 4).await;

    let wrong = json!({"op": "raw", "method": "mcplite.MCPLite/CallTool", "hex": "", "metadata": {"mgp-meta": "[]"}});
    assert_eq!(code(&client.ask(wrong).await), "INVALID_ARGUMENT");
}

async fn counts(client: &mut RpcClient) -> Value {
    client.call("it__count", json!({})).await["result"]["structuredContent"].take()
}

async fn taken_back(client: &mut RpcClient, count: u64) {
    let there = async |client: &mut RpcClient| {
        counts(client).await["cancelled"]["test_slow"].as_f64() == Some(count as f64)
    };
    reaches(&format!("{count} calls were taken back"), client, there).await;
}

async fn reaches(what: &str, client: &mut RpcClient, there: impl AsyncFn(&mut RpcClient) -> bool) {
    let client = tokio::sync::Mutex::new(client);
    wait_until(what, DEADLINE, async || {
        let mut client = client.lock().await;
        there(&mut client).await
    })
    .await;
}

/// A kernel in front of a server that streams.
async fn streaming() -> Kernel {
    let said = declaration(&["streaming"]).to_string();
    scene::kernel("", &["--mgp", &said]).await
}

/// LITE-055, LITE-060: chunks are partial messages, and the last message has the whole result and its `meta`.
#[tokio::test]
async fn stream_ends_with_the_whole_result_and_its_meta() {
    let kernel = streaming().await;
    let Some(mut client) = RpcClient::python(&kernel) else {
        return;
    };
    let steps = json!({"steps": [{"chunk": 0, "text": "Quarterly "}, {"chunk": 1, "text": "Report", "done": true}]});
    let streamed = client.stream("it__stream", steps).await;
    let [one, two, last] = &streamed["messages"].as_array().unwrap()[..] else {
        panic!("{streamed}")
    };
    assert_eq!(one["result"], json!({"partial": "Quarterly "}));
    assert_eq!(two["result"], json!({"partial": "Report"}));
    assert!(one.get("meta").is_none() && two.get("meta").is_none());
    assert_eq!((kind(last), text(last)), ("ANSWER", "Quarterly Report"));
    let failing = client.stream("it__nothing", json!({})).await;
    assert_eq!(code(&failing), "NOT_FOUND");
    let taken = json!({"op": "stream", "take": 1, "name": "it__stream", "arguments": {"steps": [{"chunk": 0}, {"ms": 60_000}]}});
    assert_eq!(
        client.ask(taken).await["messages"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let gone = async |client: &mut RpcClient| {
        counts(client).await["cancelled"]["stream"].as_f64() == Some(1.0)
    };
    reaches("the stream was taken back", &mut client, gone).await;
}

/// LITE-013, LITE-076: what a tool asks is an ELICITATION, and the call made again with its continuation goes on.
#[tokio::test]
async fn elicitation_of_a_tool_is_answered_by_a_second_call() {
    let kernel = scene::kernel("", &[]).await;
    let Some(mut client) = RpcClient::python(&kernel) else {
        return;
    };
    let asked = client
        .call("it__test_elicitation", json!({"message": "Who?"}))
        .await;
    assert_eq!(kind(&asked), "ELICITATION");
    let meta = &asked["result"]["_meta"];
    assert_eq!(meta["elicitation"]["message"], "Who?", "{asked}");
    let mut goes_on = json!({"continuation": meta["continuation"]});
    goes_on["elicitation"] =
        json!({"action": "accept", "content": {"username": "ann", "email": "a@b.test"}});
    let terms = json!({"metadata": {"mgp-meta": goes_on.to_string()}});
    let answer = client
        .call_on("it__test_elicitation", json!({"message": "Who?"}), &terms)
        .await;
    assert_eq!(kind(&answer), "ANSWER", "{answer}");
    assert!(text(&answer).contains("ann"), "{answer}");
}

/// LITE-075: an integer that no double holds is refused in both ways, and what is exact over HTTP stays exact.
#[tokio::test]
async fn integer_that_no_double_holds_is_rejected() {
    let kernel = scene::kernel("", &[]).await;
    let Some(mut client) = RpcClient::python(&kernel) else {
        return;
    };
    // The client's own library makes 9007199254740992 of it before it is sent.
    for lossy in [
        json!(9_007_199_254_740_993_u64),
        json!(-9_007_199_254_740_993_i64),
    ] {
        let refused = client.call("it__slow", json!({"ms": lossy})).await;
        assert_eq!(code(&refused), "INVALID_ARGUMENT", "{lossy}");
        assert_eq!(refused["error"]["info"]["reason"], "NOT_EXACT");
        let words = refused["error"]["message"].as_str().unwrap();
        assert!(
            words.contains("at /ms") && words.contains("over HTTP"),
            "{words}"
        );
    }
    assert_eq!(
        counts(&mut client).await["calls"].get("slow"),
        None,
        "nothing reached the server"
    );
    let exact = client
        .call("it__structured_echo", json!({"text": "9007199254740993"}))
        .await;
    assert_eq!(
        exact["result"]["structuredContent"]["text"],
        "9007199254740993"
    );
    let number =
        json!({"error": {"code": -32000, "message": "m", "data": 9_007_199_254_740_993_u64}});
    let told = client.call("it__fail", number).await;
    assert_eq!(code(&told), "INVALID_ARGUMENT");
    let received = LiteClient::new(&kernel)
        .call("it__slow", json!({"ms": 0}))
        .await;
    assert_eq!(received.text(), "slept");
}

/// LITE-003, LITE-065: grpc-js, over the same port as HTTP.
#[tokio::test]
async fn grpc_js_calls_and_streams() {
    let kernel = streaming().await;
    let Some(mut client) = RpcClient::node(&kernel) else {
        return;
    };
    let listed = client.ask(json!({"op": "tools"})).await;
    assert!(listed["tools"].as_array().unwrap().len() > 10);
    let answer = client.call("it__echo", json!({"text": "from node"})).await;
    assert_eq!((kind(&answer), text(&answer)), ("ANSWER", "from node"));
    let steps =
        json!({"steps": [{"chunk": 0, "text": "a"}, {"chunk": 1, "text": "b", "done": true}]});
    let streamed = client.stream("it__stream", steps).await;
    assert_eq!(
        streamed["messages"].as_array().unwrap().len(),
        3,
        "{streamed}"
    );
    assert_eq!(code(&client.call("nothing", json!({})).await), "NOT_FOUND");
}

/// HTTP/2 over TLS is chosen in the handshake.
#[tokio::test]
async fn grpc_is_served_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let entry = Program::fixture(&[]).entry("it");
    let (certificate, tls) = scene::certified(folder.path());
    let tls = format!("[http]\nlisten = \"127.0.0.1:0\"\n{tls}");
    let kernel = Kernel::with_config(&format!("{tls}{entry}")).await;
    kernel.connected(&["it"]).await;
    let token = std::fs::read_to_string(kernel.folder().join("data/token")).unwrap();
    let args = [client::address(&kernel), certificate];
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let Some(client) = RpcClient::python_with(&args) else {
        return;
    };
    let mut client = client.with_token(token.trim());
    let answer = client.call("it__echo", json!({"text": "sealed"})).await;
    assert_eq!(text(&answer), "sealed");
}
