//! What a request to the HTTP door must say in its headers, and what it must not.

use http::header::{ACCEPT, ALLOW, CONTENT_TYPE, HOST, ORIGIN};
use http::{Method, StatusCode};
use mgp_tests::harness::handshake::initialize;
use mgp_tests::harness::{HttpClient, Kernel};
use serde_json::json;

use crate::scene::{self, NEWEST, header, request};

/// MCP-076: a message is JSON and says so.
#[tokio::test]
async fn a_post_without_json_content_type_is_415() {
    let kernel = Kernel::start("").await;
    let mut client = HttpClient::new(kernel.url());
    for wrong in [
        "text/plain",
        "application/jsonp",
        "application/x-www-form-urlencoded",
        "",
    ] {
        client.set(CONTENT_TYPE, wrong);
        let answer = client.post(initialize(NEWEST, "{}")).await;
        assert_eq!(
            answer.status,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "{wrong:?}"
        );
        assert!(
            answer
                .text()
                .await
                .contains("Content-Type: application/json")
        );
    }
    client.headers.remove(CONTENT_TYPE);
    let answer = client.post(initialize(NEWEST, "{}")).await;
    assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    for right in ["application/json", "Application/JSON; charset=utf-8"] {
        client.set(CONTENT_TYPE, right);
        assert_eq!(
            client.post(initialize(NEWEST, "{}")).await.status,
            200,
            "{right}"
        );
    }
}

/// MCP-077: a POST takes JSON and streams, a GET takes streams, and they say so.
#[tokio::test]
async fn a_client_that_does_not_accept_both_kinds_is_406() {
    let kernel = Kernel::start("").await;
    let mut client = scene::session(&kernel, NEWEST).await;
    let list = || request(1, "tools/list", json!({}));
    for wrong in [
        "application/json",
        "text/event-stream",
        "text/html",
        "application/*",
    ] {
        client.set(ACCEPT, wrong);
        assert_eq!(
            client.post(list()).await.status,
            StatusCode::NOT_ACCEPTABLE,
            "{wrong}"
        );
    }
    for right in [
        "text/event-stream, application/json;q=0.5",
        "*/*",
        "text/*, application/*",
    ] {
        client.set(ACCEPT, right);
        assert_eq!(client.post(list()).await.status, StatusCode::OK, "{right}");
    }
    client.set(ACCEPT, "application/json");
    let answer = client.send(Method::GET, "").await.unwrap();
    assert_eq!(answer.status, StatusCode::NOT_ACCEPTABLE);
}

/// MCP-080: a page of another origin, be it one of another port of this machine, or a name that leads
/// here by DNS rebinding, gets nothing.
#[tokio::test]
async fn a_foreign_host_or_origin_is_403() {
    let kernel = scene::kernel().await;
    let client = scene::session(&kernel, NEWEST).await;
    let hosts = [
        "evil.example",
        "127.0.0.1.evil.example",
        "evil.example:80",
        "10.0.0.1",
        "localhost@evil.example",
    ];
    let origins = [
        "http://localhost:3000",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "https://[::1]:1",
        "https://evil.example",
        "http://localhost.evil.example",
        "null",
        "file://",
    ];
    let hosts = hosts.map(|host| (HOST, host)).into_iter();
    for (name, value) in hosts.chain(origins.map(|origin| (ORIGIN, origin))) {
        let mut foreign = client.clone();
        foreign.set(name, value);
        for answer in [
            foreign.post(request(1, "tools/list", json!({}))).await,
            foreign.get(None).await,
            foreign.delete().await,
        ] {
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{value}");
        }
    }
    let own = kernel.url().trim_end_matches("/mcp");
    let mut page = client.clone();
    page.set(ORIGIN, own);
    let answer = page.post(request(1, "ping", json!({}))).await;
    assert_eq!(answer.status, StatusCode::OK, "{own}");
}

/// MCP-080: hosts and origins that were configured are let in beside the machine's own.
#[tokio::test]
async fn configured_hosts_and_origins_are_accepted() {
    let config = "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n\
        allowed_hosts = [\"gate.example\"]\nallowed_origins = [\"https://app.example\"]\n";
    let kernel = Kernel::with_config(config).await;
    let mut client = HttpClient::new(kernel.url());
    client.set(HOST, "gate.example");
    client.set(ORIGIN, "https://app.example");
    assert_eq!(
        client.post(initialize(NEWEST, "{}")).await.status,
        StatusCode::OK
    );
    client.set(ORIGIN, "https://other.example");
    assert_eq!(
        client.post(initialize(NEWEST, "{}")).await.status,
        StatusCode::FORBIDDEN
    );
}

/// MCP-073, MCP-074, CMCP-017: one endpoint for everything, one for each server, three verbs.
#[tokio::test]
async fn other_paths_are_404_and_other_verbs_405() {
    let kernel = scene::kernel().await;
    let base = kernel.url().strip_suffix("/mcp").unwrap();
    for path in ["/mcpx", "/mcp/nobody", "/mcp/it/more", "/messages"] {
        let client = HttpClient::new(&format!("{base}{path}"));
        let answer = client.post(initialize(NEWEST, "{}")).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert!(!answer.text().await.is_empty(), "{path}");
    }
    for path in ["/mcp", "/mcp/it"] {
        let client = HttpClient::new(&format!("{base}{path}"));
        for verb in [Method::PUT, Method::PATCH, Method::OPTIONS] {
            let answer = client.send(verb, "").await.unwrap();
            assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
            assert_eq!(answer.headers[ALLOW], "GET, POST, DELETE");
        }
    }
    let healthy = HttpClient::new(&format!("{base}/healthz"));
    assert_eq!(
        healthy.send(Method::GET, "").await.unwrap().status,
        StatusCode::OK
    );
}

/// CMCP-018, CMCP-019: what a notification and a request are answered with.
#[tokio::test]
async fn a_notification_is_202_without_body_and_a_request_200_with_one() {
    let kernel = scene::kernel().await;
    let client = scene::session(&kernel, NEWEST).await;
    let told = client
        .post(r#"{"jsonrpc":"2.0","method":"notifications/anything"}"#)
        .await;
    assert_eq!(told.status, StatusCode::ACCEPTED);
    assert_eq!(told.text().await, "");
    let asked = client.post(request(7, "tools/list", json!({}))).await;
    assert_eq!(asked.status, StatusCode::OK);
    assert_eq!(header(&asked.headers, "content-type"), "application/json");
    assert!(
        asked
            .text()
            .await
            .starts_with(r#"{"jsonrpc":"2.0","id":7,"result":{"tools":["#)
    );
}

/// MCP-081, MCP-082: the door is on loopback, and a configuration that opens it wider is refused.
#[tokio::test]
async fn http_endpoint_beyond_loopback_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let file = folder.path().join("mgp.toml");
        std::fs::write(&file, format!("[http]\nlisten = \"{listen}\"\n")).unwrap();
        let up = mgp_tests::harness::Program::ours("mgp", ["up"])
            .env("MGP_CONFIG_PATH", file.display().to_string())
            .env(
                "MGP_DATA_DIR",
                folder.path().join("data").display().to_string(),
            )
            .env("MGP_SOCKET", folder.path().join("s").display().to_string());
        let output = up.output(mgp_tests::harness::DEADLINE).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{listen}: {said}");
        assert!(
            said.contains("mgp.toml:2:10") && said.contains("listen on 127.0.0.1"),
            "{said}"
        );
    }
}
