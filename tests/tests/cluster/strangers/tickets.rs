//! Tickets are for one node, once, in their time; and no stranger keeps others from showing one.

use std::time::{Duration, Instant};

use mgp_tests::harness::{DEADLINE, Need, Peers, Process, wait_until};

use super::siege::{audited, begins, listens, played};
use crate::scene::{node, ticket};

/// PRJ-004, FED-016: a ticket that is used, replayed, altered or late lets nobody in, whoever shows it.
#[tokio::test(flavor = "multi_thread")]
async fn used_replayed_or_altered_ticket_is_rejected() {
    let Some(peers) = Peers::find(&[Need::Hostile]) else {
        return;
    };
    let nas = node("nas", "").await;
    let late = ticket(&nas, &["--approved", "--for", "1s"]).await;
    let made = Instant::now();
    let used = ticket(&nas, &["--approved"]).await;
    let (waiting, open) = (ticket(&nas, &[]).await, ticket(&nas, &[]).await);
    let at = listens(&nas).await;
    let told = played(&peers, "tickets.reuse", &[&at, &used, &waiting, &open]).await;
    assert!(
        told["first"].as_str().unwrap().starts_with("heard"),
        "{told:#}"
    );
    assert!(told["welcome"].as_u64().unwrap() > 100, "{told:#}");
    assert!(
        told["second"].as_str().unwrap().starts_with("heard"),
        "{told:#}"
    );
    for name in [
        "used",
        "used, replayed",
        "shown by another",
        "another's proof, replayed",
        "no secret",
        "no ticket",
        "no message",
        "beyond the limit",
    ] {
        let answer = told[name].as_str().unwrap();
        let refused = answer.starts_with("refused") || answer.starts_with("gone");
        assert!(refused, "{name}: {told:#}");
    }
    wait_until("its time is over", DEADLINE, async || {
        made.elapsed() > Duration::from_secs(1)
    })
    .await;
    let told = played(&peers, "tickets.late", &[&at, &late]).await;
    assert!(
        told["late"].as_str().unwrap().starts_with("refused"),
        "{told:#}"
    );
    let status = nas.mgp_json(&["cluster", "status"]).await;
    assert_eq!(status["nodes"].as_array().unwrap().len(), 2, "{status:#}");
    assert_eq!(status["waiting"].as_array().unwrap().len(), 1, "{status:#}");
    let refused = audited(&nas, &[]).await;
    assert!(refused.contains("secret was not proven"), "{refused}");
}

/// PRJ-004: guests that say nothing hold few places, and not for long: who has a ticket comes in.
#[tokio::test(flavor = "multi_thread")]
async fn silent_joiners_do_not_block_a_valid_ticket() {
    let Some(peers) = Peers::find(&[Need::Hostile]) else {
        return;
    };
    let (nas, desk) = (node("nas", "").await, node("desk", "").await);
    let ticket = ticket(&nas, &["--approved"]).await;
    let at = listens(&nas).await;
    let story = "tickets.places";
    let mut attack = Process::start(story, &peers.hostile(story, &[&at, "24", "20"]));
    attack.says("that it holds places", DEADLINE, begins).await;
    let joined = desk.mgp(&["nodes", "join", &ticket]).await;
    assert!(joined.status.success(), "{joined:?}");
    assert!(attack.ended().is_none(), "the places were held meanwhile");
    wait_until("they are linked", DEADLINE, async || {
        let status = nas.mgp_json(&["cluster", "status"]).await;
        status.to_string().contains("\"linked\"")
    })
    .await;
}
