//! What is listed of events, and to whom; and what is private to an agent's instance.

use std::collections::BTreeSet;

use mgp_tests::harness::{Agent, DEADLINE, wait_until};
use serde_json::{Value, json};

use super::{heard, kernel, owner, speaker, subscribe, telling};
use crate::health::server;

async fn names(agent: &mut Agent, method: &str, list: &str, member: &str) -> BTreeSet<String> {
    let said = agent.request(method, json!({})).await.result();
    let all = said[list].as_array().unwrap().iter();
    all.map(|one| one[member].as_str().unwrap().to_owned())
        .collect()
}

async fn own_tools(agent: &mut Agent) -> Vec<String> {
    let all = names(agent, "tools/list", "tools", "name").await;
    all.into_iter()
        .filter(|name| name.starts_with("mgp"))
        .collect()
}

/// A-11: the methods of an extension are listed as tools to those who negotiated it.
#[tokio::test]
async fn methods_are_listed_as_tools_for_agents_that_negotiated_them() {
    let kernel = kernel(&telling("it", "a.b", &[]), &["it"]).await;
    let mut agent = speaker(&kernel, &["events"]).await;
    let events = ["channels", "replay", "subscribe", "unsubscribe"];
    let events: Vec<_> = events.map(|of| format!("mgp_events_{of}")).into();
    assert_eq!(own_tools(&mut agent).await, events);
    let said = agent.call(&events[0], json!({})).await.result();
    assert!(said["structuredContent"]["channels"].is_array(), "{said}");
    let mut agent = speaker(&kernel, &["streaming", "callbacks"]).await;
    let own = [
        "mgp_agent_ask",
        "mgp_callback_respond",
        "mgp_events_pending_callbacks",
        "mgp_stream_cancel",
        "mgp_stream_pace",
    ];
    assert_eq!(own_tools(&mut agent).await, own);
    let mut plain = kernel.http_agent(None);
    plain.initialize("2025-11-25", "{}").await.result();
    let none: [&str; 0] = [];
    assert_eq!(own_tools(&mut plain).await, none);
}

/// A-48: the channels, and the last events of each, are listed as resources to who agreed to events.
#[tokio::test]
async fn events_are_listed_as_resources() {
    let kernel = kernel(&telling("it", "a.b", &[]), &["it"]).await;
    let mut agent = speaker(&kernel, &["events"]).await;
    let mut plain = kernel.http_agent(None);
    plain.initialize("2025-11-25", "{}").await.result();
    let lists = [
        ("resources/list", "resources", "uri", "mgp://events"),
        (
            "resources/templates/list",
            "resourceTemplates",
            "uriTemplate",
            "mgp://events/{channel}",
        ),
    ];
    for (method, list, member, own) in lists {
        assert!(names(&mut agent, method, list, member).await.contains(own));
        assert!(!names(&mut plain, method, list, member).await.contains(own));
    }
    let read = json!({"uri": "mgp://events"});
    let said = agent.request("resources/read", read).await.result();
    let text = said["contents"][0]["text"].as_str().unwrap();
    let text: Value = serde_json::from_str(text).unwrap();
    let asked = agent.request("mgp/events/channels", json!({})).await;
    assert_eq!(text, asked.result());
    let read = json!({"uri": "mgp://eventss"});
    assert!(agent.request("resources/read", read).await.is_error());
}

/// A channel that an agent follows at its own instance of a server is listed to nobody else.
#[tokio::test]
async fn channel_of_an_own_instance_is_listed_to_its_agent_alone() {
    let entry = telling("it", "acme.secret", &[]);
    let entry = format!("{}\ninstances = \"agent\"\n", entry.trim_end());
    let kernel = kernel(&entry, &["it"]).await;
    let mut agent = speaker(&kernel, &["events"]).await;
    agent
        .call("it__echo", json!({"text": "mine"}))
        .await
        .result();
    wait_until("its instance has such a channel", DEADLINE, async || {
        let wanted = json!({"channels": ["acme.secret"]});
        let said = agent.request("mgp/events/subscribe", wanted).await.result();
        said["unsupported"] == json!([])
    })
    .await;
    let own = agent
        .request("mgp/events/channels", json!({}))
        .await
        .result();
    assert!(own.to_string().contains("acme.secret"), "{own}");
    let mut other = owner(&kernel).await;
    let said = other
        .request("mgp/events/channels", json!({}))
        .await
        .result();
    assert!(!said.to_string().contains("acme.secret"), "{said}");
}

/// MGP-184: what servers use is told, with how near it is to their limits; nothing of a server that is closed.
#[tokio::test]
async fn resource_use_of_servers_is_an_event() {
    let entries =
        server("full", &[], "[servers.limits]\nprocesses = 1") + &server("closed", &[], "");
    let kernel = kernel(&entries, &["full", "closed"]).await;
    let mut owner = owner(&kernel).await;
    let entry = json!({"entry_type": "server_grant", "agent_id": "agent.anonymous",
        "server_id": "closed", "tool_name": null, "permission": "deny"});
    owner.request("mgp/access/grant", entry).await.result();
    let mut agent = speaker(&kernel, &["events"]).await;
    let id = subscribe(&mut agent, &["system.resources"]).await;
    let event = heard(&mut agent).await;
    let data = &event["data"];
    assert_eq!(
        (&data["server_id"], &event["_mgp.severity"]),
        (&json!("full"), &json!("error"))
    );
    assert_eq!(
        (&data["level"], &data["limits"]),
        (&json!("reached"), &json!({"processes": 1}))
    );
    assert!(data["memory_bytes"].as_u64() > Some(1 << 20), "{data}");
    let end = json!({"subscription_id": id});
    agent.request("mgp/events/unsubscribe", end).await.result();
    let told = agent.heard(super::EVENT);
    assert!(
        !told
            .iter()
            .any(|event| event.to_string().contains("closed")),
        "{told:?}"
    );
    subscribe(&mut owner, &["system.resources"]).await;
    let mut told = BTreeSet::new();
    while told.len() < 2 {
        let event = heard(&mut owner).await;
        let data = &event["data"];
        told.insert(format!("{} {}", data["server_id"], data["level"]));
    }
    let both = [r#""closed" "clear""#, r#""full" "reached""#];
    assert_eq!(told, both.map(str::to_owned).into());
}
