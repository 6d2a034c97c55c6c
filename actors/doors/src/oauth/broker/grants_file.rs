//! The grants on disk: one file, replaced as a whole. A token is on disk before its client has it, so a restart neither
//! forgets nor revives one.

use std::io;
use std::path::Path;

use mgp_engine::doors::broker::grants::{Grant, Grants};
use mgp_store::{atomic_file, regular_file};

/// The largest file that is read: the maximum number of grants, with some margin.
const FILE_BYTES_MAX: usize = 32 << 20;

/// Reads the grants that `mapping` fits; none if there is no file. After damage everybody signs in again.
pub(super) fn load(path: &Path, mapping: &str) -> Grants {
    let damaged = |why: &dyn std::fmt::Display| {
        tracing::warn!(file = %path.display(), %why, "the sign-ins of agents are lost; clients sign in again");
        Grants::default()
    };
    match regular_file::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Grants::default(),
        Err(error) => damaged(&error),
        Ok(bytes) if bytes.len() > FILE_BYTES_MAX => damaged(&"it is too long"),
        Ok(bytes) => match serde_json::from_slice::<Vec<Grant>>(&bytes) {
            Ok(records) => {
                let stored = records.len();
                let grants = Grants::from_records(records, mapping);
                let ended = stored - grants.to_records().len();
                if ended > 0 {
                    // For good, whatever the mapping becomes.
                    if let Err(error) = write(path, &render(&grants)) {
                        return damaged(&error);
                    }
                    tracing::info!(
                        ended,
                        "`groups` in [oauth] has changed; clients sign in again"
                    );
                }
                grants
            }
            Err(error) => damaged(&error),
        },
    }
}

pub(super) fn render(grants: &Grants) -> Vec<u8> {
    serde_json::to_vec(&grants.to_records()).expect("grants are JSON")
}

pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    atomic_file::write(path, bytes)
}
