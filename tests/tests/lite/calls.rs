//! Calls and their answers (§3.2, §3.3, §4.2.2, §4.4).

use http::StatusCode;
use mgp_tests::harness::http::events::Event;
use mgp_tests::harness::{DEADLINE, HttpClient, Kernel, Program, wait_until};
use serde_json::{Value, json};

use crate::grpc::client::{RpcClient, kind as rpc_kind, text as rpc_text};
use crate::scene::{BASE, LiteClient, all, body, guarded, kernel, read, token, url};

/// LITE-002, LITE-037: with and without the base path.
#[tokio::test]
async fn call_is_one_post_of_json_rpc_at_each_path() {
    let kernel = kernel("", &[]).await;
    for path in ["calltools", "calltool", "rpc"] {
        for at in [format!("{BASE}/{path}"), format!("/{path}")] {
            let client = LiteClient::at(&kernel, &at);
            let said = client.call("it__echo", json!({"text": "ä"})).await;
            assert_eq!(said.status, StatusCode::OK, "{at}");
            assert_eq!(said.body["jsonrpc"], "2.0", "{at}");
            assert_eq!(said.text(), "ä");
            assert!(said.meta().is_object(), "{said:?}");
        }
    }
}

/// LITE-004: find tools, call one, promise, check, cancel, stream.
#[tokio::test]
async fn each_pattern_of_interaction_is_served() {
    let kernel = kernel("", &["--no-tasks"]).await;
    let listed = LiteClient::at(&kernel, "/tools").post("{}").await;
    assert!(listed.body.to_string().contains("it__echo"));
    let client = LiteClient::new(&kernel);
    let called = client.call("it__echo", json!({"text": "a"})).await;
    assert_eq!(called.text(), "a");
    let slow = client
        .prefers("wait=0")
        .call("it__test_slow", json!({"seconds": 30}))
        .await;
    let promise = slow.promise();
    let checked = client.prefers("wait=0").redeem(&promise).await;
    assert_eq!(checked.promise(), promise);
    let cancel = json!({"promise": promise, "action": "cancel"});
    assert_eq!(client.call("redeem", cancel).await.kind(), "answer");
    let events = all(client.events("it__echo", json!({"text": "b"})).await).await;
    assert_eq!(read(&events[0]).0, "done");
}

/// LITE-007: what does not fit its schema is in `errors_have_the_codes_of_json_rpc`.
#[tokio::test]
async fn arguments_reach_the_named_tool() {
    let kernel = kernel("", &[]).await;
    let client = LiteClient::new(&kernel);
    let arguments = json!({"a": 1, "b": 2});
    let said = client.call("it__test_structured", arguments).await;
    assert_eq!(said.result()["structuredContent"]["sum"], 3);
    assert!(said.result().get("resultType").is_none(), "{said:?}");
}

/// LITE-008.
#[tokio::test]
async fn result_says_which_type_of_response_it_is() {
    let kernel = kernel("", &["--no-tasks"]).await;
    let client = LiteClient::new(&kernel).prefers("wait=1");
    for (tool, arguments, response_type) in [
        ("it__echo", json!({"text": "b"}), "answer"),
        ("it__test_error_handling", json!({}), "failure"),
        ("it__test_slow", json!({"seconds": 30}), "promise"),
    ] {
        let said = client.call(tool, arguments).await;
        assert_eq!(said.meta()["response_type"], response_type, "{said:?}");
    }
}

/// LITE-009.
#[tokio::test]
async fn result_has_its_time_its_duration_and_the_version_of_the_server() {
    let kernel = kernel("", &[]).await;
    let client = LiteClient::new(&kernel);
    let said = client.call("it__echo", json!({"text": "b"})).await;
    let timestamp = said.meta()["timestamp"].as_str().unwrap();
    assert!(
        timestamp.starts_with("20") && timestamp.ends_with('Z'),
        "{timestamp}"
    );
    assert!(said.meta()["processing_time_ms"].is_u64(), "{said:?}");
    assert!(said.meta()["server_version"].is_string(), "{said:?}");
}

/// LITE-011.
#[tokio::test]
async fn final_result_is_an_answer() {
    let kernel = kernel("", &[]).await;
    let client = LiteClient::new(&kernel);
    let said = client.call("it__echo", json!({"text": "b"})).await;
    assert_eq!((said.kind(), said.text()), ("answer", "b"));
    assert!(said.meta().get("promise_token").is_none(), "{said:?}");
}

/// LITE-014.
#[tokio::test]
async fn failed_tool_is_a_failure_and_no_error_of_the_protocol() {
    let kernel = kernel("", &[]).await;
    let client = LiteClient::new(&kernel);
    let failed = client.call("it__test_error_handling", json!({})).await;
    assert_eq!((failed.kind(), failed.status), ("failure", StatusCode::OK));
    assert_eq!(failed.result()["isError"], true);
    assert!(failed.body.get("error").is_none(), "{failed:?}");
}

