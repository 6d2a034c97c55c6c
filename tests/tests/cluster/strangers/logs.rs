//! Logs of the cluster in the wrong hands.

use super::siege::{Siege, id, none_taken, seen};

async fn cluster(siege: &Siege) -> String {
    let status = siege.nas.mgp_json(&["cluster", "status"]).await;
    status["id"].as_str().unwrap().to_owned()
}

/// PRJ-006, FED-019, FED-036: what a member signs, forges, alters or brings from elsewhere allows nothing, and takes nothing away.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_signs_nothing_that_counts() {
    let Some(mut siege) = Siege::lay("member").await else {
        return;
    };
    let (at, key, owner) = (siege.at().await, siege.key(), id(&siege.nas).await);
    let cluster = cluster(&siege).await;
    let told = siege
        .plays("members.logs", &[&at, &key, &owner, &cluster])
        .await;
    assert!(told["real"].as_u64().unwrap() >= 4, "{told:#}");
    assert!(told.as_object().unwrap().len() >= 14, "{told:#}");
    assert!(none_taken(&told, &[]).is_empty(), "{told:#}");
    assert_eq!(seen(&siege.nas, "mallory").await["role"], "member");
    let status = siege.nas.mgp_json(&["cluster", "status"]).await;
    assert_eq!(status["nodes"].as_array().unwrap().len(), 3, "{status:#}");
    siege.holds("").await;
}

/// PRJ-006, FED-040: an admin that signs two operations for one place allows nothing any more, and everybody is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_fork_is_seen_and_allows_nothing() {
    let Some(mut siege) = Siege::lay("admin").await else {
        return;
    };
    let (at, key, owner) = (siege.at().await, siege.key(), id(&siege.nas).await);
    let cluster = cluster(&siege).await;
    let told = siege
        .plays("members.fork", &[&at, &key, &owner, &cluster])
        .await;
    assert_eq!(told["granted"], "taken", "an admin may: {told:#}");
    assert_eq!(
        told["rolled back"], "taken",
        "a shorter log takes nothing back: {told:#}"
    );
    assert!(
        none_taken(&told, &["granted", "rolled back"]).is_empty(),
        "{told:#}"
    );
    let why = seen(&siege.nas, "mallory").await["why"].to_string();
    assert!(why.contains("two"), "{why}");
    siege.holds("").await;
}
