//! What a server does not have.

use mgp_tests::harness::Agent;
use serde_json::{Value, json};

use crate::scene::{self, NEWEST};

/// CMCP-096: a method of a capability that is not offered is no method, in either era; those of the
/// others are answered.
#[tokio::test]
async fn methods_of_capabilities_that_are_not_offered_are_unknown() {
    let wanting = ["logging", "prompts", "resources", "completions"];
    let flags = wanting.map(|name| ["--without", name]).concat();
    let flags = [flags.as_slice(), &["--era", "legacy"]].concat();
    let kernel = scene::kernel_with("", &flags).await;
    let mut agent = scene::http_agent(&kernel, Some("it"), "{}").await;
    let methods: [(&str, Value); 8] = [
        ("logging/setLevel", json!({"level": "debug"})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({"name": "test_simple_prompt"})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": "test://static-text"})),
        ("resources/subscribe", json!({"uri": "test://static-text"})),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}}),
        ),
    ];
    for (method, params) in &methods {
        let refused = agent.request(method, params.clone()).await;
        assert_eq!(refused.code(), -32601, "{method}: {}", refused.frame);
    }
    agent.request("tools/list", json!({})).await.result();
    let modern = scene::Modern::at(&kernel.server_url("it"), "{}");
    let (_, refused) = modern.ask("prompts/list", json!({})).await;
    assert_eq!(refused["error"]["code"], -32601, "{refused}");
    // Who sees everything is offered what the kernel relays, and that is a list without entries.
    let mut all = scene::http_agent(&kernel, None, "{}").await;
    let prompts = all.request("prompts/list", json!({})).await.result();
    assert_eq!(prompts["prompts"], json!([]));
}

/// CMCP-094: each request to a modern server names the level of its log, whatever the server declares: a
/// client of sessions sets it.
#[tokio::test]
async fn stateless_server_gets_the_log_level_in_each_request() {
    let kernel = scene::kernel_with("", &["--era", "modern", "--without", "logging"]).await;
    let mut agent = kernel.http_agent(Some("it"));
    let welcome = agent.initialize(NEWEST, "{}").await.result();
    assert_eq!(welcome["capabilities"]["logging"], json!({}), "{welcome}");
    let level = json!({"level": "debug"});
    let set = agent.request("logging/setLevel", level).await;
    assert_eq!(set.result(), json!({}));
}

/// MCP-045, CMCP-043: a prompt without an argument that it must have does not reach its server.
#[tokio::test]
async fn prompt_without_a_required_argument_does_not_reach_its_server() {
    let kernel = scene::kernel().await;
    let mut watcher = scene::socket_agent(&kernel, "{}").await;
    let mut other = scene::http_agent(&kernel, Some("it"), "{}").await;
    let name = "test_prompt_with_arguments";
    for params in [
        json!({"name": name, "arguments": {"arg1": "x"}}),
        json!({"name": name, "arguments": {"arg1": "x", "arg2": null}}),
        json!({"name": name, "arguments": {}}),
        json!({"name": name}),
    ] {
        for agent in [&mut watcher, &mut other] {
            let refused = agent.request("prompts/get", params.clone()).await;
            assert_eq!(refused.code(), -32602, "{}", refused.frame);
            assert!(refused.frame.contains("arg2"), "{}", refused.frame);
        }
    }
    let reached = scene::counts(&mut watcher, "it:count").await;
    assert_eq!(reached["methods"]["prompts/get"], Value::Null, "{reached}");
    let whole = json!({"name": name, "arguments": {"arg1": "x", "arg2": ""}});
    watcher.request("prompts/get", whole).await.result();
}

/// MCP-012: params are an object or nothing, for every method and at every door.
#[tokio::test]
async fn params_that_are_no_object_are_invalid_for_every_method() {
    let kernel = scene::kernel().await;
    let mut line: Agent = scene::socket_agent(&kernel, "{}").await;
    let client = scene::session(&kernel, NEWEST).await;
    for method in [
        "ping",
        "initialize",
        "tools/list",
        "tools/call",
        "prompts/get",
        "resources/templates/list",
        "logging/setLevel",
        "completion/complete",
        "tasks/get",
        "mgp/servers/list",
        "no/such/method",
    ] {
        for params in ["[]", "[1]", "null", "\"x\"", "7", "true"] {
            let frame =
                format!(r#"{{"jsonrpc":"2.0","id":"q","method":"{method}","params":{params}}}"#);
            line.send(&frame).await;
            let told = line.answer_to(&json!("q")).await;
            assert_eq!(told.code(), -32602, "{method} {params}: {}", told.frame);
            let told = client.post(frame).await.frames().await;
            let told: Value = serde_json::from_str(&told[0]).unwrap();
            assert_eq!(told["error"]["code"], -32602, "{method} {params}");
            assert_eq!(told["id"], "q");
        }
    }
}
