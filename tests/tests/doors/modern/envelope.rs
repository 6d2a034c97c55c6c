//! 2026-07-28 over HTTP: what a request must bring along, and what it gets when it does not.

use http::header::{ALLOW, HeaderName};
use http::{Method, StatusCode};
use mgp_tests::harness::HttpClient;
use mgp_tests::harness::envelope::{
    CLIENT_CAPABILITIES, CLIENT_INFO, MODERN, PROTOCOL_VERSION, SERVER_INFO, encode,
};
use mgp_tests::harness::http::{SESSION, VERSION};
use serde_json::{Value, json};

use crate::scene::{self, Modern, counts};

/// Headers that do not say what the body says are refused before anything reaches a server; the
/// error names the header and keeps the id.
#[tokio::test]
async fn a_header_that_differs_from_the_body_is_refused() {
    let kernel = scene::kernel().await;
    let mut modern = Modern::at(&kernel.server_url("it"), "{}");
    let (_, list) = modern.ask("tools/list", json!({})).await;
    modern.envelope.learn(&list["result"]);
    let tool = "test_x_mcp_header";
    for (header, spoilt) in [
        ("mcp-protocol-version", None),
        ("mcp-protocol-version", Some("2025-11-25")),
        ("mcp-method", None),
        ("mcp-method", Some("tools/list")),
        ("mcp-method", Some("TOOLS/CALL")),
        ("mcp-name", None),
        ("mcp-name", Some("echo")),
        ("mcp-name", Some("=?base64?!?=")),
        ("mcp-param-region", None),
        ("mcp-param-region", Some("us-east1")),
    ] {
        let mut request = modern.call("mine", tool, json!({"region": "us-west1"}));
        match spoilt {
            Some(value) => request.set(header, value),
            None => drop(request.headers.remove(header)),
        }
        let (status, answer) = modern.put(&request).await;
        let case = format!("{header}: {spoilt:?}: {answer}");
        assert_eq!(status, StatusCode::BAD_REQUEST, "{case}");
        assert_eq!(answer["error"]["code"], -32020, "{case}");
        assert_eq!(answer["id"], "mine", "{case}");
        let words = answer["error"]["message"].as_str().unwrap();
        assert!(words.to_lowercase().contains(header), "{case}");
    }
    let mut watcher = scene::socket_agent(&kernel, "{}").await;
    let calls = counts(&mut watcher, "it:count").await["calls"].take();
    assert_eq!(calls.get(tool), None);
    // An argument that is not there has no header either.
    let mut request = modern.call(1, tool, json!({"region": "us-west1"}));
    request.body["params"]["arguments"] = json!({});
    let (status, answer) = modern.put(&request).await;
    assert_eq!(
        (status.as_u16(), &answer["error"]["code"]),
        (400, &json!(-32020))
    );
}

/// What cannot stand in a header comes coded; what can, may.
#[tokio::test]
async fn a_header_may_be_coded() {
    let kernel = scene::kernel().await;
    let mut modern = Modern::at(&kernel.server_url("it"), "{}");
    let (_, list) = modern.ask("tools/list", json!({})).await;
    modern.envelope.learn(&list["result"]);
    for region in ["us-west1", "Zürich", " padded ", "a\nb", ""] {
        let request = modern.call(1, "test_x_mcp_header", json!({"region": region}));
        let (status, answer) = modern.put(&request).await;
        assert_eq!(status, StatusCode::OK, "{region:?}: {answer}");
        assert!(answer["result"].is_object(), "{region:?}: {answer}");
    }
    let mut request = modern.call(1, "echo", json!({"text": "x"}));
    request.set("mcp-name", "=?base64?ZWNobw==?=");
    assert_eq!(modern.put(&request).await.0, StatusCode::OK);
    assert_eq!(encode("é"), "=?base64?w6k=?=");
}

