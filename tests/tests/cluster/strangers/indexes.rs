//! A node that shares what nobody should take, or more than anybody can.

use mgp_tests::harness::{DEADLINE, Process};
use serde_json::Value;

use super::siege::{Siege, audited, none_taken};
use crate::scene::{shows, tools};

/// What is said to an index, and the node that stays and answers for it.
async fn judged(siege: &Siege, which: &str) -> (Value, Process) {
    let (at, key) = (siege.at().await, siege.key());
    let story = "indexes.judged";
    let program = siege.peers.hostile(story, &[&at, &key, which]);
    let mut owner = Process::start(story, &program);
    let read = |said: &str| serde_json::from_str(said.lines().next()?).ok();
    let told: Value = owner.says("what was said", DEADLINE, read).await;
    println!("{which}: {told:#}");
    (told, owner)
}

/// PRJ-005: names that lead out of where they belong, look like others or turn the reading around are refused one by one;
/// what is left stands under the name of its node, where nobody takes it for another one's.
#[tokio::test(flavor = "multi_thread")]
async fn no_name_is_taken_for_another_nodes() {
    let Some(mut siege) = Siege::lay("member").await else {
        return;
    };
    let before = tools(&siege.nas).await;
    let (told, _owner) = judged(&siege, "names").await;
    assert!(told["pages"].as_u64().unwrap() >= 1, "{told:#}");
    shows(&siege.nas, "mallory__own__good").await;
    for tool in tools(&siege.nas).await {
        let ours = before.contains(&tool);
        assert!(ours || tool.starts_with("mallory__"), "{tool:?}");
        let visible = |c: char| c.is_ascii_graphic() || c == '\u{442}';
        assert!(tool.chars().all(visible), "{tool:?}");
        assert!(!tool.starts_with("mallory__."), "no path: {tool:?}");
    }
    assert!(!told["entries"].as_array().unwrap().is_empty(), "{told:#}");
    let audited = audited(&siege.nas, &[]).await;
    assert!(audited.contains("index_refused"), "{audited}");
    siege
        .holds("not all that another node shares is taken")
        .await;
}

/// PRJ-005, FED-031: meanings that are no directions, and schemas that no reader gets through.
#[tokio::test(flavor = "multi_thread")]
async fn no_vector_and_no_schema_breaks_a_reader() {
    let Some(mut siege) = Siege::lay("member").await else {
        return;
    };
    let (told, owner) = judged(&siege, "vectors").await;
    let reasons = told["reasons"].to_string();
    assert!(reasons.contains("vector"), "{told:#}");
    assert_eq!(told["entries"].as_array().unwrap().len(), 13, "{told:#}");
    shows(&siege.nas, "mallory__own__v13").await;
    drop(owner);
    let _owner = judged(&siege, "schemas").await;
    shows(&siege.nas, "mallory__own__pattern").await;
    siege
        .holds("not all that another node shares is taken")
        .await;
}

/// PRJ-005: a million tools, entries whose errors quote a megabyte, pages without an end: what is held has its bound.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_without_an_end_has_one_here() {
    let Some(mut siege) = Siege::lay("member").await else {
        return;
    };
    let (at, key) = (siege.at().await, siege.key());
    // Whoever has just been put off is not asked at once.
    for (which, least, most) in [
        ("quotes", 140, 140),
        ("million", 1, 40),
        ("empty", 0, 20),
        ("beyond", 0, 20),
    ] {
        let told = siege.plays("indexes.endless", &[&at, &key, which]).await;
        let pages = told["pages"].as_u64().unwrap();
        assert!((least..=most).contains(&pages), "{which}: {told:#}");
        siege.holds("").await;
    }
    siege
        .holds("not all that another node shares is taken")
        .await;
}

/// PRJ-005, FED-019: a leaf calls, and shares nothing, whatever it says.
#[tokio::test(flavor = "multi_thread")]
async fn a_leaf_shares_nothing() {
    let Some(mut siege) = Siege::lay("leaf").await else {
        return;
    };
    let (told, _owner) = judged(&siege, "names").await;
    assert_eq!(
        told["pages"], 0,
        "nobody asks a leaf for its tools: {told:#}"
    );
    assert!(told["reasons"].to_string().contains("a leaf"), "{told:#}");
    let shown = tools(&siege.nas).await;
    assert!(
        !shown.iter().any(|tool| tool.starts_with("mallory")),
        "{shown:?}"
    );
    assert!(none_taken(&told, &[]).is_empty());
    siege
        .holds("a leaf calls the servers of others and shares none")
        .await;
}
