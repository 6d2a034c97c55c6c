//! A node that waits for approval, as shown to the operator.

use std::net::SocketAddr;
use std::time::Duration;

use mgp_engine::node_names::find_lookalike;
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::kernel::nodes::WaitingNode;
use mgp_runtime::AskError;

use super::{PairingHandle, PendingNode};
use crate::replication::ClusterView;

/// The longest wait for a person: then the node asks again.
const APPROVAL_TIMEOUT: Duration = Duration::from_secs(15 * 60);

impl PairingHandle {
    /// The nodes that wait for approval, as shown to the operator; `view` names the members.
    ///
    /// # Errors
    /// The actor is not reachable.
    pub async fn waiting_nodes(&self, view: &ClusterView) -> Result<Vec<WaitingNode>, AskError> {
        let waiting = self.pending_nodes().await?;
        Ok(waiting.iter().map(|node| node.render(view)).collect())
    }
}

impl PendingNode {
    fn render(&self, view: &ClusterView) -> WaitingNode {
        let timeout = u64::try_from(APPROVAL_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        let until = self.node.waiting_since_ms.saturating_add(timeout);
        let members = view.members.values();
        let members = members.filter(|member| !member.status.is_out());
        let members = members.map(|member| member.name.as_str());
        WaitingNode {
            id: self.node.node.to_string(),
            name: self.node.name.to_string(),
            called_before: self.node.previous_name.as_ref().map(ToString::to_string),
            looks_like: find_lookalike(self.node.name.as_str(), members).map(str::to_owned),
            words: self.node.words.clone(),
            words_note: self
                .node
                .has_fixed_words
                .then(|| id_check_note(self.node.node)),
            role: self.role.into(),
            from: self.address.map(canonical_address).unwrap_or_default(),
            ticket: self.id.to_string(),
            since: render_rfc3339_ms(self.node.waiting_since_ms),
            until: render_rfc3339_ms(until.min(self.expires_ms)),
        }
    }
}

/// The note for words without nonces: the holder of the ticket can forge them, so the whole id is to be
/// compared.
#[must_use]
pub fn id_check_note(other: NodeId) -> String {
    format!(
        "the node there runs an older version, or says so: whoever holds the ticket can forge these words; compare \
         its whole id too, which `mgp nodes show` shows there: {other}"
    )
}

/// Formats an address as people write it: an IPv4 address also if it arrived on a dual-stack socket.
#[must_use]
pub fn canonical_address(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}
