//! `mgp/kernel/lan/*`: the visibility of this node on the local network.

use mgp_callers::request::Outcome;
use mgp_cluster::{LanError, LanStatus};
use mgp_engine::cluster::discovered_nodes::DiscoveredNode;
use mgp_protocol::mgp::kernel::lan::{LanNode, Presence};
use mgp_protocol::refusal::Refusal;

use super::{Operator, internal_error, json};

impl Operator {
    /// `mgp/kernel/lan/on`.
    ///
    /// # Errors
    /// A data folder that cannot be written.
    pub(crate) async fn enable_lan(&self) -> Outcome {
        let on = self.cluster.lan.enable().await.map_err(lan_refusal)?;
        json(&self.to_presence(on))
    }

    /// `mgp/kernel/lan/off`.
    ///
    /// # Errors
    /// A data folder that cannot be written.
    pub(crate) async fn disable_lan(&self) -> Outcome {
        let off = self.cluster.lan.disable().await.map_err(lan_refusal)?;
        json(&self.to_presence(off))
    }

    /// `mgp/kernel/lan/status`.
    ///
    /// # Errors
    /// When the actor does not answer.
    pub(crate) async fn lan_status(&self) -> Outcome {
        let status = self.cluster.lan.status().await.map_err(internal_error)?;
        json(&self.to_presence(status))
    }

    fn to_presence(&self, status: LanStatus) -> Presence {
        let observed = status.observed.into_iter();
        Presence {
            on: status.enabled,
            announced: status.announced,
            interfaces: status.interfaces,
            seen: observed
                .map(|(node, ago_ms)| self.to_observed_node(&node, ago_ms))
                .collect(),
            more: status.dropped_sightings,
            why: status.failure,
        }
    }

    fn to_observed_node(&self, node: &DiscoveredNode, ago_ms: u64) -> LanNode {
        let names = self.cluster.names.load();
        let name = names
            .names
            .handle_for(node.node)
            .filter(|_| node.same_cluster);
        LanNode {
            id: node.node.to_string(),
            name: name.map(ToString::to_string),
            addresses: node.addresses.iter().map(ToString::to_string).collect(),
            same_cluster: node.same_cluster,
            ago_ms,
        }
    }
}

fn lan_refusal(why: LanError) -> Refusal {
    Refusal::Internal(why.to_string())
}
