//! Without a key that is known and theirs, nobody has a link.

use mgp_tests::harness::{DEADLINE, Process, wait_until};

use super::siege::{Siege, audited, begins, id, listens, none_taken};

/// PRJ-004, FED-006: a node that was not let in, a wrong key, a borrowed certificate: none of them says or hears a word.
#[tokio::test(flavor = "multi_thread")]
async fn link_needs_the_key_of_a_member() {
    let Some(mut siege) = Siege::lay("member").await else {
        return;
    };
    let (at, desk) = (siege.at().await, listens(&siege.desk).await);
    let key = siege.key();
    let told = siege.plays("strangers.keys", &[&at, &desk, &key]).await;
    assert_eq!(told.as_object().unwrap().len(), 9, "{told:#}");
    let good = "a key that was let in";
    assert!(none_taken(&told, &[good]).is_empty(), "{told:#}");
    assert_eq!(told[good], "taken", "the same client with a key: {told:#}");
    siege.holds("is not known here").await;
}

/// PRJ-004, FED-020: a node that is cut off amid a call: its link ends, its call does, and it never comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_revoked_amid_a_call_is_out_at_once_and_for_good() {
    let Some(mut siege) = Siege::lay("member").await else {
        return;
    };
    siege
        .nas
        .mgp_json(&["grants", "add", "local@mallory", "demo"])
        .await;
    let (at, owner, key) = (siege.at().await, id(&siege.nas).await, siege.key());
    let story = "members.revoked";
    let args = [&*at, &key, &owner, "test_slow", "{\"seconds\":50}"];
    let mut attack = Process::start(story, &siege.peers.hostile(story, &args));
    attack.says("that it calls", DEADLINE, begins).await;
    let begun = std::time::Instant::now();
    siege
        .nas
        .mgp_json(&["nodes", "remove", "mallory", "-y"])
        .await;
    let status = attack.end(DEADLINE).await;
    println!("it is out after {:?}", begun.elapsed());
    let told = attack.stdout();
    assert!(status.success(), "{told} {}", attack.stderr());
    let told: serde_json::Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!(told["code"], 1, "it is told that it was revoked: {told:#}");
    assert!(
        told["call"].as_str().unwrap().starts_with("ended"),
        "{told:#}"
    );
    assert!(
        told["again"].as_str().unwrap().starts_with("refused"),
        "{told:#}"
    );
    wait_until("its call is over and written down", DEADLINE, async || {
        let calls = audited(&siege.nas, &["--tool", "test_slow"]).await;
        calls.to_lowercase().contains("cancelled")
    })
    .await;
    siege.holds("a node was cut off").await;
}
