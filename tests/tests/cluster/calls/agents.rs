//! Agents of a node that have names of their own.

use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::{Agent, ModernAgent};

use crate::scene::NEWEST;

/// Makes them agents of `desk`, who may call the server of `nas`.
pub(super) async fn named(nodes: &JoinedNodes, names: &[&str], server: &str) {
    for name in names {
        nodes.desk.mgp_json(&["agents", "add", name]).await;
        let agent = format!("{name}@desk");
        nodes.nas.mgp_json(&["grants", "add", &agent, server]).await;
    }
}

/// One of them, with sessions.
pub(super) async fn legacy(nodes: &JoinedNodes, name: &str, capabilities: &str) -> Agent {
    let door = nodes.desk.program(&["stdio", "--agent", name]);
    let mut agent = Agent::over_stdio(&door);
    agent.initialize(NEWEST, capabilities).await.result();
    agent
}

/// One of them, without.
pub(super) fn modern(nodes: &JoinedNodes, name: &str, capabilities: &str) -> ModernAgent {
    let door = nodes.desk.program(&["stdio", "--agent", name]);
    ModernAgent::over_stdio(&door, capabilities)
}
