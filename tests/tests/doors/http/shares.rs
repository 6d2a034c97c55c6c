//! What one agent, or a program without a token, may take of the HTTP endpoint: never what others need.

use http::StatusCode;
use http::header::AUTHORIZATION;
use mgp_tests::harness::http::SESSION;
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{DEADLINE, HttpClient, Kernel, Program};
use serde_json::json;
use tempfile::TempDir;

use crate::scene::{self, NEWEST, request};
use crate::wire::Wire;

/// A kernel with so many sessions, and clients with the tokens of two agents.
pub(super) async fn two_agents(
    max_sessions: usize,
    servers: &str,
) -> (Kernel, HttpClient, HttpClient) {
    let config =
        format!("[http]\nlisten = \"127.0.0.1:0\"\nmax_sessions = {max_sessions}\n{servers}");
    let kernel = Kernel::with_config(&config).await;
    let mut clients = Vec::new();
    for name in ["a", "b"] {
        let added = kernel.mgp_json(&["agents", "add", name]).await;
        let mut client = HttpClient::new(kernel.url());
        let token = added["token"].as_str().unwrap();
        client.set(AUTHORIZATION, &format!("Bearer {token}"));
        clients.push(client);
    }
    let [a, b] = clients.try_into().ok().unwrap();
    (kernel, a, b)
}

/// An agent that opens sessions without end ends its own old ones; those of others stay, and others open new
/// ones, even while it keeps a stream open on each.
#[tokio::test]
async fn one_agent_cannot_take_the_sessions_of_others() {
    const MAX: usize = 20;
    let (_kernel, mut a, b) = two_agents(MAX, "").await;
    a.open_session(NEWEST, "{}").await;
    let mut streams = Vec::new();
    for n in 0..4 * MAX {
        let mut greedy = b.clone();
        greedy.open_session(NEWEST, "{}").await;
        if n >= 3 * MAX + 2 {
            streams.push(greedy.get(None).await.events());
        }
    }
    let list = || request(1, "tools/list", json!({}));
    assert_eq!(a.post(list()).await.status, StatusCode::OK);
    for _ in 0..MAX / 2 - 1 {
        a.headers.remove(SESSION);
        a.open_session(NEWEST, "{}").await;
    }
    assert_eq!(a.post(list()).await.status, StatusCode::OK);
    drop(streams);
}

/// The same for the connections of old clients, each of which is in use while it is there.
#[tokio::test]
async fn one_agent_cannot_take_the_event_connections_of_others() {
    let (kernel, a, b) = two_agents(4, "").await;
    let url = format!("{}/sse", kernel.url().strip_suffix("/mcp").unwrap());
    let open = async |client: &HttpClient| {
        let mut at = HttpClient::new(&url);
        at.headers.clone_from(&client.headers);
        at.get(None).await
    };
    let mut held = Vec::new();
    for _ in 0..4 {
        let opened = open(&b).await;
        assert_eq!(opened.status, StatusCode::OK);
        held.push(opened.events());
    }
    assert_eq!(open(&b).await.status, StatusCode::SERVICE_UNAVAILABLE);
    let _own = [open(&a).await, open(&a).await].map(|opened| {
        assert_eq!(opened.status, StatusCode::OK);
        opened.events()
    });
    for gone in &mut held[..2] {
        within("the end of its stream", DEADLINE, async {
            while gone.next().await.is_some() {}
        })
        .await;
    }
    assert_eq!(open(&a).await.status, StatusCode::SERVICE_UNAVAILABLE);
}

/// The descriptors that the kernel may have here.
const FILES: usize = 256;

/// Programs without a token that connect as often as they can: the owner's command line, agents and servers that
/// start are served all the same.
#[tokio::test]
async fn connections_without_a_token_leave_descriptors_for_everything_else() {
    let entry = Program::fixture(&[]).entry("it");
    let config = format!("[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n{entry}");
    let limit = format!("--nofile={FILES}:{FILES}");
    let folder = TempDir::new().unwrap();
    let program = Program::ours("mgp", [""; 0]).command;
    let behind = ["prlimit", &limit, &program];
    let kernel = Kernel::behind(&behind, folder, &config, &[]).await;
    kernel.connected(&["it"]).await;
    let mut held = Vec::new();
    for n in 0..2 * FILES {
        let mut wire = Wire::to(&kernel).await;
        if n % 2 == 0 {
            wire.write("POST /mcp HTTP/1.1\r\nhost: local").await;
        }
        held.push(wire);
    }
    let status = kernel.mgp_json(&["status"]).await;
    assert_eq!(status["servers"][0]["state"], "connected", "{status:#}");
    let mut agent = scene::http_agent(&kernel, None, "{}").await;
    let echo = agent.call("it:echo", json!({"text": "let in"})).await;
    assert_eq!(echo.text(), "let in");
    kernel.mgp_json(&["servers", "restart", "it"]).await;
    kernel.connected(&["it"]).await;
    assert!(held.iter().filter(|wire| wire.is_held()).count() <= FILES / 2);
}
