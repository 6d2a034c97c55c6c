//! The wire format of what a new node receives.

use mgp_engine::node_key::PublicKey;
use mgp_engine::policy::grants::ClusterId;
use mgp_protocol::federation::pairing::{PARTS_MAX, WelcomeBundle};
use mgp_protocol::federation::tool_index::RecordBytes;

use super::NodeAdmission;

/// Bytes of entries that a new node is given at once.
const ENTRIES: usize = PARTS_MAX - 1024;

impl NodeAdmission {
    /// The entries that fit: the others come over links.
    pub(super) fn to_welcome_book(&self) -> WelcomeBundle {
        let mut room = ENTRIES;
        let fitting = self.entries.iter().take_while(|entry| {
            room = room.saturating_sub(entry.len() + 8);
            room > 0
        });
        let entries = fitting.cloned().map(RecordBytes);
        WelcomeBundle {
            cluster: self.cluster.0.to_vec(),
            name: self.name.clone(),
            role: self.role,
            entries: entries.collect(),
        }
    }

    /// What the inviter gave; nothing where it is of another cluster than the ticket said.
    pub(super) fn from_welcome_book(
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
