//! `mgp/kernel/lan/*`: whether this node is seen on the local network.

use mgp_callers::request::Outcome;
use mgp_cluster::lan::{LanRefusal, LanStatus};
use mgp_engine::cluster::seen_nodes::SeenNode;
use mgp_protocol::mgp::kernel::lan::{Presence, Seen};
use mgp_protocol::refusal::Refusal;

use super::{Operator, broken, json};

impl Operator {
    /// `mgp/kernel/lan/on`.
    ///
    /// # Errors
    /// A data folder that cannot be written.
    pub async fn lan_on(&self) -> Outcome {
        let on = self.cluster.lan.on().await.map_err(not_switched)?;
        json(&self.presence(on))
    }

    /// `mgp/kernel/lan/off`.
    ///
    /// # Errors
    /// A data folder that cannot be written.
    pub async fn lan_off(&self) -> Outcome {
        let off = self.cluster.lan.off().await.map_err(not_switched)?;
        json(&self.presence(off))
    }

    /// `mgp/kernel/lan/status`.
    ///
    /// # Errors
    /// When the actor does not answer.
    pub async fn lan_status(&self) -> Outcome {
        let status = self.cluster.lan.status().await.map_err(broken)?;
        json(&self.presence(status))
    }

    fn presence(&self, status: LanStatus) -> Presence {
        let seen = status.seen.into_iter();
        Presence {
            on: status.on,
            announced: status.announced,
            interfaces: status.interfaces,
            seen: seen
                .map(|(seen, ago_ms)| self.shown_seen(&seen, ago_ms))
                .collect(),
            more: status.passed_over,
            why: status.why,
        }
    }

    fn shown_seen(&self, seen: &SeenNode, ago_ms: u64) -> Seen {
        let names = self.cluster.names.load();
        let name = names.names.of(seen.node).filter(|_| seen.same_cluster);
        Seen {
            id: seen.node.to_string(),
            name: name.map(ToString::to_string),
            addresses: seen.addresses.iter().map(ToString::to_string).collect(),
            same_cluster: seen.same_cluster,
            ago_ms,
        }
    }
}

fn not_switched(why: LanRefusal) -> Refusal {
    Refusal::Broken(why.to_string())
}
