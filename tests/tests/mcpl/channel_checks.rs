//! Every method of channels runs the same checks: grants, sets, feature sets and scopes (MCPL §14.5).

use mgp_engine::cluster::remote_requests::{self, MethodCheck, RemoteTarget};
use mgp_tests::harness::{Kernel, Program};
use serde_json::{Value, json};

use crate::scene::{Driver, Host, answering, host};

const CONFIG: &str = r##"
[mcpl.servers.chat]
enable = ["*"]
[mcpl.servers.chat.scopes.out]
whitelist = ["discord:**"]
blacklist = ["discord:#admin*"]
[mcpl.servers.chat.scopes.seen]
whitelist = ["discord:**"]
blacklist = ["discord:#admin*"]
[mcpl.channels]
tool_for = ["*"]
[sets.one]
tools = ["chat:mcpl_tell"]
"##;

fn channel(id: &str) -> Value {
    json!({"id": id, "type": "discord", "label": id, "direction": "bidirectional", "address": {"room": id}})
}

/// Opens one channel that is in the scopes, and then one that is not.
fn chat() -> Program {
    let set = |uses: &str| json!({"description": "d", "uses": [uses]});
    let declared = json!({
        "version": "0.4",
        "channels": {"register": true, "publish": true, "observe": true, "lifecycle": true, "streaming": true},
        "featureSets": {"out": set("channels.publish"), "seen": set("channels.observe")}
    });
    let answers = json!({
        "channels/publish": {"result": {"delivered": true, "messageId": "1"}},
        "channels/open": [{"result": {"channel": channel("discord:#new")}}, {"result": {"channel": channel("discord:#admin-2")}}],
        "channels/close": {"result": {"closed": true}},
    });
    answering(&declared, &answers)
}

async fn start_kernel() -> (Kernel, Driver) {
    let kernel = Kernel::start(&[&chat().entry("chat"), CONFIG].concat()).await;
    kernel.connected(&["chat"]).await;
    let mut chat = Driver::at(&kernel, "chat").await;
    let all: Vec<Value> = ["discord:#general", "discord:#old", "discord:#admin"]
        .map(channel)
        .into();
    chat.ask("channels/register", json!({"channels": all}))
        .await;
    (kernel, chat)
}

/// What is sent to try a method at a channel. Whoever adds a method of channels says it here.
fn params(method: &str, channel: &str) -> Value {
    match method {
        "channels/list" => json!({}),
        "channels/open" => json!({"type": "discord", "address": {}, "serverId": "chat"}),
        "channels/close" => json!({"channelId": channel}),
        "channels/publish" => {
            json!({"conversationId": "c", "channelId": channel, "content": "x"})
        }
        "channels/outgoing/chunk" => {
            json!({"inferenceId": "i", "conversationId": "c", "channelId": channel, "index": 0, "delta": "x"})
        }
        "channels/outgoing/complete" => {
            json!({"inferenceId": "i", "conversationId": "c", "channelId": channel, "content": "x"})
        }
        other => panic!("{other} is checked as a method of channels, and nothing tries it"),
    }
}

/// Tries a method in every way that it has; the answer of the request, where it can be one.
async fn try_method(host: &Host, method: &str, channel: &str) -> Option<Value> {
    let params = params(method, channel);
    if remote_requests::find_rule(RemoteTarget::Notification(method)).is_some() {
        host.tell(method, params.clone());
    }
    match remote_requests::find_rule(RemoteTarget::Method(method)) {
        Some(_) => Some(host.request(method, params).await),
        None => {
            // What was sent before is done when this is answered.
            host.request("ping", json!({})).await;
            None
        }
    }
}

/// The methods of channels that reached the server, once each.
async fn methods_at_server(chat: &mut Driver) -> Vec<String> {
    let heard = chat.heard().await;
    let methods = heard.iter().filter_map(|heard| heard["method"].as_str());
    let mut methods: Vec<String> = methods
        .filter(|method| method.starts_with("channels/"))
        .map(str::to_owned)
        .collect();
    methods.sort();
    methods.dedup();
    methods
}

async fn assert_refused(host: &Host, chat: &mut Driver, channel: &str, who: &str) {
    for method in remote_requests::methods_with_check(MethodCheck::Channel) {
        let answer = try_method(host, method, channel).await;
        let refused = answer.as_ref().is_none_or(|answer| match method {
            "channels/list" => !answer.to_string().contains(channel),
            _ => answer.get("error").is_some(),
        });
        assert!(refused, "{who}: {method}: {answer:?}");
        let text = answer.unwrap_or_default().to_string();
        assert!(!text.contains("room"), "{who}: {method}: {text}");
    }
    let reached = methods_at_server(chat).await;
    assert!(reached.is_empty(), "{who}: {reached:?}");
}

