//! The OpenAPI document of the tools, and the paths in it (decision 65).

use http::header::{
    ACCEPT, ALLOW, AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, HeaderName, IF_NONE_MATCH,
};
use http::{Method, StatusCode};
use mgp_tests::harness::{DEADLINE, HttpClient, Kernel, Need, Peers, Program};
use serde_json::{Value, json};

/// Where a kernel's lite endpoints are.
fn base(kernel: &Kernel) -> String {
    kernel.url().replace("/mcp", "/mcp-lite/v1")
}

/// A plain client, as curl is.
fn client(url: &str, token: Option<&str>) -> HttpClient {
    let mut client = HttpClient::new(url);
    client.set(ACCEPT, "*/*");
    if let Some(token) = token {
        client.set(AUTHORIZATION, &format!("Bearer {token}"));
    }
    client
}

async fn got(client: &HttpClient) -> (StatusCode, Value) {
    let answer = client.send(Method::GET, "").await.expect("an answer");
    let status = answer.status;
    (
        status,
        serde_json::from_str(&answer.text().await).unwrap_or_default(),
    )
}

/// What a caller is told of.
async fn document(kernel: &Kernel, token: Option<&str>) -> Value {
    let (status, document) = got(&client(&format!("{}/openapi.json", base(kernel)), token)).await;
    assert_eq!(status, StatusCode::OK, "{document:#}");
    document
}

/// Calls a tool by its path.
async fn called(kernel: &Kernel, tool: &str, body: impl Into<String>) -> (StatusCode, Value) {
    posted(
        &client(&format!("{}/tools/{tool}", base(kernel)), None),
        body,
    )
    .await
}

async fn posted(client: &HttpClient, body: impl Into<String>) -> (StatusCode, Value) {
    let answer = client.post(body.into()).await;
    let status = answer.status;
    (
        status,
        serde_json::from_str(&answer.text().await).unwrap_or_default(),
    )
}

async fn kernel_with(sections: &str, flags: &[&str]) -> Kernel {
    let entry = Program::fixture(flags).entry("it");
    let kernel = Kernel::start(&format!("{sections}\n{entry}")).await;
    kernel.connected(&["it"]).await;
    kernel
}

