//! A revoke on one side of a cut, and a new grant of the same on the other side.

use mgp_tests::harness::{DEADLINE, Kernel, wait_until};
use serde_json::Value;

use crate::network::{becomes, machine, network};
use crate::scene::{call, demo, join, linked, shows};

const TOOL: &str = "den/demo:test_simple_text";

/// What a node says of the one grant there is, where a revoke closes it.
async fn conflict(of: &Kernel) -> Option<String> {
    let listed = of.mgp_json(&["grants", "list"]).await;
    let entries = listed["entries"].as_array().cloned().unwrap_or_default();
    let [entry] = &entries[..] else {
        return None;
    };
    entry["conflict"].as_str().map(str::to_owned)
}

/// PRJ-006: revocation wins on conflict, on all nodes alike; only a grant that knows of the revoke opens again.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_has_not_seen_the_revoke_is_closed_on_all_nodes() {
    let Some(network) = network(3) else {
        return;
    };
    let nas = machine(&network, 0, "nas", "").await;
    let desk = machine(&network, 1, "desk", "").await;
    let den = machine(&network, 2, "den", &demo()).await;
    den.connected(&["demo"]).await;
    join(&nas, &desk, &["--role", "admin"]).await;
    join(&nas, &den, &[]).await;
    linked(&desk, &den).await;
    den.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    shows(&nas, "den__demo__test_simple_text").await;
    let grant = ["grants", "add", "local", "den/demo"];
    nas.mgp_json(&grant).await;
    wait_until("the grant counts", DEADLINE, async || {
        call(&nas, TOOL).await
    })
    .await;
    network.cut(1);
    becomes(&den, "desk", "away").await;
    let revoked = desk
        .mgp_json(&["grants", "remove", "local@nas", "den/demo"])
        .await;
    assert_eq!(revoked["revoked"].as_array().unwrap().len(), 1);
    nas.mgp_json(&grant).await;
    assert!(call(&nas, TOOL).await, "desk is not heard of yet");
    network.heal(1);
    for node in [&nas, &desk, &den] {
        wait_until("the grant is closed", DEADLINE, async || {
            conflict(node).await.is_some()
        })
        .await;
    }
    let why = conflict(&den).await.unwrap();
    assert!(why.starts_with("in conflict with the revoke of desk at "));
    assert!(why.ends_with(": grant again to allow it"), "{why}");
    for node in [&nas, &desk, &den] {
        assert_eq!(conflict(node).await.as_ref(), Some(&why));
        let status = node.mgp_json(&["cluster", "status"]).await;
        assert_eq!(status["conflict_count"], 1, "{status:#}");
        assert_eq!(status["conflicts"][0]["conflict"], Value::from(&*why));
        let shown = node.mgp(&["cluster", "status"]).await;
        assert!(String::from_utf8_lossy(&shown.stdout).contains(&why));
    }
    assert!(!call(&nas, TOOL).await);
    let explained = den.mgp_json(&["explain", "local@nas", "demo"]).await;
    assert!(explained["considered"].to_string().contains(&why));
    nas.mgp_json(&grant).await;
    wait_until("a grant that knows of it counts", DEADLINE, async || {
        call(&nas, TOOL).await
    })
    .await;
    let status = den.mgp_json(&["cluster", "status"]).await;
    assert_eq!(status["conflict_count"], Value::Null);
}
