//! Several hosts, of which some cannot be asked and some do not answer: what servers send goes past them.

use mgp_tests::harness::Kernel;
use mgp_tests::harness::http::HttpClient;
use serde_json::{Value, json};

use crate::scene::{Driver, Host, VERSION, host, server};

const CONFIG: &str = r#"
[mcpl.servers.git]
enable = ["*"]
[mcpl.inference]
routes = { "git.infer" = "agent" }
[tuning.mcpl.push]
agent_timeout_ms = 500
[tuning.mcpl.inference]
agent_timeout_secs = 2
"#;

fn git() -> String {
    let set = |uses: &str| json!({"description": "d", "uses": [uses]});
    let declared = json!({
        "version": "0.4",
        "pushEvents": true,
        "inferenceRequest": true,
        "channels": {"register": true, "publish": true, "observe": true},
        "featureSets": {"push": set("pushEvents"), "infer": set("inferenceRequest"), "seen": set("channels.observe")}
    });
    server(&declared).entry("git") + CONFIG
}

async fn push(git: &mut Driver, id: &str) -> Value {
    let event = json!({"featureSet": "push", "eventId": id, "timestamp": "2026-01-23T10:30:00Z", "payload": {"content": "x"}});
    git.ask("push/event", event).await["result"].clone()
}

/// Takes everything, or answers nothing.
async fn start_host(kernel: &Kernel, answers: bool) -> Host {
    let host = Host::start(kernel).await;
    let silent = json!({"silent": true});
    for (method, result) in [
        ("push/event", json!({"accepted": true})),
        (
            "channels/incoming",
            json!({"results": [{"messageId": "m", "accepted": true}]}),
        ),
        (
            "inference/request",
            json!({"content": "x", "model": "m", "finishReason": "end_turn", "usage": {"inputTokens": 1, "outputTokens": 1}}),
        ),
    ] {
        let answer = if answers {
            json!({"result": result})
        } else {
            silent.clone()
        };
        host.answers(method, answer);
    }
    // It is ready when this is answered.
    host.request("ping", json!({})).await;
    host
}

async fn event_ids(host: &Host, count: usize) -> Vec<String> {
    host.request("ping", json!({})).await;
    let asked = match count {
        0 => Vec::new(),
        _ => host.asked("push/event", count).await,
    };
    let ids = asked.iter().map(|one| one["params"]["eventId"].as_str());
    ids.map(|id| id.unwrap().to_owned()).collect()
}

/// MCPL-084, MCPL-154: an event that could not be sent goes to the next host, one that was not answered does so with
/// the same id, and the host that was silent is asked last from then on.
#[tokio::test]
async fn event_skips_unreachable_hosts_and_tries_silent_ones_last() {
    let kernel = Kernel::start(&git()).await;
    kernel.connected(&["git"]).await;
    let mut git = Driver::at(&kernel, "git").await;
    let channel =
        json!({"id": "c", "type": "t", "label": "l", "direction": "bidirectional", "address": {}});
    git.ask("channels/register", json!({"channels": [channel]}))
        .await;

    // The oldest host is one over HTTP that opens no GET stream: nothing can be sent to it.
    let mut blind = HttpClient::new(kernel.url());
    let capabilities = json!({"experimental": {"mcpl": host()}}).to_string();
    blind.open_session(VERSION, &capabilities).await;
    let alone = push(&mut git, "e0").await;
    assert_eq!(alone["accepted"], false, "{alone}");
    let why = alone["reason"].as_str().unwrap();
    assert!(why.contains("GET stream"), "{why}");

    let silent = start_host(&kernel, false).await;
    let good = start_host(&kernel, true).await;
    // Nobody was sent it: it can come again.
    assert_eq!(push(&mut git, "e0").await["accepted"], true);
    assert_eq!(event_ids(&silent, 1).await, ["git:e0"]);
    assert_eq!(event_ids(&good, 1).await, ["git:e0"]);
    assert_eq!(push(&mut git, "e1").await["accepted"], true);
    assert_eq!(event_ids(&good, 2).await, ["git:e0", "git:e1"]);
    assert_eq!(event_ids(&silent, 1).await, ["git:e0"]);

    let message = json!({"channelId": "c", "messageId": "m", "content": "hi"});
    let taken = git
        .ask("channels/incoming", json!({"messages": [message]}))
        .await;
    assert_eq!(taken["result"]["results"][0]["accepted"], true, "{taken}");
    let request = json!({"featureSet": "infer", "messages": [{"role": "user", "content": "q"}]});
    let answer = git.ask("inference/request", request).await;
    assert_eq!(answer["result"]["content"], "x", "{answer}");

    good.leave().await;
    let lost = push(&mut git, "e2").await;
    assert_eq!(lost["accepted"], false, "{lost}");
    let why = lost["reason"].as_str().unwrap();
    assert!(why.contains("not known"), "{why}");
    assert_eq!(event_ids(&silent, 3).await, ["git:e0", "git:e2", "git:e2"]);

    // One that answers again is asked in its turn again.
    silent.answers("push/event", json!({"result": {"accepted": true}}));
    assert_eq!(push(&mut git, "e3").await["accepted"], true);
    let younger = start_host(&kernel, true).await;
    assert_eq!(push(&mut git, "e4").await["accepted"], true);
    assert_eq!(event_ids(&silent, 5).await[3..], ["git:e3", "git:e4"]);
    assert!(event_ids(&younger, 0).await.is_empty());
}
