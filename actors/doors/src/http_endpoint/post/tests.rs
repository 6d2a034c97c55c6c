//! Requests of a session whose answers panic.

use std::future::poll_fn;

use bytes::Bytes;
use hyper::body::Body;
use mgp_protocol::mcp;
use mgp_store::audit::AuditHandle;
use serde_json::Value;

use super::*;
use crate::console::Console;
use crate::ending_tests::scene::{LATER, Scene};
use crate::http_endpoint::{Auth, HttpSse, ResponseOptions};
use crate::session::{SessionLimits, Sessions};

const HELLO: &str =
    r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}"#;

async fn opened(scene: &Scene, stream_after: Duration) -> (Arc<HttpEndpoint>, Arc<Session>) {
    let limits = SessionLimits {
        max: 10,
        idle: Duration::from_secs(1800),
        replay: 256,
    };
    let sessions = Sessions::new(limits, scene.reception.clone());
    let door = Arc::new(HttpEndpoint {
        endpoint: scene.reception.clone(),
        sessions: sessions.clone(),
        http_sse: HttpSse::new(1),
        auth: Auth::None,
        console: Console::new(AuditHandle::disabled()),
        response_options: ResponseOptions {
            stream_after,
            poll_after: None,
        },
        secure: false,
        lite: None,
        metrics: None,
        counts: Arc::default(),
    });
    let (agent, streams) = sessions.new_agent(&Credential::permanent(AgentId::new("agent.local")));
    let hello: mcp::Initialize<'_> = mcp::parse_params(Some(HELLO)).unwrap();
    let caller = agent.initialize(CatalogView::All, &hello).unwrap();
    agent.set_ready();
    (door, sessions.open(caller, agent, streams).await.unwrap())
}

fn id() -> RequestId {
    RequestId::from_json("2").unwrap()
}

async fn asked(
    door: &Arc<HttpEndpoint>,
    session: &Arc<Session>,
    when: &str,
) -> Response<ReplyBody> {
    let params = Some(format!(r#"{{"name":"panics {when}"}}"#).into());
    handle_request(
        door,
        session,
        id(),
        "tools/call",
        (params, Trace::from_params(None, None), None),
    )
    .await
}

/// The whole body, within a minute of the clock of the test.
async fn whole(response: Response<ReplyBody>) -> String {
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

fn is_the_error(json: &str) {
    let answer: Value = serde_json::from_str(json).unwrap();
    assert_eq!(answer["id"], 2, "{answer}");
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
}

/// The request is not under way any longer.
fn is_over(session: &Session) {
    assert!(session.agent.open_request(&id(), None).is_ok());
    session.agent.finish_request(&id());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_panics_is_answered_as_json() {
    let scene = Scene::new().await;
    let (door, session) = opened(&scene, 2 * LATER).await;
    for when in ["at once", "later"] {
        let response = asked(&door, &session, when).await;
        assert_eq!(response.status(), StatusCode::OK, "{when}");
        is_the_error(&whole(response).await);
        is_over(&session);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_panics_behind_its_stream_is_the_last_message_there() {
    let scene = Scene::new().await;
    let (door, session) = opened(&scene, LATER / 2).await;
    let body = whole(asked(&door, &session, "later").await).await;
    let last = body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .next_back();
    is_the_error(last.expect("the stream ends with a message"));
    is_over(&session);
}

/// A client that has gone comes back for the answer.
#[tokio::test(start_paused = true)]
async fn a_request_that_panics_when_its_client_has_gone_is_answered_on_its_stream() {
    let scene = Scene::new().await;
    let (door, session) = opened(&scene, 2 * LATER).await;
    let gone = tokio::time::timeout(LATER / 2, asked(&door, &session, "later")).await;
    assert!(gone.is_err(), "it goes on by itself");
    tokio::time::sleep(2 * LATER).await;
    is_over(&session);
    let body = whole(stream_response(event_stream_body(
        &session,
        session.streams.open(Lane(1), false),
    )))
    .await;
    let last = body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .next_back();
    is_the_error(last.expect("the answer is kept"));
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_batch_that_panics_is_answered_in_its_array() {
    let scene = Scene::new().await;
    let (door, session) = opened(&scene, LATER).await;
    let text =
        r#"[{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"panics later"}}]"#;
    let answered = handle_batch(&door, &session, &ByteString::from(text)).await;
    let body = whole(answered).await;
    is_the_error(body.trim_start_matches('[').trim_end_matches(']'));
    is_over(&session);
}