/// MCPL-158: a grant of one tool, a set with one tool, a feature set that the agent disabled or a scope that it closed: whatever
/// keeps an agent from publishing keeps it from every other method of channels, and from what comes and goes there.
#[tokio::test]
async fn every_channel_method_is_denied_to_an_agent_that_may_not_publish() {
    let (kernel, mut chat) = start_kernel().await;
    for command in [
        &["agents", "add", "al"][..],
        &["grants", "add", "al", "chat", "--deny"],
        &["grants", "add", "al", "chat:mcpl_tell"],
    ] {
        let done = kernel.mgp(command).await;
        assert!(done.status.success(), "{command:?}: {done:?}");
    }
    let with_set = Host::declaring(&kernel, &host(), &["--set", "one"]).await;
    let granted = Host::declaring(&kernel, &host(), &["--agent", "al"]).await;
    let without_sets = Host::start(&kernel).await;
    without_sets.tell("featureSets/update", json!({"disabled": ["chat.*"]}));
    let without_scopes = Host::start(&kernel).await;
    let closed = json!({"blacklist": ["discord:**"]});
    without_scopes.tell(
        "featureSets/update",
        json!({"scopes": {"chat.out": closed, "chat.seen": closed}}),
    );
    let all = [
        (&with_set, "a set of one tool"),
        (&granted, "a grant of one tool"),
        (&without_sets, "no feature set"),
    ];
    for (host, who) in all {
        assert_refused(host, &mut chat, "chat:discord:#general", who).await;
    }
    let listed = without_scopes.request("channels/list", json!({})).await;
    assert_eq!(listed["result"]["channels"], json!([]), "{listed}");

    let more = json!({"added": [channel("discord:#more")], "removed": ["discord:#old"]});
    chat.tell("channels/changed", more).await;
    for (host, who) in all.into_iter().chain([(&without_scopes, "no scope")]) {
        host.request("ping", json!({})).await;
        let heard = host.heard();
        let of_channels = heard
            .iter()
            .filter(|heard| heard["method"] == "channels/changed");
        assert_eq!(of_channels.count(), 0, "{who}: {heard:?}");
    }
    // The tool of an agent that has one tool of the server.
    let answer = granted
        .call(
            "mgp_channels_publish",
            json!({"channelId": "chat:discord:#general", "content": "x"}),
        )
        .await;
    assert!(answer.to_string().contains("Unknown channel"), "{answer}");
    assert!(methods_at_server(&mut chat).await.is_empty());
}

/// MCPL-130: what the scopes let through, every method does; what they do not, none does: a channel that a server opens outside of
/// them is closed again, and nobody is given it.
#[tokio::test]
async fn every_channel_method_applies_the_scopes() {
    let (kernel, mut chat) = start_kernel().await;
    let host = Host::start(&kernel).await;
    for method in remote_requests::methods_with_check(MethodCheck::Channel) {
        let channel = match method {
            "channels/close" => "chat:discord:#old",
            _ => "chat:discord:#general",
        };
        let answer = try_method(&host, method, channel).await;
        let text = answer.unwrap_or_default().to_string();
        assert!(!text.contains("error"), "{method}: {text}");
        assert!(!text.contains("admin"), "{method}: {text}");
        let reached = methods_at_server(&mut chat).await;
        let is_there = reached.iter().any(|reached| reached == method);
        assert_eq!(is_there, method != "channels/list", "{method}: {reached:?}");
    }
    let before = chat.heard_of("channels/close").await.len();
    for method in ["channels/close", "channels/publish"] {
        let answer = try_method(&host, method, "chat:discord:#admin")
            .await
            .unwrap();
        assert_eq!(answer["error"]["code"], -32017, "{method}: {answer}");
    }
    let answer = try_method(&host, "channels/open", "").await.unwrap();
    assert_eq!(answer["error"]["code"], -32024, "{answer}");
    assert!(!answer.to_string().contains("admin"), "{answer}");
    let closed = chat.hears("channels/close", before + 1).await;
    assert_eq!(
        closed.last().unwrap()["params"],
        json!({"channelId": "discord:#admin-2"})
    );
    let listed = host.request("channels/list", json!({})).await;
    assert!(!listed.to_string().contains("admin"), "{listed}");
}
