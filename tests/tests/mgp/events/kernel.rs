//! The kernel's own channels (MGP §13.5): its calls, its servers, its decisions; and who reads of them.

use mgp_tests::harness::{DEADLINE, Kernel};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{EVENT, heard, kernel, owner, speaker, subscribe, telling};
use mgp_tests::harness::Agent;

const ANYBODY: &str = "agent.anonymous";

/// The next event of a channel.
async fn of(agent: &mut Agent, channel: &str) -> Value {
    loop {
        let event = heard(agent).await;
        if event["channel"] == channel {
            return event;
        }
    }
}

async fn decide(owner: &mut Agent, server: &str, permission: &str) {
    let entry = json!({"entry_type": "server_grant", "agent_id": ANYBODY, "server_id": server,
        "tool_name": null, "permission": permission});
    owner.request("mgp/access/grant", entry).await.result();
}

/// MGP-184: calls and refusals are told as they happen; an agent reads of its own, the operator of all.
#[tokio::test]
async fn an_agent_reads_of_its_own_calls_and_the_operator_of_all() {
    let kernel = kernel(&telling("it", "a.b", &[]), &["it"]).await;
    let mut owner = owner(&kernel).await;
    let mut agent = speaker(&kernel, &["events"]).await;
    subscribe(&mut owner, &["tool.*", "security.*"]).await;
    subscribe(&mut agent, &["tool.*", "security.*"]).await;
    owner
        .call("it__echo", json!({"text": "secret"}))
        .await
        .result();
    let started = of(&mut owner, "tool.started").await;
    assert_eq!(started["data"]["tool_name"], "echo");
    assert!(
        started.get("_mgp.cursor").is_none(),
        "it is not written down: {started}"
    );
    let done = of(&mut owner, "tool.completed").await;
    assert_eq!(done["data"]["actor"]["type"], "operator");
    assert!(done["_mgp.cursor"].is_string(), "{done}");
    agent
        .call("it__echo", json!({"text": "mine"}))
        .await
        .result();
    agent.call("it__fail", json!({})).await;
    agent.call("it__nothing", json!({})).await;
    let started = heard(&mut agent).await;
    assert_eq!(
        started["channel"], "tool.started",
        "the owner's call is not the agent's"
    );
    let done = of(&mut agent, "tool.completed").await;
    assert_eq!(
        (&done["data"]["server_id"], &done["data"]["tool_name"]),
        (&json!("it"), &json!("echo"))
    );
    assert!(done["data"].get("actor").is_none() && done["data"].get("details").is_none());
    assert_eq!(
        of(&mut agent, "security.access_denied").await["_mgp.severity"],
        "warning"
    );
    let seen = of(&mut owner, "tool.completed").await;
    assert_eq!(seen["data"]["actor"]["id"], ANYBODY);
    assert_eq!(
        of(&mut owner, "security.access_denied").await["data"]["actor"]["id"],
        ANYBODY
    );
}

/// What is closed to an agent is not told it, and not any more once its grant was taken back; and an agent
/// cannot tell a server that is closed from one that does not exist.
#[tokio::test]
async fn events_of_denied_servers_are_not_sent() {
    let entries = telling("one", "a.b", &[]) + &telling("two", "a.b,c.d", &[]);
    let kernel = kernel(&entries, &["one", "two"]).await;
    let mut owner = owner(&kernel).await;
    let mut agent = speaker(&kernel, &["events"]).await;
    decide(&mut owner, "two", "deny").await;
    let said = agent.request(
        "mgp/events/subscribe",
        json!({"channels": ["a.b", "c.d", "system.*"]}),
    );
    let said = said.await.result();
    assert_eq!(
        said["unsupported"],
        json!(["c.d"]),
        "only the closed server has it"
    );
    let tell = json!({"channel": "a.b"});
    owner.call("two__tell", tell.clone()).await.result();
    owner.call("one__tell", tell.clone()).await.result();
    assert_eq!(of(&mut agent, "a.b").await["_mgp.server_id"], "one");
    decide(&mut owner, "two", "allow").await;
    mgp_tests::harness::wait_until("the other server is asked, too", DEADLINE, async || {
        let held = super::held(&mut owner, "two__subscriptions").await;
        held.iter().any(|one| one["channels"] == json!(["a.b"]))
    })
    .await;
    owner.call("two__tell", tell.clone()).await.result();
    assert_eq!(of(&mut agent, "a.b").await["_mgp.server_id"], "two");
    decide(&mut owner, "two", "deny").await;
    owner.call("two__tell", tell.clone()).await.result();
    owner
        .request("mgp/servers/restart", json!({"id": "two"}))
        .await
        .result();
    owner.call("one__tell", tell).await.result();
    assert_eq!(of(&mut agent, "a.b").await["_mgp.server_id"], "one");
    agent.request("ping", json!({})).await.result();
    let told = agent.heard(EVENT);
    assert!(
        !told.iter().any(|event| event.to_string().contains("two")),
        "{told:?}"
    );
}

/// The coming and going of servers is told, and how bad it is.
#[tokio::test]
async fn changes_of_server_states_are_events_with_a_severity() {
    let kernel = kernel(&telling("it", "a.b", &[]), &["it"]).await;
    let mut owner = owner(&kernel).await;
    let mut agent = speaker(&kernel, &["events"]).await;
    subscribe(&mut agent, &["system.*"]).await;
    owner
        .request("mgp/servers/restart", json!({"id": "it"}))
        .await
        .result();
    let mut states = Vec::new();
    while states.last() != Some(&json!("connected")) {
        let event = of(&mut agent, "system.server_state").await;
        assert_eq!(event["data"]["server_id"], "it");
        states.push(event["data"]["new_state"].clone());
    }
    assert!(states.len() > 2, "{states:?}");
    let connected = of(&mut agent, "system.server_connected").await;
    assert_eq!(connected["data"], json!({"server_id": "it"}));
}

/// The cursor of an event that was written down is good for the next kernel, too: it is the place of its
/// record in the audit log.
#[tokio::test]
async fn a_cursor_outlives_the_kernel() {
    let kernel = kernel(&telling("it", "a.b", &[]), &["it"]).await;
    let mut owner_before = owner(&kernel).await;
    subscribe(&mut owner_before, &["tool.completed"]).await;
    for n in ["first", "second", "third"] {
        owner_before
            .call("it__echo", json!({"text": n}))
            .await
            .result();
    }
    let cursor = heard(&mut owner_before).await["_mgp.cursor"].clone();
    let next = heard(&mut owner_before).await;
    drop(owner_before);
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["it"]).await;
    let mut owner = owner(&kernel).await;
    let wanted = json!({"channels": ["tool.completed"], "_mgp.cursor": cursor});
    owner.request("mgp/events/subscribe", wanted).await.result();
    let again = heard(&mut owner).await;
    assert_eq!(again["_mgp.cursor"], next["_mgp.cursor"]);
    assert_eq!(again["data"]["trace_id"], next["data"]["trace_id"]);
    assert_eq!(heard(&mut owner).await["_mgp.seq"], 2);
    owner
        .call("it__echo", json!({"text": "live"}))
        .await
        .result();
    let live = heard(&mut owner).await;
    assert_eq!(
        live["_mgp.seq"], 3,
        "what comes goes on where the log ended"
    );
    let bad = json!({"channels": ["tool.completed"], "_mgp.cursor": "yesterday"});
    assert_eq!(
        owner.request("mgp/events/subscribe", bad).await.error()["code"],
        -32602
    );
}
