//! Servers over HTTP that forget, fall, come back, break off or take their time.

mod away;
mod odd;
mod repeats;
mod sessions;

use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{DEADLINE, Kernel, Process, Program, Upstream, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene::{
    AT_ONCE, begin, cancelled, echoes, in_flight, in_state, listed, owner, server, shown, told,
    until,
};

/// Comes back so quickly that a story goes on at once.
const QUICK: &str = "max_restarts = 100\nbackoff_base_ms = 20\nbackoff_max_ms = 100\n";

/// A session that the server forgot is opened again and the call made once more, out of the
/// caller's sight: the server had not looked at it, so it ran once.
#[tokio::test]
async fn a_forgotten_session_is_opened_again_out_of_sight() {
    let upstream = Upstream::start(&["--http-expire", "9"]).await;
    let kernel = Kernel::start(&(remote_entry("far", &upstream.url()) + QUICK)).await;
    kernel.connected(&["far"]).await;
    let mut agent = owner(&kernel).await;
    for _ in 0..30 {
        echoes(&mut agent, "far").await;
    }
    let counted = told(&agent.call("far__count", json!({})).await);
    assert_eq!(counted["calls"]["echo"], 30, "{counted:#}");
    assert!(
        counted["methods"]["initialize"].as_u64() > Some(3),
        "{counted:#}"
    );
}

/// A server that was restarted behind the kernel's back knows no session either.
#[tokio::test]
async fn a_restarted_server_is_used_on_out_of_sight() {
    let mut upstream = Upstream::start(&[]).await;
    let kernel = Kernel::start(&(remote_entry("far", &upstream.url()) + QUICK)).await;
    kernel.connected(&["far"]).await;
    let mut agent = owner(&kernel).await;
    echoes(&mut agent, "far").await;
    upstream.process().signal(Signal::SIGKILL);
    upstream.process().end(DEADLINE).await;
    let again = again(upstream.port(), &[]).await;
    echoes(&mut agent, "far").await;
    drop(again);
}

/// A call in flight when its server goes down is told; one made meanwhile waits, and is answered
/// when the server is back soon; nobody else waits.
#[tokio::test]
async fn a_server_that_is_down_is_found_when_it_is_back() {
    let mut upstream = Upstream::start(&[]).await;
    let servers = remote_entry("far", &upstream.url()) + QUICK + &server("calm", &[], "");
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["far", "calm"]).await;
    let (mut agent, mut other) = (owner(&kernel).await, owner(&kernel).await);
    let in_time = begin(&mut agent, "far__hang", json!({})).await;
    // One that had not reached it would be made once more instead.
    wait_until("the server has the call", DEADLINE, async || {
        told(&other.call("far__count", json!({})).await)["calls"]["hang"] == 1
    })
    .await;
    upstream.process().signal(Signal::SIGKILL);
    upstream.process().end(DEADLINE).await;
    let lost = agent.answer_to(&in_time).await;
    let lost = lost.error();
    assert_eq!(lost["data"]["outcome"], "unknown", "{lost}");
    let meanwhile = begin(&mut agent, "far__echo", json!({"text": "hi"})).await;
    let tried = |far: &Value| far["restarts"].as_u64() > Some(1);
    until(&mut other, "far", "is tried again", tried).await;
    // Between two tries it says where it was looked for.
    let port = upstream.port().to_string();
    let says_where = |far: &Value| far["reason"].to_string().contains(&port);
    until(
        &mut other,
        "far",
        "says where it was looked for",
        says_where,
    )
    .await;
    within("an echo", AT_ONCE, echoes(&mut other, "calm")).await;
    let again = again(upstream.port(), &[]).await;
    assert_eq!(agent.answer_to(&meanwhile).await.text(), "hi");
    in_state(&mut other, "far", "connected").await;
    drop(again);
}

