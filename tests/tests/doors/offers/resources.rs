//! Resources, their templates, and who hears of their changes.

use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

use crate::scene::{self, counts};

const WATCHED: &str = "test://watched-resource";

async fn read(agent: &mut Agent, uri: &str) -> Value {
    let read = agent.request("resources/read", json!({"uri": uri})).await;
    read.result()["contents"][0].take()
}

/// MCP-036, MCP-038, MCP-039: text and bytes, to the byte.
#[tokio::test]
async fn texts_and_bytes_are_read() {
    let kernel = scene::kernel().await;
    for server in [None, Some("it")] {
        let mut agent = scene::http_agent(&kernel, server, "{}").await;
        let text = read(&mut agent, "test://static-text").await;
        assert_eq!(text["mimeType"], "text/plain");
        assert_eq!(
            text["text"],
            "This is the content of the static text resource."
        );
        let png = read(&mut agent, "test://static-binary").await;
        assert_eq!(
            (&png["mimeType"], png.get("text")),
            (&json!("image/png"), None)
        );
        let blob = png["blob"].as_str().unwrap();
        use base64::prelude::{BASE64_STANDARD, Engine as _};
        assert!(
            BASE64_STANDARD
                .decode(blob)
                .unwrap()
                .starts_with(b"\x89PNG\r\n\x1a\n")
        );
    }
}

/// MCP-037: what a template matches is read from the server whose template it is.
#[tokio::test]
async fn uri_that_a_template_matches_is_read_from_its_server() {
    let kernel = scene::kernel().await;
    let mut agent = scene::http_agent(&kernel, None, "{}").await;
    let listed = agent
        .request("resources/templates/list", json!({}))
        .await
        .result();
    let template = &listed["resourceTemplates"][0]["uriTemplate"];
    assert_eq!(template, "test://template/{id}/data");
    let read = read(&mut agent, "test://template/a%20b/data").await;
    assert_eq!(read["uri"], "test://template/a%20b/data");
    assert!(
        read["text"]
            .as_str()
            .unwrap()
            .contains("Data for ID: a%20b")
    );
}

