//! Icons of tools that clients load from the kernel (SEP-973).

use bytes::Bytes;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{Method, StatusCode};
use mgp_tests::harness::http::HttpAnswer;
use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{
    Agent, DEADLINE, HttpClient, Kernel, ModernAgent, Program, Upstream, wait_until,
};
use serde_json::{Value, json};

const SVG: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg'/%3E";

/// The icon of a tool of that name, as this agent sees it.
async fn icon(agent: &mut Agent, tool: &str) -> Option<String> {
    let list = agent.request("tools/list", json!({})).await.result();
    let tools = list["tools"].as_array().unwrap().iter();
    let mut named = tools.filter(|it| it["name"] == *tool);
    let icon: &Value = &named.next()?["icons"][0]["src"];
    Some(icon.as_str().unwrap().to_owned())
}

async fn load(url: &str) -> HttpAnswer {
    let client = HttpClient::new(url);
    client.send(Method::GET, Bytes::new()).await.unwrap()
}

/// Offers `test_dynamic_tool` of a server with this icon.
async fn offer(kernel: &Kernel, server: &str, icon: &str) {
    let mut agent = kernel.http_agent(Some(server));
    agent.initialize("2025-11-25", "{}").await;
    let new = json!({"description": "Has an icon", "icon": icon});
    agent.call("redefine", new).await.result();
}

/// EXT-235, EXT-236: clients over HTTP load icons from the address they are connected to: those in `data:` URIs, and those
/// at the server's own address, without credentials. Over stdio, and for every other address, they stay as they came.
#[tokio::test]
async fn icons_have_the_address_of_the_kernel() {
    let upstream = Upstream::start(&[]).await;
    let origin = format!("http://127.0.0.1:{}", upstream.port());
    let headers = "headers = { Authorization = \"Bearer secret\" }\n";
    let own = remote_entry("own", &upstream.url()) + headers;
    let drawn =
        json!({"name": "drawn", "inputSchema": {"type": "object"}, "icons": [{"src": SVG}]});
    let drawn = drawn.to_string();
    let flags = ["--bare", "--tool", &drawn];
    let config = own + &Program::fixture(&flags).entry("inline");
    let kernel = Kernel::start(&config).await;
    kernel.connected(&["own", "inline"]).await;
    let path = format!("{origin}/icon.png");
    offer(&kernel, "own", &path).await;
    let other = format!("{origin}/other.png");
    offer(&kernel, "inline", &other).await;
    let base = kernel.url().strip_suffix("/mcp").unwrap().to_owned();

    let mut agent = kernel.http_agent(None);
    agent.initialize("2025-11-25", "{}").await;
    wait_until("the icons have arrived", DEADLINE, async || {
        icon(&mut agent, "own__test_dynamic_tool").await.is_some()
            && icon(&mut agent, "inline__test_dynamic_tool")
                .await
                .is_some()
    })
    .await;
    let svg = icon(&mut agent, "inline__drawn").await.unwrap();
    assert!(svg.starts_with(&format!("{base}/icons/")), "{svg}");
    let answer = load(&svg).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers[CONTENT_TYPE], "image/svg+xml");
    assert_eq!(answer.headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
    let policy = answer.headers[CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(
        policy.contains("default-src 'none'") && policy.ends_with("sandbox"),
        "{policy}"
    );
    assert_eq!(
        answer.text().await,
        "<svg xmlns='http://www.w3.org/2000/svg'/>"
    );

    let png = icon(&mut agent, "own__test_dynamic_tool").await.unwrap();
    assert!(png.starts_with(&format!("{base}/icons/")), "{png}");
    let answer = load(&png).await;
    assert_eq!(
        (answer.status, &answer.headers[CONTENT_TYPE]),
        (StatusCode::OK, &"image/png".parse().unwrap())
    );
    let stranger = icon(&mut agent, "inline__test_dynamic_tool").await;
    assert_eq!(
        stranger.as_deref(),
        Some(&*other),
        "another server's address"
    );

    let mut one = kernel.http_agent(Some("inline"));
    one.initialize("2025-06-18", "{}").await;
    assert_eq!(icon(&mut one, "drawn").await.as_deref(), Some(&*svg));
    let mut modern = ModernAgent::over_http(kernel.url(), "{}");
    let list = modern.request("tools/list", json!({})).await.result();
    assert!(list.to_string().contains(&svg), "{list}");
    let mut lines = kernel.stdio_agent(None);
    lines.initialize("2025-11-25", "{}").await;
    assert_eq!(
        icon(&mut lines, "inline__drawn").await.as_deref(),
        Some(SVG)
    );
    for unknown in ["00000000000000000000000000000000", "", "../healthz"] {
        assert_eq!(
            load(&format!("{base}/icons/{unknown}")).await.status,
            StatusCode::NOT_FOUND
        );
    }
}
