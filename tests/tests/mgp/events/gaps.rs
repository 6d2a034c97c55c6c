//! What happens while a subscription begins, while its log cannot be read, and while its server is replaced;
//! and whose events come of a cursor.

use mgp_tests::harness::{DEADLINE, wait_until};
use serde_json::{Value, json};

use super::{EVENT, heard, held, kernel, owner, speaker, subscribe, tell, telling};

/// A server that answers late what it has.
fn late(ms: u64) -> String {
    let slow = json!({"mgp/events/subscribe": ms}).to_string();
    telling("late", "c.d", &["--mgp-slow", &slow])
}

/// MGP-167, MGP-174: a subscription whose request was taken back ends: nobody knows its id.
#[tokio::test]
async fn a_subscription_that_was_taken_back_ends() {
    let kernel = kernel(&(late(1_000) + &telling("it", "a.b", &[])), &["late", "it"]).await;
    let mut watcher = owner(&kernel).await;
    let mut agent = owner(&kernel).await;
    let asked = json!({"channels": ["a.b", "c.d"]});
    let id = agent.start("mgp/events/subscribe", asked).await;
    wait_until("it is asked", DEADLINE, async || {
        held(&mut watcher, "it__subscriptions").await.len() == 1
    })
    .await;
    agent
        .notify("notifications/cancelled", json!({"requestId": id}))
        .await;
    wait_until("it is let go", DEADLINE, async || {
        held(&mut watcher, "it__subscriptions").await.is_empty()
    })
    .await;
    let tree = watcher.request("mgp/kernel/tree", json!({})).await.result();
    assert!(!tree.to_string().contains("subscription\""), "{tree}");
}

/// MGP-172: what happens before a subscription is answered does not end it, however much that is.
#[tokio::test]
async fn events_before_the_answer_do_not_end_a_subscription() {
    let kernel = kernel(&(late(4_000) + &telling("it", "a.b", &[])), &["late", "it"]).await;
    let mut teller = owner(&kernel).await;
    let mut agent = speaker(&kernel, &["events"]).await;
    let asked = json!({"channels": ["a.b", "c.d"]});
    let id = agent.start("mgp/events/subscribe", asked).await;
    wait_until("it is asked", DEADLINE, async || {
        held(&mut teller, "it__subscriptions").await.len() == 1
    })
    .await;
    let many = json!({"channel": "a.b", "times": 1_400, "per_second": 1_900});
    tell(&mut teller, "it__tell", many).await;
    let said = agent.answer_to(&id).await.result();
    assert_eq!(said["subscribed"], json!(["a.b"]));
    tell(
        &mut teller,
        "it__tell",
        json!({"channel": "a.b", "data": "after"}),
    )
    .await;
    let mut seq = 0;
    loop {
        let event = heard(&mut agent).await;
        assert_eq!(event["channel"], "a.b", "{event}");
        assert!(event["_mgp.seq"].as_u64() > Some(seq));
        seq = event["_mgp.seq"].as_u64().unwrap();
        if event["data"] == "after" {
            break;
        }
    }
    assert_eq!(seq, 1_401, "what was lost before is missing");
}

