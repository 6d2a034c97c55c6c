//! Events (MGP §13.2, §13.3, §13.5): who hears of what, over which subscription, and who does not.

mod bounds;
mod gaps;
mod kernel;
mod listed;
mod resources;

use mgp_tests::harness::mgp::{declaration, declaring};
use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

use crate::health::{owner, speaker};

const EVENT: &str = "notifications/mgp.event";

/// A scripted server that speaks events and has these channels, and more flags.
fn telling(id: &str, channels: &str, more: &[&str]) -> String {
    let said = declaration(&["events"]).to_string();
    let flags = ["--mgp", &said, "--mgp-events", channels];
    Program::fixture(&[&flags, more].concat()).entry(id)
}

async fn kernel(entries: &str, ids: &[&str]) -> Kernel {
    let kernel = Kernel::start(entries).await;
    kernel.connected(ids).await;
    kernel
}

/// Subscribes; gives the id.
async fn subscribe(agent: &mut Agent, channels: &[&str]) -> String {
    let said = agent.request("mgp/events/subscribe", json!({"channels": channels}));
    let said = said.await.result();
    assert_eq!(said["subscribed"], json!(channels), "{said}");
    said["subscription_id"].as_str().unwrap().to_owned()
}

/// Has a server tell an event.
async fn tell(agent: &mut Agent, tool: &str, event: Value) {
    let said = agent.call(tool, event).await.result();
    assert_ne!(said["isError"], true, "{said}");
}

/// The params of the next event.
async fn heard(agent: &mut Agent) -> Value {
    agent.hears(EVENT).await["params"].clone()
}

/// What a server holds.
async fn held(owner: &mut Agent, tool: &str) -> Vec<Value> {
    let said = owner.call(tool, json!({})).await.result();
    let held = said["structuredContent"]["subscriptions"].as_array();
    held.unwrap_or_else(|| panic!("{said}")).clone()
}

/// MGP-167: the server is subscribed to once for any number of agents.
#[tokio::test]
async fn subscription_of_each_agent_has_an_id_and_the_server_one_of_all() {
    let kernel = kernel(&telling("it", "model.token_usage,acme.x", &[]), &["it"]).await;
    let mut owner = owner(&kernel).await;
    let mut one = speaker(&kernel, &["bidirectional"]).await;
    let mut two = speaker(&kernel, &["events"]).await;
    let first = subscribe(&mut one, &["model.token_usage", "model.*"]).await;
    let second = subscribe(&mut two, &["model.*"]).await;
    assert_ne!(first, second);
    assert_eq!(held(&mut owner, "it__subscriptions").await.len(), 1);
}

/// MGP-168.
#[tokio::test]
async fn unknown_channels_are_reported_as_unsupported() {
    let kernel = kernel(&telling("it", "model.token_usage,acme.x", &[]), &["it"]).await;
    let mut agent = speaker(&kernel, &["bidirectional"]).await;
    let channels = ["model.token_usage", "zzz.q", "a..b", "model.*", "qqq.*"];
    let said = agent.request("mgp/events/subscribe", json!({"channels": channels}));
    let said = said.await.result();
    assert_eq!(said["subscribed"], json!(["model.token_usage", "model.*"]));
    assert_eq!(said["unsupported"], json!(["zzz.q", "a..b", "qqq.*"]));
}

/// MGP-172: under the id of each subscription.
#[tokio::test]
async fn agent_gets_events_of_the_channels_it_subscribed_to() {
    let kernel = kernel(&telling("it", "model.token_usage,acme.x", &[]), &["it"]).await;
    let mut owner = owner(&kernel).await;
    let mut one = speaker(&kernel, &["bidirectional"]).await;
    let mut two = speaker(&kernel, &["events"]).await;
    let first = subscribe(&mut one, &["model.token_usage", "model.*"]).await;
    let second = subscribe(&mut two, &["model.*"]).await;
    let data = json!({"tokens_used": 1500, "model": "llama"});
    let event = json!({"channel": "model.token_usage", "data": data});
    tell(&mut owner, "it__tell", event).await;
    for (agent, id) in [(&mut one, first), (&mut two, second)] {
        let event = heard(agent).await;
        assert_eq!(event["subscription_id"], id);
        assert_eq!(event["channel"], "model.token_usage");
        assert_eq!(event["timestamp"], "2026-02-27T12:05:00.000Z");
        assert_eq!(event["data"], data);
        assert_eq!(event["_mgp.seq"], 1);
        assert_eq!(event["_mgp.server_id"], "it");
    }
}

/// MGP-185: those that it may subscribe to.
#[tokio::test]
async fn channels_can_be_listed() {
    let kernel = kernel(&telling("it", "model.token_usage,acme.x", &[]), &["it"]).await;
    let mut agent = speaker(&kernel, &["bidirectional"]).await;
    subscribe(&mut agent, &["model.*"]).await;
    let said = agent.request("mgp/events/channels", json!({})).await;
    let names = said.result()["channels"].to_string();
    assert!(
        names.contains("model.*") && names.contains("tool.completed"),
        "{names}"
    );
    assert!(!names.contains("security.agents_changed"), "{names}");
}

