//! Channels: registered, published to, observed, opened and closed (MCPL §14).

use mgp_tests::harness::{DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

use crate::scene::{Driver, Host, VERSION, answering, host, server};

/// A server that bridges to a chat, and declares everything about channels.
fn bridge() -> Program {
    let set = |uses: &str| json!({"description": "d", "uses": [uses], "scoped": true});
    let declared = json!({
        "version": "0.4",
        "channels": {"register": true, "publish": true, "observe": true, "lifecycle": true, "streaming": true},
        "featureSets": {
            "channels.publish": set("channels.publish"),
            "channels.observe": set("channels.observe"),
            "channels.thinking": set("channels.observe"),
        }
    });
    let failed =
        json!({"code": -32024, "message": "Channel open failed", "data": {"why": "banned"}});
    let answers = json!({
        "channels/publish": {"result": {"delivered": true, "messageId": "dmsg_9"}},
        "channels/open": [{"result": {"channel": channel("discord:#new", "bidirectional")}}, {"error": failed}],
        "channels/close": {"result": {"closed": true}},
    });
    answering(&declared, &answers)
}

fn channel(id: &str, direction: &str) -> Value {
    json!({"id": id, "type": "discord", "label": id, "direction": direction, "address": {"guild": "acme"}, "metadata": {"own": 1}})
}

const CONFIG: &str = r##"
[mcpl.servers.chat]
enable = ["*"]
[mcpl.servers.chat.scopes."channels.publish"]
whitelist = ["discord:**"]
blacklist = ["discord:#admin*"]
[mcpl.servers.chat.scopes."channels.observe"]
whitelist = ["discord:**"]
[mcpl.servers.chat.scopes."channels.thinking"]
whitelist = ["thinking"]
[mcpl.servers.mail]
enable = ["channels.publish", "channels.observe"]
[mcpl.servers.mail.scopes."channels.publish"]
whitelist = ["discord:**"]
[mcpl.servers.mail.scopes."channels.observe"]
whitelist = ["**"]
[mcpl.channels]
default_outgoing = "chat:discord:#dev"
tool_for = ["*"]
[mcpl.channels.moderation.keys]
channels = "chat:discord:#general"
pattern = "sk-[a-z0-9]+"
with = "[key]"
[mcpl.channels.moderation.rude]
channels = "chat:discord:#general"
way = "in"
pattern = "(?i)damn"
"##;

/// The servers `chat`, `mail` and `off` (whose sets are not enabled), and an agent that is an MCPL host.
struct Bridged {
    kernel: Kernel,
    host: Host,
    chat: Driver,
    mail: Driver,
    off: Driver,
}

impl Bridged {
    async fn start() -> Self {
        let kernel = start_kernel().await;
        Self {
            host: Host::start(&kernel).await,
            chat: Driver::at(&kernel, "chat").await,
            mail: Driver::at(&kernel, "mail").await,
            off: Driver::at(&kernel, "off").await,
            kernel,
        }
    }

    /// With four channels of `chat`, and one of the same id at each of the others.
    async fn with_channels() -> Self {
        let mut bridged = Self::start().await;
        let answer = bridged.chat.ask("channels/register", four_channels()).await;
        assert!(answer.get("result").is_some(), "{answer}");
        let same = json!({"channels": [channel("discord:#general", "bidirectional")]});
        for driver in [&mut bridged.mail, &mut bridged.off] {
            let answer = driver.ask("channels/register", same.clone()).await;
            assert!(answer.get("result").is_some(), "{answer}");
        }
        bridged
    }

    /// The answer to a request to publish this text.
    async fn publish(&self, to: &str, text: &str) -> Value {
        let params =
            json!({"conversationId": "conv_1", "channelId": to, "stream": false, "content": text});
        self.host.request("channels/publish", params).await
    }

    fn send_chunk(&self, to: &str, delta: &str) {
        let params = json!({"inferenceId": "inf_1", "conversationId": "conv_1", "channelId": to, "index": 0, "delta": delta});
        self.host.tell("channels/outgoing/chunk", params);
    }

    fn send_complete(&self, to: &str, text: &str) {
        let params = json!({"inferenceId": "inf_1", "conversationId": "conv_1", "channelId": to, "content": text});
        self.host.tell("channels/outgoing/complete", params);
    }

    /// The ids of the channels that the agent is shown.
    async fn listed(&self) -> Vec<String> {
        ids(&self.host.request("channels/list", json!({})).await)
    }
}

async fn start_kernel() -> Kernel {
    let servers = [
        bridge().entry("chat"),
        bridge().entry("mail"),
        bridge().entry("off"),
        CONFIG.into(),
    ];
    let kernel = Kernel::start(&servers.concat()).await;
    kernel.connected(&["chat", "mail", "off"]).await;
    kernel
}

fn four_channels() -> Value {
    json!({"channels": [
        channel("discord:#general", "bidirectional"),
        channel("discord:#dev", "outbound"),
        channel("discord:#admin-x", "bidirectional"),
        channel("discord:#in", "inbound"),
    ]})
}

fn ids(listed: &Value) -> Vec<String> {
    let channels = listed["result"]["channels"].as_array().unwrap();
    channels
        .iter()
        .map(|channel| channel["id"].as_str().unwrap().to_owned())
        .collect()
}

fn text(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

/// How many messages about channels reached the server.
async fn count_channel_messages(driver: &mut Driver) -> usize {
    let heard = driver.heard().await;
    let methods = heard.iter().filter_map(|heard| heard["method"].as_str());
    methods
        .filter(|method| method.starts_with("channels/"))
        .count()
}

/// MCPL-021, MCPL-117.
#[tokio::test]
async fn register_request_is_acknowledged_and_fills_the_registry() {
    let mut bridged = Bridged::start().await;
    let answer = bridged.chat.ask("channels/register", four_channels()).await;
    assert_eq!(
        answer["result"]["registered"],
        json!([
            "discord:#general",
            "discord:#dev",
            "discord:#admin-x",
            "discord:#in"
        ]),
        "{answer}"
    );
    let changed = bridged.host.hears("channels/changed").await;
    assert_eq!(changed["added"].as_array().unwrap().len(), 4, "{changed}");
    let all = [
        "chat:discord:#admin-x",
        "chat:discord:#dev",
        "chat:discord:#general",
        "chat:discord:#in",
    ];
    assert_eq!(bridged.listed().await, all);

    // Too many are rejected as a whole, and evict none.
    let many: Vec<Value> = (0..5000)
        .map(|n| channel(&n.to_string(), "inbound"))
        .collect();
    let answer = bridged
        .chat
        .ask("channels/register", json!({"channels": many}))
        .await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert_eq!(bridged.listed().await, all);
}

/// MCPL-116.
#[tokio::test]
async fn channel_descriptor_reaches_the_agent_unchanged_but_for_its_id() {
    let mut bridged = Bridged::start().await;
    let general = channel("discord:#general", "bidirectional");
    let all = json!({"channels": [general]});
    bridged.chat.ask("channels/register", all).await;
    let mut qualified = general.clone();
    qualified["id"] = json!("chat:discord:#general");
    let changed = bridged.host.hears("channels/changed").await;
    assert_eq!(changed["added"], json!([qualified]));
    let listed = bridged.host.request("channels/list", json!({})).await;
    assert_eq!(listed["result"]["channels"], json!([qualified]));

    // The same id again replaces the descriptor: it is unique in the connection.
    let mut renamed = general;
    renamed["label"] = json!("renamed");
    bridged
        .chat
        .ask("channels/register", json!({"channels": [renamed]}))
        .await;
    let listed = bridged.host.request("channels/list", json!({})).await;
    assert_eq!(listed["result"]["channels"][0]["label"], "renamed");
    assert_eq!(ids(&listed), ["chat:discord:#general"]);
}

/// MCPL-022, MCPL-118.
#[tokio::test]
async fn channels_changed_adds_removes_and_updates_channels() {
    let mut bridged = Bridged::with_channels().await;
    for server in ["chat", "mail"] {
        let changed = bridged.host.hears("channels/changed").await;
        let first = changed["added"][0]["id"].as_str().unwrap();
        assert!(first.starts_with(server), "{changed}");
    }
    let inbound = bridged.publish("chat:discord:#in", "x").await;
    assert_eq!(inbound["error"]["code"], -32017, "{inbound}");

    let changes = json!({
        "added": [channel("discord:#new", "outbound")],
        "removed": ["discord:#dev", "never"],
        "updated": [channel("discord:#in", "bidirectional")],
    });
    bridged.chat.tell("channels/changed", changes).await;
    let changed = bridged.host.hears("channels/changed").await;
    assert_eq!(changed["added"][0]["id"], "chat:discord:#new", "{changed}");
    assert_eq!(changed["removed"], json!(["chat:discord:#dev"]));
    let removed = bridged.publish("chat:discord:#dev", "x").await;
    assert_eq!(removed["error"]["code"], -32023, "{removed}");
    for to in ["chat:discord:#in", "chat:discord:#new"] {
        let delivered = bridged.publish(to, "x").await;
        assert_eq!(delivered["result"]["delivered"], true, "{to}: {delivered}");
    }
}

/// MCPL-023, MCPL-119.
#[tokio::test]
async fn channels_list_returns_to_a_server_its_own_channels_only() {
    let mut bridged = Bridged::with_channels().await;
    let listed = bridged.mail.ask("channels/list", json!({})).await;
    let own = channel("discord:#general", "bidirectional");
    assert_eq!(listed["result"]["channels"], json!([own]), "{listed}");
    let listed = bridged.chat.ask("channels/list", json!({})).await;
    assert_eq!(ids(&listed).len(), 4, "{listed}");
    // The other direction: to the agent, those of all servers that it may use.
    assert_eq!(bridged.listed().await.len(), 5);
}

/// MCPL-158: see also `channel_checks`.
#[tokio::test]
async fn same_channel_id_of_two_servers_is_two_channels() {
    let mut bridged = Bridged::with_channels().await;
    let known = [
        "chat:discord:#admin-x",
        "chat:discord:#dev",
        "chat:discord:#general",
        "chat:discord:#in",
        "mail:discord:#general",
    ];
    assert_eq!(bridged.listed().await, known);
    bridged.publish("mail:discord:#general", "x").await;
    let published = bridged.mail.heard_of("channels/publish").await;
    assert_eq!(published[0]["params"]["channelId"], "discord:#general");
    assert_eq!(count_channel_messages(&mut bridged.chat).await, 0);
    assert_eq!(count_channel_messages(&mut bridged.off).await, 0);
}

/// MCPL-125.
#[tokio::test]
async fn publish_request_returns_the_servers_receipt() {
    let mut bridged = Bridged::with_channels().await;
    let answer = bridged.publish("chat:discord:#dev", "Hello").await;
    assert_eq!(
        answer["result"],
        json!({"delivered": true, "messageId": "dmsg_9"}),
        "{answer}"
    );
    let published = bridged.chat.heard_of("channels/publish").await;
    assert_eq!(published.len(), 1);
    assert!(published[0].get("id").is_some(), "{published:?}");
    assert_eq!(published[0]["params"]["content"], text("Hello"));
    // The server has its own id of the agent's conversation.
    assert_ne!(published[0]["params"]["conversationId"], "conv_1");
    let records = bridged.kernel.mgp(&["audit", "find", "--json"]).await;
    let records = String::from_utf8_lossy(&records.stdout);
    assert!(records.contains("channels/publish"), "{records}");
    assert!(!records.contains("Hello"), "{records}");
}

/// MCPL-124, MCPL-026: as a notification it stays one, and both ways keep the conversation.
#[tokio::test]
async fn publish_notification_is_forwarded_as_a_notification() {
    let mut bridged = Bridged::with_channels().await;
    let params = json!({"conversationId": "conv_1", "channelId": "chat:discord:#dev", "stream": false, "content": text("noted")});
    bridged.host.tell("channels/publish", params);
    let published = bridged.chat.hears("channels/publish", 1).await;
    assert!(published[0].get("id").is_none(), "{published:?}");
    assert_eq!(published[0]["params"]["channelId"], "discord:#dev");
    assert_eq!(published[0]["params"]["content"], text("noted"));
    let conversation = &published[0]["params"]["conversationId"];
    bridged.publish("chat:discord:#general", "x").await;
    let published = bridged.chat.hears("channels/publish", 2).await;
    assert!(published[1].get("id").is_some(), "{published:?}");
    assert_eq!(published[1]["params"]["conversationId"], *conversation);
}

/// MCPL-147: the route is the operator's, and no method of servers changes it.
#[tokio::test]
async fn publish_without_a_channel_goes_to_the_configured_default() {
    let mut bridged = Bridged::with_channels().await;
    let params = json!({"conversationId": "conv_1", "content": text("to the default")});
    bridged.host.tell("channels/publish", params);
    let published = bridged.chat.hears("channels/publish", 1).await;
    assert_eq!(published[0]["params"]["channelId"], "discord:#dev");
    assert_eq!(count_channel_messages(&mut bridged.mail).await, 0);
    assert_eq!(count_channel_messages(&mut bridged.off).await, 0);
    let own = json!({"channelId": "discord:#general", "defaultOutgoing": "discord:#general"});
    let answer = bridged.mail.ask("channels/publish", own).await;
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
}

/// MCPL-114.
#[tokio::test]
async fn only_declared_channel_capabilities_are_used() {
    let set = |uses: &str| json!({"description": "d", "uses": [uses]});
    let declaring = |channels: Value| {
        let sets = json!({"out": set("channels.publish"), "seen": set("channels.observe")});
        server(&json!({"version": "0.4", "channels": channels, "featureSets": sets}))
    };
    let servers = [
        declaring(json!({"register": true, "observe": true})).entry("observer"),
        declaring(json!({"register": true, "publish": true})).entry("publisher"),
        declaring(json!({"publish": true, "observe": true})).entry("unregistered"),
        "[mcpl.servers.observer]\nenable = [\"*\"]\n[mcpl.servers.publisher]\nenable = [\"*\"]\n\
         [mcpl.servers.unregistered]\nenable = [\"*\"]\n"
            .to_owned(),
    ];
    let kernel = Kernel::start(&servers.concat()).await;
    kernel
        .connected(&["observer", "publisher", "unregistered"])
        .await;
    let host = Host::start(&kernel).await;
    let declared = json!({"register": true, "publish": true, "observe": true, "lifecycle": true, "streaming": true});
    assert_eq!(host.declared()["channels"], declared);

    let all = json!({"channels": [channel("a", "bidirectional")]});
    let mut observer = Driver::at(&kernel, "observer").await;
    let mut publisher = Driver::at(&kernel, "publisher").await;
    let mut unregistered = Driver::at(&kernel, "unregistered").await;
    for driver in [&mut observer, &mut publisher] {
        let answer = driver.ask("channels/register", all.clone()).await;
        assert_eq!(answer["result"]["registered"], json!(["a"]), "{answer}");
    }
    let answer = unregistered.ask("channels/register", all).await;
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    let answer = host
        .request(
            "channels/publish",
            json!({"channelId": "observer:a", "content": "x"}),
        )
        .await;
    assert_eq!(answer["error"]["code"], -32017, "{answer}");
    let open = json!({"type": "discord", "address": {}, "serverId": "observer"});
    let answer = host.request("channels/open", open).await;
    assert_eq!(answer["error"]["code"], -32024, "{answer}");
    for to in ["publisher:a", "observer:a"] {
        host.tell("channels/outgoing/chunk", json!({"inferenceId": "i", "conversationId": "c", "channelId": to, "index": 0, "delta": "x"}));
        host.tell(
            "channels/outgoing/complete",
            json!({"inferenceId": "i", "conversationId": "c", "channelId": to, "content": "x"}),
        );
    }
    // Neither streams, and one of them observes.
    observer.hears("channels/outgoing/complete", 1).await;
    assert_eq!(count_channel_messages(&mut observer).await, 1);
    assert_eq!(count_channel_messages(&mut publisher).await, 0);
}

/// MCPL-115.
#[tokio::test]
async fn server_without_enabled_channel_sets_has_no_part_in_channels() {
    let mut bridged = Bridged::with_channels().await;
    let listed = bridged.listed().await;
    assert!(
        !listed.iter().any(|id| id.starts_with("off:")),
        "{listed:?}"
    );
    let answer = bridged.publish("off:discord:#general", "x").await;
    assert_eq!(answer["error"]["code"], -32017, "{answer}");
    bridged.send_chunk("off:discord:#general", "x");
    bridged.send_chunk("thinking", "hmm");
    bridged.send_complete("off:discord:#general", "x");
    // The set for thinking is enabled at one server alone.
    bridged.chat.hears("channels/outgoing/chunk", 1).await;
    assert_eq!(count_channel_messages(&mut bridged.mail).await, 0);
    assert_eq!(count_channel_messages(&mut bridged.off).await, 0);
    // Nor did the agent hear of its channel.
    let heard = bridged.host.heard();
    assert!(!json!(heard).to_string().contains("off:"), "{heard:?}");
}

/// MCPL-133.
#[tokio::test]
async fn publish_outside_of_the_scopes_is_rejected_as_not_permitted() {
    let bridged = Bridged::with_channels().await;
    for to in ["chat:discord:#admin-x", "chat:discord:#in", "ui"] {
        let answer = bridged.publish(to, "x").await;
        let error = &answer["error"];
        assert_eq!(error["code"], -32017, "{to}: {answer}");
        assert_eq!(error["message"], "Channel not permitted", "{to}: {answer}");
        assert_eq!(error["data"]["channelId"], to);
    }
}

/// MCPL-134.
#[tokio::test]
async fn publish_to_an_unregistered_channel_is_rejected_as_unknown() {
    let bridged = Bridged::with_channels().await;
    for to in [
        "chat:discord:#none",
        "discord:#general",
        "nobody:discord:#general",
    ] {
        let answer = bridged.publish(to, "x").await;
        let error = &answer["error"];
        assert_eq!(error["code"], -32023, "{to}: {answer}");
        assert_eq!(error["message"], "Unknown channel", "{to}: {answer}");
        assert_eq!(error["data"]["channelId"], to);
    }
}

/// MCPL-131.
#[tokio::test]
async fn thinking_channel_is_observed_but_cannot_be_published_to() {
    let mut bridged = Bridged::with_channels().await;
    let answer = bridged.publish("thinking", "x").await;
    assert_eq!(answer["error"]["code"], -32017, "{answer}");
    assert_eq!(answer["error"]["data"]["channelId"], "thinking");
    bridged.send_chunk("thinking", "hmm");
    let chunks = bridged.chat.hears("channels/outgoing/chunk", 1).await;
    assert_eq!(chunks[0]["params"]["channelId"], "thinking");
    assert_eq!(chunks[0]["params"]["delta"], "hmm");
    assert!(bridged.chat.heard_of("channels/publish").await.is_empty());
}

/// MCPL-132.
#[tokio::test]
async fn published_text_is_moderated_before_it_leaves() {
    let mut bridged = Bridged::with_channels().await;
    bridged
        .publish("chat:discord:#general", "Hello sk-123")
        .await;
    bridged
        .publish("mail:discord:#general", "Hello sk-123")
        .await;
    let published = bridged.chat.heard_of("channels/publish").await;
    assert_eq!(published[0]["params"]["content"], text("Hello [key]"));
    // A rule is for the channels that it names.
    let published = bridged.mail.heard_of("channels/publish").await;
    assert_eq!(published[0]["params"]["content"], text("Hello sk-123"));
}

/// MCPL-122, MCPL-025: where a rule moderates a channel, its observer gets the complete output alone.
#[tokio::test]
async fn outgoing_chunks_reach_the_observers_of_unmoderated_channels() {
    let mut bridged = Bridged::with_channels().await;
    for to in [
        "chat:discord:#general",
        "chat:discord:#dev",
        "chat:discord:#none",
    ] {
        bridged.send_chunk(to, "sk-");
    }
    bridged.send_complete("chat:discord:#general", "done");
    // What was sent before was handled before.
    bridged.chat.hears("channels/outgoing/complete", 1).await;
    let chunks = bridged.chat.heard_of("channels/outgoing/chunk").await;
    assert_eq!(chunks.len(), 1, "{chunks:?}");
    assert!(chunks[0].get("id").is_none(), "{chunks:?}");
    let params = &chunks[0]["params"];
    assert_eq!(params["channelId"], "discord:#dev");
    assert_eq!(
        (&params["index"], &params["delta"]),
        (&json!(0), &json!("sk-"))
    );
    for id in ["inferenceId", "conversationId"] {
        assert!(params[id].is_string(), "{chunks:?}");
    }
    assert_eq!(count_channel_messages(&mut bridged.mail).await, 0);
}

/// MCPL-123, MCPL-025.
#[tokio::test]
async fn outgoing_complete_reaches_its_observer_after_moderation() {
    let mut bridged = Bridged::with_channels().await;
    bridged.publish("chat:discord:#general", "x").await;
    bridged.send_complete("mail:discord:#general", "sk-1 done");
    bridged.send_complete("chat:discord:#general", "sk-1 done");
    let complete = bridged.chat.hears("channels/outgoing/complete", 1).await;
    assert!(complete[0].get("id").is_none(), "{complete:?}");
    let params = &complete[0]["params"];
    assert_eq!(params["content"], text("[key] done"));
    assert_eq!(params["channelId"], "discord:#general");
    assert!(params["inferenceId"].is_string(), "{complete:?}");
    // The conversation has the id that the server knows from what was published there.
    let published = bridged.chat.heard_of("channels/publish").await;
    assert_eq!(
        params["conversationId"],
        published[0]["params"]["conversationId"]
    );
    let complete = bridged.mail.hears("channels/outgoing/complete", 1).await;
    assert_eq!(complete[0]["params"]["content"], text("sk-1 done"));
    assert_eq!(count_channel_messages(&mut bridged.mail).await, 1);
}

/// MCPL-146: a channel of runtime needs no configuration, moderated or not, and the host closes it when it likes.
#[tokio::test]
async fn channel_of_runtime_is_open_until_the_agent_blacklists_it() {
    let mut bridged = Bridged::start().await;
    for id in ["discord:#general", "discord:#fresh"] {
        let added = json!({"added": [channel(id, "bidirectional")]});
        bridged.chat.tell("channels/changed", added).await;
        bridged.host.hears("channels/changed").await;
        let to = format!("chat:{id}");
        let answer = bridged.publish(&to, "x").await;
        assert_eq!(answer["result"]["delivered"], true, "{answer}");
        bridged.host.tell(
            "featureSets/update",
            json!({"scopes": {"chat.channels.publish": {"blacklist": [id]}}}),
        );
        let answer = bridged.publish(&to, "x").await;
        assert_eq!(answer["error"]["code"], -32017, "{answer}");
    }
}

#[tokio::test]
async fn agent_without_mcpl_publishes_through_the_tool_in_its_own_conversation() {
    let mut bridged = Bridged::with_channels().await;
    bridged.publish("chat:discord:#dev", "x").await;
    let mut plain = bridged.kernel.http_agent(None);
    plain.initialize(VERSION, "{}").await;
    let arguments = json!({"channelId": "chat:discord:#dev", "content": "hi"});
    let answer = plain.call("mgp_channels_publish", arguments).await;
    assert!(
        answer.frame.contains(r#""delivered":true"#),
        "{}",
        answer.frame
    );
    let published = bridged.chat.heard_of("channels/publish").await;
    assert_eq!(published.len(), 2);
    assert_ne!(
        published[1]["params"]["conversationId"],
        published[0]["params"]["conversationId"]
    );
}

/// A message that came in at a channel.
fn message(channel: &str, id: &str, thread: &str, text: &str) -> Value {
    json!({"channelId": channel, "messageId": id, "threadId": thread, "author": {"id": "u_777", "name": "Alice"}, "timestamp": "2026-03-05T10:30:00Z", "content": text, "metadata": {"mentions": ["@bob"]}})
}

/// A batch of one.
fn incoming(id: &str, thread: &str) -> Value {
    json!({"messages": [message("discord:#general", id, thread, "hi")]})
}

/// What an agent answers to incoming messages.
fn results(results: Value) -> Value {
    json!({"result": {"results": results}})
}

/// A kernel whose server `chat` has one channel.
async fn with_one_channel() -> (Kernel, Driver) {
    let kernel = start_kernel().await;
    let mut chat = Driver::at(&kernel, "chat").await;
    let general = channel("discord:#general", "bidirectional");
    chat.ask("channels/register", json!({"channels": [general]}))
        .await;
    (kernel, chat)
}

/// MCPL-027.
#[tokio::test]
async fn incoming_request_is_answered_with_or_without_an_agent() {
    let (kernel, mut chat) = with_one_channel().await;
    let answer = chat.ask("channels/incoming", incoming("m0", "t")).await;
    let result = &answer["result"]["results"][0];
    assert_eq!(result["accepted"], false, "{answer}");
    assert!(
        result["reason"].as_str().unwrap().contains("no agent"),
        "{answer}"
    );

    let host = Host::start(&kernel).await;
    host.answers(
        "channels/incoming",
        json!([
            results(json!([{"messageId": "m1", "accepted": true}])),
            {"error": {"code": -32603, "message": "no"}},
        ]),
    );
    for (id, accepted) in [("m1", true), ("m2", false)] {
        let answer = chat.ask("channels/incoming", incoming(id, "t")).await;
        let result = &answer["result"]["results"][0];
        assert_eq!(result["accepted"], accepted, "{answer}");
    }
    let malformed = json!({"messages": [{"channelId": "discord:#general"}]});
    let answer = chat.ask("channels/incoming", malformed).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

/// MCPL-126.
#[tokio::test]
async fn incoming_messages_reach_the_agent_whole_and_moderated() {
    let (kernel, mut chat) = with_one_channel().await;
    let host = Host::start(&kernel).await;
    let batch = json!({"messages": [
        message("discord:#general", "m1", "t_42", "the key is sk-1"),
        message("discord:#none", "m2", "t_42", "x"),
        message("discord:#general", "m3", "t_42", "Damn"),
        message("discord:#general", "m4", "t_42", "x"),
    ]});
    chat.ask("channels/incoming", batch).await;
    let asked = host.asked("channels/incoming", 1).await;
    let given = &asked[0]["params"]["messages"];
    assert_eq!(given.as_array().unwrap().len(), 2);
    let mut whole = message("chat:discord:#general", "m1", "t_42", "");
    whole["content"] = text("the key is [key]");
    // The kernel's own id of the thread.
    assert!(given[0]["conversationId"].is_string(), "{given}");
    whole["conversationId"] = given[0]["conversationId"].clone();
    assert_eq!(given[0], whole);
    assert_eq!(given[1]["messageId"], "m4");
}

/// MCPL-127.
#[tokio::test]
async fn incoming_batch_has_one_result_for_each_message() {
    let (kernel, mut chat) = with_one_channel().await;
    let host = Host::start(&kernel).await;
    host.answers(
        "channels/incoming",
        results(json!([
            {"messageId": "m1", "accepted": true, "conversationId": "mine"},
            {"messageId": "m4", "accepted": false, "reason": "busy"},
        ])),
    );
    let batch = json!({"messages": [
        message("discord:#general", "m1", "t_42", "x"),
        message("discord:#none", "m2", "t_42", "x"),
        message("discord:#general", "m3", "t_42", "Damn"),
        message("discord:#general", "m4", "t_42", "x"),
    ]});
    let answer = chat.ask("channels/incoming", batch).await;
    let results = answer["result"]["results"].as_array().unwrap();
    let accepted: Vec<Value> = results
        .iter()
        .map(|one| json!([one["messageId"], one["accepted"]]))
        .collect();
    assert_eq!(
        json!(accepted),
        json!([["m1", true], ["m2", false], ["m3", false], ["m4", false]]),
        "{answer}"
    );
    assert!(results[0]["conversationId"].is_string(), "{answer}");
    assert_eq!(results[1]["reason"], "Unknown channel");
    assert_eq!(results[3]["reason"], "busy");
}

/// MCPL-128: the server never sees the agent's id, and where the agent names no conversation, the kernel does.
#[tokio::test]
async fn thread_of_a_channel_keeps_its_conversation() {
    let (kernel, mut chat) = with_one_channel().await;
    let host = Host::start(&kernel).await;
    host.answers(
        "channels/incoming",
        json!([
            results(json!([{"messageId": "m1", "accepted": true, "conversationId": "mine"}])),
            results(json!([{"messageId": "m5", "accepted": true, "conversationId": "mine"}])),
            results(json!([{"messageId": "m6", "accepted": true}])),
            results(json!([{"messageId": "m7", "accepted": true}])),
        ]),
    );
    let mut conversations = Vec::new();
    for (id, thread) in [
        ("m1", "t_42"),
        ("m5", "t_42"),
        ("m6", "t_43"),
        ("m7", "t_43"),
    ] {
        let answer = chat.ask("channels/incoming", incoming(id, thread)).await;
        let result = &answer["result"]["results"][0];
        conversations.push(result["conversationId"].as_str().unwrap().to_owned());
    }
    let [first, second, third, fourth] = &conversations[..] else {
        panic!("{conversations:?}");
    };
    assert_eq!(first, second);
    assert_ne!(first, "mine");
    assert_eq!(third, fourth);
    assert_ne!(first, third);
}

/// MCPL-024, MCPL-120: at the server that the agent names, where several could.
#[tokio::test]
async fn open_request_registers_the_channel_of_the_server() {
    let mut bridged = Bridged::start().await;
    let open = json!({"type": "discord", "address": {"guild": "acme"}, "metadata": {}});
    let answer = bridged.host.request("channels/open", open.clone()).await;
    assert_eq!(
        answer["error"]["code"], -32602,
        "two servers open channels: {answer}"
    );
    let mut at_chat = open.clone();
    at_chat["serverId"] = json!("chat");
    let answer = bridged.host.request("channels/open", at_chat).await;
    let mut opened = channel("discord:#new", "bidirectional");
    opened["id"] = json!("chat:discord:#new");
    assert_eq!(answer["result"], json!({"channel": opened}), "{answer}");
    let asked = bridged.chat.heard_of("channels/open").await;
    assert_eq!(asked[0]["params"], open);
    assert!(asked[0].get("id").is_some(), "{asked:?}");
    assert_eq!(bridged.listed().await, ["chat:discord:#new"]);
    assert_eq!(count_channel_messages(&mut bridged.mail).await, 0);
}

/// MCPL-135.
#[tokio::test]
async fn failed_open_returns_the_servers_error() {
    let bridged = Bridged::start().await;
    let open = json!({"type": "discord", "address": {}, "serverId": "chat"});
    bridged.host.request("channels/open", open.clone()).await;
    let answer = bridged.host.request("channels/open", open).await;
    let error = &answer["error"];
    assert_eq!(error["code"], -32024, "{answer}");
    assert_eq!(error["message"], "Channel open failed", "{answer}");
    assert_eq!(error["data"]["why"], "banned", "{answer}");
    assert_eq!(bridged.listed().await, ["chat:discord:#new"]);
}

/// MCPL-024, MCPL-121.
#[tokio::test]
async fn close_request_removes_the_channel() {
    let mut bridged = Bridged::with_channels().await;
    let close = json!({"channelId": "chat:discord:#dev"});
    let answer = bridged.host.request("channels/close", close.clone()).await;
    assert_eq!(answer["result"], json!({"closed": true}), "{answer}");
    let asked = bridged.chat.heard_of("channels/close").await;
    assert_eq!(asked[0]["params"], json!({"channelId": "discord:#dev"}));
    let listed = bridged.listed().await;
    assert!(
        !listed.contains(&"chat:discord:#dev".to_owned()),
        "{listed:?}"
    );
    let answer = bridged.host.request("channels/close", close).await;
    assert_eq!(answer["error"]["code"], -32023, "{answer}");
}

/// MCPL-148.
#[tokio::test]
async fn opened_channel_is_reopened_after_a_restart_of_its_server() {
    let bridged = Bridged::start().await;
    let open = json!({"type": "discord", "address": {}, "serverId": "chat"});
    bridged.host.request("channels/open", open).await;
    assert_eq!(bridged.listed().await, ["chat:discord:#new"]);
    bridged.kernel.mgp(&["servers", "restart", "chat"]).await;
    let mut chat = Driver::at(&bridged.kernel, "chat").await;
    wait_until("the channel to be opened again", DEADLINE, async || {
        let reopened = chat.heard_of("channels/open").await;
        reopened.len() == 1 && bridged.listed().await == ["chat:discord:#new"]
    })
    .await;
}

#[tokio::test]
async fn host_that_declares_no_channels_is_not_notified_of_them() {
    let bridged = Bridged::start().await;
    let mut declared = host();
    declared.as_object_mut().unwrap().remove("channels");
    let without = Host::declaring(&bridged.kernel, &declared, &[]).await;
    let open = json!({"type": "discord", "address": {}, "serverId": "chat"});
    bridged.host.request("channels/open", open).await;
    bridged.host.hears("channels/changed").await;
    without.request("ping", json!({})).await;
    assert!(without.heard().is_empty(), "{:?}", without.heard());
}
