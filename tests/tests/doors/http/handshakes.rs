//! How clients begin, and what comes of those that begin badly.

use http::header::ACCEPT;
use http::{HeaderValue, StatusCode};
use mgp_tests::harness::handshake::{FULL, initialize};
use mgp_tests::harness::http::SESSION;
use mgp_tests::harness::{Agent, HttpClient, Kernel};
use serde_json::{Value, json};

use crate::scene::{self, NEWEST, header};

/// `initialize` without a member, or with another value of it.
fn spoiled(member: &str, value: Option<Value>) -> String {
    let mut hello: Value = serde_json::from_str(&initialize(NEWEST, "{}")).unwrap();
    let params = hello["params"].as_object_mut().unwrap();
    params.remove(member);
    if let Some(value) = value {
        params.insert(member.to_owned(), value);
    }
    hello.to_string()
}

/// CMCP-020: who does not say who it is, what it can or which version it wants, gets no session.
#[tokio::test]
async fn a_malformed_initialize_opens_nothing() {
    let kernel = scene::kernel().await;
    let mut line = Agent::over_socket(&kernel.socket()).await;
    for member in ["clientInfo", "capabilities", "protocolVersion"] {
        for value in [None, Some(Value::Null), Some(json!(7)), Some(json!([]))] {
            let hello = spoiled(member, value);
            let answer = HttpClient::new(kernel.url()).post(hello.clone()).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{hello}");
            assert!(!answer.headers.contains_key(SESSION), "{hello}");
            let told: Value = serde_json::from_str(&answer.text().await).unwrap();
            assert_eq!(told["error"]["code"], -32602, "{told}");
            assert!(
                told["error"]["message"].to_string().contains(member) || hello.contains(member)
            );
            line.send(&hello).await;
            assert_eq!(line.answer_to(&json!(0)).await.code(), -32602, "{hello}");
        }
    }
    let early = line.request("tools/list", json!({})).await;
    assert_eq!(early.code(), -32600, "{}", early.frame);
    line.initialize(NEWEST, "{}").await.result();
    line.request("tools/list", json!({})).await.result();
}

/// MCP-017: a client that has not said `notifications/initialized` is asked nothing and hears of no
/// progress; once it has, it is asked.
#[tokio::test]
async fn client_gets_no_request_or_progress_before_initialized() {
    let kernel = scene::kernel().await;
    let mut agent = Agent::over_socket(&kernel.socket()).await;
    agent.answers("elicitation/create", json!({"action": "decline"}));
    agent.send(&initialize(NEWEST, FULL)).await;
    agent.answer_to(&json!(0)).await.result();
    let progress =
        json!({"name": "it:progress", "arguments": {"steps": 3}, "_meta": {"progressToken": 1}});
    agent.request("tools/call", progress.clone()).await;
    let asking = json!({"name": "it:ask_slow", "arguments": {"ms": 0}});
    let asking = agent.start("tools/call", asking).await;
    scene::reached(&mut scene::socket_agent(&kernel, "{}").await, "ask_slow", 1).await;
    agent.request("ping", json!({})).await.result();
    assert!(agent.asked().is_empty(), "{:?}", agent.asked());
    assert!(agent.all_heard().is_empty(), "{:?}", agent.all_heard());
    agent.notify("notifications/initialized", json!({})).await;
    assert_eq!(agent.answer_to(&asking).await.text(), "action=decline");
    assert_eq!(agent.asked().len(), 1);
    agent.request("tools/call", progress).await;
    assert!(!agent.heard("notifications/progress").is_empty());
}

/// MCP-077: a kind with `q=0` is one that the client does not take.
#[tokio::test]
async fn a_weight_of_zero_is_not_accepted() {
    let kernel = scene::kernel().await;
    let mut client = scene::session(&kernel, NEWEST).await;
    for (accept, status) in [
        ("application/json, text/event-stream;q=0", 406),
        ("*/*;q=0.0", 406),
        ("*/*, application/json; q=0", 406),
        ("*/*;q=0, application/json, text/event-stream;q=0.1", 200),
    ] {
        client
            .headers
            .insert(ACCEPT, HeaderValue::from_static(accept));
        let answer = client
            .post(scene::request(1, "tools/list", json!({})))
            .await;
        assert_eq!(answer.status.as_u16(), status, "{accept}");
    }
}

/// A kernel that has no place for one more session says so under the request's id, and when to try again.
#[tokio::test]
async fn session_beyond_the_limit_is_rejected_with_retry_after() {
    let config = "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\nmax_sessions = 1\n";
    let kernel = Kernel::with_config(config).await;
    let one = scene::session(&kernel, NEWEST).await;
    let _in_use = one.get(None).await.events();
    let hello = initialize(NEWEST, "{}").replace(r#""id":0"#, r#""id":"mine""#);
    let full = HttpClient::new(kernel.url()).post(hello).await;
    assert_eq!(full.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(header(&full.headers, "retry-after"), "1");
    let told: Value = serde_json::from_str(&full.text().await).unwrap();
    assert_eq!(told["id"], "mine", "{told}");
}

/// MCP-004: an id that is under way is not taken a second time, over HTTP as on a line; the first
/// request goes on.
#[tokio::test]
async fn id_of_an_in_flight_request_is_rejected_over_http() {
    let kernel = scene::kernel().await;
    let client = scene::session(&kernel, NEWEST).await;
    let slow = scene::call("a", "slow", json!({"ms": 700}));
    let first = client.post(slow).await;
    assert!(first.is_stream());
    for again in [
        scene::call("a", "echo", json!({"text": "x"})),
        scene::call("a", "echo", json!({"text": "x"})).replace(r#""a""#, r#""\u0061""#),
        scene::request("a", "tools/list", json!({})),
    ] {
        let told = client.post(again).await.frames().await;
        let told: Value = serde_json::from_str(&told[0]).unwrap();
        assert_eq!(told["error"]["code"], -32600, "{told}");
    }
    let answered = first.frames().await;
    assert!(answered.last().unwrap().contains("slept"), "{answered:?}");
    let free = client
        .post(scene::call("a", "echo", json!({"text": "x"})))
        .await;
    assert!(free.frames().await[0].contains("result"));
}