/// MGP-169: a server is asked for the severity that an agent wants, for each of its own.
#[tokio::test]
async fn events_below_the_minimum_severity_are_filtered() {
    let kernel = kernel(&telling("it", "system.disk", &[]), &["it"]).await;
    let mut owner = owner(&kernel).await;
    let mut all = speaker(&kernel, &["events"]).await;
    subscribe(&mut all, &["system.disk"]).await;
    let mut bad = speaker(&kernel, &["events"]).await;
    let wanted = json!({"channels": ["system.disk"], "filter": {"min_severity": "warning"}});
    bad.request("mgp/events/subscribe", wanted).await.result();
    assert_eq!(held(&mut owner, "it__subscriptions").await.len(), 2);
    for severity in ["info", "error"] {
        let event = json!({"channel": "system.disk", "severity": severity, "data": severity});
        tell(&mut owner, "it__tell", event).await;
    }
    assert_eq!(heard(&mut bad).await["data"], "error");
    assert_eq!(heard(&mut all).await["data"], "info");
    assert_eq!(heard(&mut all).await["data"], "error");
    let loud = json!({"channels": ["system.disk"], "filter": {"min_severity": "loud"}});
    let error = bad.request("mgp/events/subscribe", loud).await.error();
    assert_eq!(error["code"], -32602);
}

/// MGP-170.
#[tokio::test]
async fn unsubscribed_agent_gets_no_more_events() {
    let kernel = kernel(&telling("it", "a.b", &[]), &["it"]).await;
    let mut owner = owner(&kernel).await;
    let mut one = speaker(&kernel, &["bidirectional"]).await;
    let mut two = speaker(&kernel, &["events"]).await;
    let first = subscribe(&mut one, &["a.b"]).await;
    let second = subscribe(&mut two, &["a.b"]).await;
    let end = json!({"subscription_id": first});
    one.request("mgp/events/unsubscribe", end).await.result();
    tell(&mut owner, "it__tell", json!({"channel": "a.b"})).await;
    assert_eq!(heard(&mut two).await["subscription_id"], json!(second));
    one.request("ping", json!({})).await.result();
    assert!(one.heard(EVENT).is_empty());
}

/// MGP-171: and one of another agent is as unknown; both leave the others as they are.
#[tokio::test]
async fn unsubscribe_with_an_unknown_id_is_4001() {
    let kernel = kernel(&telling("it", "a.b", &[]), &["it"]).await;
    let mut owner = owner(&kernel).await;
    let mut one = speaker(&kernel, &["bidirectional"]).await;
    let mut two = speaker(&kernel, &["events"]).await;
    let second = subscribe(&mut two, &["a.b"]).await;
    let mut errors = Vec::new();
    for id in ["sub-none", &second] {
        let end = json!({"subscription_id": id});
        let error = one.request("mgp/events/unsubscribe", end).await.error();
        assert_eq!(error["code"], 4001, "{error}");
        errors.push(error["message"].as_str().unwrap().replace(id, "ID"));
    }
    assert_eq!(errors[0], errors[1]);
    tell(&mut owner, "it__tell", json!({"channel": "a.b"})).await;
    assert_eq!(heard(&mut two).await["subscription_id"], json!(second));
}

/// MGP-173.
#[tokio::test]
async fn agent_without_a_subscription_gets_no_events() {
    let kernel = kernel(&telling("it", "a.b", &[]), &["it"]).await;
    let mut owner = owner(&kernel).await;
    let mut subscribed = speaker(&kernel, &["events"]).await;
    let mut fresh = speaker(&kernel, &["events"]).await;
    subscribe(&mut subscribed, &["a.b"]).await;
    tell(&mut owner, "it__tell", json!({"channel": "a.b"})).await;
    heard(&mut subscribed).await;
    fresh.request("ping", json!({})).await.result();
    assert!(fresh.heard(EVENT).is_empty());
}

/// MGP-174: at the server, too.
#[tokio::test]
async fn subscription_ends_with_its_connection() {
    let kernel = kernel(&telling("it", "a.b", &[]), &["it"]).await;
    let mut owner = owner(&kernel).await;
    let mut agent = speaker(&kernel, &["events"]).await;
    subscribe(&mut agent, &["a.b"]).await;
    assert_eq!(held(&mut owner, "it__subscriptions").await.len(), 1);
    agent.close().await;
    wait_until("the server is unsubscribed from", DEADLINE, async || {
        held(&mut owner, "it__subscriptions").await.is_empty()
    })
    .await;
    let tree = owner.request("mgp/kernel/tree", json!({})).await.result();
    assert!(!tree.to_string().contains("subscription\""), "{tree}");
}

