//! Two kernels that are nodes of one cluster, one of which runs servers for the agents of the other.

use super::super::{DEADLINE, wait_until};
use super::Kernel;

/// `nas`, which has the servers, and `desk`, which has the agents.
#[derive(Debug)]
pub struct JoinedNodes {
    /// The owner of the servers.
    pub nas: Kernel,
    /// The home of the agents.
    pub desk: Kernel,
}

/// Who calls in the tests: who shows the kernel's own token or is its operator, and who comes in at an open door.
const CALLERS: [&str; 2] = ["local@desk", "anonymous@desk"];

impl JoinedNodes {
    /// `nas` runs these servers, shares each of those that are named, and lets the agents of `desk` call them.
    ///
    /// # Panics
    /// When something of it has not come about by the deadline.
    pub async fn sharing(servers: &str, ids: &[&str]) -> Self {
        let nas = Kernel::with_config(&config("nas", "127.0.0.1:0", servers)).await;
        let desk = Kernel::with_config(&config("desk", "127.0.0.1:0", "")).await;
        Self::joined(nas, desk, ids).await
    }

    /// The same of two kernels that run.
    ///
    /// # Panics
    /// When something of it has not come about by the deadline.
    pub async fn joined(nas: Kernel, desk: Kernel, ids: &[&str]) -> Self {
        nas.connected(ids).await;
        let invited = nas.mgp_json(&["nodes", "invite", "--approved"]).await;
        let ticket = invited["ticket"].as_str().expect("a ticket is a text");
        let joined = desk.mgp(&["nodes", "join", ticket]).await;
        assert!(joined.status.success(), "{joined:?}");
        for id in ids {
            nas.mgp_json(&["shares", "add", id, "--to", "cluster"])
                .await;
            for caller in CALLERS {
                nas.mgp_json(&["grants", "add", caller, id]).await;
            }
        }
        for id in ids {
            let there = format!("nas/{id}");
            wait_until(&format!("{there} is connected"), DEADLINE, async || {
                let status = desk.mgp_json(&["status"]).await;
                super::state(&status, &there) == Some("connected")
            })
            .await;
        }
        Self { nas, desk }
    }
}

/// The configuration of a node behind an open door.
#[must_use]
pub fn config(name: &str, listen: &str, servers: &str) -> String {
    let door = super::OPEN_DOOR;
    format!("{door}[cluster]\nname = \"{name}\"\nlisten = \"{listen}\"\n{servers}")
}
