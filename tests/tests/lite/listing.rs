//! What a lite caller finds (§3.1, §4.2.1).

use http::Method;
use http::StatusCode;
use http::header::{ACCEPT, ALLOW, CONTENT_ENCODING, CONTENT_TYPE};
use serde_json::{Value, json};

use crate::scene::{BASE, LiteClient, Said, kernel};

fn tools(said: &Said) -> &Vec<Value> {
    assert_eq!(said.status, StatusCode::OK, "{said:?}");
    said.body["tools"].as_array().unwrap()
}

fn named<'a>(tools: &'a [Value], name: &str) -> &'a Value {
    let found = tools.iter().find(|tool| tool["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {tools:?}"))
}

/// LITE-004, LITE-005, LITE-006, LITE-025, LITE-031, LITE-035, LITE-036, LITE-038: every name of the endpoint lists the same
/// tools, `redeem` first and as in A.1; each has a name of its own, a description and a schema.
#[tokio::test]
async fn every_listing_endpoint_gives_the_same_tools() {
    let kinds =
        json!({"name": "placed", "categories": ["files/read"], "inputSchema": {"type": "object"}});
    let typed =
        json!({"name": "typed", "@type": "query", "title": "T", "inputSchema": {"type": "object"}});
    let own = json!({"name": "redeem", "description": "mine", "inputSchema": {"type": "object"}});
    let (kinds, typed, own) = (kinds.to_string(), typed.to_string(), own.to_string());
    let kernel = kernel(
        "[tuning.lists]\npage_size = 7\n",
        &["--tool", &kinds, "--tool", &typed, "--tool", &own],
    )
    .await;
    let listed = LiteClient::at(&kernel, &format!("{BASE}/listtools"))
        .post("{}")
        .await;
    let tools = tools(&listed);
    let redeem = json!({
        "name": "redeem", "@type": "system",
        "description": "Redeem a promise token to get the result of a long-running operation",
        "inputSchema": {"type": "object", "required": ["promise"], "properties": {"promise": {
            "type": "string", "description": "The promise token received from a previous operation"}}}
    });
    assert_eq!(tools[0], redeem);
    let mut names: Vec<&str> = tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert!(names.len() == all && all > 20, "{names:?}");
    for tool in tools {
        assert!(
            tool["description"].is_string() && tool["inputSchema"].is_object(),
            "{tool}"
        );
    }
    assert_eq!(named(tools, "it__placed")["@type"], "files/read");
    assert_eq!(named(tools, "it__typed")["@type"], "query");
    assert_eq!(named(tools, "it__typed")["description"], "T");
    // A server's own tool of that name keeps its qualified one, and can be called by it.
    assert_eq!(named(tools, "it__redeem")["description"], "mine");
    let called = LiteClient::new(&kernel)
        .call("it__redeem", json!({"a": 1}))
        .await;
    assert_eq!(called.kind(), "answer", "{called:?}");

    for path in ["/mcp-lite/v1/tools", "/tools", "/listtools"] {
        let same = LiteClient::at(&kernel, path).post("{}").await;
        assert_eq!(same.body, listed.body, "{path}");
    }
    let path = format!("{BASE}/listtools?format=array");
    let array = LiteClient::at(&kernel, &path).post("{}").await;
    assert_eq!(array.body, listed.body["tools"]);
    let other = LiteClient::at(&kernel, &format!("{BASE}/tools?format=yaml"))
        .post("{}")
        .await;
    assert_eq!(other.status, StatusCode::BAD_REQUEST);
    let by_rpc = json!({"jsonrpc": "2.0", "id": "l", "method": "tools/list"}).to_string();
    let by_rpc = LiteClient::at(&kernel, "/rpc").post(by_rpc).await;
    assert_eq!(by_rpc.result()["tools"], listed.body["tools"]);
}

/// LITE-033, LITE-034, LITE-042, LITE-047, LITE-048, LITE-069, LITE-070: only POST of JSON in UTF-8, and only where
/// the document has an endpoint.
#[tokio::test]
async fn what_is_no_request_is_told_by_its_status() {
    let kernel = kernel("", &[]).await;
    for path in [
        "/mcp-lite/v1/listtools",
        "/mcp-lite/v1/calltools",
        "/rpc",
        "/tools",
    ] {
        let client = LiteClient::at(&kernel, path);
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            let answer = client.http.send(method, "").await.unwrap();
            assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
            assert_eq!(answer.headers[ALLOW], "POST");
        }
        // No stream to be read by GET.
        let stream = client.http.get(None).await;
        assert_eq!(stream.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        for kind in ["text/plain", "application/json; charset=latin1", ""] {
            let mut other = client.clone();
            other.http.set(CONTENT_TYPE, kind);
            assert_eq!(
                other.post("{}").await.status,
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "{kind}"
            );
        }
        let mut packed = client.clone();
        packed.http.set(CONTENT_ENCODING, "gzip");
        let status = packed.post("{}").await.status;
        assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "packed");
        let mut other = client.clone();
        other.http.set(ACCEPT, "text/html");
        assert_eq!(other.post("{}").await.status, StatusCode::NOT_ACCEPTABLE);
        for (body, code) in [
            (&b"{"[..], -32700),
            (b"", -32700),
            (b"{\"a\":\"\xff\"}", -32700),
            (b"[]", -32600),
            (b"7", -32600),
        ] {
            let said = client.post(body).await;
            assert_eq!(
                said.status,
                StatusCode::BAD_REQUEST,
                "{path} {body:?} {said:?}"
            );
            assert_eq!(said.error()["code"], code, "{path} {body:?}");
        }
    }
    for path in [
        "/mcp-lite/v1/prompts",
        "/mcp-lite/v1/",
        "/mcp-lite/v2/calltools",
        "/prompts",
        "/mcp-lite/v1/ws",
    ] {
        let said = LiteClient::at(&kernel, path).post("{}").await;
        assert_eq!(said.status, StatusCode::NOT_FOUND, "{path}");
    }
    let calls = LiteClient::new(&kernel);
    for (body, code) in [
        (
            json!({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "it__echo"}}),
            -32600,
        ),
        (json!({"jsonrpc": "2.0", "id": 1, "result": {}}), -32600),
        (json!({"id": 1, "method": "tools/call"}), -32600),
        (
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}),
            -32602,
        ),
    ] {
        let said = calls.post(body.to_string()).await;
        assert_eq!(said.status, StatusCode::BAD_REQUEST, "{said:?}");
        assert_eq!(said.error()["code"], code, "{body}");
    }
    for method in [
        "initialize",
        "prompts/list",
        "resources/subscribe",
        "mgp/kernel/status",
    ] {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}});
        assert_eq!(
            calls.post(body.to_string()).await.error()["code"],
            -32601,
            "{method}"
        );
    }
}

/// LITE-035, LITE-068: switched off there is nothing of it; MCP stays.
#[tokio::test]
async fn a_kernel_without_it_has_no_such_path() {
    let kernel = kernel("[lite]\nenabled = false\n", &[]).await;
    for path in ["/mcp-lite/v1/listtools", "/mcp-lite/v1/calltools", "/rpc"] {
        let said = LiteClient::at(&kernel, path).post("{}").await;
        assert_eq!(said.status, StatusCode::NOT_FOUND, "{path}");
    }
    let mut agent = kernel.http_agent(None);
    agent.initialize("2025-11-25", "{}").await.result();
}
