//! The card of the gateway (SEP-2127, a draft), for clients that have not connected yet.

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{Method, StatusCode};
use mgp_tests::harness::http::HttpAnswer;
use mgp_tests::harness::{HttpClient, Kernel, Program};
use serde_json::{Value, json};

const LISTEN: &str = "[http]\nlisten = \"127.0.0.1:0\"\n";

fn client(kernel: &Kernel, path: &str) -> HttpClient {
    let base = kernel.url().strip_suffix("/mcp").unwrap();
    let mut client = HttpClient::new(&format!("{base}{path}"));
    client.set(ACCEPT, "application/mcp-server-card+json");
    client
}

async fn read(client: &HttpClient) -> HttpAnswer {
    client.send(Method::GET, Bytes::new()).await.unwrap()
}

/// EXT-203: a card with a name, an address and versions is there for everybody once the operator names it, with a list of
/// cards. It says nothing of what is behind the gateway, and can be revalidated. Requests of MCP at its path are for a server
/// of that name, as ever.
#[tokio::test]
async fn card_is_published_once_the_operator_names_it() {
    let named = format!("{LISTEN}server_card = \"com.example/gateway\"\n");
    let secret = Program::fixture(&["--bare"]).entry("secret");
    let kernel = Kernel::with_config(&format!("{named}{secret}")).await;
    kernel.connected(&["secret"]).await;
    let mut card = client(&kernel, "/mcp/server-card");
    let answer = read(&card).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(
        answer.headers[CONTENT_TYPE],
        "application/mcp-server-card+json"
    );
    assert_eq!(answer.headers[CACHE_CONTROL], "public, max-age=3600");
    let tag = answer.headers[ETAG].to_str().unwrap().to_owned();
    let text = answer.text().await;
    let parsed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(parsed["name"], "com.example/gateway");
    let remote = json!({"type": "streamable-http", "url": kernel.url(), "supportedProtocolVersions":
        ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]});
    assert_eq!(parsed["remotes"], json!([remote]));
    assert!(!text.contains("secret"), "{text}");
    for (known, status) in [
        (tag.clone(), StatusCode::NOT_MODIFIED),
        (format!("\"x\", W/{tag}"), StatusCode::NOT_MODIFIED),
        ("\"x\"".to_owned(), StatusCode::OK),
    ] {
        card.set(IF_NONE_MATCH, &known);
        assert_eq!(read(&card).await.status, status, "{known}");
    }
    let catalog = read(&client(&kernel, "/.well-known/ai-catalog.json")).await;
    assert_eq!(catalog.headers[CONTENT_TYPE], "application/ai-catalog+json");
    let catalog: Value = serde_json::from_str(&catalog.text().await).unwrap();
    let entry = json!({"identifier": "urn:air:example.com:mcp:gateway",
        "type": "application/mcp-server-card+json", "url": format!("{}/server-card", kernel.url())});
    assert_eq!(catalog["entries"], json!([entry]));
    card.set(ACCEPT, "text/event-stream");
    assert_eq!(read(&card).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(card.post("{}").await.status, StatusCode::UNAUTHORIZED);
    let plain = Kernel::with_config(LISTEN).await;
    for (path, status) in [
        ("/mcp/server-card", StatusCode::UNAUTHORIZED),
        ("/.well-known/ai-catalog.json", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(read(&client(&plain, path)).await.status, status, "{path}");
    }
}
