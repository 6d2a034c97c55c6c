//! Copies of other nodes' indexes on disk, so that they survive a restart. Everything in them can be copied again: a
//! damaged file is not read, and nothing waits for the disk.

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

/// Longest file: the records, their names and little else.
const FILE_MAX: u64 = 2 * BYTES_MAX as u64;
const EXTENSION: &str = ".index";
/// Of what this node itself offers.
const OWN_EXTENSION: &str = ".own";

/// What is to become of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CopyUpdate {
    /// The node was heard: what is kept is so old and no older.
    Heard,
    /// The copy is another one, or there is none any more.
    Changed,
}

/// What is to be written of a node.
pub(super) enum CopyToWrite {
    /// The copy of another node's index.
    Remote {
        digest: IndexDigest,
        entries: Vec<(IndexKey, RemoteEntry)>,
        /// The hashes of those that were not taken.
        rejected: Vec<(IndexKey, IndexRoot)>,
    },
    /// What this node's own servers offer, for its next start.
    Own(IndexPage),
}

/// What the disk has to do.
pub(super) type CopyWrites = BTreeMap<NodeId, Option<CopyToWrite>>;

impl CopyToWrite {
    /// Of a copy that is whole.
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

    /// As a page that has everything; its number is that of the entries at its end of which it has the hash only.
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

/// All copies that are whole, and how long ago their nodes were heard.
pub(super) fn read_copies(folder: &Path) -> Vec<(NodeId, RemoteIndex, Duration)> {
    let Ok(files) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut room = REMOTE_BYTES_MAX;
    let mut copies = Vec::new();
    for file in files.flatten().take(2 * NODES_MAX) {
        let name = file.file_name();
        let node = name.to_str().and_then(|name| name.strip_suffix(EXTENSION));
        let Some(node) = node.and_then(NodeId::parse) else {
            continue;
        };
        match read_copy(&file.path(), room) {
            Ok((index, age)) => {
                room = room.saturating_sub(index.bytes());
                copies.push((node, index, age));
            }
            Err(error) => {
                let path = file.path();
                tracing::warn!(path = %path.display(), %error, "a kept copy of another node's index cannot be read; it is copied again");
            }
        }
    }
    copies
}

/// What this node's servers offered before this kernel's start. Without it they have no tools until they list them.
pub(super) fn read_own(folder: &Path, here: NodeId) -> Option<RemoteIndex> {
    let path = own_path(folder, here);
    match read_copy(&path, REMOTE_BYTES_MAX) {
        Ok((index, _)) => Some(index),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "what servers offered before cannot be read; other nodes see their tools once they have started");
            None
        }
    }
}

fn read_copy(path: &Path, room: usize) -> io::Result<(RemoteIndex, Duration)> {
    let file = regular_file::open(path)?;
    let heard = to_unix_ms(file.metadata()?.modified()?);
    let mut bytes = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut bytes)?;
    let mut page = IndexPage::decode(&bytes).map_err(io::Error::other)?;
    let damaged = || io::Error::other("it is not that of its digest");
    let refused = usize::try_from(page.number).ok();
    let taken = refused.and_then(|refused| page.changes.len().checked_sub(refused));
    let refused = page.changes.split_off(taken.ok_or_else(damaged)?);
    let refused: Option<BTreeMap<IndexKey, IndexRoot>> = refused.into_iter().map(hash).collect();
    let refused = refused.ok_or_else(damaged)?;
    let index =
        RemoteIndex::restore(page.digest, page.changes, refused, room).ok_or_else(damaged)?;
    let age = Duration::from_millis(unix_ms().saturating_sub(heard));
    Ok((index, age))
}

/// What is kept of an entry that was not taken.
fn hash(kept: IndexChange) -> Option<(IndexKey, IndexRoot)> {
    let key = IndexKey {
        server: ServerId::new(kept.server),
        tool: kept.tool.map(Into::into),
    };
    let leaf = <[u8; 32]>::try_from(kept.record?.0).ok()?;
    Some((key, IndexRoot(leaf)))
}

/// Writes copies, and removes the files of nodes that have none.
pub(super) fn write_copies(folder: &Path, orders: CopyWrites, heard: &[NodeId]) -> io::Result<()> {
    for (node, copy) in orders {
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

fn ignore_not_found(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn own_path(folder: &Path, here: NodeId) -> PathBuf {
    folder.join(format!("{here}{OWN_EXTENSION}"))
}

fn copy_path(folder: &Path, node: NodeId) -> PathBuf {
    folder.join(format!("{node}{EXTENSION}"))
}
