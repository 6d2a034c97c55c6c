//! A lite server cannot say that something changed, nor be pinged: its list is read again and again.

use mgp_tests::harness::{DEADLINE, Kernel, Need, Peers, wait_until};
use serde_json::json;

use super::{LitePeer, legacy};

/// LITE-068: a new tool is found, and clients are told; a server that is out of order is shown to be so, and one
/// that is mended is well again.
#[tokio::test]
async fn changes_are_found_by_reading_the_list_again() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let peer = LitePeer::http(&peers, &[]).await;
    let servers = peer.entry("shop", "") + "[health]\ninterval_secs = 1\n";
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["shop"]).await;
    let mut agent = legacy(&kernel, "{}").await;
    agent.request("tools/list", json!({})).await.result();
    peer.set(json!({"more": true})).await;
    agent.hears("notifications/tools/list_changed").await;
    assert_eq!(agent.call("arrived", json!({})).await.text(), "plain");
    let listed = kernel.mgp_json(&["servers", "list"]).await;
    let shop = |listed: &serde_json::Value| {
        let all = listed["servers"].as_array().unwrap();
        all.iter()
            .find(|server| server["id"] == "shop")
            .unwrap()
            .clone()
    };
    assert_eq!(shop(&listed)["transport"], "lite");
    for (broken, health) in [(true, "unhealthy"), (false, "healthy")] {
        peer.set(json!({"broken": broken})).await;
        wait_until(&format!("it is {health}"), DEADLINE, async || {
            let listed = kernel.mgp_json(&["servers", "list"]).await;
            shop(&listed)["health"] == health
        })
        .await;
    }
}
