//! Copies of other nodes' indexes on disk, so that what is known of a node outlives a restart. Everything in
//! them can be copied again: a file that is damaged is not read, and nobody waits for the disk.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use mgp_engine::cluster::tool_index::{
    BYTES_MAX, HELD_BYTES_MAX, HeldEntry, HeldIndex, IndexKey, NODES_MAX,
};
use mgp_protocol::federation::tool_index::{
    IndexChange, IndexDigest, IndexPage, IndexRoot, RecordBytes,
};
use mgp_protocol::ids::{NodeId, ServerId};
use mgp_runtime::time::{unix_ms, unix_ms_of};
use mgp_store::atomic_file;
use mgp_store::regular_file;

use super::node_handles::private_folder;

/// Longest file: the records, their names and little else.
const FILE_MAX: u64 = 2 * BYTES_MAX as u64;
const ENDING: &str = ".index";
/// Of what this node itself offers.
const OWN_ENDING: &str = ".own";

/// What is to become of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum KeptChange {
    /// The node was heard: what is kept is so old and no older.
    Heard,
    /// The copy is another one, or there is none any more.
    Changed,
}

/// What is to be written of a node.
pub(super) enum WrittenCopy {
    /// The copy of another node's index.
    Held {
        digest: IndexDigest,
        entries: Vec<(IndexKey, HeldEntry)>,
        /// The hashes of those that were not taken.
        refused: Vec<(IndexKey, IndexRoot)>,
    },
    /// What this node's own servers offer, for its next start.
    Own(IndexPage),
}

/// What the disk has to do.
pub(super) type CopyOrders = BTreeMap<NodeId, Option<WrittenCopy>>;

impl WrittenCopy {
    /// Of a copy that is whole.
    pub(super) fn of(index: &HeldIndex) -> Option<Self> {
        let entries = index.entries();
        let entries = entries.map(|(key, entry)| (key.clone(), entry.clone()));
        Some(Self::Held {
            digest: index.digest()?,
            entries: entries.collect(),
            refused: index
                .refused_leaves()
                .map(|(key, leaf)| (key.clone(), leaf))
                .collect(),
        })
    }

    /// As a page that has everything; its number is that of the entries at its end of which it has the hash only.
    fn page(self) -> IndexPage {
        let (digest, entries, refused) = match self {
            Self::Held {
                digest,
                entries,
                refused,
            } => (digest, entries, refused),
            Self::Own(page) => return page,
        };
        let change = |(key, entry): (IndexKey, HeldEntry)| {
            let record = match entry {
                HeldEntry::Server(record) => record.encode(),
                HeldEntry::Tool(tool) => tool.record().encode(),
            };
            kept(&key, record)
        };
        let number = refused.len() as u64;
        let refused = refused.into_iter();
        let refused = refused.map(|(key, leaf)| kept(&key, leaf.0.to_vec()));
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

fn kept(key: &IndexKey, record: Vec<u8>) -> IndexChange {
    IndexChange {
        server: key.server.to_string(),
        tool: key.tool.as_deref().map(str::to_owned),
        record: Some(RecordBytes(record)),
    }
}

/// All copies that are whole, and how long ago their nodes were heard.
pub(super) fn read(folder: &Path) -> Vec<(NodeId, HeldIndex, Duration)> {
    let Ok(files) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut room = HELD_BYTES_MAX;
    let mut copies = Vec::new();
    for file in files.flatten().take(2 * NODES_MAX) {
        let name = file.file_name();
        let node = name.to_str().and_then(|name| name.strip_suffix(ENDING));
        let Some(node) = node.and_then(NodeId::parse) else {
            continue;
        };
        match read_one(&file.path(), room) {
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
pub(super) fn read_own(folder: &Path, here: NodeId) -> Option<HeldIndex> {
    let path = own_place(folder, here);
    match read_one(&path, HELD_BYTES_MAX) {
        Ok((index, _)) => Some(index),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "what servers offered before cannot be read; other nodes see their tools once they have started");
            None
        }
    }
}

fn read_one(path: &Path, room: usize) -> io::Result<(HeldIndex, Duration)> {
    let file = regular_file::open(path)?;
    let heard = unix_ms_of(file.metadata()?.modified()?);
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
        HeldIndex::restored(page.digest, page.changes, refused, room).ok_or_else(damaged)?;
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
pub(super) fn write(folder: &Path, orders: CopyOrders, heard: &[NodeId]) -> io::Result<()> {
    for (node, copy) in orders {
        let path = match &copy {
            Some(WrittenCopy::Own(_)) => own_place(folder, node),
            Some(WrittenCopy::Held { .. }) | None => place(folder, node),
        };
        match copy {
            Some(copy) => {
                private_folder(folder)?;
                atomic_file::write_unsynced(&path, &copy.page().encode())?;
            }
            None => gone_is_well(fs::remove_file(&path))?,
        }
    }
    for node in heard {
        let file = File::options().write(true).open(place(folder, *node));
        gone_is_well(file.and_then(|file| file.set_modified(SystemTime::now())))?;
    }
    Ok(())
}

fn gone_is_well(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn own_place(folder: &Path, here: NodeId) -> PathBuf {
    folder.join(format!("{here}{OWN_ENDING}"))
}

fn place(folder: &Path, node: NodeId) -> PathBuf {
    folder.join(format!("{node}{ENDING}"))
}
