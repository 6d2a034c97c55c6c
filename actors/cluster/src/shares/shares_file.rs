//! The share rules on disk. Without the file nothing is shared, so its loss opens nothing.

use std::io;
use std::path::{Path, PathBuf};

use mgp_engine::cluster::shares::{SHARES_MAX, Share, ShareChange, Shares};
use mgp_store::atomic_file;
use mgp_store::regular_file;

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SharesFileError {
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
        "{} is damaged ({why}): nobody knows what this node shares; put a copy back, or share nothing with `echo '[]' > {}` and share anew",
        .path.display(), .path.display()
    )]
    Damaged {
        /// Its path.
        path: PathBuf,
        /// The problem.
        why: String,
    },
}

pub(super) fn read(path: &Path) -> Result<Shares, SharesFileError> {
    let damaged = |why: String| SharesFileError::Damaged {
        path: path.to_owned(),
        why,
    };
    let bytes = match regular_file::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Shares::default()),
        Err(error) => {
            let path = path.to_owned();
            return Err(SharesFileError::Disk { path, error });
        }
        Ok(bytes) => bytes,
    };
    let rules: Vec<Share> =
        serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    if rules.len() > SHARES_MAX {
        return Err(damaged(format!("it has more than {SHARES_MAX} rules")));
    }
    let mut shares = Shares::default();
    for rule in rules {
        shares.apply(&ShareChange::Share(rule));
    }
    Ok(shares)
}

/// Writes the file; on disk when this returns.
pub(super) fn write(path: &Path, shares: &Shares) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    atomic_file::create_folder(folder)?;
    let rules: Vec<Share> = shares.iter().collect();
    atomic_file::write(path, &serde_json::to_vec(&rules)?)
}
