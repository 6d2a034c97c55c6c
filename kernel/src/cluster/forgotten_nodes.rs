//! Departed nodes that are no longer listed here, persistent.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use mgp_protocol::ids::NodeId;
use mgp_runtime::task;
use mgp_store::atomic_file;
use mgp_store::regular_file;

/// Local to this node: the entries in the logs stay and count.
#[derive(Debug)]
pub(super) struct ForgottenNodes {
    file: PathBuf,
    nodes: Mutex<BTreeSet<NodeId>>,
    /// Serializes writes.
    write_lock: tokio::sync::Mutex<()>,
}

impl ForgottenNodes {
    /// A file that cannot be read only leads to more rows in lists.
    pub(super) fn load(file: PathBuf) -> Self {
        let stored = regular_file::read(&file).unwrap_or_default();
        let stored: Vec<String> = serde_json::from_slice(&stored).unwrap_or_default();
        let nodes = stored
            .iter()
            .filter_map(|node| NodeId::parse(node))
            .collect();
        Self {
            nodes: Mutex::new(nodes),
            write_lock: tokio::sync::Mutex::default(),
            file,
        }
    }

    pub(super) fn contains(&self, node: NodeId) -> bool {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.contains(&node)
    }

    /// Resolves when on disk. Drops earlier nodes unless `is_known`, so that there are at most as many as former
    /// members.
    pub(super) async fn add(
        &self,
        more: BTreeSet<NodeId>,
        is_known: impl Fn(NodeId) -> bool,
    ) -> io::Result<()> {
        let _one = self.write_lock.lock().await;
        let nodes = {
            let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
            nodes.extend(more);
            nodes.retain(|node| is_known(*node));
            nodes.clone()
        };
        let stored: Vec<String> = nodes.iter().map(ToString::to_string).collect();
        let file = self.file.clone();
        let written = task::run_blocking("cluster.forgotten", move || {
            let folder = file.parent().map_or(Ok(()), atomic_file::create_folder);
            folder.and_then(|()| atomic_file::write(&file, &serde_json::to_vec(&stored)?))
        });
        written.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn forgotten_nodes_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cluster").join("forgotten.json");
        let forgotten = ForgottenNodes::load(file.clone());
        let (one, other) = (NodeId([1; 32]), NodeId([2; 32]));
        forgotten.add([one].into(), |_| true).await.unwrap();
        assert!(forgotten.contains(one) && !forgotten.contains(other));
        let again = ForgottenNodes::load(file.clone());
        assert!(again.contains(one));
        again
            .add([other].into(), |node| node == other)
            .await
            .unwrap();
        assert!(
            !ForgottenNodes::load(file).contains(one),
            "nobody it ever was"
        );
    }
}