/// `_meta` says which version a request is written in and what its client can do; who the client
/// is need not be said.
#[tokio::test]
async fn an_envelope_that_is_not_whole_is_refused() {
    let kernel = scene::kernel().await;
    let modern = Modern::at(kernel.url(), "{}");
    let spoilt = |spoil: &dyn Fn(&mut Value)| {
        let mut request = modern.request("mine", "tools/list", json!({}));
        spoil(&mut request.body["params"]);
        request
    };
    let without = |key: &'static str| {
        spoilt(&move |params| {
            params["_meta"].as_object_mut().unwrap().remove(key);
        })
    };
    let no_meta = spoilt(&|params| {
        params.as_object_mut().unwrap().remove("_meta");
    });
    for (what, request) in [
        ("_meta", no_meta),
        ("_meta", spoilt(&|params| params["_meta"] = json!(7))),
        ("protocolVersion", without(PROTOCOL_VERSION)),
        ("clientCapabilities", without(CLIENT_CAPABILITIES)),
        (
            "clientCapabilities",
            spoilt(&|params| params["_meta"][CLIENT_CAPABILITIES] = json!([])),
        ),
        (
            "protocolVersion",
            spoilt(&|params| params["_meta"][PROTOCOL_VERSION] = json!(7)),
        ),
    ] {
        let (status, answer) = modern.put(&request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{what}: {answer}");
        assert_eq!(answer["error"]["code"], -32602, "{what}: {answer}");
        assert_eq!(answer["id"], "mine", "{what}");
        let words = answer["error"]["message"].as_str().unwrap();
        assert!(words.contains(what), "{what}: {words}");
    }
    let (status, answer) = modern.put(&without(CLIENT_INFO)).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

/// A version nobody knows is answered with those that are; a legacy version is reached by its
/// handshake and not by naming it.
#[tokio::test]
async fn unknown_version_is_rejected_with_the_supported_ones() {
    let kernel = scene::kernel().await;
    let mut modern = Modern::at(kernel.url(), "{}");
    let (_, discovered) = modern.ask("server/discover", json!({})).await;
    let supported = discovered["result"]["supportedVersions"].clone();
    for version in ["2031-01-01", "2025-11-25", "1.0"] {
        modern.envelope.version = version.to_owned();
        let (status, answer) = modern.ask("tools/list", json!({})).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{version}: {answer}");
        let error = &answer["error"];
        assert_eq!(error["code"], -32022, "{version}");
        assert_eq!(error["data"]["requested"], version);
        assert_eq!(error["data"]["supported"], supported);
    }
}

/// `server/discover` says all that `initialize` did, for no longer than it holds.
#[tokio::test]
async fn discover_returns_what_initialize_does() {
    let kernel = scene::kernel().await;
    for url in [kernel.url().to_owned(), kernel.server_url("it")] {
        let modern = Modern::at(&url, "{}");
        let (status, answer) = modern.ask("server/discover", json!({})).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        let result = &answer["result"];
        assert_eq!(result["resultType"], "complete");
        assert_eq!(result["supportedVersions"], json!([MODERN]));
        for capability in ["tools", "prompts", "resources", "completions", "logging"] {
            assert!(
                result["capabilities"][capability].is_object(),
                "{capability}"
            );
        }
        assert!(result["ttlMs"].is_u64() && result["cacheScope"].is_string());
        assert!(result["_meta"][SERVER_INFO]["name"].is_string());
        assert!(result.get("serverInfo").is_none());
        assert!(result["instructions"].as_str().unwrap().contains("Fixture"));
    }
}

/// What nobody offers, and what this version no longer has, is 404.
#[tokio::test]
async fn a_method_that_is_not_there_is_404() {
    let kernel = scene::kernel().await;
    let modern = Modern::at(kernel.url(), "{}");
    for method in [
        "foo/bar",
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/result",
        "tasks/list",
        "mgp/servers/list",
    ] {
        let (status, answer) = modern.ask(method, json!({})).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{method}: {answer}");
        assert_eq!(answer["error"]["code"], -32601, "{method}");
        assert_eq!(answer["id"], "an id", "{method}");
    }
}

/// There is nothing to GET and nothing to DELETE.
#[tokio::test]
async fn get_and_delete_are_405() {
    let kernel = scene::kernel().await;
    let mut client = HttpClient::new(kernel.url());
    client.set(VERSION, MODERN);
    for verb in [Method::GET, Method::DELETE] {
        let answer = client.send(verb.clone(), "").await.unwrap();
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{verb}");
        let allowed = scene::header(&answer.headers, ALLOW.as_str()).to_owned();
        assert!(allowed.contains("POST"), "{allowed}");
    }
}

/// What belongs to sessions and to streams that can be resumed means nothing here, and none is
/// begun.
#[tokio::test]
async fn sessions_and_event_ids_mean_nothing() {
    let kernel = scene::kernel().await;
    let mut modern = Modern::at(&kernel.server_url("it"), "{}");
    modern.client.set(SESSION, "no-such-session");
    let last = HeaderName::from_static("last-event-id");
    modern.client.set(last, "nothing_7");
    let request = modern.call(1, "progress", json!({"steps": 3, "ms": 40}));
    let answer = modern.client.put(&request).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(!answer.headers.contains_key(SESSION));
    assert!(answer.is_stream());
    assert_eq!(scene::header(&answer.headers, "x-accel-buffering"), "no");
    let mut events = answer.events();
    while let Some(event) = events.next().await {
        assert_eq!(event.id, None);
        assert_eq!(event.retry, None);
    }
}

/// A notification is taken without a word; an answer is none, since nothing was asked; several
/// messages at once are none.
#[tokio::test]
async fn only_single_requests_are_answered() {
    let kernel = scene::kernel().await;
    let mut modern = Modern::at(kernel.url(), "{}");
    let post = async |body: Value, modern: &Modern| {
        let answer = modern.client.post(body.to_string()).await;
        (answer.status, answer.text().await)
    };
    modern.client.set(VERSION, MODERN);
    let told = json!({"jsonrpc": "2.0", "method": "notifications/anything"});
    assert_eq!(
        post(told, &modern).await,
        (StatusCode::ACCEPTED, String::new())
    );
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    assert_eq!(post(answer, &modern).await.0, StatusCode::BAD_REQUEST);
    let batch = json!([modern.request(1, "tools/list", json!({})).body]);
    assert_eq!(post(batch, &modern).await.0, StatusCode::BAD_REQUEST);
    let broken = modern.client.post(r#"{"jsonrpc":"2.0","id":1,"#).await;
    assert_eq!(broken.status, StatusCode::BAD_REQUEST);
    assert!(broken.text().await.contains("-32700"));
}

/// Both eras live at one endpoint, for one client even, and do not meet.
#[tokio::test]
async fn both_eras_share_an_endpoint() {
    let kernel = scene::kernel().await;
    let mut legacy = scene::http_agent(&kernel, None, "{}").await;
    let modern = Modern::at(kernel.url(), "{}");
    for _ in 0..3 {
        let (status, answer) = modern
            .put(&modern.call(1, "it:echo", json!({"text": "a"})))
            .await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(answer["result"]["resultType"], "complete");
        let old = legacy.call("it:echo", json!({"text": "a"})).await.result();
        assert_eq!(old.get("resultType"), None);
        assert_eq!(old["content"], answer["result"]["content"]);
    }
}
