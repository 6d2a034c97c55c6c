//! The last addresses of members, persistent: after a power failure nobody else may be left to dial.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use mgp_protocol::ids::NodeId;
use mgp_runtime::task;
use mgp_store::atomic_file;
use mgp_store::regular_file;

/// The last address of each member. Only a hint: a link proves the identity.
#[derive(Debug)]
pub(super) struct LastAddresses {
    file: PathBuf,
    addresses: Mutex<BTreeMap<NodeId, SocketAddr>>,
    /// Serializes writes; each writes the latest state.
    write_lock: tokio::sync::Mutex<()>,
    /// Whether a write is already queued: one is enough, however often addresses change.
    is_write_queued: AtomicBool,
}

impl LastAddresses {
    /// A file that cannot be read counts as empty.
    pub(super) fn load(file: PathBuf) -> Self {
        let stored = regular_file::read(&file).unwrap_or_default();
        let stored: BTreeMap<String, SocketAddr> =
            serde_json::from_slice(&stored).unwrap_or_default();
        let known = stored
            .into_iter()
            .filter_map(|(node, at)| Some((NodeId::parse(&node)?, at)));
        Self {
            addresses: Mutex::new(known.collect()),
            write_lock: tokio::sync::Mutex::default(),
            is_write_queued: AtomicBool::default(),
            file,
        }
    }

    pub(super) fn all(&self) -> BTreeMap<NodeId, SocketAddr> {
        let known = self
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }

    /// The last address at which a link proved the node's identity.
    pub(super) fn get(&self, node: NodeId) -> Option<SocketAddr> {
        let known = self
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known.get(&node).copied()
    }

    /// Records that a link proved the node at an address. True if the address is new.
    pub(super) fn record_proven(&self, node: NodeId, at: SocketAddr) -> bool {
        let mut known = self
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known.insert(node, at) != Some(at)
    }

    /// Removes all but the members. True if anything changed.
    pub(super) fn retain(&self, members: impl Fn(NodeId) -> bool) -> bool {
        let mut known = self
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let before = known.len();
        known.retain(|node, _| members(*node));
        known.len() != before
    }

    /// Writes the addresses to disk, or leaves it to a queued write.
    pub(super) async fn save(&self) {
        if self.is_write_queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let _one = self.write_lock.lock().await;
        self.is_write_queued.store(false, Ordering::Release);
        let known: BTreeMap<String, SocketAddr> = self
            .all()
            .into_iter()
            .map(|(node, at)| (node.to_string(), at))
            .collect();
        let file = self.file.clone();
        let written = task::run_blocking("cluster.addresses", move || {
            let folder = file.parent().map_or(Ok(()), atomic_file::create_folder);
            folder.and_then(|()| atomic_file::write(&file, &serde_json::to_vec(&known)?))
        });
        if let Ok(Err(error)) = written.await {
            tracing::warn!(%error, "the addresses of members could not be saved");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_of_members_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cluster").join("addresses.json");
        let addresses = LastAddresses::load(file.clone());
        let (one, other) = (NodeId([1; 32]), NodeId([2; 32]));
        let at = SocketAddr::from(([10, 0, 0, 1], 7332));
        assert!(addresses.record_proven(one, at) && !addresses.record_proven(one, at));
        assert!(addresses.record_proven(other, at));
        assert!(addresses.retain(|node| node == one));
        addresses.save().await;
        assert_eq!(LastAddresses::load(file).all(), [(one, at)].into());
    }
}