/// LITE-040.
#[tokio::test]
async fn id_of_a_call_is_echoed() {
    let kernel = kernel("", &[]).await;
    let client = LiteClient::new(&kernel);
    for id in [json!("call-001"), json!(7), json!("é"), json!(-1)] {
        let params = json!({"name": "it__echo", "arguments": {"text": "c"}});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        assert_eq!(client.post(call.to_string()).await.body["id"], id);
    }
}

/// LITE-068.
#[tokio::test]
async fn there_are_no_sessions_and_no_subscriptions() {
    let kernel = kernel("", &[]).await;
    let client = LiteClient::new(&kernel);
    let said = client.call("it__echo", json!({"text": "b"})).await;
    assert!(!said.headers.contains_key("mcp-session-id"), "{said:?}");
    for method in ["initialize", "resources/subscribe", "logging/setLevel"] {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}});
        let said = client.post(body.to_string()).await;
        assert_eq!(said.error()["code"], -32601, "{method}");
        assert!(!said.headers.contains_key("mcp-session-id"), "{said:?}");
    }
}

/// LITE-007, LITE-047 to LITE-051: arguments that do not fit are -32602 with their place; a server's error and one
/// of the kernel's are told as they are.
#[tokio::test]
async fn errors_have_the_codes_of_json_rpc() {
    let kernel = kernel("", &[]).await;
    let client = LiteClient::new(&kernel);
    let bad = client.call("it__echo", json!({"text": 7})).await;
    assert_eq!(
        (bad.status, &bad.error()["code"]),
        (StatusCode::OK, &json!(-32602))
    );
    assert_eq!(bad.error()["data"]["path"], "/text");
    for params in [
        json!({}),
        json!({"name": 7}),
        json!({"name": "it__echo", "_meta": 7}),
    ] {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        assert_eq!(
            client.post(call.to_string()).await.error()["code"],
            -32602,
            "{params}"
        );
    }
    let own = client.call("it__protocol_error_job", json!({})).await;
    assert_eq!(own.error()["code"], -32603, "{own:?}");
    let crashed = client.call("it__crash", json!({"code": 3})).await;
    assert_eq!(crashed.error()["code"], -32603, "{crashed:?}");
}

/// LITE-049, LITE-052, LITE-077: a tool that is not there is -32601 with those that are; one that is denied reads
/// the same, and its name is in no list and no suggestion.
#[tokio::test]
async fn unknown_tool_is_reported_with_the_available_ones_and_a_suggestion() {
    let kernel = guarded("", &[]).await;
    let client = LiteClient::new(&kernel).with_token(&token(&kernel, "alice").await);
    let said = client.call("it__ehco", json!({})).await;
    let error = said.error();
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!(-32601), &json!("Tool not found"))
    );
    assert_eq!(error["data"]["requested_tool"], "it__ehco");
    assert_eq!(error["data"]["suggestion"], "Did you mean 'it__echo'?");
    let names = error["data"]["available_tools"].as_array().unwrap();
    assert!(names[0] == "redeem" && names.len() <= 50, "{names:?}");

    let denied = kernel
        .mgp(&["grants", "add", "alice", "it:echo", "--deny"])
        .await;
    assert!(denied.status.success(), "{denied:?}");
    let told = async |name: &str| {
        let said = client.call(name, json!({"text": "x"})).await;
        (said.status, said.error().to_string().replace(name, "NAME"))
    };
    assert_eq!(told("it__echo").await, told("it__ehco").await);
    let text = client.call("it__ehco", json!({})).await.error().to_string();
    assert!(!text.contains("it__echo\""), "{text}");
    let list = LiteClient::at(&kernel, "/tools").with_token(&token(&kernel, "bob").await);
    assert!(list.post("{}").await.body.to_string().contains("it__echo"));
    let list = LiteClient::at(&kernel, "/tools").with_token(&token_of(&kernel, "alice").await);
    assert!(
        !list
            .post("{}")
            .await
            .body
            .to_string()
            .contains("\"it__echo\"")
    );
}