/// CMCP-080, A-28: a URI that two servers have is shown once for each, wrapped, and read back under
/// the name it was asked by; bare it is nobody's.
#[tokio::test]
async fn a_uri_of_two_servers_is_wrapped_and_read_back() {
    let kernel = scene::kernel_of_two().await;
    let mut agent = scene::http_agent(&kernel, None, "{}").await;
    let list = agent.request("resources/list", json!({})).await.result();
    let uris: Vec<&str> = list["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|resource| resource["uri"].as_str().unwrap())
        .collect();
    for server in ["one", "two"] {
        let wrapped = format!("mcpk://{server}/test%3A%2F%2Fstatic-text");
        assert!(uris.contains(&wrapped.as_str()), "{uris:?}");
        let text = read(&mut agent, &wrapped).await;
        assert_eq!(text["uri"], wrapped);
        assert_eq!(
            text["text"],
            "This is the content of the static text resource."
        );
        let reads =
            counts(&mut agent, &format!("{server}:count")).await["methods"]["resources/read"]
                .clone();
        assert_eq!(reads, 1, "{server}");
    }
    let templates = agent
        .request("resources/templates/list", json!({}))
        .await
        .result();
    for (n, server) in ["one", "two"].into_iter().enumerate() {
        let shown = templates["resourceTemplates"][n]["uriTemplate"]
            .as_str()
            .unwrap();
        assert_eq!(
            shown,
            format!("mcpk://{server}/test://template/{{id}}/data")
        );
        let filled = shown.replace("{id}", "7");
        let text = read(&mut agent, &filled).await;
        assert_eq!(text["uri"], filled);
        assert!(text["text"].as_str().unwrap().contains("Data for ID: 7"));
    }
    for nobodys in [
        "test://static-text",
        "test://template/7/data",
        "mcpk://three/test%3A%2F%2Fstatic-text",
    ] {
        let refused = agent
            .request("resources/read", json!({"uri": nobodys}))
            .await;
        assert_eq!(refused.code(), -32002, "{nobodys}");
    }
}

/// How often the server was asked for a method.
async fn asked(agent: &mut Agent, method: &str) -> u64 {
    counts(agent, "it:count").await["methods"][method]
        .as_u64()
        .unwrap_or(0)
}

async fn watch(agent: &mut Agent, how: &str, uri: &str) {
    agent.request(how, json!({"uri": uri})).await.result();
}

/// What was heard once everything that was said before is there: the answer to a call over the
/// server itself comes behind it.
async fn updates(agent: &mut Agent) -> usize {
    agent.call("it:echo", json!({"text": "x"})).await.result();
    let heard = agent.heard("notifications/resources/updated").len();
    agent.forget();
    heard
}

/// Makes the server change the watched resource.
async fn trigger(agent: &mut Agent) {
    let changed = agent.call("it:test_trigger_resource_update", json!({}));
    changed.await.result();
}

/// Two agents that subscribed to the watched resource, one of them twice, and one that did not.
async fn subscribers() -> (Kernel, [Agent; 3]) {
    let kernel = scene::kernel_with("", &["--era", "legacy"]).await;
    let mut one = scene::socket_agent(&kernel, "{}").await;
    let mut two = scene::socket_agent(&kernel, "{}").await;
    let other = scene::socket_agent(&kernel, "{}").await;
    for agent in [&mut one, &mut two] {
        watch(agent, "resources/subscribe", WATCHED).await;
        watch(agent, "resources/subscribe", WATCHED).await;
    }
    (kernel, [one, two, other])
}

/// MCP-040, CMCP-044: one for any number of agents, until the last of them leaves.
#[tokio::test]
async fn subscribers_share_one_subscription_at_the_server() {
    let (_kernel, [mut one, two, mut other]) = subscribers().await;
    assert_eq!(asked(&mut other, "resources/subscribe").await, 1);
    watch(&mut one, "resources/unsubscribe", WATCHED).await;
    assert_eq!(asked(&mut other, "resources/unsubscribe").await, 0);
    drop(two);
    let left = async || asked(&mut other, "resources/unsubscribe").await == 1;
    wait_until("the last one left", DEADLINE, left).await;
}

/// MCP-041.
#[tokio::test]
async fn updated_resource_notifies_each_subscriber_once_and_no_other() {
    let (_kernel, [mut one, mut two, mut other]) = subscribers().await;
    trigger(&mut other).await;
    for (agent, count) in [(&mut one, 1), (&mut two, 1), (&mut other, 0)] {
        assert_eq!(updates(agent).await, count);
    }
    watch(&mut one, "resources/unsubscribe", WATCHED).await;
    trigger(&mut other).await;
    for (agent, count) in [(&mut one, 0), (&mut two, 1), (&mut other, 0)] {
        assert_eq!(updates(agent).await, count);
    }
}

/// CMCP-045.
#[tokio::test]
async fn updated_resource_without_subscribers_notifies_nobody() {
    let kernel = scene::kernel_with("", &["--era", "legacy"]).await;
    let mut one = scene::socket_agent(&kernel, "{}").await;
    let mut other = scene::socket_agent(&kernel, "{}").await;
    trigger(&mut other).await;
    for agent in [&mut one, &mut other] {
        assert_eq!(updates(agent).await, 0);
    }
}

/// A server that was restarted is asked again for what its followers want.
#[tokio::test]
async fn a_restarted_server_is_subscribed_to_again() {
    let kernel = scene::kernel_with("", &["--era", "legacy"]).await;
    let mut follower = scene::socket_agent(&kernel, "{}").await;
    watch(&mut follower, "resources/subscribe", WATCHED).await;
    let restarted = kernel.mgp(&["servers", "restart", "it"]).await;
    assert!(restarted.status.success());
    let mut other = scene::http_agent(&kernel, None, "{}").await;
    let again = async || asked(&mut other, "resources/subscribe").await == 1;
    wait_until("it is asked again", DEADLINE, again).await;
    other
        .call("it:test_trigger_resource_update", json!({}))
        .await
        .result();
    let update = follower.hears("notifications/resources/updated").await;
    assert_eq!(update["params"]["uri"], WATCHED);
}

/// a follower of a wrapped URI hears of it by the name it knows, and of no other server's.
#[tokio::test]
async fn update_of_a_resource_carries_the_uri_of_the_subscriber() {
    let kernel = scene::kernel_of_two().await;
    let mut everything = scene::http_agent(&kernel, None, "{}").await;
    let mut alone = scene::http_agent(&kernel, Some("two"), "{}").await;
    let wrapped = "mcpk://two/test%3A%2F%2Fwatched-resource";
    watch(&mut everything, "resources/subscribe", wrapped).await;
    watch(&mut alone, "resources/subscribe", WATCHED).await;
    everything
        .call("one:test_trigger_resource_update", json!({}))
        .await
        .result();
    everything
        .call("two:test_trigger_resource_update", json!({}))
        .await
        .result();
    let update = everything.hears("notifications/resources/updated").await;
    assert_eq!(update["params"]["uri"], wrapped);
    let update = alone.hears("notifications/resources/updated").await;
    assert_eq!(update["params"]["uri"], WATCHED);
    let followers = [&everything, &alone];
    assert!(
        followers
            .iter()
            .all(|a| a.heard("notifications/resources/updated").is_empty())
    );
}

/// Who reads a resource of a server in error is told so; the others are read as ever.
#[tokio::test]
async fn resource_of_a_server_in_error_returns_its_error() {
    let gone = Program::fixture(&["--exit-at-start", "3"]).entry("gone");
    let there = Program::fixture(&[]).entry("it");
    let kernel = Kernel::start(&format!("{gone}max_restarts = 0\n{there}")).await;
    kernel.connected(&["it"]).await;
    let mut agent = scene::http_agent(&kernel, None, "{}").await;
    let refused = agent
        .request("resources/read", json!({"uri": "mcpk://gone/a%3Ab"}))
        .await;
    assert_eq!(refused.code(), -32603);
    assert_eq!(refused.error()["data"]["state"], "error");
    let nobody = json!({"uri": "mcpk://nobody/a%3Ab"});
    let nobody = agent.request("resources/read", nobody).await;
    assert_eq!(nobody.code(), -32002);
    read(&mut agent, "test://static-text").await;
}
