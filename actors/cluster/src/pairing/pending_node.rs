//! A node that waits for approval, as the operator reads it.

use std::net::SocketAddr;
use std::time::Duration;

use mgp_engine::node_names::find_lookalike;
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::kernel::nodes::WaitingNode;
use mgp_runtime::AskError;

use super::{PairingHandle, PendingNode};
use crate::replication::ClusterView;

/// Longest that a node waits for a person: then it asks again.
const APPROVAL_TIMEOUT: Duration = Duration::from_secs(15 * 60);

impl PairingHandle {
    /// The nodes that wait for a person's approval, as the operator reads them; `view` names the members.
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

/// Words without nonces are no proof against who holds the ticket; a whole id is.
#[must_use]
pub fn id_check_note(other: NodeId) -> String {
    format!(
        "the node there runs an older version, or says so: whoever holds the ticket can forge these words; compare \
         its whole id too, which `mgp nodes show` shows there: {other}"
    )
}

/// An address as people write it: one of IPv4, although it came by a socket for both.
#[must_use]
pub fn canonical_address(at: SocketAddr) -> String {
    SocketAddr::new(at.ip().to_canonical(), at.port()).to_string()
}
