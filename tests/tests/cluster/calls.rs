//! Calls of tools at another node.

mod agents;
mod apps;
mod audit;
mod bytes;
mod cut;
mod events;
mod extensions;
mod large;
mod lies;
mod listening;
mod logging;
mod mgp;
mod owner_restarts;
mod primitives;
mod progress;
mod questions;
mod results;
mod skills;
mod stalled;
mod tasks;
mod tracing;

use mgp_tests::harness::{DEADLINE, wait_until};

use crate::scene::{demo, join, node, shows, shows_no_more};

/// PRJ-005, PRJ-006, PRJ-008: what is shared is seen, what is granted is called, what is revoked is not.
#[tokio::test(flavor = "multi_thread")]
async fn shared_tool_is_called_by_granted_agents_until_it_is_revoked() {
    let (nas, desk) = (node("nas", &demo()).await, node("desk", "").await);
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    let call = ["tools", "call", "nas/demo:test_simple_text", "{}"];
    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    shows(&desk, "nas__demo__test_simple_text").await;
    let denied = desk.mgp(&call).await;
    assert!(!denied.status.success(), "without a grant: {denied:?}");
    let granted = nas.mgp_json(&["grants", "add", "local@desk", "demo"]).await;
    assert_eq!(granted["confirmed"]["of"], 1, "{granted:#}");
    assert_eq!(granted["confirmed"]["nodes"], 1, "{granted:#}");
    let mut told = String::new();
    wait_until("the tool is called", DEADLINE, async || {
        let called = desk.mgp(&call).await;
        told = format!("{called:?}");
        called.status.success()
    })
    .await;
    assert!(told.contains("simple text"), "{told}");
    let revoked = nas
        .mgp_json(&["grants", "remove", "local@desk", "demo"])
        .await;
    assert_eq!(revoked["confirmed"]["nodes"], 1, "{revoked:#}");
    let denied = desk.mgp(&call).await;
    assert!(!denied.status.success(), "after the revoke: {denied:?}");
    nas.mgp_json(&["shares", "remove", "demo"]).await;
    shows_no_more(&desk, "nas__demo__test_simple_text").await;
}
