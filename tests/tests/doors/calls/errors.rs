//! Errors for invalid requests, over both kinds of endpoint.

use http::StatusCode;
use mgp_tests::harness::{Agent, DEADLINE, HttpClient, wait_until};
use serde_json::{Value, json};

use crate::scene::{self, LEGACY, NEWEST, call, request};

/// Sends a frame and gives the whole answer, parsed.
async fn over_http(client: &HttpClient, frame: &str) -> (StatusCode, Value) {
    let answer = client.post(frame.to_owned()).await;
    let status = answer.status;
    let frames = answer.frames().await;
    let last = frames.last().map_or("null", String::as_str);
    (status, serde_json::from_str(last).unwrap())
}

/// The answer that carries `id`.
async fn over_socket(agent: &mut Agent, frame: &str, id: &Value) -> Value {
    agent.send(frame).await;
    serde_json::from_str(&agent.answer_to(id).await.frame).unwrap()
}

/// Both kinds of endpoint answer these frames with this code and these ids, and the next request as usual.
async fn assert_errors(code: i64, frames: &[(&str, Value)]) {
    let kernel = scene::kernel().await;
    let client = scene::session(&kernel, NEWEST).await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    for (frame, id) in frames {
        let (status, answer) = over_http(&client, frame).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{frame}");
        assert_eq!(answer["error"]["code"], code, "{frame}: {answer}");
        assert_eq!(answer["id"], *id, "{frame}: {answer}");
        let answer = over_socket(&mut agent, frame, id).await;
        assert_eq!(answer["error"]["code"], code, "{frame}: {answer}");
        let (_, pong) = over_http(&client, &request(9, "ping", json!({}))).await;
        assert_eq!(pong["result"], json!({}), "{frame}");
        agent.request("ping", json!({})).await.result();
    }
}

/// MCP-009, CMCP-032.
#[tokio::test]
async fn frame_that_is_no_json_is_a_parse_error() {
    let frames = [
        "{",
        "nonsense",
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping",}"#,
        "[{]",
    ];
    assert_errors(-32700, &frames.map(|frame| (frame, Value::Null))).await;
}

