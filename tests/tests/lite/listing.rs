//! Lists of tools, and requests that are rejected (§3.1, §4.1, §4.2.1, §4.4).

use http::Method;
use http::StatusCode;
use http::header::{ACCEPT, ALLOW, CONTENT_ENCODING, CONTENT_TYPE};
use mgp_tests::harness::Kernel;
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

/// The tools at the endpoint of §4.2.1.
async fn list(kernel: &Kernel) -> Said {
    let path = format!("{BASE}/listtools");
    LiteClient::at(kernel, &path).post("{}").await
}

/// The definition of a tool, as a flag of the server.
fn tool(members: Value) -> String {
    let mut tool = json!({"inputSchema": {"type": "object"}});
    let members = members.as_object().unwrap().clone();
    tool.as_object_mut().unwrap().extend(members);
    tool.to_string()
}

/// LITE-005.
#[tokio::test]
async fn listed_tools_have_unique_names_descriptions_and_schemas() {
    let kernel = kernel("", &[]).await;
    let listed = list(&kernel).await;
    let tools = tools(&listed);
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
}

/// LITE-031: the category is optional, the description is the title where the server has none.
#[tokio::test]
async fn type_of_a_tool_is_its_own_or_its_category() {
    let placed = tool(json!({"name": "placed", "categories": ["files/read"]}));
    let typed = tool(json!({"name": "typed", "@type": "query", "title": "T"}));
    let kernel = kernel("", &["--tool", &placed, "--tool", &typed]).await;
    let listed = list(&kernel).await;
    let tools = tools(&listed);
    assert_eq!(named(tools, "it__placed")["@type"], "files/read");
    assert_eq!(named(tools, "it__typed")["@type"], "query");
    assert_eq!(named(tools, "it__typed")["description"], "T");
    assert!(named(tools, "it__echo").get("@type").is_none());
}

/// LITE-006, LITE-025: as in A.1.
#[tokio::test]
async fn redeem_is_the_first_tool_of_the_list() {
    let kernel = kernel("", &[]).await;
    let listed = list(&kernel).await;
    let redeem = json!({
        "name": "redeem", "@type": "system",
        "description": "Redeem a promise token to get the result of a long-running operation",
        "inputSchema": {"type": "object", "required": ["promise"], "properties": {"promise": {
            "type": "string", "description": "The promise token received from a previous operation"}}}
    });
    assert_eq!(tools(&listed)[0], redeem);
}

#[tokio::test]
async fn servers_own_redeem_tool_keeps_its_qualified_name() {
    let own = tool(json!({"name": "redeem", "description": "mine"}));
    let kernel = kernel("", &["--tool", &own]).await;
    let listed = list(&kernel).await;
    let found = named(tools(&listed), "it__redeem");
    assert_eq!(found["description"], "mine");
    let client = LiteClient::new(&kernel);
    let called = client.call("it__redeem", json!({"a": 1})).await;
    assert_eq!(called.kind(), "answer", "{called:?}");
}

/// LITE-035, LITE-038: and `tools/list` has the same, beyond the size of a page.
#[tokio::test]
async fn tools_are_the_same_at_each_path() {
    let kernel = kernel("[lists]\npage_size = 7\n", &[]).await;
    let listed = list(&kernel).await;
    assert!(tools(&listed).len() > 20);
    for path in ["/mcp-lite/v1/tools", "/tools", "/listtools"] {
        let same = LiteClient::at(&kernel, path).post("{}").await;
        assert_eq!(same.body, listed.body, "{path}");
    }
    let by_rpc = json!({"jsonrpc": "2.0", "id": "l", "method": "tools/list"}).to_string();
    let by_rpc = LiteClient::at(&kernel, "/rpc").post(by_rpc).await;
    assert_eq!(by_rpc.result()["tools"], listed.body["tools"]);
}

/// LITE-036: A-18.
#[tokio::test]
async fn list_is_an_object_or_an_array_as_the_query_says() {
    let kernel = kernel("", &[]).await;
    let listed = list(&kernel).await;
    let path = format!("{BASE}/listtools?format=array");
    let array = LiteClient::at(&kernel, &path).post("{}").await;
    assert_eq!(array.body, listed.body["tools"]);
    let path = format!("{BASE}/tools?format=yaml");
    let other = LiteClient::at(&kernel, &path).post("{}").await;
    assert_eq!(other.status, StatusCode::BAD_REQUEST);
}

