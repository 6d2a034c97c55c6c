//! Servers that are started after others (§11.2).

use mgp_tests::harness::program::Gate;
use mgp_tests::harness::{DEADLINE, Kernel, wait_until};
use serde_json::json;

use super::{owner, server, shown, speaker, until};

/// MGP-122, MGP-123: a server that comes after another one is started when that is connected; until then it
/// says for whom it waits, and a call to it waits as for any server that starts.
#[tokio::test]
async fn a_server_waits_for_those_that_come_before() {
    let gate = Gate::default();
    let db = gate.fixture(&[]).entry("db");
    let app = server("app", &[], "after = [\"db\"]");
    let kernel = Kernel::start(&(app + &db)).await;
    let mut owner = owner(&kernel).await;
    let waiting = shown(&mut owner, "app").await;
    assert_eq!(
        (&waiting["state"], &waiting["reason"]),
        (&json!("registered"), &json!("waits for db"))
    );
    let table = kernel.mgp(&["servers", "list"]).await;
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("waits for db"), "{table}");
    let echo = json!({"name": "app__echo", "arguments": {"text": "x"}});
    let call = owner.start("tools/call", echo).await;
    gate.open();
    assert_eq!(owner.answer_to(&call).await.text(), "x");
    assert_eq!(shown(&mut owner, "db").await["state"], "connected");
}

/// MGP-120: nobody is waited for who has failed for good, or is started by nobody; the operator's start waits
/// for nobody at all.
#[tokio::test]
async fn start_order_does_not_wait_for_a_failed_server() {
    let lost = server(
        "lost",
        &["--exit-at-start", "3"],
        "restart_policy = \"never\"",
    );
    let off = server("off", &[], "autostart = false");
    let mute = server("mute", &["--hang-at-initialize"], "");
    let app = server("app", &[], "after = [\"lost\", \"off\"]");
    let late = server("late", &[], "after = [\"mute\"]");
    let kernel = Kernel::start(&(app + &lost + &off + &mute + &late)).await;
    let mut owner = owner(&kernel).await;
    until(&mut owner, "app", "state", "connected").await;
    assert_eq!(shown(&mut owner, "late").await["reason"], "waits for mute");
    let started = owner
        .request("mgp/servers/start", json!({"id": "late"}))
        .await;
    assert_eq!(started.result()["state"], "connected");
}

/// MGP-122: no wait is longer than a start may take.
#[tokio::test]
async fn a_wait_for_others_has_an_end() {
    let mute = server("mute", &["--hang-at-initialize"], "");
    let app = server("app", &[], "after = [\"mute\"]\nstart_timeout_secs = 2");
    let kernel = Kernel::start(&(app + &mute)).await;
    let mut owner = owner(&kernel).await;
    until(&mut owner, "app", "state", "connected").await;
    assert_eq!(shown(&mut owner, "mute").await["state"], "connecting");
    let log = owner
        .request("mgp/servers/logs", json!({"id": "app"}))
        .await;
    let log = log.result().to_string();
    assert!(log.contains("waits for mute no longer"), "{log}");
}

/// MGP-122: a new order is taken up without a restart of what runs, and by what still waits.
#[tokio::test]
async fn changed_start_order_restarts_no_server() {
    let mute = server("mute", &["--hang-at-initialize"], "");
    let both = |after: &str| {
        let waits = server("waits", &[], &format!("after = [{after}]"));
        mute.clone()
            + &server(
                "runs",
                &[],
                &format!("after = [{}]", after.replace("mute", "waits")),
            )
            + &waits
    };
    let kernel = Kernel::start(
        &(mute.clone() + &server("runs", &[], "") + &server("waits", &[], "after = [\"mute\"]")),
    )
    .await;
    kernel.connected(&["runs"]).await;
    let mut owner = owner(&kernel).await;
    let mut agent = speaker(&kernel, &["lifecycle"]).await;
    let before = shown(&mut owner, "runs").await["pid"].clone();
    kernel.rewrite(&both(""));
    until(&mut owner, "waits", "state", "connected").await;
    kernel.rewrite(&both("\"mute\""));
    wait_until("the new order is read", DEADLINE, async || {
        let problems = owner.request("mgp/kernel/reload", json!({})).await.result();
        problems["problems"] == json!([])
    })
    .await;
    assert_eq!(shown(&mut owner, "runs").await["pid"], before);
    agent.request("ping", json!({})).await.result();
    let steps = agent.heard("notifications/mgp.lifecycle");
    assert!(
        steps
            .iter()
            .all(|step| step["params"]["server_id"] == "waits"),
        "{steps:?}"
    );
}