/// A call of a server that is down and stays so is told why, and that it was not made.
#[tokio::test]
async fn call_of_a_server_that_stays_down_fails_with_the_reason() {
    let mut upstream = Upstream::start(&[]).await;
    let far = remote_entry("far", &upstream.url()) + "restart_policy = \"never\"\n";
    let kernel = Kernel::start(&far).await;
    kernel.connected(&["far"]).await;
    let mut agent = owner(&kernel).await;
    upstream.process().signal(Signal::SIGKILL);
    upstream.process().end(DEADLINE).await;
    let refused = within(
        "a refusal",
        AT_ONCE,
        agent.call("far__echo", json!({"text": "x"})),
    )
    .await;
    let error = refused.error();
    assert_eq!(
        (&error["code"], &error["data"]["state"]),
        (&json!(-32603), &json!("error"))
    );
    let words = error["message"].to_string();
    assert!(words.contains(&upstream.port().to_string()), "{words}");
}

/// A server that is not there when the kernel starts is used once it is.
#[tokio::test]
async fn a_server_that_comes_later_is_found() {
    let mut upstream = Upstream::start(&[]).await;
    upstream.process().signal(Signal::SIGKILL);
    upstream.process().end(DEADLINE).await;
    let kernel = Kernel::start(&(remote_entry("far", &upstream.url()) + QUICK)).await;
    let mut agent = owner(&kernel).await;
    until(&mut agent, "far", "was tried", |far| {
        far["restarts"].as_u64() > Some(0)
    })
    .await;
    let again = again(upstream.port(), &[]).await;
    in_state(&mut agent, "far", "connected").await;
    echoes(&mut agent, "far").await;
    drop(again);
}

/// HTTP+SSE of 2024-11-05 as the last way: it works, and its end is noticed like any other.
#[tokio::test]
async fn http_sse_server_works_and_its_end_is_noticed() {
    let mut upstream = Upstream::start(&["--sse-only"]).await;
    let url = format!("http://127.0.0.1:{}/sse", upstream.port());
    let kernel = Kernel::start(&(remote_entry("old", &url) + QUICK)).await;
    kernel.connected(&["old"]).await;
    assert_eq!(listed(&kernel, "old").await["transport"], "sse");
    let mut agent = owner(&kernel).await;
    echoes(&mut agent, "old").await;
    let waiting = begin(&mut agent, "old__hang", json!({})).await;
    in_flight(&mut agent, "old", 1).await;
    upstream.process().signal(Signal::SIGKILL);
    upstream.process().end(DEADLINE).await;
    let lost = within("an answer", AT_ONCE, agent.answer_to(&waiting)).await;
    let lost = lost.error();
    assert_eq!(lost["data"]["outcome"], "unknown", "{lost}");
    let again = again(upstream.port(), &["--sse-only"]).await;
    in_state(&mut agent, "old", "connected").await;
    echoes(&mut agent, "old").await;
    drop(again);
}

/// SEP-1699: a stream that the server closes before the answer is taken up where it broke off.
#[tokio::test]
async fn a_stream_closed_in_mid_call_is_taken_up_again() {
    let upstream = Upstream::start(&[]).await;
    let kernel = Kernel::start(&(remote_entry("far", &upstream.url()) + QUICK)).await;
    kernel.connected(&["far"]).await;
    let mut agent = owner(&kernel).await;
    let answer = agent.call("far__test_reconnection", json!({})).await;
    assert!(!answer.text().is_empty());
    assert_eq!(shown(&mut agent, "far").await["restarts"], 0);
}

/// A slow server over HTTP holds up its own callers, and of those only who asked for something slow.
#[tokio::test]
async fn a_slow_server_holds_up_its_own_callers_only() {
    let (slow, quick) = (Upstream::start(&[]).await, Upstream::start(&[]).await);
    let servers = remote_entry("slow", &slow.url()) + &remote_entry("quick", &quick.url());
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["slow", "quick"]).await;
    let (mut patient, mut hasty) = (owner(&kernel).await, owner(&kernel).await);
    let mut waiting = Vec::new();
    for _ in 0..100 {
        waiting.push(begin(&mut patient, "slow__slow", json!({"ms": 3000})).await);
    }
    in_flight(&mut hasty, "slow", 100).await;
    for id in ["quick", "slow"] {
        within("an echo", AT_ONCE, echoes(&mut hasty, id)).await;
    }
    assert_eq!(shown(&mut hasty, "slow").await["in_flight"], 100);
    for id in waiting {
        assert_eq!(patient.answer_to(&id).await.text(), "slept");
    }
}

