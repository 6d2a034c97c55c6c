//! Tests of session requests whose handlers panic.

use std::future::poll_fn;

use bytes::Bytes;
use hyper::body::Body;
use mgp_protocol::mcp;
use mgp_store::audit::AuditHandle;
use serde_json::Value;

use super::*;
use crate::console::Console;
use crate::http_endpoint::{Auth, HttpSse, ResponseOptions};
use crate::leak_tests::scene::{LATER, Scene};
use crate::session::{SessionLimits, Sessions};

const HELLO: &str =
    r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}"#;

async fn opened(scene: &Scene, stream_after: Duration) -> (Arc<HttpEndpoint>, Arc<Session>) {
    let limits = SessionLimits {
        max: 10,
        idle: Duration::from_secs(1800),
        replay: 256,
    };
    let sessions = Sessions::new(limits, scene.context.clone());
    let endpoint = Arc::new(HttpEndpoint {
        endpoint: scene.context.clone(),
        sessions: sessions.clone(),
        http_sse: HttpSse::new(1, Default::default()),
        auth: Auth::None,
        console: Console::new(AuditHandle::disabled()),
        response_options: ResponseOptions {
            stream_after,
            poll_after: None,
        },
        secure: false,
        lite: None,
        metrics: None,
        address: None,
        card: None,
        counts: Arc::default(),
    });
    let (agent, streams) = sessions.new_agent(&Credential::permanent(AgentId::new("agent.local")));
    let hello: mcp::Initialize<'_> = mcp::parse_params(Some(HELLO)).unwrap();
    let caller = agent.initialize(CatalogView::All, &hello, None).unwrap();
    agent.set_ready();
    (
        endpoint,
        sessions.open(caller, (agent, streams), None).await.unwrap(),
    )
}

fn id() -> RequestId {
    RequestId::from_json("2").unwrap()
}

async fn post(
    endpoint: &Arc<HttpEndpoint>,
    session: &Arc<Session>,
    when: &str,
) -> Response<ReplyBody> {
    let params = Some(format!(r#"{{"name":"panics {when}"}}"#).into());
    handle_request(
        endpoint,
        session,
        id(),
        "tools/call",
        (params, Trace::from_params(None, None), None),
    )
    .await
}

/// Reads the whole body, within a minute of the test clock.
async fn read_body(response: Response<ReplyBody>) -> String {
    let mut body = response.into_body();
    let reading = async {
        let mut all = Vec::new();
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            all.extend_from_slice(&frame.unwrap().into_data().unwrap_or_else(|_| Bytes::new()));
        }
        String::from_utf8(all).unwrap()
    };
    let read = tokio::time::timeout(Duration::from_secs(60), reading).await;
    read.expect("the answer has an end")
}

fn assert_is_error(json: &str) {
    let answer: Value = serde_json::from_str(json).unwrap();
    assert_eq!(answer["id"], 2, "{answer}");
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
}

/// Asserts that the request is no longer in flight.
fn assert_finished(session: &Session) {
    assert!(session.agent.open_request(&id(), None).is_ok());
    session.agent.finish_request(&id());
}

#[tokio::test(start_paused = true)]
async fn panicking_request_is_answered_as_json() {
    let scene = Scene::new().await;
    let (endpoint, session) = opened(&scene, 2 * LATER).await;
    for when in ["at once", "later"] {
        let response = post(&endpoint, &session, when).await;
        assert_eq!(response.status(), StatusCode::OK, "{when}");
        assert_is_error(&read_body(response).await);
        assert_finished(&session);
    }
}

#[tokio::test(start_paused = true)]
async fn panicking_request_ends_its_stream_with_the_error() {
    let scene = Scene::new().await;
    let (endpoint, session) = opened(&scene, LATER / 2).await;
    let body = read_body(post(&endpoint, &session, "later").await).await;
    let last = body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .next_back();
    assert_is_error(last.expect("the stream ends with a message"));
    assert_finished(&session);
}

/// A disconnected client reconnects for the answer.
#[tokio::test(start_paused = true)]
async fn panicking_request_of_disconnected_client_is_answered_on_its_stream() {
    let scene = Scene::new().await;
    let (endpoint, session) = opened(&scene, 2 * LATER).await;
    let gone = tokio::time::timeout(LATER / 2, post(&endpoint, &session, "later")).await;
    assert!(gone.is_err(), "it goes on by itself");
    tokio::time::sleep(2 * LATER).await;
    assert_finished(&session);
    let body = read_body(stream_response(event_stream_body(
        &session,
        session.streams.open(Lane(1), false),
    )))
    .await;
    let last = body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .next_back();
    assert_is_error(last.expect("the answer is kept"));
}

#[tokio::test(start_paused = true)]
async fn panicking_batch_entry_is_answered_in_its_array() {
    let scene = Scene::new().await;
    let (endpoint, session) = opened(&scene, LATER).await;
    let text =
        r#"[{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"panics later"}}]"#;
    let answered = handle_batch(&endpoint, &session, &ByteString::from(text)).await;
    let body = read_body(answered).await;
    assert_is_error(body.trim_start_matches('[').trim_end_matches(']'));
    assert_finished(&session);
}
