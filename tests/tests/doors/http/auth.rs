//! Who may come in at the HTTP door, and what is not for those who come in there.

use http::StatusCode;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use mgp_tests::harness::handshake::initialize;
use mgp_tests::harness::{HttpClient, Kernel, Program};
use serde_json::{Value, json};

use crate::scene::{self, NEWEST, header, request};

/// A kernel whose HTTP door wants the token, as it does when nothing else is configured.
async fn locked_kernel() -> (Kernel, String) {
    let entry = Program::fixture(&[]).entry("it");
    let config = format!("[http]\nlisten = \"127.0.0.1:0\"\n{entry}");
    let kernel = Kernel::with_config(&config).await;
    kernel.connected(&["it"]).await;
    let token = std::fs::read_to_string(kernel.folder().join("data/token")).unwrap();
    (kernel, token.trim().to_owned())
}

/// 401 with the way to do better without the token, on every verb; with it everything works.
#[tokio::test]
async fn http_endpoint_rejects_requests_without_the_token() {
    let (kernel, token) = locked_kernel().await;
    let mut right = HttpClient::new(kernel.url());
    right.set(AUTHORIZATION, &format!("Bearer {token}"));
    right.open_session(NEWEST, "{}").await;
    let wrong = [
        "",
        "Bearer",
        "Bearer x",
        "Basic Zm9vOmJhcg==",
        &token,
        &format!("Bearer {token}0"),
    ];
    let mut keys: Vec<Option<&str>> = wrong.into_iter().map(Some).collect();
    keys.push(None);
    for key in keys {
        // A session id is no authentication: the very session of the one who has the token.
        let mut client = right.clone();
        client.headers.remove(AUTHORIZATION);
        if let Some(key) = key {
            client.set(AUTHORIZATION, key);
        }
        for answer in [
            client.post(initialize(NEWEST, "{}")).await,
            client.post(request(1, "tools/list", json!({}))).await,
            client.get(None).await,
            client.delete().await,
        ] {
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{key:?}");
            assert!(header(&answer.headers, WWW_AUTHENTICATE.as_str()).starts_with("Bearer"));
            let text = answer.text().await;
            assert!(!text.contains(&token), "{text}");
        }
    }
    let echo = right
        .post(scene::call(2, "echo", json!({"text": "let in"})))
        .await;
    assert!(echo.frames().await[0].contains("let in"));
}

/// A token in the address is none, and it stays the same when the kernel is started again.
#[tokio::test]
async fn the_token_is_taken_from_the_header_alone_and_outlives_the_kernel() {
    let (kernel, token) = locked_kernel().await;
    for name in ["token", "access_token", "authorization"] {
        let client = HttpClient::new(&format!("{}?{name}={token}", kernel.url()));
        let answer = client.post(initialize(NEWEST, "{}")).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{name}");
    }
    let deadline = mgp_tests::harness::DEADLINE;
    let folder = kernel
        .end(nix::sys::signal::Signal::SIGTERM, deadline)
        .await;
    let kernel = Kernel::again(folder).await;
    let mut client = HttpClient::new(kernel.url());
    client.set(AUTHORIZATION, &format!("bearer {token}"));
    assert_eq!(
        client.post(initialize(NEWEST, "{}")).await.status,
        StatusCode::OK
    );
}

/// The socket and the token's file belong to the owner alone; the token is told to nobody.
#[tokio::test]
async fn the_socket_and_the_token_are_the_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (mut kernel, token) = locked_kernel().await;
    for path in [kernel.socket(), kernel.folder().join("data/token")] {
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
    let status = kernel.mgp_json(&["status"]).await.to_string();
    let process = kernel.process();
    let said = [process.stdout(), process.stderr(), status].concat();
    assert!(
        said.contains("data/token") && !said.contains(&token),
        "{said}"
    );
}

/// What the operator asks of the kernel is unknown to those at the HTTP door, in the words of any
/// unknown method; the owner's socket knows it.
#[tokio::test]
async fn the_operators_methods_are_unknown_over_http() {
    let kernel = scene::kernel().await;
    let client = scene::session(&kernel, NEWEST).await;
    let ask = async |method: &str, params: Value| {
        let frames = client.post(request(1, method, params)).await.frames().await;
        let answer: Value = serde_json::from_str(&frames[0]).unwrap();
        answer["error"].clone()
    };
    let unknown = ask("mgp/kernel/no_such", json!({})).await;
    assert_eq!(unknown["code"], -32601);
    for (method, params) in [
        ("mgp/kernel/status", json!({})),
        ("mgp/kernel/reload", json!({})),
        ("mgp/servers/list", json!({})),
        ("mgp/servers/stop", json!({"id": "it"})),
        ("mgp/servers/logs", json!({"id": "it"})),
        ("mgp/door/open", json!({"server": "it"})),
        ("mgp/kernel/stop", json!({})),
    ] {
        let error = ask(method, params).await;
        let words = unknown["message"].as_str().unwrap();
        assert_eq!(
            error["message"],
            words.replace("mgp/kernel/no_such", method)
        );
        assert_eq!(error["code"], -32601, "{method}");
    }
    let mut owner = scene::socket_agent(&kernel, "{}").await;
    let listed = owner.request("mgp/servers/list", json!({})).await.result();
    assert_eq!(listed["servers"][0]["state"], "connected");
}
