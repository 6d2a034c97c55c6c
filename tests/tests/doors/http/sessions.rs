//! Sessions at the HTTP door: how they begin, what names them, how they end.

use std::collections::HashSet;

use futures_util::future::join_all;
use http::StatusCode;
use mgp_tests::harness::handshake::initialize;
use mgp_tests::harness::http::SESSION;
use mgp_tests::harness::{DEADLINE, HttpClient, Kernel, wait_until};
use serde_json::{Value, json};

use crate::scene::{self, NEWEST, header, request};

/// CMCP-020, MCP-079, MCP-083: `initialize` mints a UUID of version 4, a new one each time.
#[tokio::test]
async fn initialize_mints_a_random_session_id() {
    let kernel = Kernel::start("").await;
    let client = HttpClient::new(kernel.url());
    let mut ids = HashSet::new();
    for _ in 0..20 {
        let answer = client.post(initialize(NEWEST, "{}")).await;
        assert_eq!(answer.status, StatusCode::OK);
        let id = header(&answer.headers, "mcp-session-id").to_owned();
        let shape: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(shape, [8, 4, 4, 4, 12], "{id}");
        let digits = |c: char| c == '-' || c.is_ascii_digit() || ('a'..='f').contains(&c);
        assert!(id.chars().all(digits), "{id}");
        assert_eq!(&id[14..15], "4", "{id}");
        assert!("89ab".contains(&id[19..20]), "{id}");
        assert!(ids.insert(id));
    }
}

/// CMCP-020: an `initialize` that is none never gets a session.
#[tokio::test]
async fn a_malformed_initialize_gets_no_session() {
    let kernel = Kernel::start("").await;
    let client = HttpClient::new(kernel.url());
    let bad = [
        request(1, "initialize", json!({})),
        request(1, "initialize", json!({"protocolVersion": 7, "capabilities": {}})),
        request(1, "initialize", json!([])),
        r#"{"jsonrpc":"2.0","method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#.into(),
        r#"{"jsonrpc":"1.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#
            .into(),
    ];
    for frame in bad {
        let answer = client.post(frame.clone()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{frame}");
        assert!(!answer.headers.contains_key(SESSION), "{frame}");
        let error: Value = serde_json::from_str(&answer.text().await).unwrap();
        assert!(error["error"]["code"].is_i64(), "{frame}: {error}");
    }
    assert_eq!(client.post(initialize(NEWEST, "{}")).await.status, 200);
}

/// CMCP-021, MCP-019: without a session id 400, with one that nobody minted 404.
#[tokio::test]
async fn a_missing_session_id_is_400_and_an_unknown_one_404() {
    let kernel = scene::kernel().await;
    let mut client = HttpClient::new(kernel.url());
    let list = || request(1, "tools/list", json!({}));
    for answer in [
        client.post(list()).await,
        client
            .post(scene::call(1, "echo", json!({"text": "x"})))
            .await,
        client.get(None).await,
        client.delete().await,
    ] {
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert!(answer.text().await.contains("Mcp-Session-Id"));
    }
    for unknown in ["11111111-2222-4333-8444-555555555555", "x", ""] {
        client.set(SESSION, unknown);
        for answer in [
            client.post(list()).await,
            client.get(None).await,
            client.delete().await,
        ] {
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{unknown:?}");
        }
    }
}

/// MCP-024, MCP-025, MCP-075: DELETE ends the session and its stream; from then on it is unknown.
#[tokio::test]
async fn deleted_session_is_unknown() {
    let kernel = scene::kernel().await;
    let client = scene::session(&kernel, NEWEST).await;
    let other = scene::session(&kernel, NEWEST).await;
    let mut stream = client.get(None).await.events();
    assert_eq!(client.delete().await.status, StatusCode::NO_CONTENT);
    while stream.next().await.is_some() {}
    let list = || request(1, "tools/list", json!({}));
    for answer in [
        client.post(list()).await,
        client.get(None).await,
        client.delete().await,
    ] {
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
    }
    assert_eq!(other.post(list()).await.status, StatusCode::OK);
}

/// CMCP-022: a hundred sessions at once, each answered what it asked.
#[tokio::test]
async fn a_hundred_sessions_live_side_by_side() {
    let kernel = scene::kernel().await;
    let opening = (0..100).map(|_| scene::session(&kernel, NEWEST));
    let clients = join_all(opening).await;
    let ids: HashSet<_> = clients
        .iter()
        .map(|c| c.headers[&SESSION].clone())
        .collect();
    assert_eq!(ids.len(), 100);
    let calling = clients.iter().enumerate().map(async |(n, client)| {
        let text = format!("text of {n}");
        let answer = client
            .post(scene::call(1, "echo", json!({"text": text})))
            .await;
        let frames = answer.frames().await;
        assert!(frames.last().unwrap().contains(&text), "{frames:?}");
    });
    join_all(calling).await;
    let ending = clients.iter().map(HttpClient::delete);
    assert!(join_all(ending).await.iter().all(|a| a.status == 204));
    let status = kernel.mgp_json(&["status"]).await;
    assert_eq!(status["actors"]["session"], 0, "{status:#}");
}

/// One agent's session beyond `max_sessions` ends the one that it has not used for longest, and is refused with
/// words while all are in use; the place of one that left is free.
#[tokio::test]
async fn the_number_of_sessions_is_bounded() {
    let config = "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\nmax_sessions = 2\n";
    let kernel = Kernel::with_config(config).await;
    let first = scene::session(&kernel, NEWEST).await;
    let second = scene::session(&kernel, NEWEST).await;
    let third = scene::session(&kernel, NEWEST).await;
    let list = || request(1, "tools/list", json!({}));
    assert_eq!(first.post(list()).await.status, StatusCode::NOT_FOUND);
    assert_eq!(second.post(list()).await.status, StatusCode::OK);
    let _streams = [
        second.get(None).await.events(),
        third.get(None).await.events(),
    ];
    let fourth = HttpClient::new(kernel.url());
    let refused = fourth.post(initialize(NEWEST, "{}")).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.text().await.contains("max_sessions"));
    second.delete().await;
    assert_eq!(fourth.post(initialize(NEWEST, "{}")).await.status, 200);
}

/// The bound holds for those who come at the same moment, too.
#[tokio::test]
async fn a_rush_does_not_pass_the_bound() {
    let config = "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\nmax_sessions = 5\n";
    let kernel = Kernel::with_config(config).await;
    let rush = (0..60).map(async |_| {
        let client = HttpClient::new(kernel.url());
        client.post(initialize(NEWEST, "{}")).await.status
    });
    let statuses = join_all(rush).await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let bounded = async || kernel.mgp_json(&["status"]).await["actors"]["session"] == 5;
    wait_until("the others have ended", DEADLINE, bounded).await;
}