/// A call over HTTP that is never answered times out, and the server is told.
#[tokio::test]
async fn a_call_over_http_that_is_never_answered_times_out_and_is_cancelled() {
    let upstream = Upstream::start(&[]).await;
    let far = remote_entry("far", &upstream.url()) + "call_timeout_secs = 1\n";
    let kernel = Kernel::start(&far).await;
    kernel.connected(&["far"]).await;
    let mut agent = owner(&kernel).await;
    let answer = agent.call("far__hang", json!({})).await;
    assert_eq!(answer.error()["data"]["timeoutMs"], 1000);
    cancelled(&mut agent, "far", "hang", 1).await;
}

/// An answer over the limit is refused whichever way it comes, and the next one is not.
#[tokio::test]
async fn an_answer_over_the_limit_is_refused_over_http_too() {
    let (events, json) = (
        Upstream::start(&[]).await,
        Upstream::start(&["--http-json"]).await,
    );
    let old = Upstream::start(&["--sse-only"]).await;
    let limit = "max_frame_bytes = 100000\n";
    let servers = remote_entry("events", &events.url())
        + limit
        + &remote_entry("json", &json.url())
        + limit
        + &remote_entry("old", &format!("http://127.0.0.1:{}/sse", old.port()))
        + limit
        + QUICK;
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["events", "json", "old"]).await;
    let mut agent = owner(&kernel).await;
    for id in ["events", "json", "old"] {
        let huge = format!("{id}__huge");
        let refused = agent.call(&huge, json!({"bytes": 5 << 20})).await;
        assert_eq!(refused.code(), -32603, "{id}");
        let words = refused.error()["message"].to_string();
        assert!(
            words.contains("100000") && words.contains("max_frame_bytes"),
            "{id}: {words}"
        );
        echoes(&mut agent, id).await;
        assert_eq!(shown(&mut agent, id).await["in_flight"], 0);
    }
}

/// A server that is down when the kernel starts is not unknown: who calls it waits, and is answered
/// when it is there.
#[tokio::test]
async fn a_server_that_is_down_when_the_kernel_starts_is_waited_for() {
    let mut upstream = Upstream::start(&[]).await;
    let far = remote_entry("far", &upstream.url()) + QUICK;
    upstream.process().signal(Signal::SIGKILL);
    upstream.process().end(DEADLINE).await;
    let kernel = Kernel::start(&far).await;
    let (mut agent, mut other) = (owner(&kernel).await, owner(&kernel).await);
    let tried = |far: &Value| far["restarts"].as_u64() > Some(1);
    until(&mut other, "far", "is tried again", tried).await;
    let waits = begin(&mut agent, "far__echo", json!({"text": "hi"})).await;
    let uri = json!({"uri": "mcpk://far/test%3A%2F%2Fstatic-text"});
    let reads = agent.start("resources/read", uri).await;
    shown(&mut other, "far").await;
    let again = again(upstream.port(), &[]).await;
    assert_eq!(agent.answer_to(&waits).await.text(), "hi");
    agent.answer_to(&reads).await.result();
    drop(again);
}

/// The scripted server at a port where one was before.
async fn again(port: u16, flags: &[&str]) -> Process {
    let port = port.to_string();
    let args = [&["--http", &port, "--until-eof"], flags].concat();
    let mut process = Process::start("mgp-fixture", &Program::ours("mgp-fixture", args));
    let listening = |said: &str| said.contains("listening").then_some(());
    process.says("that it listens", DEADLINE, listening).await;
    process
}
