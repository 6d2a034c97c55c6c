//! Servers over HTTP that end sessions, and refuse what comes in them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{DEADLINE, Kernel, Upstream, wait_until};
use serde_json::{Value, json};

use super::odd::{Asked, OddReply, OddServer, usual};
use crate::scene::{echoes, owner, shown, told, until};

/// A server whose sessions end when they are told to, and who refuses what comes in an ended one.
struct Forgetful {
    /// The number of the session in force.
    session: Arc<AtomicU64>,
    server: OddServer,
}

impl Forgetful {
    /// It refuses with `refused`.
    async fn start(refused: impl Fn(&Asked) -> OddReply + Send + Sync + 'static) -> Self {
        let session = Arc::new(AtomicU64::new(0));
        let known = session.clone();
        let server = OddServer::start(move |asked| {
            let tools = json!({"tools": {}});
            if asked.method == "initialize" {
                let next = known.fetch_add(1, Ordering::Relaxed) + 1;
                return usual(asked, &tools).opening(&format!("s{next}"));
            }
            let current = format!("s{}", known.load(Ordering::Relaxed));
            match asked.session.as_deref() {
                None => usual(asked, &tools),
                Some(said) if said == current => usual(asked, &tools),
                Some(_) => refused(asked),
            }
        })
        .await;
        Self { session, server }
    }

    fn forget(&self) {
        self.session.fetch_add(1, Ordering::Relaxed);
    }
}

/// As the examples of the SDKs answer.
fn no_session(_: &Asked) -> OddReply {
    let error = json!({"code": -32000, "message": "Bad Request: No valid session ID provided"});
    OddReply::json(400, &json!({"jsonrpc": "2.0", "id": null, "error": error}))
}

/// Whatever a server refuses an ended session with, a new one is opened, and the call that was refused is made
/// there: once.
#[tokio::test]
async fn a_call_refused_in_an_ended_session_is_made_in_a_new_one() {
    let statuses: [fn(&Asked) -> OddReply; 4] = [
        no_session,
        |_| OddReply::text(400, "Invalid or missing session ID"),
        |_| OddReply::text(404, "Session not found"),
        |_| OddReply::text(410, "gone"),
    ];
    for refused in statuses {
        let far = Forgetful::start(refused).await;
        let kernel = Kernel::start(&remote_entry("far", &far.server.url())).await;
        kernel.connected(&["far"]).await;
        let mut agent = owner(&kernel).await;
        echoes(&mut agent, "far").await;
        far.forget();
        echoes(&mut agent, "far").await;
        // Two that ran, and the one that was refused.
        assert_eq!(far.server.times("tools/call"), 3);
        assert_eq!(far.server.times("initialize"), 2);
    }
}

/// Nobody has to call: a health check that is refused finds the ended session, too.
#[tokio::test]
async fn a_refused_health_check_opens_a_new_session() {
    let far = Forgetful::start(no_session).await;
    let config = format!(
        "[health]\ninterval_secs = 1\n{}",
        remote_entry("far", &far.server.url())
    );
    let kernel = Kernel::start(&config).await;
    kernel.connected(&["far"]).await;
    far.forget();
    wait_until("a second handshake", DEADLINE, async || {
        far.server.times("initialize") == 2
    })
    .await;
}

/// A server that refuses one call and answers a ping has not ended the session: the refusal is the answer.
#[tokio::test]
async fn a_call_refused_in_a_session_in_force_is_not_repeated() {
    let far = OddServer::start(|asked| match asked.method.as_str() {
        "tools/call" => OddReply::text(400, "no"),
        _ => usual(asked, &json!({"tools": {}})).opening("s"),
    })
    .await;
    let kernel = Kernel::start(&remote_entry("far", &far.url())).await;
    kernel.connected(&["far"]).await;
    let mut agent = owner(&kernel).await;
    for _ in 0..3 {
        let refused = agent.call("far__echo", json!({})).await;
        assert!(refused.error()["message"].to_string().contains("400"));
    }
    assert_eq!(far.times("tools/call"), 3);
    assert_eq!(far.times("initialize"), 1);
    assert_eq!(shown(&mut agent, "far").await["restarts"], 0);
}

