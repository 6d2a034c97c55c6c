//! `pass_headers`: headers of an agent's request that one server is handed.

use http::HeaderName;
use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{Agent, HttpClient, Kernel, Upstream};
use serde_json::{Value, json};

use crate::scene::{NEWEST, request};

/// The headers of the last requests that reached a server.
async fn heads(agent: &mut Agent, id: &str) -> String {
    let seen = agent
        .call(&format!("{id}:received"), json!({"last": 50}))
        .await;
    seen.result()["structuredContent"]["heads"]
        .to_string()
        .to_lowercase()
}

/// Decision 0061: a server gets the headers that its entry names, of the request that made the call, and no other
/// one does; the record has their names; an agent on the socket has none.
#[tokio::test]
async fn named_headers_reach_the_server_that_names_them() {
    let (modern, legacy, other) = tokio::join!(
        Upstream::start(&[]),
        Upstream::start(&["--era", "legacy"]),
        Upstream::start(&[])
    );
    let passes = "pass_headers = [\"X-Tenant\", \"Cookie\"]\n";
    let entries = [
        remote_entry("modern", &modern.url()) + passes,
        remote_entry("legacy", &legacy.url()) + passes,
        remote_entry("other", &other.url()),
    ];
    let kernel = Kernel::start(&entries.concat()).await;
    kernel.connected(&["modern", "legacy", "other"]).await;
    let mut client = HttpClient::new(kernel.url());
    client.open_session(NEWEST, "{}").await;
    for (name, value) in [
        ("x-tenant", "acme-of-ours"),
        ("cookie", "sid=jar-of-ours"),
        ("x-other", "nobody-names-it"),
    ] {
        client.set(HeaderName::from_static(name), value);
    }
    for (at, id) in ["modern", "legacy", "other"].iter().enumerate() {
        let call = json!({"name": format!("{id}:echo"), "arguments": {"text": "x"}});
        let answer = client
            .post(request(u64::try_from(at).unwrap() + 2, "tools/call", call))
            .await;
        let text = answer.text().await;
        assert!(text.contains("\"result\""), "{id}: {text}");
    }
    let mut local = kernel.stdio_agent(None);
    local.initialize(NEWEST, "{}").await.result();
    for id in ["modern", "legacy"] {
        let heads = heads(&mut local, id).await;
        assert_eq!(heads.matches("acme-of-ours").count(), 1, "{id}: {heads}");
        assert_eq!(heads.matches("jar-of-ours").count(), 1, "{id}: {heads}");
        assert!(!heads.contains("nobody-names-it"), "{id}: {heads}");
    }
    let heads = heads(&mut local, "other").await;
    for value in ["acme-of-ours", "jar-of-ours", "nobody-names-it"] {
        assert!(!heads.contains(value), "{heads}");
    }
    let audit = kernel.mgp(&["audit", "tail", "--json"]).await.stdout;
    let audit = String::from_utf8_lossy(&audit).into_owned();
    let passed = audit
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let passed = passed.filter(|event| event["details"]["headers_passed"] == "cookie,x-tenant");
    assert_eq!(passed.count(), 2, "{audit}");
    assert!(!audit.contains("acme-of-ours"), "{audit}");
}