/// MCP-010: with its id, where it has one.
#[tokio::test]
async fn json_that_is_no_request_is_an_invalid_request() {
    let frames = [
        ("7", Value::Null),
        ("\"ping\"", Value::Null),
        (r#"{"id":1,"method":"ping"}"#, json!(1)),
        (r#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#, json!("a")),
        (r#"{"jsonrpc":"2.0","id":2}"#, json!(2)),
        (r#"{"jsonrpc":"2.0","id":3,"method":7}"#, json!(3)),
    ];
    assert_errors(-32600, &frames).await;
}

/// MCP-005.
#[tokio::test]
async fn request_with_a_null_id_is_an_invalid_request() {
    let frame = r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#;
    assert_errors(-32600, &[(frame, Value::Null)]).await;
}

/// MCP-006.
#[tokio::test]
async fn request_whose_id_is_no_string_or_integer_is_an_invalid_request() {
    let frames = [
        r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1e2,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#,
    ];
    assert_errors(-32600, &frames.map(|frame| (frame, Value::Null))).await;
}

/// MCP-010: bytes that are no UTF-8 are told so too.
#[tokio::test]
async fn frame_that_is_no_utf_8_is_a_parse_error() {
    let kernel = scene::kernel().await;
    let client = scene::session(&kernel, NEWEST).await;
    let answer = client
        .post(&b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}"[..])
        .await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let answer: Value = serde_json::from_str(&answer.text().await).unwrap();
    assert_eq!(answer["error"]["code"], -32700);
}

/// Over both kinds of endpoint, with words that name what was wrong.
async fn assert_codes(requests: &[(&str, Value, i64, &str)]) {
    let kernel = scene::kernel().await;
    for agent in [
        &mut scene::http_agent(&kernel, None, "{}").await,
        &mut scene::socket_agent(&kernel, "{}").await,
    ] {
        for (method, params, code, words) in requests {
            let answer = agent.request(method, params.clone()).await;
            let error = answer.error();
            assert_eq!(error["code"], *code, "{method} {params}: {error}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(words), "{method} {params}: {message}");
        }
    }
}

/// MCP-011, CMCP-041.
#[tokio::test]
async fn unknown_method_is_method_not_found() {
    let requests = ["foo/bar", "tools", "server/discover"];
    assert_codes(&requests.map(|method| (method, json!({}), -32601, method))).await;
}

/// MCP-012.
#[tokio::test]
async fn invalid_params_are_rejected_with_their_names() {
    let requests = [
        ("tools/call", json!({}), "name"),
        ("tools/call", json!([]), ""),
        ("tools/call", json!({"name": 7}), "name"),
        ("tools/call", json!({"name": "no_such"}), "no_such"),
        ("prompts/get", json!({}), "name"),
        ("prompts/get", json!({"name": "no_such"}), "no_such"),
        ("resources/read", json!({}), "uri"),
        ("resources/subscribe", json!({"uri": 7}), "uri"),
        ("logging/setLevel", json!({"level": "loud"}), "loud"),
        ("logging/setLevel", json!({}), "level"),
        ("completion/complete", json!({}), "ref"),
    ];
    assert_codes(&requests.map(|(method, params, words)| (method, params, -32602, words))).await;
}

/// MCP-089.
#[tokio::test]
async fn unknown_resource_is_resource_not_found() {
    let uri = json!({"uri": "x://no_such"});
    assert_codes(&[("resources/read", uri, -32002, "Resource not found")]).await;
}

/// MCP-013.
#[tokio::test]
async fn internal_error_of_a_server_is_internal_error() {
    let params = json!({"name": "protocol_error_job"});
    assert_codes(&[("tools/call", params, -32603, "Internal error")]).await;
}

/// MCP-004: string and integer ids come back as they went, to the byte.
#[tokio::test]
async fn id_of_a_request_is_echoed_to_the_byte() {
    let kernel = scene::kernel().await;
    let client = scene::session(&kernel, NEWEST).await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    for id in [
        "0",
        "-7",
        "9007199254740993",
        "123456789012345678901234567890",
        r#""""#,
        r#""7""#,
        r#""\u00e9\/""#,
        r#""é 🦀""#,
    ] {
        for (method, params) in [
            ("ping", "{}"),
            ("tools/list", "{}"),
            ("tools/call", r#"{"name":"echo","arguments":{"text":"x"}}"#),
            ("foo/bar", "{}"),
        ] {
            let frame =
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
            let carried = format!(r#""id":{id},"#);
            let frames = client.post(frame.clone()).await.frames().await;
            assert!(frames[0].contains(&carried), "{id}: {}", frames[0]);
            agent.send(&frame).await;
            let id_value: Value = serde_json::from_str(id).unwrap();
            let answer = agent.answer_to(&id_value).await;
            assert!(answer.frame.contains(&carried), "{id}: {}", answer.frame);
        }
    }
}

/// MCP-008: an id that is still in use is refused, and the first request gets its own answer alone.
#[tokio::test]
async fn id_of_an_in_flight_call_is_rejected() {
    let kernel = scene::kernel().await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    agent.send(&call("twice", "slow", json!({"ms": 300}))).await;
    agent
        .send(&call("twice", "echo", json!({"text": "second"})))
        .await;
    let refused = agent.answer_to(&json!("twice")).await;
    assert_eq!(refused.code(), -32600);
    assert!(
        refused.error()["message"]
            .as_str()
            .unwrap()
            .contains("twice")
    );
    assert_eq!(agent.answer_to(&json!("twice")).await.text(), "slept");
    let client = scene::session(&kernel, NEWEST).await;
    let first = client.post(call(1, "slow", json!({"ms": 300}))).await;
    let (_, second) = over_http(&client, &call(1, "echo", json!({"text": "second"}))).await;
    assert_eq!(second["error"]["code"], -32600);
    assert!(first.frames().await.last().unwrap().contains("slept"));
    let (_, again) = over_http(&client, &call(1, "echo", json!({"text": "free again"}))).await;
    assert_eq!(again["result"]["content"][0]["text"], "free again");
}

/// CMCP-039, CMCP-040, MCP-019: before `initialize` only `ping` is answered.
#[tokio::test]
async fn ping_alone_is_answered_before_initialize() {
    let kernel = scene::kernel().await;
    let mut agent = Agent::over_socket(&kernel.socket()).await;
    let client = HttpClient::new(kernel.url());
    assert_eq!(agent.request("ping", json!({})).await.result_text(), "{}");
    let (_, pong) = over_http(&client, &request("p", "ping", json!({}))).await;
    assert_eq!(pong, json!({"jsonrpc": "2.0", "id": "p", "result": {}}));
    for method in [
        "tools/list",
        "tools/call",
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "completion/complete",
        "logging/setLevel",
        "foo/bar",
    ] {
        let params = json!({"name": "echo", "arguments": {"text": "x"}});
        let refused = agent.request(method, params.clone()).await;
        assert_eq!(refused.code(), -32600, "{method}");
        assert!(
            refused.error()["message"]
                .as_str()
                .unwrap()
                .contains("initialize")
        );
        let (status, refused) = over_http(&client, &request(1, method, params)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{method}");
        assert_eq!(refused["error"]["code"], -32600, "{method}");
    }
    agent.initialize(NEWEST, "{}").await.result();
    assert_eq!(
        agent.call("echo", json!({"text": "now"})).await.text(),
        "now"
    );
    let hello = json!({"protocolVersion": NEWEST, "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"}});
    let twice = agent.request("initialize", hello).await;
    assert_eq!(twice.code(), -32600);
}

/// CMCP-005: a batch is for 2025-03-26 alone; there each request in it is answered.
#[tokio::test]
async fn batch_is_accepted_in_version_2025_03_26_alone() {
    let kernel = scene::kernel().await;
    let echo = |n: u32| call(n, "echo", json!({"text": format!("text {n}")}));
    let note = r#"{"jsonrpc":"2.0","method":"notifications/anything"}"#;
    let batch = format!(
        "[{},{note},{},{},7]",
        echo(1),
        request(2, "ping", json!({})),
        echo(3)
    );
    for spoken in LEGACY {
        let client = scene::session(&kernel, spoken).await;
        let mut agent = Agent::over_socket(&kernel.socket()).await;
        agent.initialize(spoken, "{}").await.result();
        let (status, answer) = over_http(&client, &batch).await;
        if spoken != "2025-03-26" {
            assert_eq!(
                (status.as_u16(), &answer["error"]["code"]),
                (400, &json!(-32600)),
                "{spoken}"
            );
            let refused = over_socket(&mut agent, &batch, &Value::Null).await;
            assert_eq!(refused["error"]["code"], -32600, "{spoken}");
            continue;
        }
        let mut answers = answer.as_array().unwrap().clone();
        answers.sort_by_key(|answer| answer["id"].as_u64());
        assert_eq!(answers.len(), 4, "{answer}");
        assert_eq!(answers[0]["error"]["code"], -32600);
        assert_eq!(answers[1]["result"]["content"][0]["text"], "text 1");
        assert_eq!(answers[2]["result"], json!({}));
        assert_eq!(answers[3]["result"]["content"][0]["text"], "text 3");
        let (_, told) = over_http(&client, &format!("[{note},{note}]")).await;
        assert_eq!(told, Value::Null);
        let (status, _) = over_http(&client, "[]").await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
    }
}

/// MCP-012: params by position are no params, whatever the method, the door and the era, nor is a
/// `_meta` with two tokens; a server sees nothing of them, and a notification with them is nothing.
#[tokio::test]
async fn params_by_position_are_rejected_at_every_endpoint() {
    let kernel = scene::kernel().await;
    let client = scene::session(&kernel, NEWEST).await;
    let modern = scene::Modern::at(kernel.url(), "{}");
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    for (method, params) in [
        ("tools/call", json!(["echo", {"text": "x"}])),
        ("prompts/get", json!(["p", {}])),
        ("resources/read", json!(["test://x"])),
        (
            "completion/complete",
            json!([["ref/prompt", "p"], {"name": "a", "value": ""}]),
        ),
        ("tools/list", json!([])),
        ("mgp/access/query", json!([])),
        ("ping", json!(7)),
        ("foo/bar", json!(["x"])),
    ] {
        let frame = request(7, method, params);
        let (status, answer) = over_http(&client, &frame).await;
        assert_eq!(status, StatusCode::OK, "{method}");
        assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
        let answer = over_socket(&mut agent, &frame, &json!(7)).await;
        assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
        let mut bare = modern.request(7, method, json!({}));
        bare.body["params"] = json!([bare.body["params"]["_meta"].take(), null, "echo"]);
        let (_, answer) = modern.put(&bare).await;
        assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
    }
    for params in [
        r#"{"name":"echo","arguments":{"text":"x"},"_meta":{"progressToken":"z","progressToken":6}}"#,
        r#"{"name":"echo","arguments":{"text":"x"},"_meta":{"progressToken":1,"progressTo\u006ben":2}}"#,
        r#"{"name":"echo","arguments":{"text":"x"},"_meta":[1]}"#,
    ] {
        let frame =
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#);
        let (_, answer) = over_http(&client, &frame).await;
        assert_eq!(answer["error"]["code"], -32602, "{params}: {answer}");
        let answer = over_socket(&mut agent, &frame, &json!(7)).await;
        assert_eq!(answer["error"]["code"], -32602, "{params}: {answer}");
    }
    agent.send(&call("slow", "slow", json!({"ms": 300}))).await;
    agent
        .notify("notifications/cancelled", json!(["slow"]))
        .await;
    assert_eq!(agent.answer_to(&json!("slow")).await.text(), "slept");
    let heard = scene::received(&mut agent, "received").await;
    assert!(
        heard.iter().all(|frame| !frame.contains(r#""params":["#)),
        "{heard:#?}"
    );
    let echoed = |frame: &String| frame.contains(r#""tools/call""#) && frame.contains("echo");
    assert!(!heard.iter().any(echoed), "{heard:#?}");
}

/// An id stands for one request at a time, whatever it asks.
#[tokio::test]
async fn ping_with_the_id_of_an_in_flight_call_is_rejected() {
    let kernel = scene::kernel().await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    let id = (agent.start("tools/call", json!({"name": "it:hang", "arguments": {}}))).await;
    let ping = |id: &Value| json!({"jsonrpc": "2.0", "id": id, "method": "ping"}).to_string();
    let refused = over_socket(&mut agent, &ping(&id), &id).await;
    assert_eq!(refused["error"]["code"], -32600, "{refused}");

    let client = scene::session(&kernel, NEWEST).await;
    let hanging = client.clone();
    let hang = call(7, "it:hang", json!({}));
    let hanging = tokio::spawn(async move { hanging.post(hang).await.frames().await });
    wait_until("the call is under way", DEADLINE, async || {
        over_http(&client, &ping(&json!(7))).await.1["error"]["code"] == -32600
    })
    .await;
    hanging.abort();
    let other = over_http(&client, &ping(&json!(8))).await.1;
    assert_eq!(other["result"], json!({}), "{other}");
}
