//! The local names of nodes, persisted: a name keeps leading to the same node.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use mgp_engine::node_names::NodeNames;
use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::ids::{NodeId, ServerId};
use mgp_store::atomic_file;
use mgp_store::regular_file;
use tokio_util::sync::CancellationToken;

/// The names of all other nodes of the cluster, as they appear in the names of their tools.
#[derive(Debug, Default)]
pub struct PublishedNames {
    /// The names.
    pub names: NodeNames,
    /// Cancelled when newer names are published.
    pub replaced: CancellationToken,
}

/// Why the names file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NamesFileError {
    /// It cannot be read.
    #[error("{}: {error}", .path.display())]
    Disk {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// It is damaged.
    #[error(
        "{} is damaged ({why}): put a copy back, or remove it; then nodes that share a name may change theirs",
        .path.display()
    )]
    Damaged {
        /// Its path.
        path: PathBuf,
        /// The problem.
        why: String,
    },
}

pub(super) fn read(folder: &Path) -> Result<NodeNames, NamesFileError> {
    let path = names_path(folder);
    match regular_file::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(NodeNames::default()),
        Err(error) => Err(NamesFileError::Disk { path, error }),
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| NamesFileError::Damaged {
            path,
            why: error.to_string(),
        }),
    }
}

/// Writes the file; on disk when this returns.
pub(super) fn write(folder: &Path, names: &NodeNames) -> io::Result<()> {
    create_private_folder(folder)?;
    atomic_file::write(&names_path(folder), &serde_json::to_vec(names)?)
}

/// Assigns names to exactly these nodes. No name equals that of a server of this node.
pub(super) fn assign_names<'a>(
    before: &NodeNames,
    members: impl Iterator<Item = (NodeId, &'a NodeName)> + Clone,
    servers: impl Iterator<Item = &'a ServerId> + Clone,
) -> NodeNames {
    let mut names = before.clone();
    let members: BTreeMap<NodeId, &NodeName> = members.collect();
    for (handle, node) in before.iter() {
        // A name that it no longer uses is free for others.
        let keeps = members.get(&node);
        if keeps.is_none_or(|name| name.as_str() != handle.as_str()) {
            names.forget(node);
        }
    }
    for (node, name) in members {
        names.assign(node, name, servers.clone());
    }
    names
}

pub(super) fn create_private_folder(folder: &Path) -> io::Result<()> {
    atomic_file::create_folder(folder)
}

fn names_path(folder: &Path) -> PathBuf {
    folder.join("names.json")
}
