//! Events of a server of another node: who hears of them, how long, and what is said where some are missing.

use std::time::Duration;

use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::mgp::{declaration, declaring};
use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::agents::{legacy, named};
use crate::scene::{NEWEST, operator};

const EVENT: &str = "notifications/mgp.event";

/// Two nodes, one of which has a server that tells of `acme.x` and `acme.y`.
async fn nodes() -> JoinedNodes {
    let said = declaration(&["events"]).to_string();
    let server = Program::fixture(&["--mgp", &said, "--mgp-events", "acme.x,acme.y"]);
    let nodes = JoinedNodes::sharing(&server.entry("demo"), &["demo"]).await;
    named(&nodes, &["alice", "bob"], "demo").await;
    nodes
}

async fn agent(nodes: &JoinedNodes, name: &str) -> Agent {
    let capabilities = declaring(NEWEST, "{}", &declaration(&["events"]));
    legacy(nodes, name, &capabilities).await
}

/// Subscribes to `acme.x`; gives the id.
async fn subscribe(agent: &mut Agent) -> String {
    let channels = json!({"channels": ["acme.x", "zzz.q"]});
    let said = agent.request("mgp/events/subscribe", channels).await;
    let said = said.result();
    assert_eq!(said["subscribed"], json!(["acme.x"]), "{said}");
    assert_eq!(said["unsupported"], json!(["zzz.q"]), "{said}");
    said["subscription_id"].as_str().unwrap().to_owned()
}

/// Has the server tell an event.
async fn tell(agent: &mut Agent, tool: &str, data: Value) {
    let event = json!({"channel": "acme.x", "data": data});
    let said = agent.call(tool, event).await.result();
    assert_ne!(said["isError"], true, "{said}");
}

/// The params of the next event.
async fn heard(agent: &mut Agent) -> Value {
    agent.hears(EVENT).await["params"].clone()
}

/// What the server holds, as its owner's operator is told.
async fn held(owner: &mut Agent) -> usize {
    let said = owner.call("demo__subscriptions", json!({})).await.result();
    let held = said["structuredContent"]["subscriptions"].as_array();
    held.unwrap_or_else(|| panic!("{said}")).len()
}

/// Waits until neither kernel has anything left of a subscription, nor the server.
async fn nothing_is_left(nodes: &JoinedNodes, owner: &mut Agent) {
    wait_until("the server is let go", DEADLINE, async || {
        held(owner).await == 0
    })
    .await;
    for kernel in [&nodes.nas, &nodes.desk] {
        wait_until("no actor is left", DEADLINE, async || {
            let mut operator = operator(kernel).await;
            let tree = operator.request("mgp/kernel/tree", json!({})).await;
            let tree = tree.result();
            let runs = |task: &str| tree["tasks"][task]["running"].as_u64().unwrap_or(0);
            let waits = runs("link.channel") + runs("link.channel.request");
            !tree.to_string().contains("subscription\"") && waits == 0
        })
        .await;
    }
}

/// What the owner wrote down of who followed which channel.
async fn records(nas: &Kernel) -> Vec<Value> {
    let tail = nas.mgp(&["audit", "tail", "-n", "200", "--json"]).await;
    let tail = String::from_utf8(tail.stdout).unwrap();
    let events = tail.lines().map(|line| serde_json::from_str(line).unwrap());
    let of = |event: &Value| event["event_type"] == "dev.cloto.mgp.events_followed";
    events.filter(of).collect()
}