/// A content type that is written twice is the same one.
#[tokio::test]
async fn a_content_type_written_twice_is_read() {
    let far = OddServer::start(|asked| {
        if asked.id.is_null() {
            usual(asked, &json!({"tools": {}}))
        } else {
            usual(asked, &json!({"tools": {}})).typed("application/json, application/json")
        }
    })
    .await;
    let kernel = Kernel::start(&remote_entry("far", &far.url())).await;
    kernel.connected(&["far"]).await;
    echoes(&mut owner(&kernel).await, "far").await;
}

/// What a server says with an error status that is no answer is reported, and what it refused unread was not done.
#[tokio::test]
async fn body_of_a_rejected_http_call_is_reported() {
    for (status, words, outcome) in [
        (400, "the real reason", json!("unknown")),
        (429, "slow down", Value::Null),
        (413, "too large", Value::Null),
    ] {
        let far = OddServer::start(move |asked| match asked.method.as_str() {
            "tools/call" => OddReply::text(status, words),
            _ => usual(asked, &json!({"tools": {}})),
        })
        .await;
        let kernel = Kernel::start(&remote_entry("far", &far.url())).await;
        kernel.connected(&["far"]).await;
        let mut agent = owner(&kernel).await;
        let refused = agent.call("far__echo", json!({})).await.error();
        assert!(refused["message"].to_string().contains(words), "{refused}");
        let unknown = refused["data"]["outcome"] == "unknown";
        assert_eq!(unknown, outcome == "unknown", "{refused}");
    }
}

/// A server that knows no ping keeps its session: a list that it declares tells.
#[tokio::test]
async fn a_server_that_refuses_pings_keeps_its_session() {
    let far = OddServer::start(|asked| match asked.method.as_str() {
        "ping" => OddReply::text(400, "unknown method"),
        _ => usual(asked, &json!({"tools": {}})).opening("s"),
    })
    .await;
    let config = format!(
        "[health]\ninterval_secs = 1\n{}",
        remote_entry("far", &far.url())
    );
    let kernel = Kernel::start(&config).await;
    kernel.connected(&["far"]).await;
    wait_until("some health checks", DEADLINE, async || {
        far.times("ping") >= 4
    })
    .await;
    let mut agent = owner(&kernel).await;
    echoes(&mut agent, "far").await;
    assert_eq!(far.times("initialize"), 1);
}

/// A server may end its sessions as often as it likes: it is well, each call finds it, and it is never parked.
#[tokio::test]
async fn ended_sessions_are_no_crashes() {
    let far = Forgetful::start(|_| OddReply::text(404, "Session not found")).await;
    let kernel = Kernel::start(&remote_entry("far", &far.server.url())).await;
    kernel.connected(&["far"]).await;
    let mut agent = owner(&kernel).await;
    for _ in 0..12 {
        far.forget();
        echoes(&mut agent, "far").await;
    }
    let far = shown(&mut agent, "far").await;
    assert_eq!(
        (&far["state"], &far["restarts"]),
        (&json!("connected"), &json!(0)),
        "{far}"
    );
}

/// HTTP+SSE: a stream that its server closes while it is idle ends a session, and nothing else.
#[tokio::test]
async fn an_old_stream_that_closes_while_idle_is_no_fault() {
    let upstream = Upstream::start(&["--sse-only", "--close-streams", "400"]).await;
    let url = format!("http://127.0.0.1:{}/sse", upstream.port());
    let kernel = Kernel::start(&remote_entry("old", &url)).await;
    let mut agent = owner(&kernel).await;
    let handshakes = async |agent: &mut mgp_tests::harness::Agent| {
        let counted = agent.call("old__count", json!({})).await;
        match counted.is_error() {
            // A call under way when its session ends is lost.
            true => None,
            false => told(&counted)["methods"]["initialize"].as_u64(),
        }
    };
    wait_until("many sessions", DEADLINE, async || {
        handshakes(&mut agent).await > Some(7)
    })
    .await;
    let well = |old: &Value| old["state"] == "connected" && old["restarts"] == 0;
    until(&mut agent, "old", "is well", well).await;
}
