//! Servers that tell without end, readers that do not read, and agents that subscribe without end.

use std::time::Duration;

use mgp_tests::harness::{DEADLINE, wait_until};
use serde_json::json;

use super::{heard, held, kernel, owner, speaker, subscribe, tell, telling};

/// MGP-172: a server that tells 100,000 events a second is cut to what the kernel takes; the numbers of its
/// events show the gap, other servers are heard at once, and calls go on.
#[tokio::test]
async fn event_flood_of_one_server_delays_no_other() {
    let entries = telling("flood", "a.b", &[]) + &telling("calm", "c.d", &[]);
    let kernel = kernel(&entries, &["flood", "calm"]).await;
    let mut owner = owner(&kernel).await;
    let mut flooded = speaker(&kernel, &["events"]).await;
    let mut agent = speaker(&kernel, &["events"]).await;
    subscribe(&mut flooded, &["a.b"]).await;
    subscribe(&mut agent, &["c.d"]).await;
    let flood = json!({"channel": "a.b", "times": 300_000, "per_second": 100_000});
    let params = json!({"name": "flood__tell", "arguments": flood});
    let flooding = owner.start("tools/call", params).await;
    let mut last = 0;
    for n in 0..20 {
        let began = std::time::Instant::now();
        tell(
            &mut agent,
            "calm__tell",
            json!({"channel": "c.d", "data": n}),
        )
        .await;
        assert_eq!(heard(&mut agent).await["data"], n);
        assert!(
            began.elapsed() < Duration::from_secs(15),
            "{:?}",
            began.elapsed()
        );
        while last < (n + 1) * 100 {
            let seq = heard(&mut flooded).await["_mgp.seq"].as_u64().unwrap();
            assert!(seq > last);
            last = seq;
        }
    }
    owner.answer_to(&flooding).await.result();
    let mut gap = false;
    while !gap {
        tell(
            &mut owner,
            "flood__tell",
            json!({"channel": "a.b", "data": "after"}),
        )
        .await;
        let seq = heard(&mut flooded).await["_mgp.seq"].as_u64().unwrap();
        (gap, last) = (seq > last + 1, seq);
    }
}

/// A reader that is too slow is dropped and can read why; a replay says that some is gone; others and the server never notice.
#[tokio::test]
async fn a_slow_reader_is_dropped_and_can_read_why() {
    let kernel = kernel(&telling("it", "a.b", &[]), &["it"]).await;
    let mut teller = owner(&kernel).await;
    let mut slow = owner(&kernel).await;
    let mut quick = owner(&kernel).await;
    let id = subscribe(&mut slow, &["a.b"]).await;
    subscribe(&mut quick, &["a.b"]).await;
    let event =
        json!({"channel": "a.b", "times": 9_000, "per_second": 1_800, "data": "x".repeat(2_000)});
    let params = json!({"name": "it__tell", "arguments": event});
    let telling = teller.start("tools/call", params).await;
    let mut told = 0;
    while told < 8_000 {
        let event = heard(&mut quick).await;
        assert_eq!(event["channel"], "a.b");
        told = event["_mgp.seq"].as_u64().unwrap();
    }
    teller.answer_to(&telling).await.result();
    let mut event = heard(&mut slow).await;
    while event["channel"] == "a.b" {
        event = heard(&mut slow).await;
    }
    assert_eq!(event["channel"], "system.subscription_ended");
    assert_eq!(event["data"]["reason"], "too_slow");
    assert_eq!(event["subscription_id"], json!(id));
    let replay = json!({"subscription_id": id, "after_seq": 1, "limit": 5000});
    let said = slow.request("mgp/events/replay", replay).await.result();
    assert_eq!(said["truncated"], true);
    let left = said["events"].as_array().unwrap();
    assert!(left.len() <= 1_000, "{}", left.len());
    let ended = json!({"subscription_id": id});
    slow.request("mgp/events/unsubscribe", ended).await.result();
}

/// A connection has so many subscriptions, each of so many channels; ended ones make room.
#[tokio::test]
async fn a_connection_has_so_many_subscriptions() {
    let kernel = kernel(&telling("it", "a.b", &[]), &["it"]).await;
    let mut owner = owner(&kernel).await;
    let mut agent = speaker(&kernel, &["events"]).await;
    let mut ids = Vec::new();
    for _ in 0..64 {
        ids.push(subscribe(&mut agent, &["a.b"]).await);
    }
    let one_more = agent.request("mgp/events/subscribe", json!({"channels": ["a.b"]}));
    let words = one_more.await.error()["message"].to_string();
    assert!(words.contains("at most 64"), "{words}");
    let ended = json!({"subscription_id": ids[0]});
    agent
        .request("mgp/events/unsubscribe", ended)
        .await
        .result();
    subscribe(&mut agent, &["a.b"]).await;
    let many: Vec<String> = (0..65).map(|n| format!("a.x{n}")).collect();
    let too_many = owner.request("mgp/events/subscribe", json!({"channels": many}));
    assert_eq!(too_many.await.error()["code"], -32602);
    assert_eq!(held(&mut owner, "it__subscriptions").await.len(), 1);
}

/// A server that answers late keeps nobody waiting: what it has is not there for who asked, and it is let go.
#[tokio::test]
async fn a_server_that_answers_late_is_not_waited_for() {
    let slow = json!({"mgp/events/subscribe": 20_000}).to_string();
    let folder = tempfile::tempdir().unwrap();
    let diary = folder.path().join("diary");
    let path = diary.display().to_string();
    let late = telling("late", "a.b", &["--mgp-slow", &slow, "--mgp-diary", &path]);
    let entries = late + &telling("it", "c.d", &[]);
    let kernel = kernel(&entries, &["late", "it"]).await;
    let mut agent = speaker(&kernel, &["events"]).await;
    let began = std::time::Instant::now();
    let said = agent.request("mgp/events/subscribe", json!({"channels": ["a.b", "c.d"]}));
    let said = said.await.result();
    assert_eq!(said["subscribed"], json!(["c.d"]));
    assert_eq!(said["unsupported"], json!(["a.b"]));
    assert!(
        began.elapsed() < Duration::from_secs(19),
        "{:?}",
        began.elapsed()
    );
    wait_until(
        "the late one has answered and is let go",
        DEADLINE,
        async || {
            let text = std::fs::read_to_string(&diary).unwrap_or_default();
            text.contains("mgp/events/unsubscribe")
        },
    )
    .await;
}
