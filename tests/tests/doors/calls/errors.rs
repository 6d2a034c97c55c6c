//! What is said to a request that is wrong, over both kinds of door.

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

/// MCP-004, MCP-005, MCP-006, MCP-009, MCP-010, CMCP-005, CMCP-032: what is no request is told so
/// with the code of its fault and the id as far as there is one, and nothing is the worse for it.
#[tokio::test]
async fn what_is_no_request_gets_the_code_of_its_fault() {
    let kernel = scene::kernel().await;
    let client = scene::session(&kernel, NEWEST).await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    for (frame, code, id) in [
        ("{", -32700, Value::Null),
        ("nonsense", -32700, Value::Null),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}}"#,
            -32700,
            Value::Null,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping",}"#,
            -32700,
            Value::Null,
        ),
        ("[{]", -32700, Value::Null),
        ("7", -32600, Value::Null),
        ("\"ping\"", -32600, Value::Null),
        (r#"{"id":1,"method":"ping"}"#, -32600, json!(1)),
        (
            r#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#,
            -32600,
            json!("a"),
        ),
        (r#"{"jsonrpc":"2.0","id":2}"#, -32600, json!(2)),
        (r#"{"jsonrpc":"2.0","id":3,"method":7}"#, -32600, json!(3)),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            -32600,
            Value::Null,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
            -32600,
            Value::Null,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1e2,"method":"ping"}"#,
            -32600,
            Value::Null,
        ),
        (
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            -32600,
            Value::Null,
        ),
        (
            r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#,
            -32600,
            Value::Null,
        ),
        (
            r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#,
            -32600,
            Value::Null,
        ),
    ] {
        let shown = &frame[..frame.len().min(60)];
        let (status, answer) = over_http(&client, frame).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{shown}");
        assert_eq!(answer["error"]["code"], code, "{shown}: {answer}");
        assert_eq!(answer["id"], id, "{shown}: {answer}");
        let answer = over_socket(&mut agent, frame, &id).await;
        assert_eq!(answer["error"]["code"], code, "{shown}: {answer}");
        let (_, pong) = over_http(&client, &request(9, "ping", json!({}))).await;
        assert_eq!(pong["result"], json!({}), "{shown}");
        agent.request("ping", json!({})).await.result();
    }
}

/// MCP-010: bytes that are no UTF-8 are told so too.
#[tokio::test]
async fn what_is_no_text_is_no_json() {
    let kernel = scene::kernel().await;
    let client = scene::session(&kernel, NEWEST).await;
    let answer = client
        .post(&b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}"[..])
        .await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let answer: Value = serde_json::from_str(&answer.text().await).unwrap();
    assert_eq!(answer["error"]["code"], -32700);
}

/// MCP-011, MCP-012, MCP-013, MCP-089, CMCP-041: every code of the book, each with words that name
/// what was wrong.
#[tokio::test]
async fn what_cannot_be_done_is_told_with_its_code() {
    let kernel = scene::kernel().await;
    for agent in [
        &mut scene::http_agent(&kernel, None, "{}").await,
        &mut scene::socket_agent(&kernel, "{}").await,
    ] {
        for (method, params, code, words) in [
            ("foo/bar", json!({}), -32601, "foo/bar"),
            ("tools", json!({}), -32601, "tools"),
            ("server/discover", json!({}), -32601, "server/discover"),
            ("tools/call", json!({}), -32602, "name"),
            ("tools/call", json!([]), -32602, ""),
            ("tools/call", json!({"name": 7}), -32602, "name"),
            ("tools/call", json!({"name": "no_such"}), -32602, "no_such"),
            ("prompts/get", json!({}), -32602, "name"),
            ("prompts/get", json!({"name": "no_such"}), -32602, "no_such"),
            ("resources/read", json!({}), -32602, "uri"),
            ("resources/read", json!({"uri": "x://no_such"}), -32002, ""),
            ("resources/subscribe", json!({"uri": 7}), -32602, "uri"),
            ("logging/setLevel", json!({"level": "loud"}), -32602, "loud"),
            ("logging/setLevel", json!({}), -32602, "level"),
            ("completion/complete", json!({}), -32602, "ref"),
            (
                "tools/call",
                json!({"name": "protocol_error_job"}),
                -32603,
                "Internal error",
            ),
        ] {
            let answer = agent.request(method, params.clone()).await;
            let error = answer.error();
            assert_eq!(error["code"], code, "{method} {params}: {error}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(words), "{method} {params}: {message}");
        }
    }
}

/// MCP-004: string and integer ids come back as they went, to the byte.
#[tokio::test]
async fn ids_come_back_to_the_byte() {
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
async fn an_id_that_is_still_in_use_is_refused() {
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
async fn before_initialize_only_ping_is_answered() {
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
async fn a_batch_is_for_2025_03_26_alone() {
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
async fn params_by_position_are_refused_at_every_door() {
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
async fn a_ping_with_an_id_under_way_is_refused() {
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
