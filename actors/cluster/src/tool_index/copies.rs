//! Copies of other nodes' indexes on disk, so that they survive a restart. Everything in them can be copied
//! again: a damaged file is ignored, and no call waits for the disk.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use mgp_engine::cluster::tool_index::{
    BYTES_MAX, IndexKey, NODES_MAX, REMOTE_BYTES_MAX, RemoteEntry, RemoteIndex,
};
use mgp_protocol::federation::tool_index::{
    IndexChange, IndexDigest, IndexPage, IndexRoot, RecordBytes,
};
use mgp_protocol::ids::{NodeId, ServerId};
use mgp_runtime::time::{to_unix_ms, unix_ms};
use mgp_store::atomic_file;
use mgp_store::regular_file;

use super::node_handles::create_private_folder;

/// The longest file: the records, their names and little else.
const FILE_MAX: u64 = 2 * BYTES_MAX as u64;
const EXTENSION: &str = ".index";
/// The extension of this node's own index.
const OWN_EXTENSION: &str = ".own";

/// An update of a copy's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CopyUpdate {
    /// A message of the node arrived: only the age of its copy changes.
    Heard,
    /// The copy changed, or was removed.
    Changed,
}

/// The content to write for a node.
pub(super) enum CopyToWrite {
    /// The copy of another node's index.
    Remote {
        digest: IndexDigest,
        entries: Vec<(IndexKey, RemoteEntry)>,
        /// The hashes of the rejected entries.
        rejected: Vec<(IndexKey, IndexRoot)>,
    },
    /// The index of this node's own servers, for its next start.
    Own(IndexPage),
}

/// The pending writes for the disk.
pub(super) type CopyWrites = BTreeMap<NodeId, Option<CopyToWrite>>;

impl CopyToWrite {
    /// Converts a complete copy.
    pub(super) fn from_index(index: &RemoteIndex) -> Option<Self> {
        let entries = index.entries();
        let entries = entries.map(|(key, entry)| (key.clone(), entry.clone()));
        Some(Self::Remote {
            digest: index.digest()?,
            entries: entries.collect(),
            rejected: index
                .rejected_hashes()
                .map(|(key, leaf)| (key.clone(), leaf))
                .collect(),
        })
    }

    /// Converts to a page with all entries; its number is that of the trailing entries of which only the
    /// hash is stored.
    fn into_page(self) -> IndexPage {
        let (digest, entries, refused) = match self {
            Self::Remote {
                digest,
                entries,
                rejected: refused,
            } => (digest, entries, refused),
            Self::Own(page) => return page,
        };
        let change = |(key, entry): (IndexKey, RemoteEntry)| {
            let record = match entry {
                RemoteEntry::Server(record) => record.encode(),
                RemoteEntry::Tool(tool) => tool.to_record().encode(),
            };
            to_change(&key, record)
        };
        let number = refused.len() as u64;
        let refused = refused.into_iter();
        let refused = refused.map(|(key, leaf)| to_change(&key, leaf.0.to_vec()));
        IndexPage {
            number,
            epoch: digest.epoch,
            after: 0,
            upto: digest.version,
            digest,
            changes: entries.into_iter().map(change).chain(refused).collect(),
        }
    }
}

fn to_change(key: &IndexKey, record: Vec<u8>) -> IndexChange {
    IndexChange {
        server: key.server.to_string(),
        tool: key.tool.as_deref().map(str::to_owned),
        record: Some(RecordBytes(record)),
    }
}

/// Reads all complete copies, and the age of each node's last message.
pub(super) fn read_copies(folder: &Path) -> Vec<(NodeId, RemoteIndex, Duration)> {
    let Ok(files) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut remaining = REMOTE_BYTES_MAX;
    let mut copies = Vec::new();
    for file in files.flatten().take(2 * NODES_MAX) {
        let name = file.file_name();
        let node = name.to_str().and_then(|name| name.strip_suffix(EXTENSION));
        let Some(node) = node.and_then(NodeId::parse) else {
            continue;
        };
        match read_copy(&file.path(), remaining) {
            Ok((index, age)) => {
                remaining = remaining.saturating_sub(index.bytes());
                copies.push((node, index, age));
            }
            Err(error) => {
                let path = file.path();
                tracing::warn!(path = %path.display(), %error, "a stored copy of another node's index is unreadable; it is copied again");
            }
        }
    }
    copies
}

/// Reads the index of this node's servers at the last run. Without it they have no tools until they list
/// them.
pub(super) fn read_own(folder: &Path, local: NodeId) -> Option<RemoteIndex> {
    let path = own_path(folder, local);
    match read_copy(&path, REMOTE_BYTES_MAX) {
        Ok((index, _)) => Some(index),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the stored index of this node is unreadable; other nodes see its tools once its servers have started");
            None
        }
    }
}

fn read_copy(path: &Path, remaining: usize) -> io::Result<(RemoteIndex, Duration)> {
    let file = regular_file::open(path)?;
    let heard_ms = to_unix_ms(file.metadata()?.modified()?);
    let mut bytes = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut bytes)?;
    let mut page = IndexPage::decode(&bytes).map_err(io::Error::other)?;
    let damaged = || io::Error::other("it is not that of its digest");
    let refused = usize::try_from(page.number).ok();
    let accepted = refused.and_then(|refused| page.changes.len().checked_sub(refused));
    let refused = page.changes.split_off(accepted.ok_or_else(damaged)?);
    let refused: Option<BTreeMap<IndexKey, IndexRoot>> = refused.into_iter().map(hash).collect();
    let refused = refused.ok_or_else(damaged)?;
    let index =
        RemoteIndex::restore(page.digest, page.changes, refused, remaining).ok_or_else(damaged)?;
    let age = Duration::from_millis(unix_ms().saturating_sub(heard_ms));
    Ok((index, age))
}

/// The hash of a rejected entry.
fn hash(change: IndexChange) -> Option<(IndexKey, IndexRoot)> {
    let key = IndexKey {
        server: ServerId::new(change.server),
        tool: change.tool.map(Into::into),
    };
    let leaf = <[u8; 32]>::try_from(change.record?.0).ok()?;
    Some((key, IndexRoot(leaf)))
}

/// Writes copies, and removes the files of nodes that have none.
pub(super) fn write_copies(folder: &Path, writes: CopyWrites, heard: &[NodeId]) -> io::Result<()> {
    for (node, copy) in writes {
        let path = match &copy {
            Some(CopyToWrite::Own(_)) => own_path(folder, node),
            Some(CopyToWrite::Remote { .. }) | None => copy_path(folder, node),
        };
        match copy {
            Some(copy) => {
                create_private_folder(folder)?;
                atomic_file::write_unsynced(&path, &copy.into_page().encode())?;
            }
            None => ignore_not_found(fs::remove_file(&path))?,
        }
    }
    for node in heard {
        let file = File::options().write(true).open(copy_path(folder, *node));
        ignore_not_found(file.and_then(|file| file.set_modified(SystemTime::now())))?;
    }
    Ok(())
}

fn ignore_not_found(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn own_path(folder: &Path, local: NodeId) -> PathBuf {
    folder.join(format!("{local}{OWN_EXTENSION}"))
}

fn copy_path(folder: &Path, node: NodeId) -> PathBuf {
    folder.join(format!("{node}{EXTENSION}"))
}
