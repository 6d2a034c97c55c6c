//! The TypeScript SDK, 1.x.

use mgp_tests::harness::{Need, Peers};

use super::story;

/// MGP-001, MGP-002, MGP-008, MGP-048: sessions, tools, resources, prompts, completion, progress, logging,
/// sampling, forms, roots and notifications, over HTTP and over `mgp stdio`; a tool's `security` is no
/// hindrance.
#[tokio::test]
async fn an_agent_of_the_typescript_sdk_sees_the_server_itself() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let tell = |args: &[&str]| peers.node_script("agent.mjs", args);
    story::is_the_same_through_the_kernel(tell).await;
}