/// LITE-002, LITE-005, LITE-007: each tool is an operation with its own schema, and is called by the object of its
/// arguments; statuses say what an envelope would.
#[tokio::test]
async fn every_tool_of_the_document_can_be_called_by_its_path() {
    let odd = json!({ "name": "odd", "inputSchema": { "type": "object" } }).to_string();
    let kernel = kernel_with("", &["--tool", &odd]).await;
    let document = document(&kernel, None).await;
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["servers"][0]["url"], base(&kernel));
    assert!(document.get("security").is_none(), "the door is open");
    let echo = &document["paths"]["/tools/it__echo"]["post"];
    assert_eq!(echo["operationId"], "it__echo");
    let schema = echo["requestBody"]["content"]["application/json"]["schema"]["$ref"].as_str();
    let schema = document
        .pointer(schema.unwrap().trim_start_matches('#'))
        .unwrap();
    assert_eq!(schema["properties"]["text"]["type"], "string");
    assert!(document["paths"]["/tools/redeem"].is_object());

    let (status, answer) = called(&kernel, "it__echo", r#"{"text":"hi"}"#).await;
    assert_eq!(
        (status, &answer["content"][0]["text"]),
        (StatusCode::OK, &json!("hi"))
    );
    assert_eq!(answer["_meta"]["response_type"], "answer");
    assert!(answer.get("jsonrpc").is_none(), "{answer}");
    let (status, answer) = called(&kernel, "it%5F_structured_echo", r#"{"text":"hi"}"#).await;
    assert_eq!(
        (status, &answer["structuredContent"]),
        (StatusCode::OK, &json!({"text": "hi"}))
    );
    let (status, answer) = called(&kernel, "it__test_error_handling", "{}").await;
    assert_eq!(
        (status, &answer["_meta"]["response_type"]),
        (StatusCode::OK, &json!("failure"))
    );

    for (tool, body, status, code) in [
        ("it__echo", r#"{"text":7}"#, 400, -32602),
        ("it__echo", "[]", 400, -32602),
        ("it__echo", "{", 400, -32700),
        ("it__ecko", "{}", 404, -32601),
        ("%ff", "{}", 404, -32601),
        ("redeem", r#"{"promise":"guessed"}"#, 400, -32602),
    ] {
        let (came, answer) = called(&kernel, tool, body).await;
        assert_eq!(
            (came.as_u16(), &answer["error"]["code"]),
            (status, &json!(code)),
            "{tool} {body} {answer}"
        );
    }
    let mut plain = client(&format!("{}/tools/it__echo", base(&kernel)), None);
    let wrong = plain.send(Method::GET, "").await.unwrap();
    assert_eq!(
        (wrong.status, &wrong.headers[ALLOW]),
        (StatusCode::METHOD_NOT_ALLOWED, &"POST".parse().unwrap())
    );
    plain.set(CONTENT_TYPE, "text/plain");
    assert_eq!(
        plain.post(r#"{"text":"hi"}"#).await.status,
        StatusCode::UNSUPPORTED_MEDIA_TYPE
    );
}

/// LITE-012, LITE-013, LITE-018: what is not finished is 202, with what leads on from there.
#[tokio::test]
async fn promises_and_questions_of_a_path_are_not_finished_and_lead_on() {
    let kernel = kernel_with("", &[]).await;
    let mut slow = client(&format!("{}/tools/it__slow", base(&kernel)), None);
    slow.set(HeaderName::from_static("prefer"), "respond-async");
    let (status, promise) = posted(&slow, r#"{"ms":50}"#).await;
    assert_eq!(
        (status, &promise["_meta"]["response_type"]),
        (StatusCode::ACCEPTED, &json!("promise"))
    );
    let redeem = json!({ "promise": promise["_meta"]["promise_token"] }).to_string();
    let (status, answer) = called(&kernel, "redeem", redeem).await;
    assert_eq!(
        (status, &answer["content"][0]["text"]),
        (StatusCode::OK, &json!("slept")),
        "{answer}"
    );

    let (status, asked) = called(&kernel, "it__test_elicitation", r#"{"message":"Who?"}"#).await;
    assert_eq!(
        (status, &asked["_meta"]["response_type"]),
        (StatusCode::ACCEPTED, &json!("elicitation"))
    );
    assert_eq!(asked["_meta"]["elicitation"]["message"], "Who?");
    let properties = asked["_meta"]["elicitation"]["requestedSchema"]["properties"]
        .as_object()
        .unwrap();
    let mut again: Value = json!({ "message": "Who?" });
    for name in properties.keys() {
        again[name] = "ada@example.com".into();
    }
    let mut resumed = client(
        &format!("{}/tools/it__test_elicitation", base(&kernel)),
        None,
    );
    let continuation = asked["_meta"]["continuation"].as_str().unwrap();
    resumed.set(
        HeaderName::from_static("mcp-lite-continuation"),
        continuation,
    );
    let (status, answer) = posted(&resumed, again.to_string()).await;
    assert_eq!(
        (status, &answer["_meta"]["response_type"]),
        (StatusCode::OK, &json!("answer")),
        "{answer}"
    );
    assert!(
        answer["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("ada@example.com"),
        "{answer}"
    );
}

/// LITE-077: a document names what its reader may call, all of it, and nothing else; a tool that is denied reads like
/// one that is not there.
#[tokio::test]
async fn openapi_document_lists_the_tools_its_reader_may_call() {
    let entry = Program::fixture(&["--tools", "60"]).entry("it");
    let set = "[sets.few]\ntools = [\"it:echo\"]\n";
    let discovery = "[discovery]\nembedding = \"off\"\n";
    let door = "[http]\nlisten = \"127.0.0.1:0\"\n";
    let kernel = Kernel::with_config(&format!("{door}{discovery}{set}{entry}")).await;
    kernel.connected(&["it"]).await;
    let mut tokens = Vec::new();
    for name in ["reader", "other"] {
        let made = kernel.mgp_json(&["agents", "add", name]).await;
        tokens.push(made["token"].as_str().unwrap().to_owned());
    }
    kernel
        .mgp(&["grants", "add", "reader", "it:echo", "--deny"])
        .await;
    let [reader, other] = [0, 1].map(|n| Some(tokens[n].as_str()));

    let theirs = document(&kernel, other).await;
    let paths = theirs["paths"].as_object().unwrap();
    assert!(paths.contains_key("/tools/it__echo") && paths.contains_key("/tools/it__echo_59"));
    assert_eq!(theirs["security"], json!([{ "bearer": [] }]));
    let own = document(&kernel, reader).await;
    assert_eq!(own["paths"].as_object().unwrap().len(), paths.len() - 1);
    assert!(!own.to_string().contains("it__echo\""), "it is denied");
    let call = |tool: &str, token| client(&format!("{}/tools/{tool}", base(&kernel)), token);
    let (denied, words) = posted(&call("it__echo", reader), r#"{"text":"x"}"#).await;
    let (unknown, other_words) = posted(&call("it__ecko", reader), r#"{"text":"x"}"#).await;
    assert_eq!(
        (denied, &words["error"]["message"]),
        (unknown, &other_words["error"]["message"])
    );
    assert_eq!(denied, StatusCode::NOT_FOUND);

    let few = client(&format!("{}/p/few/openapi.json", base(&kernel)), other);
    let (status, few) = got(&few).await;
    assert_eq!(status, StatusCode::OK, "{few}");
    let names: Vec<&String> = few["paths"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["/tools/redeem", "/tools/it__echo"]);
    let url = few["servers"][0]["url"].as_str().unwrap();
    assert!(url.ends_with("/mcp-lite/v1/p/few"), "{url}");
    let within = client(&format!("{url}/tools/it__echo"), other);
    assert_eq!(posted(&within, r#"{"text":"x"}"#).await.0, StatusCode::OK);

    let nobody = client(&format!("{}/openapi.json", base(&kernel)), None);
    assert_eq!(got(&nobody).await.0, StatusCode::UNAUTHORIZED);
    let mut elsewhere = client(&format!("{}/openapi.json", base(&kernel)), other);
    elsewhere.set(HOST, "evil.example");
    assert_eq!(got(&elsewhere).await.0, StatusCode::FORBIDDEN);
}

/// Decision 65: a client that has the document is not sent it again, until something of it changes.
#[tokio::test]
async fn a_document_that_is_known_is_not_sent_again() {
    let kernel = kernel_with("", &["--bare"]).await;
    let mut reader = client(&format!("{}/openapi.json", base(&kernel)), None);
    let first = reader.send(Method::GET, "").await.unwrap();
    let tag = first.headers[ETAG].to_str().unwrap().to_owned();
    let text = first.text().await;
    for known in [
        tag.clone(),
        format!("W/{tag}"),
        format!("\"a\", {tag}"),
        "*".to_owned(),
    ] {
        reader.set(IF_NONE_MATCH, &known);
        let again = reader.send(Method::GET, "").await.unwrap();
        assert_eq!(
            (again.status, again.headers[ETAG].to_str().unwrap()),
            (StatusCode::NOT_MODIFIED, &*tag),
            "{known}"
        );
        assert_eq!(again.text().await, "");
    }
    kernel.mgp(&["tools", "call", "it:grow"]).await;
    mgp_tests::harness::wait_until("the document changes", DEADLINE, async || {
        reader.set(IF_NONE_MATCH, &tag);
        reader.send(Method::GET, "").await.unwrap().status == StatusCode::OK
    })
    .await;
    reader.headers.remove(IF_NONE_MATCH);
    assert_ne!(
        reader.send(Method::GET, "").await.unwrap().text().await,
        text
    );
}

/// Decision 65: the validator of the specification takes the document, whatever servers write into their definitions.
#[tokio::test]
async fn the_document_is_valid_whatever_servers_write() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let of = |name: &str, schema: Value| json!({ "name": name, "inputSchema": schema }).to_string();
    let definitions = [
        of("Read-File", json!({ "type": "object" })),
        of("read file {x}/..", json!({ "type": "object" })),
        of(
            "read_file",
            json!({ "type": "object", "properties": { "$ref": { "type": "string" } } }),
        ),
        of(
            "out",
            json!({ "type": "object", "properties": { "a": { "$ref": "file:///etc/passwd" } } }),
        ),
        of(
            "old",
            json!({
                "$schema": "http://json-schema.org/draft-07/schema#",
                "type": "object",
                "properties": {
                    "pair": { "items": [{ "type": "string" }], "additionalItems": false },
                    "n": { "$ref": "#/definitions/n" },
                    "tree": { "$ref": "#" },
                },
                "definitions": { "n": { "type": "number", "exclusiveMinimum": 0 } },
                "dependencies": { "n": ["pair"] },
            }),
        ),
        of(
            "loop",
            json!({
                "type": "object",
                "properties": { "a": { "$ref": "#/$defs/A" } },
                "$defs": { "A": { "allOf": [{ "$ref": "#/$defs/A" }] } },
            }),
        ),
        of(
            "words",
            json!({ "type": "object", "required": "x", "properties": { "a": { "enum": [] } } }),
        ),
    ];
    let flags: Vec<&str> = definitions.iter().flat_map(|one| ["--tool", one]).collect();
    let kernel = kernel_with("", &[&["--bad-schema"], &flags[..]].concat()).await;
    let document = document(&kernel, None).await;
    assert!(!document.to_string().contains("passwd"));
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("openapi.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let validator = peers.python("openapi_spec_validator", &[&file.display().to_string()]);
    let output = validator.output(DEADLINE).await;
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{told}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // One of each kind is called by the path in the document.
    for (path, operation) in document["paths"].as_object().unwrap() {
        if operation["post"]["tags"][0] == "it" && path.contains("read") {
            let url = format!("{}{path}", base(&kernel));
            let (status, answer) = posted(&client(&url, None), "{}").await;
            assert_eq!(status, StatusCode::OK, "{path}: {answer}");
        }
    }
}