/// MGP-280: a server that was started again is asked again, and the agent's subscription is the same.
#[tokio::test]
async fn a_subscription_outlives_its_server() {
    let kernel = kernel(&telling("it", "a.b", &[]), &["it"]).await;
    let mut owner = owner(&kernel).await;
    let mut agent = speaker(&kernel, &["events"]).await;
    let id = subscribe(&mut agent, &["a.b"]).await;
    tell(&mut owner, "it__tell", json!({"channel": "a.b"})).await;
    assert_eq!(heard(&mut agent).await["_mgp.seq"], 1);
    let restart = json!({"id": "it"});
    owner.request("mgp/servers/restart", restart).await.result();
    kernel.connected(&["it"]).await;
    wait_until("it is asked again", DEADLINE, async || {
        held(&mut owner, "it__subscriptions").await.len() == 1
    })
    .await;
    tell(&mut owner, "it__tell", json!({"channel": "a.b"})).await;
    let event = heard(&mut agent).await;
    assert_eq!(event["subscription_id"], json!(id));
    assert_eq!(event["_mgp.seq"], 2);
    let replay = json!({"subscription_id": id, "after_seq": 0});
    let said = agent.request("mgp/events/replay", replay).await.result();
    assert_eq!(said["events"].as_array().unwrap().len(), 2, "{said}");
    assert_eq!(said["events"][1]["_mgp.seq"], 2);
    assert_eq!(
        (&said["truncated"], &said["has_more"]),
        (&json!(false), &json!(false))
    );
}

/// the same by the names of tools; and who did not agree to events knows no such word.
#[tokio::test]
async fn event_methods_are_tools_for_agents_that_negotiated_events() {
    let kernel = kernel(&telling("it", "a.b", &[]), &["it"]).await;
    let mut owner = owner(&kernel).await;
    let mut agent = speaker(&kernel, &["events"]).await;
    for name in ["mgp.events.subscribe", "mgp_events_subscribe"] {
        let said = agent
            .call(name, json!({"channels": ["a.b"]}))
            .await
            .result();
        assert_eq!(
            said["structuredContent"]["subscribed"],
            json!(["a.b"]),
            "{said}"
        );
    }
    tell(&mut owner, "it__tell", json!({"channel": "a.b"})).await;
    let ids = [heard(&mut agent).await, heard(&mut agent).await];
    assert_ne!(ids[0]["subscription_id"], ids[1]["subscription_id"]);
    let mut other = speaker(&kernel, &["audit"]).await;
    let subscribe = json!({"channels": ["a.b"]});
    let unknown = other
        .request("mgp/events/subscribe", subscribe.clone())
        .await;
    assert_eq!(unknown.error()["code"], -32601);
    assert!(
        other
            .call("mgp.events.subscribe", subscribe)
            .await
            .is_error()
    );
}

/// the same channel of two servers is one to a subscriber, and each event says whose it is; what a
/// server does not have, tells unasked or under another's id reaches nobody.
#[tokio::test]
async fn event_is_attributed_to_the_server_that_sent_it() {
    let entries = telling("one", "a.b", &[]) + &telling("two", "a.b,c.d", &[]);
    let kernel = kernel(&entries, &["one", "two"]).await;
    let mut owner = owner(&kernel).await;
    let mut agent = speaker(&kernel, &["events"]).await;
    subscribe(&mut agent, &["a.b"]).await;
    let own = held(&mut owner, "one__subscriptions").await[0]["id"].clone();
    for (tool, channel, id) in [
        ("one__tell", "c.d", own.clone()),
        ("one__tell", "a.b", json!("up-77")),
        ("two__tell", "a.*", own.clone()),
        ("two__tell", "x y", own.clone()),
        ("one__tell", "a.b", own.clone()),
        ("two__tell", "a.b", own),
    ] {
        let event = json!({"channel": channel, "subscription": id, "data": [tool, channel]});
        tell(&mut owner, tool, event).await;
    }
    let mut told = [heard(&mut agent).await, heard(&mut agent).await];
    told.sort_by_key(|event| event["_mgp.server_id"].to_string());
    assert_eq!(told[0]["_mgp.server_id"], "one");
    assert_eq!(told[1]["_mgp.server_id"], "two");
    agent.request("ping", json!({})).await.result();
    assert!(agent.heard(EVENT).is_empty(), "{:?}", agent.heard(EVENT));
}

/// A client without a connection is told where it hears of events.
#[tokio::test]
async fn subscription_of_a_stateless_client_is_rejected_with_the_alternative() {
    let kernel = kernel(&telling("it", "a.b", &[]), &["it"]).await;
    let version = mgp_tests::harness::envelope::MODERN;
    let capabilities = declaring(version, "{}", &declaration(&["events"]));
    let mut client =
        mgp_tests::harness::Client::over_socket(&kernel.socket(), version, &capabilities).await;
    let said = client.request("mgp/events/subscribe", json!({"channels": ["a.b"]}));
    let words = said.await.error()["message"].to_string();
    assert!(
        words.contains("subscriptions/listen") && words.contains("mgp://events/"),
        "{words}"
    );
}