/// MGP-167, MGP-172, PRJ-013: the owner decides for each agent what it may hear of; a revoke ends that, and the end
/// of a subscription leaves nothing at either node.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_another_node_reach_agents_granted_there() {
    let nodes = nodes().await;
    let mut owner = operator(&nodes.nas).await;
    let (mut alice, mut bob) = (agent(&nodes, "alice").await, agent(&nodes, "bob").await);
    let ids = (subscribe(&mut alice).await, subscribe(&mut bob).await);
    assert_eq!(held(&mut owner).await, 1, "its owner asks once for both");
    let data = json!({"text": "ä\n", "large": 1.5e29});
    tell(&mut alice, "nas__demo__tell", data.clone()).await;
    for (agent, id) in [(&mut alice, &ids.0), (&mut bob, &ids.1)] {
        let event = heard(agent).await;
        assert_eq!(event["subscription_id"], json!(id));
        assert_eq!(event["channel"], "acme.x");
        assert_eq!(event["timestamp"], "2026-02-27T12:05:00.000Z");
        assert_eq!(event["data"], data);
        assert_eq!(event["_mgp.seq"], 1);
        assert_eq!(event["_mgp.server_id"], "nas/demo");
    }
    let replay = json!({"subscription_id": ids.0, "after_seq": 0});
    let replayed = alice.request("mgp/events/replay", replay).await.result();
    assert_eq!(replayed["events"][0]["data"], data, "{replayed}");
    let last = json!({"uri": "mgp://events/acme.x"});
    let last = alice.request("resources/read", last).await.result();
    let last = last["contents"][0]["text"].as_str().unwrap();
    assert!(last.contains("nas/demo"), "{last}");
    nodes
        .nas
        .mgp_json(&["grants", "remove", "bob@desk", "demo"])
        .await;
    wait_until("the revoke ended a subscription", DEADLINE, async || {
        let records = records(&nodes.nas).await;
        let mut reasons = records.iter().map(|record| &record["details"]["reason"]);
        reasons.any(|reason| reason == "closed" || reason == "left")
    })
    .await;
    tell(&mut alice, "nas__demo__tell", json!("after")).await;
    assert_eq!(heard(&mut alice).await["data"], "after");
    bob.request("ping", json!({})).await.result();
    assert_eq!(bob.heard(EVENT), [&Value::Null; 0], "after the revoke");
    let ended = json!({"subscription_id": ids.0});
    alice
        .request("mgp/events/unsubscribe", ended)
        .await
        .result();
    bob.close().await;
    nothing_is_left(&nodes, &mut owner).await;
    let mut written = Vec::new();
    wait_until(
        "two beginnings and two ends are written down",
        DEADLINE,
        async || {
            written = records(&nodes.nas).await;
            written.len() == 4
        },
    )
    .await;
    let actor = written[0]["actor"]["id"].as_str().unwrap();
    assert!(actor.starts_with("agent.alice@"), "{}", written[0]);
    assert_eq!(written[0]["details"]["channel"], "acme.x");
}

/// MGP-280, PRJ-007, PRJ-013: when the owner was killed and is back, its channels are asked for again under the same
/// subscription, whose reader is told that something may be missing.
#[tokio::test(flavor = "multi_thread")]
async fn subscription_resumes_with_a_gap_when_its_owner_returns() {
    let mut nodes = nodes().await;
    let mut alice = agent(&nodes, "alice").await;
    let id = subscribe(&mut alice).await;
    tell(&mut alice, "nas__demo__tell", json!(1)).await;
    assert_eq!(heard(&mut alice).await["_mgp.seq"], 1);
    let folder = nodes.nas.end(Signal::SIGKILL, DEADLINE).await;
    nodes.nas = Kernel::again(folder).await;
    let gap = heard(&mut alice).await;
    assert_eq!(gap["subscription_id"], json!(id));
    assert_eq!(gap["channel"], "system.subscription_gap", "{gap}");
    assert_eq!(gap["_mgp.server_id"], "nas/demo");
    assert_eq!(gap["data"]["channel"], "acme.x");
    assert_eq!(gap["_mgp.seq"], 3, "a number is missing");
    let mut owner = operator(&nodes.nas).await;
    let (mut event, mut last) = (gap, 1);
    // What the server offers may be found out anew meanwhile, which is another gap.
    while event["channel"] != "acme.x" {
        last = event["_mgp.seq"].as_u64().unwrap();
        tell(&mut owner, "demo__tell", json!(2)).await;
        event = heard(&mut alice).await;
    }
    assert_eq!(
        (&event["data"], &event["_mgp.seq"]),
        (&json!(2), &json!(last + 1))
    );
    alice.close().await;
    nothing_is_left(&nodes, &mut owner).await;
}

/// MGP-172, PRJ-013: a server that tells without end is cut to what a kernel reads; its numbers show what is missing,
/// and calls over the same link go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_at_another_node_is_cut_and_keeps_no_call_waiting() {
    let nodes = nodes().await;
    let mut owner = operator(&nodes.nas).await;
    let mut alice = agent(&nodes, "alice").await;
    subscribe(&mut alice).await;
    let flood = json!({"channel": "acme.x", "times": 60_000, "per_second": 60_000});
    let params = json!({"name": "demo__tell", "arguments": flood});
    let flooding = owner.start("tools/call", params).await;
    let mut bob = agent(&nodes, "bob").await;
    for n in 0..10 {
        let echo = bob.call("nas__demo__echo", json!({"text": n.to_string()}));
        let echo = tokio::time::timeout(Duration::from_secs(15), echo).await;
        assert_eq!(
            echo.expect("it answers beside the flood").text(),
            n.to_string()
        );
    }
    owner.answer_to(&flooding).await.result();
    let (mut last, mut gap) = (0, false);
    for n in 0.. {
        if n % 50 == 0 {
            tell(&mut owner, "demo__tell", json!("after")).await;
        }
        let seq = heard(&mut alice).await["_mgp.seq"].as_u64().unwrap();
        assert!(seq > last);
        (gap, last) = (gap || seq > last + 1, seq);
        if gap {
            break;
        }
    }
}