/// A cursor gives an agent its own last events, however many others were written down since.
#[tokio::test]
async fn events_of_others_do_not_count_after_a_cursor() {
    let kernel = kernel(&telling("it", "a.b", &[]), &["it"]).await;
    let mut agent = speaker(&kernel, &["events"]).await;
    subscribe(&mut agent, &["tool.completed"]).await;
    for text in ["first", "second"] {
        agent.call("it__echo", json!({"text": text})).await.result();
    }
    let cursor = heard(&mut agent).await["_mgp.cursor"].clone();
    // The number of a record would say how much others do.
    assert!(cursor.as_str().unwrap().parse::<u64>().is_err(), "{cursor}");
    let counted = json!({"channels": ["tool.completed"], "_mgp.cursor": "1"});
    let refused = agent.request("mgp/events/subscribe", counted).await;
    assert_eq!(refused.error()["code"], -32602);
    let second = heard(&mut agent).await["_mgp.cursor"].clone();
    let mut owner = owner(&kernel).await;
    for _ in 0..1_200 {
        owner
            .call("it__echo", json!({"text": "other"}))
            .await
            .result();
    }
    let mut again = speaker(&kernel, &["events"]).await;
    let wanted = json!({"channels": ["tool.completed"], "_mgp.cursor": cursor});
    again.request("mgp/events/subscribe", wanted).await.result();
    let event = heard(&mut again).await;
    assert_eq!(
        (&event["_mgp.cursor"], &event["_mgp.seq"]),
        (&second, &json!(1))
    );
    again
        .call("it__echo", json!({"text": "third"}))
        .await
        .result();
    assert_eq!(
        heard(&mut again).await["_mgp.seq"],
        2,
        "nothing of others is counted"
    );
}

/// A log that cannot be read for a while is read on when it can be.
#[tokio::test]
async fn channels_of_the_log_outlive_an_error_of_its_disk() {
    let kernel = kernel(&telling("it", "a.b", &[]), &["it"]).await;
    let mut owner = owner(&kernel).await;
    subscribe(&mut owner, &["tool.completed", "tool.failed"]).await;
    owner
        .call("it__echo", json!({"text": "one"}))
        .await
        .result();
    assert_eq!(heard(&mut owner).await["channel"], "tool.completed");
    let folder = kernel.folder().join("data/audit");
    let files = std::fs::read_dir(&folder).unwrap();
    let log = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "jsonl");
    let file = files.map(|file| file.unwrap().path()).find(log).unwrap();
    let aside = kernel.folder().join("aside");
    std::fs::rename(&file, &aside).unwrap();
    std::fs::create_dir(&file).unwrap();
    // What was written first was tried to be read when what comes later is written.
    for round in 1..=3 {
        owner
            .call("it__echo", json!({"text": "two"}))
            .await
            .result();
        wait_until("it is written", DEADLINE, async || {
            let text = std::fs::read_to_string(&aside).unwrap();
            text.matches("TOOL_EXECUTED").count() > round
        })
        .await;
    }
    assert!(owner.heard(EVENT).is_empty(), "the log cannot be read");
    std::fs::remove_dir(&file).unwrap();
    std::fs::rename(&aside, &file).unwrap();
    owner.call("it__fail", json!({})).await;
    while heard(&mut owner).await["channel"] != "tool.failed" {}
}

/// MGP-280: a life that takes over without a gap is asked for what is followed.
#[tokio::test]
async fn a_subscription_outlives_a_rolling_restart() {
    let entry = telling("it", "a.b", &[]);
    let entry = format!("{}\nrestart_mode = \"rolling\"\n", entry.trim_end());
    let kernel = kernel(&entry, &["it"]).await;
    let mut teller = owner(&kernel).await;
    let mut agent = speaker(&kernel, &["events"]).await;
    let id = subscribe(&mut agent, &["a.b"]).await;
    let shown = async |teller: &mut mgp_tests::harness::Agent| -> Value {
        let said = teller.request("mgp/servers/list", json!({})).await.result();
        said["servers"][0]["pid"].clone()
    };
    let first = shown(&mut teller).await;
    assert!(first.is_number(), "{first}");
    let restart = ["servers", "restart", "--rolling", "it"];
    assert!(kernel.mgp(&restart).await.status.success());
    wait_until("the next life is asked", DEADLINE, async || {
        shown(&mut teller).await != first && held(&mut teller, "it__subscriptions").await.len() == 1
    })
    .await;
    tell(
        &mut teller,
        "it__tell",
        json!({"channel": "a.b", "data": "next"}),
    )
    .await;
    let event = heard(&mut agent).await;
    assert_eq!(
        (&event["subscription_id"], &event["data"]),
        (&json!(id), &json!("next"))
    );
    assert!(agent.heard(EVENT).is_empty());
}