/// One endpoint of each kind.
const ENDPOINTS: [&str; 4] = [
    "/mcp-lite/v1/listtools",
    "/mcp-lite/v1/calltools",
    "/rpc",
    "/tools",
];

/// LITE-033.
#[tokio::test]
async fn endpoints_accept_post_alone() {
    let kernel = kernel("", &[]).await;
    for path in ENDPOINTS {
        let client = LiteClient::at(&kernel, path);
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            let answer = client.http.send(method, "").await.unwrap();
            assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
            assert_eq!(answer.headers[ALLOW], "POST");
        }
    }
}

/// LITE-042.
#[tokio::test]
async fn there_is_no_stream_to_be_read_by_get() {
    let kernel = kernel("", &[]).await;
    for path in ENDPOINTS {
        let stream = LiteClient::at(&kernel, path).http.get(None).await;
        assert_eq!(stream.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        assert!(!stream.is_stream(), "{path}");
    }
}

/// LITE-034: uncompressed, and the answer is JSON, too.
#[tokio::test]
async fn body_is_json_in_utf_8() {
    let kernel = kernel("", &[]).await;
    for path in ENDPOINTS {
        let client = LiteClient::at(&kernel, path);
        let sent_as = async |header, value| {
            let mut other = client.clone();
            other.http.set(header, value);
            other.post("{}").await.status
        };
        for kind in ["text/plain", "application/json; charset=latin1", ""] {
            let status = sent_as(CONTENT_TYPE, kind).await;
            assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
        }
        let status = sent_as(CONTENT_ENCODING, "gzip").await;
        assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        let status = sent_as(ACCEPT, "text/html").await;
        assert_eq!(status, StatusCode::NOT_ACCEPTABLE);
        let status = sent_as(CONTENT_TYPE, "application/json; charset=utf-8").await;
        assert_ne!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{path}");
    }
}

/// LITE-047.
#[tokio::test]
async fn body_that_is_no_json_is_a_parse_error() {
    let kernel = kernel("", &[]).await;
    for path in ENDPOINTS {
        let client = LiteClient::at(&kernel, path);
        for body in [&b"{"[..], b"", b"{\"a\":\"\xff\"}"] {
            let said = client.post(body).await;
            assert_eq!(said.status, StatusCode::BAD_REQUEST, "{path} {said:?}");
            assert_eq!(said.error()["code"], -32700, "{path} {body:?}");
        }
    }
}

/// LITE-048.
#[tokio::test]
async fn json_that_is_no_request_is_an_invalid_request() {
    let kernel = kernel("", &[]).await;
    for path in ENDPOINTS {
        let client = LiteClient::at(&kernel, path);
        for body in ["[]", "7"] {
            let said = client.post(body).await;
            assert_eq!(said.status, StatusCode::BAD_REQUEST, "{path} {said:?}");
            assert_eq!(said.error()["code"], -32600, "{path} {body}");
        }
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
}

/// LITE-069, LITE-070.
#[tokio::test]
async fn prompts_and_other_bindings_of_the_future_are_not_found() {
    let kernel = kernel("", &[]).await;
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
    for method in ["prompts/list", "mgp/kernel/status"] {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}});
        let said = calls.post(body.to_string()).await;
        assert_eq!(said.error()["code"], -32601, "{method}");
    }
}

/// LITE-035.
#[tokio::test]
async fn disabled_mcp_lite_has_no_path_and_mcp_stays() {
    let kernel = kernel("[lite]\nenabled = false\n", &[]).await;
    for path in ["/mcp-lite/v1/listtools", "/mcp-lite/v1/calltools", "/rpc"] {
        let said = LiteClient::at(&kernel, path).post("{}").await;
        assert_eq!(said.status, StatusCode::NOT_FOUND, "{path}");
    }
    let mut agent = kernel.http_agent(None);
    agent.initialize("2025-11-25", "{}").await.result();
}
