//! What belongs to a life that is replaced without a gap (§11.2): its tasks, and what agents follow of it.

use mgp_tests::harness::mgp::declaration;
use mgp_tests::harness::{DEADLINE, Kernel, ModernAgent, wait_until};
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use super::rolling::{ROLLING, pid, rolls, runs};
use super::{owner, server, shown, speaker};

/// A client that can be given tasks.
const KNOWS: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
const WATCHED: &str = "test://watched-resource";

/// MGP-117: a task of the life that is replaced goes on there, whoever asks after it is answered by that life, and
/// it ends when its client has seen the end; a new task is one of the new life.
#[tokio::test]
async fn a_task_goes_on_in_the_life_that_made_it() {
    let kernel = Kernel::start(&server("it", &[], ROLLING)).await;
    kernel.connected(&["it"]).await;
    let mut owner = owner(&kernel).await;
    let mut client = ModernAgent::over_http(&kernel.server_url("it"), KNOWS);
    let first = pid(&shown(&mut owner, "it").await);
    let slow =
        |label: &str| json!({"name": "slow_compute", "arguments": {"seconds": 3, "label": label}});
    let task = client.ask("tools/call", slow("old")).await.result();
    let before = json!({"taskId": task["taskId"]});
    rolls(&kernel).await;
    assert_ne!(pid(&shown(&mut owner, "it").await), first);
    let task = client.ask("tools/call", slow("new")).await.result();
    let after = json!({"taskId": task["taskId"]});
    for (task, label) in [(before, "old"), (after, "new")] {
        let mut seen = Value::Null;
        wait_until("the task has ended", DEADLINE, async || {
            seen = client.ask("tasks/get", task.clone()).await.result();
            assert!(label == "new" || seen["status"] == "completed" || runs(first));
            seen["status"] == "completed"
        })
        .await;
        let text = &seen["result"]["content"][0]["text"];
        assert_eq!(text, &json!(format!("computed {label}")), "{seen}");
    }
    wait_until("the first life has ended", DEADLINE, async || !runs(first)).await;
}

/// MGP-117, MGP-280: resources and channels that agents follow are asked for at the new life before the one it
/// replaces goes, and are not followed twice.
#[tokio::test]
async fn subscriptions_move_to_the_new_generation() {
    let events = declaration(&["events"]).to_string();
    let flags = ["--mgp", &events, "--mgp-events", "acme.x"];
    let kernel = Kernel::start(&server("it", &flags, ROLLING)).await;
    kernel.connected(&["it"]).await;
    let mut owner = owner(&kernel).await;
    let mut agent = speaker(&kernel, &["events"]).await;
    let uri = format!(
        "mcpk://it/{}",
        WATCHED.replace(':', "%3A").replace('/', "%2F")
    );
    agent
        .request("resources/subscribe", json!({"uri": uri}))
        .await
        .result();
    agent
        .request("mgp/events/subscribe", json!({"channels": ["acme.x"]}))
        .await
        .result();
    let first = pid(&shown(&mut owner, "it").await);
    rolls(&kernel).await;
    wait_until("the first life has ended", DEADLINE, async || !runs(first)).await;
    let held = owner.call("it__subscriptions", json!({})).await.result();
    let held = held["structuredContent"]["subscriptions"].as_array();
    assert_eq!(held.unwrap().len(), 1);
    owner
        .call("it__test_trigger_resource_update", json!({}))
        .await
        .result();
    agent.hears("notifications/resources/updated").await;
    let told = json!({"channel": "acme.x", "data": {"n": 1}});
    owner.call("it__tell", told).await.result();
    let event = agent.hears("notifications/mgp.event").await;
    assert_eq!(event["params"]["data"], json!({"n": 1}));
}

/// MGP-145, MGP-143: a change whose life does not come up is written down and told; a crash of the life that stayed
/// starts the entry that ran, and only the operator's restart tries the new one again.
#[tokio::test]
async fn crash_after_a_failed_change_restarts_the_running_definition() {
    let kernel = Kernel::start(&server("it", &[], ROLLING)).await;
    kernel.connected(&["it"]).await;
    let mut owner = owner(&kernel).await;
    owner
        .request(
            "mgp/events/subscribe",
            json!({"channels": ["system.server_state"]}),
        )
        .await
        .result();
    let first = pid(&shown(&mut owner, "it").await);
    kernel.rewrite(&server("it", &["--exit-at-start", "3"], ROLLING));
    let told = owner.hears("notifications/mgp.event").await["params"].clone();
    let reason = told["data"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("it was not replaced"), "{told}");
    let tail = kernel.mgp(&["audit", "tail", "-n", "50"]).await.stdout;
    let tail = String::from_utf8(tail).unwrap();
    assert!(tail.contains("server_not_replaced FAILURE"), "{tail}");
    kill(first, Signal::SIGKILL).unwrap();
    wait_until("it runs again", DEADLINE, async || {
        let it = shown(&mut owner, "it").await;
        it["state"] == "connected" && pid(&it) != first
    })
    .await;
    let call = owner.call("it__echo", json!({"text": "x"})).await;
    assert_eq!(call.text(), "x");
    let again = kernel.mgp(&["servers", "restart", "it"]).await;
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(!again.status.success() && said.contains("code 3"), "{said}");
}
