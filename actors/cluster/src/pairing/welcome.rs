//! The wire format of an admission.

use mgp_engine::node_key::PublicKey;
use mgp_engine::policy::grants::ClusterId;
use mgp_protocol::federation::pairing::{PARTS_MAX, WelcomeBundle};
use mgp_protocol::federation::tool_index::RecordBytes;

use super::NodeAdmission;

/// The most bytes of entries sent to a new node at once.
const ENTRIES: usize = PARTS_MAX - 1024;

impl NodeAdmission {
    /// Encodes the entries that fit: the others are replicated over links.
    pub(super) fn to_welcome_bundle(&self) -> WelcomeBundle {
        let mut remaining = ENTRIES;
        let included = self.entries.iter().take_while(|entry| {
            remaining = remaining.saturating_sub(entry.len() + 8);
            remaining > 0
        });
        let entries = included.cloned().map(RecordBytes);
        WelcomeBundle {
            cluster: self.cluster.0.to_vec(),
            name: self.name.clone(),
            role: self.role,
            entries: entries.collect(),
        }
    }

    /// Decodes the admission; `None` if it is of another cluster than the ticket.
    pub(super) fn from_welcome_bundle(
        book: WelcomeBundle,
        cluster: ClusterId,
        inviter: PublicKey,
    ) -> Option<Self> {
        let entries = book.entries.into_iter().map(|entry| entry.0);
        (book.cluster == cluster.0).then(|| Self {
            cluster,
            entries: entries.collect(),
            name: book.name,
            role: book.role,
            inviter,
        })
    }
}