async fn token_of(kernel: &Kernel, agent: &str) -> String {
    let made = kernel.mgp(&["agents", "token", agent, "--rotate"]).await;
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

/// LITE-066: a body of `tools/call` that is good at `/mcp`, in either era and with the headers of a client there, is
/// good here; what other ways of calling have is left aside.
#[tokio::test]
async fn tools_call_body_of_mcp_is_accepted() {
    let kernel = kernel("", &["--era", "dual"]).await;
    let modern = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}}});
    let metas = [json!({}), json!({"progressToken": 1}), modern, Value::Null];
    for meta in metas {
        let params = json!({"name": "it__echo", "arguments": {"text": "same"}, "_meta": meta, "task": {"ttl": 1000}});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let client = HttpClient::new(&url(&kernel, "/rpc"));
        let answer = client.post(call.to_string()).await;
        assert!(!answer.is_stream());
        let said: Value = serde_json::from_str(&answer.text().await).unwrap();
        assert_eq!(said["result"]["content"][0]["text"], "same", "{said}");
        assert_eq!(said["result"]["_meta"]["response_type"], "answer");
    }
}

/// LITE-077: the call is in the audit log like any other, and counts for the agent's rate; a set is at a path of its
/// own, and its token sees nothing else.
#[tokio::test]
async fn sets_audit_and_rate_limits_are_those_of_mcp() {
    let fixture = Program::fixture(&[]);
    let sections = "[limits]\nagent_calls_per_minute = 5\n[sets.few]\ntools = [\"it:echo\"]\n[agents.\"agent.pinned\"]\nset = \"few\"\n";
    let config = format!("{}{sections}{}", crate::scene::TOKENS, fixture.entry("it"));
    let kernel = Kernel::with_config(&config).await;
    kernel.connected(&["it"]).await;
    let (alice, pinned) = (
        token(&kernel, "alice").await,
        token(&kernel, "pinned").await,
    );
    let names = async |path: &str, token: &str| {
        let said = LiteClient::at(&kernel, path)
            .with_token(token)
            .post("{}")
            .await;
        let tools = said.body["tools"].as_array().cloned().unwrap_or_default();
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let of_set = names(&format!("{BASE}/p/few/tools"), &alice).await;
    assert_eq!(of_set, ["redeem", "it__echo"]);
    assert_eq!(names("/tools", &pinned).await, ["redeem", "it__echo"]);
    let other = LiteClient::at(&kernel, &format!("{BASE}/p/none/tools")).with_token(&alice);
    assert_eq!(other.post("{}").await.status, StatusCode::NOT_FOUND);
    let at_set = LiteClient::at(&kernel, &format!("{BASE}/p/few/rpc")).with_token(&alice);
    assert_eq!(
        at_set.call("it__pid", json!({})).await.error()["code"],
        -32601
    );

    let client = LiteClient::new(&kernel).with_token(&alice);
    let mut refused = 0;
    for _ in 0..6 {
        let said = client.call("it__echo", json!({"text": "x"})).await;
        refused += usize::from(said.body.get("error").is_some());
    }
    assert!(refused >= 1, "the rate is the agent's");
    let found = [
        "audit", "find", "--agent", "alice", "--tool", "it:echo", "--json",
    ];
    let records = String::from_utf8(kernel.mgp(&found).await.stdout).unwrap();
    assert!(records.contains("TOOL_EXECUTED"), "{records}");
}

/// LITE-001, LITE-071: what a server answers beside text comes through as it is, in one piece and in events alike.
#[tokio::test]
async fn answer_and_event_stream_carry_the_same_result() {
    let kernel = kernel("", &[]).await;
    let client = LiteClient::new(&kernel);
    for tool in ["it__test_multiple_content_types", "it__test_error_handling"] {
        let plain = client.call(tool, json!({})).await;
        let events: Vec<Event> = all(client.events(tool, json!({})).await).await;
        let (name, done) = read(&events[0]);
        assert_eq!((events.len(), name), (1, "done"));
        assert_eq!(done["content"], plain.result()["content"]);
        assert_eq!(
            done["_meta"]["response_type"],
            plain.meta()["response_type"]
        );
    }
    let _ = body("it__echo", json!({}), json!({}));
}

/// PRJ-017: a call of MCP-lite starts a server that sleeps, over HTTP and gRPC.
#[tokio::test]
async fn call_starts_a_sleeping_server() {
    let entry = Program::fixture(&[]).entry("it");
    let entry = format!(
        "{}\nstart = \"on-demand\"\nidle_stop_secs = 1\n",
        entry.trim_end()
    );
    let kernel = Kernel::start(&entry).await;
    let asleep = async || {
        wait_until("it sleeps", DEADLINE, async || {
            kernel.mgp_json(&["servers", "show", "it"]).await["sleeping"] == true
        })
        .await;
    };
    asleep().await;
    let called = LiteClient::new(&kernel)
        .call("it__echo", json!({"text": "a"}))
        .await;
    assert_eq!(called.text(), "a");
    let Some(mut rpc) = RpcClient::python(&kernel) else {
        return;
    };
    asleep().await;
    let answer = rpc.call("it__echo", json!({"text": "b"})).await;
    assert_eq!((rpc_kind(&answer), rpc_text(&answer)), ("ANSWER", "b"));
}
