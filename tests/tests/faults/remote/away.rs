//! Servers at a URL that are away for long, or whose streams end.

use std::time::{Duration, Instant};

use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{DEADLINE, Kernel, Upstream, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::again;
use super::odd::{OddReply, OddServer, usual};
use crate::scene::{echoes, owner, shown, until};

/// A server that was away for longer than the tries is tried on, and at once when somebody calls.
#[tokio::test]
async fn a_server_that_was_away_for_long_is_found_by_a_call() {
    let rare = "max_restarts = 1\nbackoff_base_ms = 20\nbackoff_max_ms = 600000\n";
    let mut upstream = Upstream::start(&[]).await;
    let kernel = Kernel::start(&(remote_entry("far", &upstream.url()) + rare)).await;
    kernel.connected(&["far"]).await;
    let mut agent = owner(&kernel).await;
    echoes(&mut agent, "far").await;
    upstream.process().signal(Signal::SIGKILL);
    upstream.process().end(DEADLINE).await;
    let waits = |far: &Value| far["next_try_ms"].as_u64() > Some(60_000);
    let far = until(&mut agent, "far", "waits for long", waits).await;
    assert_eq!(far["state"], "restarting", "{far}");
    let again = again(upstream.port(), &[]).await;
    echoes(&mut agent, "far").await;
    drop(again);
}

/// CMCP-037: a standing stream that its server ends at once is opened ever more rarely, whatever `retry` it asks for.
#[tokio::test]
async fn a_standing_stream_that_ends_at_once_is_opened_ever_more_rarely() {
    for body in [": hello\n\n", "retry: 0\n\n", "id: 7\nretry: 1\ndata:\n\n"] {
        let far = OddServer::start(move |asked| match asked.verb.as_str() {
            "GET" => OddReply::events(body),
            _ => usual(asked, &json!({"tools": {}})),
        })
        .await;
        let begun = Instant::now();
        let kernel = Kernel::start(&remote_entry("far", &far.url())).await;
        kernel.connected(&["far"]).await;
        wait_until("some streams", DEADLINE, async || far.times("GET") >= 6).await;
        // 50, 100, 200, 400 and 800 ms between them.
        let took = begun.elapsed();
        assert!(took > Duration::from_millis(1500), "{took:?}: {body:?}");
    }
}

/// A standing stream that a server does not have, or ends by not having it any more, is no fault of the server.
#[tokio::test]
async fn a_standing_stream_that_is_not_there_is_no_fault() {
    for status in [200, 204, 400, 404, 405] {
        let far = OddServer::start(move |asked| match asked.verb.as_str() {
            "GET" => OddReply::text(status, ""),
            _ => usual(asked, &json!({"tools": {}})).opening("s"),
        })
        .await;
        let kernel = Kernel::start(&remote_entry("far", &far.url())).await;
        kernel.connected(&["far"]).await;
        wait_until("the stream is asked for", DEADLINE, async || {
            far.times("GET") >= 1
        })
        .await;
        let mut agent = owner(&kernel).await;
        for _ in 0..20 {
            echoes(&mut agent, "far").await;
        }
        let it = shown(&mut agent, "far").await;
        assert_eq!(it["restarts"], 0, "{status}: {it}");
        assert_eq!(far.times("initialize"), 1, "{status}");
    }
}
