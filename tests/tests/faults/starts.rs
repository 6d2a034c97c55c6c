//! Servers that start slowly or never: nobody but their own callers waits.

mod away;
mod restarts;
mod restored;
mod waiting;

use mgp_tests::harness::program::{Gate, remote_entry};
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{Kernel, Upstream};
use serde_json::json;

use crate::scene::{AT_ONCE, begin, echoes, entry, in_state, listed, owner, server};

/// Lists come from the kernel's own index: while four servers hang in every way they can, the lists
/// and the calls of the fifth one are there at once.
#[tokio::test]
async fn a_server_that_hangs_delays_no_list_and_no_call_of_others() {
    let mut far = Upstream::start(&["--hang-at-initialize"]).await;
    let servers = server("mute", &["--hang-at-initialize"], "")
        + &server("blank", &["--hanging-list", "tools/list"], "")
        + &server("late", &["--slow-start", "60000"], "")
        + &remote_entry("far", &far.url())
        + &server("calm", &[], "");
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["calm"]).await;
    let mut agent = kernel.http_agent(None);
    within("initialize", AT_ONCE, agent.initialize("2025-11-25", "{}")).await;
    for method in [
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ] {
        within(method, AT_ONCE, agent.request(method, json!({})))
            .await
            .result();
    }
    within("an echo", AT_ONCE, echoes(&mut agent, "calm")).await;
    for id in ["mute", "blank", "late", "far"] {
        assert_eq!(listed(&kernel, id).await["state"], "connecting", "{id}");
    }
    drop(kernel);
    assert!(far.process().ended().is_none());
}

/// A server that is not ready in time is in error, and the reason names the limit.
#[tokio::test]
async fn a_server_that_never_gets_ready_is_in_error_with_the_reason() {
    let keys = "start_timeout_secs = 1\nrestart_policy = \"never\"\nstop_grace_ms = 100";
    let servers = server("mute", &["--hang-at-initialize"], keys)
        + &server("blank", &["--hanging-list", "tools/list"], keys)
        + &server("late", &["--slow-start", "60000"], keys);
    let kernel = Kernel::start(&servers).await;
    let mut agent = owner(&kernel).await;
    for id in ["mute", "blank", "late"] {
        let reason = in_state(&mut agent, id, "error").await["reason"].to_string();
        assert!(reason.contains("start_timeout_secs"), "{id}: {reason}");
    }
}

/// A start may take longer than a call: programs are fetched before they run.
#[tokio::test]
async fn a_start_has_a_time_of_its_own() {
    let late = server("late", &["--slow-start", "6000"], "call_timeout_secs = 5");
    let kernel = Kernel::start(&late).await;
    kernel.connected(&["late"]).await;
    let mut agent = owner(&kernel).await;
    echoes(&mut agent, "late").await;
    assert_eq!(listed(&kernel, "late").await["restarts"], 0);
}

/// Who asks for a server that is just being started waits for it, and for nothing else: not to be greeted.
#[tokio::test]
async fn slow_server_delays_only_its_own_calls() {
    let gate = Gate::default();
    let servers = entry("late", &gate.fixture(&[]), "") + &server("calm", &[], "");
    let kernel = Kernel::start(&servers).await;
    let mut patient = kernel.http_agent(Some("late"));
    patient.initialize("2025-11-25", "{}").await.result();
    let echo = json!({"name": "echo", "arguments": {"text": "y"}});
    let waiting = patient.start("tools/call", echo).await;
    let mut hasty = kernel.http_agent(Some("calm"));
    hasty.initialize("2025-11-25", "{}").await.result();
    assert_eq!(hasty.call("echo", json!({"text": "x"})).await.text(), "x");
    assert_eq!(listed(&kernel, "late").await["state"], "connecting");
    gate.open();
    assert_eq!(patient.answer_to(&waiting).await.text(), "y");
    let listed = patient.request("tools/list", json!({})).await.result();
    assert!(!listed["tools"].as_array().unwrap().is_empty());
}

/// A call of a known tool waits for its server's restart; one of another server does not.
#[tokio::test]
async fn a_call_waits_for_the_restart_of_its_own_server_only() {
    let gate = Gate::default();
    gate.open();
    let late = entry("late", &gate.fixture(&[]), "backoff_base_ms = 20");
    let kernel = Kernel::start(&(late + &server("calm", &[], ""))).await;
    kernel.connected(&["late", "calm"]).await;
    let (mut patient, mut hasty) = (owner(&kernel).await, owner(&kernel).await);
    gate.close();
    let lost = patient.call("late__crash", json!({})).await;
    assert_eq!(lost.error()["data"]["outcome"], "unknown");
    let waiting = begin(&mut patient, "late__echo", json!({"text": "again"})).await;
    echoes(&mut hasty, "calm").await;
    assert_ne!(listed(&kernel, "late").await["state"], "connected");
    gate.open();
    assert_eq!(patient.answer_to(&waiting).await.text(), "again");
}
