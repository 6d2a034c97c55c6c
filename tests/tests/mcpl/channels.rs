//! Channels: registered, published to, observed, opened and closed (MCPL §14).

use mgp_tests::harness::{DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

use crate::scene::{Driver, Host, VERSION, answering, host};

/// A bridge to a chat.
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

async fn bridged() -> Kernel {
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

fn ids(listed: &Value) -> Vec<&str> {
    let channels = listed["result"]["channels"].as_array().unwrap();
    channels
        .iter()
        .map(|channel| channel["id"].as_str().unwrap())
        .collect()
}

fn text(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

/// MCPL-021, MCPL-022, MCPL-023, MCPL-025, MCPL-026, MCPL-114, MCPL-115, MCPL-116, MCPL-117, MCPL-118, MCPL-119, MCPL-122, MCPL-123, MCPL-124, MCPL-125, MCPL-130,
/// MCPL-131, MCPL-132, MCPL-133, MCPL-134, MCPL-146, MCPL-147, MCPL-158: out.
#[tokio::test]
async fn what_is_published_reaches_the_one_server_that_has_the_channel() {
    let kernel = bridged().await;
    let host = Host::start(&kernel).await;
    let (mut chat, mut mail) = (
        Driver::at(&kernel, "chat").await,
        Driver::at(&kernel, "mail").await,
    );
    let mut off = Driver::at(&kernel, "off").await;
    registered(&host, &mut chat, [&mut mail, &mut off]).await;

    let publish = |to: &str, text: &str| {
        host.request(
            "channels/publish",
            json!({"conversationId": "conv_1", "channelId": to, "stream": false, "content": text}),
        )
    };
    let answer = publish("chat:discord:#general", "Hello sk-123").await;
    assert_eq!(
        answer["result"],
        json!({"delivered": true, "messageId": "dmsg_9"}),
        "{answer}"
    );
    let heard = chat.hears("channels/publish", 1).await;
    assert_eq!(heard[0]["params"]["channelId"], "discord:#general");
    assert_eq!(heard[0]["params"]["content"], text("Hello [key]"));
    let conversation = heard[0]["params"]["conversationId"].clone();
    assert_ne!(conversation, "conv_1");
    host.tell(
        "channels/publish",
        json!({"conversationId": "conv_1", "content": text("to the default")}),
    );
    let heard = chat.hears("channels/publish", 2).await;
    assert!(heard[1].get("id").is_none(), "{heard:?}");
    assert_eq!(heard[1]["params"]["channelId"], "discord:#dev");
    assert_eq!(heard[1]["params"]["conversationId"], conversation);

    for (to, code) in [
        ("chat:discord:#admin-x", -32017),
        ("chat:discord:#in", -32017),
        ("off:discord:#general", -32017),
        ("thinking", -32017),
        ("ui", -32017),
        ("chat:discord:#none", -32023),
        ("discord:#general", -32023),
        ("nobody:discord:#general", -32023),
    ] {
        let answer = publish(to, "x").await;
        assert_eq!(answer["error"]["code"], code, "{to}: {answer}");
        assert_eq!(answer["error"]["data"]["channelId"], to);
    }

    observed(&host, &mut chat, [&mut mail, &mut off], &conversation).await;

    // An agent that wants less has less.
    host.tell(
        "featureSets/update",
        json!({"scopes": {"chat.channels.publish": {"blacklist": ["discord:#general"]}}}),
    );
    let answer = publish("chat:discord:#general", "x").await;
    assert_eq!(answer["error"]["code"], -32017, "{answer}");

    // One without MCPL that was given the tool.
    let mut plain = kernel.http_agent(None);
    plain.initialize(VERSION, "{}").await;
    let answer = plain
        .call(
            "mgp_channels_publish",
            json!({"channelId": "chat:discord:#dev", "content": "hi"}),
        )
        .await;
    assert!(
        answer.frame.contains(r#""delivered":true"#),
        "{}",
        answer.frame
    );
    let heard = chat.hears("channels/publish", 3).await;
    assert_ne!(heard[2]["params"]["conversationId"], conversation);
    let gone = json!({"removed": ["discord:#dev", "never"], "updated": [channel("discord:#in", "bidirectional")]});
    chat.tell("channels/changed", gone).await;
    let told = host.hears("channels/changed").await;
    assert_eq!(told["removed"], json!(["chat:discord:#dev"]), "{told}");
    assert_eq!(
        publish("chat:discord:#dev", "x").await["error"]["code"],
        -32023
    );
    let records = kernel.mgp(&["audit", "find", "--json"]).await;
    let records = String::from_utf8_lossy(&records.stdout);
    assert!(!records.contains("Hello"), "{records}");
}

/// What servers have reaches agents by names that cannot meet.
async fn registered(host: &Host, chat: &mut Driver, [mail, off]: [&mut Driver; 2]) {
    let all = json!([
        channel("discord:#general", "bidirectional"),
        channel("discord:#dev", "outbound"),
        channel("discord:#admin-x", "bidirectional"),
        channel("discord:#in", "inbound"),
    ]);
    let answer = chat
        .ask("channels/register", json!({"channels": all}))
        .await;
    assert_eq!(
        answer["result"]["registered"].as_array().unwrap().len(),
        4,
        "{answer}"
    );
    let told = host.hears("channels/changed").await;
    assert_eq!(told["added"].as_array().unwrap().len(), 4, "{told}");
    for driver in [&mut *mail, off] {
        let same = json!({"channels": [channel("discord:#general", "bidirectional")]});
        driver.ask("channels/register", same).await;
    }
    // What nobody may publish to or observe, nobody is told of.
    let told = host.hears("channels/changed").await;
    assert_eq!(told["added"][0]["id"], "mail:discord:#general", "{told}");
    // Too many are none, and take no other one away.
    let many: Vec<Value> = (0..5000)
        .map(|n| channel(&n.to_string(), "inbound"))
        .collect();
    let answer = mail
        .ask("channels/register", json!({"channels": many}))
        .await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let listed = mail.ask("channels/list", json!({})).await;
    assert_eq!(ids(&listed), ["discord:#general"]);

    // The agent knows both of one id apart, and none of a server whose sets are off.
    let listed = host.request("channels/list", json!({})).await;
    let known = [
        "chat:discord:#admin-x",
        "chat:discord:#dev",
        "chat:discord:#general",
        "chat:discord:#in",
        "mail:discord:#general",
    ];
    assert_eq!(ids(&listed), known);
}

/// What an agent writes is told to who observes it.
async fn observed(
    host: &Host,
    chat: &mut Driver,
    [mail, off]: [&mut Driver; 2],
    conversation: &Value,
) {
    // Parts go out where nothing is moderated; where something is, the whole does.
    let chunk = |to: &str| {
        host.tell("channels/outgoing/chunk", json!({"inferenceId": "inf_1", "conversationId": "conv_1", "channelId": to, "index": 0, "delta": "sk-"}));
    };
    [
        "chat:discord:#general",
        "chat:discord:#dev",
        "thinking",
        "chat:discord:#none",
    ]
    .iter()
    .for_each(|to| chunk(to));
    let whole = |to: &str| {
        host.tell("channels/outgoing/complete", json!({"inferenceId": "inf_1", "conversationId": "conv_1", "channelId": to, "content": "sk-1 done"}));
    };
    ["mail:discord:#general", "chat:discord:#general"]
        .iter()
        .for_each(|to| whole(to));
    let complete = chat.hears("channels/outgoing/complete", 1).await;
    assert_eq!(complete[0]["params"]["content"], text("[key] done"));
    assert_eq!(complete[0]["params"]["channelId"], "discord:#general");
    assert_eq!(complete[0]["params"]["conversationId"], *conversation);
    let chunks = chat.heard_of("channels/outgoing/chunk").await;
    let of: Vec<&Value> = chunks
        .iter()
        .map(|chunk| &chunk["params"]["channelId"])
        .collect();
    assert_eq!(of, ["discord:#dev", "thinking"]);
    assert_eq!(chunks[0]["params"]["delta"], "sk-");
    let complete = mail.hears("channels/outgoing/complete", 1).await;
    assert_eq!(complete[0]["params"]["content"], text("sk-1 done"));
    assert!(mail.heard_of("channels/outgoing/chunk").await.is_empty());
    assert!(mail.heard_of("channels/publish").await.is_empty());
    let heard = off.heard().await;
    let of_channels = |heard: &&Value| {
        heard["method"]
            .as_str()
            .is_some_and(|method| method.starts_with("channels/"))
    };
    assert_eq!(heard.iter().filter(of_channels).count(), 0, "{heard:?}");
}

/// MCPL-024, MCPL-027, MCPL-120, MCPL-121, MCPL-126, MCPL-127, MCPL-128, MCPL-135, MCPL-148: in, opened and closed.
#[tokio::test]
async fn what_comes_in_is_taken_by_one_agent_and_keeps_its_conversation() {
    let kernel = bridged().await;
    let mut chat = Driver::at(&kernel, "chat").await;
    let general = channel("discord:#general", "bidirectional");
    chat.ask("channels/register", json!({"channels": [general]}))
        .await;
    let message = |channel: &str, id: &str, thread: &str, text: &str| json!({"channelId": channel, "messageId": id, "threadId": thread, "author": {"id": "u_777", "name": "Alice"}, "timestamp": "2026-03-05T10:30:00Z", "content": text, "metadata": {"mentions": ["@bob"]}});
    let one = |id: &str, thread: &str| json!({"messages": [message("discord:#general", id, thread, "hi")]});

    // Nobody is there.
    let answer = chat.ask("channels/incoming", one("m0", "t")).await;
    let result = &answer["result"]["results"][0];
    assert_eq!(result["accepted"], false, "{answer}");
    assert!(
        result["reason"].as_str().unwrap().contains("no agent"),
        "{answer}"
    );

    let host = Host::start(&kernel).await;
    let taken = |results: Value| json!({"result": {"results": results}});
    host.answers("channels/incoming", json!([
        taken(json!([{"messageId": "m1", "accepted": true, "conversationId": "mine"}, {"messageId": "m4", "accepted": false, "reason": "busy"}])),
        taken(json!([{"messageId": "m5", "accepted": true, "conversationId": "mine"}])),
        taken(json!([{"messageId": "m6", "accepted": true}])),
        taken(json!([{"messageId": "m7", "accepted": true}])),
        {"error": {"code": -32603, "message": "no"}},
    ]));
    let batch = json!({"messages": [
        message("discord:#general", "m1", "t_42", "the key is sk-1"),
        message("discord:#none", "m2", "t_42", "x"),
        message("discord:#general", "m3", "t_42", "Damn"),
        message("discord:#general", "m4", "t_42", "x"),
    ]});
    let answer = chat.ask("channels/incoming", batch).await;
    let results = answer["result"]["results"].as_array().unwrap().clone();
    let accepted: Vec<Value> = results
        .iter()
        .map(|one| json!([one["messageId"], one["accepted"]]))
        .collect();
    assert_eq!(
        json!(accepted),
        json!([["m1", true], ["m2", false], ["m3", false], ["m4", false]]),
        "{answer}"
    );
    assert_eq!(results[1]["reason"], "Unknown channel");
    assert_eq!(results[3]["reason"], "busy");
    let conversation = results[0]["conversationId"].clone();
    assert_ne!(conversation, "mine");
    let asked = host.asked("channels/incoming", 1).await;
    let given = &asked[0]["params"]["messages"];
    assert_eq!(given.as_array().unwrap().len(), 2);
    assert_eq!(given[0]["channelId"], "chat:discord:#general");
    assert_eq!(given[0]["content"], text("the key is [key]"));
    assert_eq!(given[0]["author"]["name"], "Alice");
    assert_eq!(given[0]["metadata"]["mentions"][0], "@bob");

    // The same conversation for the same thread, another one for another; where the agent names none, the kernel does.
    let of = |answer: &Value| answer["result"]["results"][0]["conversationId"].clone();
    assert_eq!(
        of(&chat.ask("channels/incoming", one("m5", "t_42")).await),
        conversation
    );
    let other = of(&chat.ask("channels/incoming", one("m6", "t_43")).await);
    assert_ne!(other, conversation);
    assert_eq!(
        of(&chat.ask("channels/incoming", one("m7", "t_43")).await),
        other
    );
    let answer = chat.ask("channels/incoming", one("m8", "t_43")).await;
    assert_eq!(
        answer["result"]["results"][0]["accepted"], false,
        "{answer}"
    );
    let answer = chat
        .ask(
            "channels/incoming",
            json!({"messages": [{"channelId": "discord:#general"}]}),
        )
        .await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");

    opened_and_closed(&kernel, &host, &mut chat).await;
}

/// Opened at the server that is named, again after its restart, and closed.
async fn opened_and_closed(kernel: &Kernel, host: &Host, chat: &mut Driver) {
    let open = json!({"type": "discord", "address": {"guild": "acme"}, "metadata": {}});
    let answer = host.request("channels/open", open.clone()).await;
    assert_eq!(
        answer["error"]["code"], -32602,
        "two servers open channels: {answer}"
    );
    let mut at_chat = open.clone();
    at_chat["serverId"] = json!("chat");
    let answer = host.request("channels/open", at_chat.clone()).await;
    assert_eq!(
        answer["result"]["channel"]["id"], "chat:discord:#new",
        "{answer}"
    );
    let asked = chat.heard_of("channels/open").await;
    assert_eq!(asked[0]["params"], open);
    let answer = host.request("channels/open", at_chat).await;
    assert_eq!(answer["error"]["code"], -32024, "{answer}");
    assert_eq!(answer["error"]["data"]["why"], "banned", "{answer}");
    kernel.mgp(&["servers", "restart", "chat"]).await;
    wait_until("the channel to be opened again", DEADLINE, async || {
        let listed = host.request("channels/list", json!({})).await;
        ids(&listed) == ["chat:discord:#new"]
    })
    .await;

    let answer = host
        .request("channels/close", json!({"channelId": "chat:discord:#new"}))
        .await;
    assert_eq!(answer["result"], json!({"closed": true}), "{answer}");
    let answer = host
        .request("channels/close", json!({"channelId": "chat:discord:#new"}))
        .await;
    assert_eq!(answer["error"]["code"], -32023, "{answer}");
    let less = Host::declaring(kernel, &without_channels(), &[]).await;
    assert!(less.heard().is_empty());
}

fn without_channels() -> Value {
    let mut less = host();
    less.as_object_mut().unwrap().remove("channels");
    less
}
