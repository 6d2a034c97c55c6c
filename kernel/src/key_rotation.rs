//! Rotation of this node's key: a new key is created while the kernel runs, and used from its next start.
//!
//! Two files besides `node.key` hold the progress. `node.key.proposed`: the previous key may have signed this one or
//! not, which the cluster's logs show. `node.key.next`: the key from the next start on. Wherever the kernel is
//! interrupted, the next start finds one of them and continues.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use mgp_cluster::replication::has_rekeyed;
use mgp_engine::node_key::{NodeKey, PublicKey};
use mgp_policy::GrantStore;
use mgp_protocol::ids::hex::digit;
use mgp_runtime::randomness;
use mgp_store::{Witness, atomic_file, explain_io_error, regular_file, with_path};

/// The file of the node's key, in the data folder.
pub(crate) const NODE_KEY: &str = "node.key";

/// The next key of this node, and the progress of the rotation.
#[derive(Clone, Debug)]
pub(crate) struct KeyRotation {
    current_path: PathBuf,
    proposed_path: PathBuf,
    next_path: PathBuf,
}

impl KeyRotation {
    pub(crate) fn new(data_dir: &Path) -> Self {
        let current_path = data_dir.join(NODE_KEY);
        Self {
            proposed_path: current_path.with_extension("key.proposed"),
            next_path: current_path.with_extension("key.next"),
            current_path,
        }
    }

    /// The key from the next start on, if it changes.
    pub(crate) fn next_key(&self) -> Result<Option<PublicKey>, String> {
        if self.next_path.exists() {
            Ok(Some(read_key(&self.next_path)?.public_key()))
        } else {
            Ok(None)
        }
    }

    /// Creates a key, not in use before [`Self::confirm`]; at most one is proposed at a time.
    pub(crate) fn propose(&self) -> io::Result<PublicKey> {
        let bytes = randomness::random_bytes::<32>();
        let mut open = OpenOptions::new();
        let open = open.write(true).create_new(true).mode(0o600);
        let written = open.open(&self.proposed_path).and_then(|mut file| {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(file, "{digits}")?;
            file.sync_all()?;
            atomic_file::sync_folder(&self.proposed_path)
        });
        written.map_err(|error| with_path(&self.proposed_path, &error))?;
        Ok(NodeKey::new(&bytes).public_key())
    }

    /// Confirms the proposed key for the next start.
    pub(crate) fn confirm(&self) -> io::Result<()> {
        fs::rename(&self.proposed_path, &self.next_path)?;
        atomic_file::sync_folder(&self.next_path)
    }

    /// Discards the proposed key.
    pub(crate) fn discard_proposed(&self) -> io::Result<()> {
        fs::remove_file(&self.proposed_path)
    }

    /// Applied at the start, before anything is read that the key has signed: this node's own grants, and the logs of
    /// its cluster.
    pub(crate) fn apply_at_start(
        &self,
        grants: &Path,
        logs: &Path,
        witness: Witness,
    ) -> Result<(), String> {
        if self.proposed_path.exists() {
            self.settle_proposed(logs)?;
        }
        if !self.next_path.exists() {
            return Ok(());
        }
        let next = read_key(&self.next_path)?;
        if self.current_path.exists() {
            let before = read_key(&self.current_path)?;
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let runtime = runtime.map_err(|e| format!("no runtime: {e}"))?;
            let moved = runtime.block_on(GrantStore::rekey(grants, &before, &next, witness));
            moved.map_err(|e| e.to_string())?;
        }
        let taken = fs::rename(&self.next_path, &self.current_path);
        let taken = taken.and_then(|()| atomic_file::sync_folder(&self.current_path));
        taken.map_err(|e| explain_io_error(&self.current_path, &e))?;
        tracing::warn!("this node has a new key: its id is {} now", next.node_id());
        Ok(())
    }

    /// The kernel was interrupted between proposal and decision: the key counts if the previous one signed it.
    fn settle_proposed(&self, logs: &Path) -> Result<(), String> {
        // An incomplete file holds a key that nothing signed.
        let signed = match (read_key(&self.current_path), read_key(&self.proposed_path)) {
            (Ok(before), Ok(next)) => has_rekeyed(logs, before.node_id(), next.public_key()),
            (Ok(_) | Err(_), _) => Ok(false),
        };
        let judged = if signed.map_err(|e| e.to_string())? {
            self.confirm()
        } else {
            self.discard_proposed()
        };
        match judged {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                Err(explain_io_error(&self.proposed_path, &e))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Reads the key in an existing file.
fn read_key(path: &Path) -> Result<NodeKey, String> {
    let text = regular_file::read_to_string(path).map_err(|e| explain_io_error(path, &e))?;
    let pairs = text.trim().as_bytes().chunks(2);
    let bytes = pairs.map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    let bytes: Option<Vec<u8>> = bytes.collect();
    let bytes: Option<[u8; 32]> = bytes.and_then(|bytes| bytes.try_into().ok());
    let bytes = bytes.ok_or_else(|| format!("{} holds no key", path.display()))?;
    Ok(NodeKey::new(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NodeFolder(tempfile::TempDir);

    impl NodeFolder {
        /// A node that has a key.
        fn new() -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            fs::write(folder.0.path().join(NODE_KEY), "07".repeat(32) + "\n").unwrap();
            folder
        }

        fn renewed(&self) -> KeyRotation {
            KeyRotation::new(self.0.path())
        }

        fn grants(&self) -> PathBuf {
            self.0.path().join("grants.journal")
        }

        /// Simulates a start. The resulting key opens the grants.
        fn start(&self) -> NodeKey {
            let logs = self.0.path().join("cluster").join("logs");
            let witness = Witness::default();
            self.renewed()
                .apply_at_start(&self.grants(), &logs, witness)
                .unwrap();
            let key = read_key(&self.0.path().join(NODE_KEY)).unwrap();
            drop(GrantStore::open(&self.grants(), key.clone()).unwrap());
            key
        }
    }

    /// A kernel interrupted before the decision keeps its key.
    #[test]
    fn an_unsigned_key_is_dropped() {
        let folder = NodeFolder::new();
        let (renewed, before) = (folder.renewed(), folder.start().node_id());
        renewed.propose().unwrap();
        assert!(renewed.propose().is_err(), "one is made at a time");
        assert_eq!(folder.start().node_id(), before);
        fs::write(&renewed.proposed_path, "7f").unwrap();
        assert_eq!(folder.start().node_id(), before, "half a file is none");
        renewed.propose().unwrap();
    }

    /// Once confirmed, each further start finds the new key, also after an interrupted start.
    #[test]
    fn a_confirmed_key_is_used_at_the_next_start() {
        let folder = NodeFolder::new();
        let (renewed, before) = (folder.renewed(), folder.start().node_id());
        let next = renewed.propose().unwrap();
        renewed.confirm().unwrap();
        assert_eq!(renewed.next_key().unwrap(), Some(next));
        let copy = fs::read(&renewed.next_path).unwrap();
        for _ in 0..2 {
            let now = folder.start().node_id();
            assert!(now == next.node_id() && now != before);
            assert_eq!(renewed.next_key().unwrap(), None);
            // As if the start had been interrupted before its last step.
            fs::write(&renewed.next_path, &copy).unwrap();
        }
    }
}
