//! Locks on folders. POSIX has none that belong to an open description, so only the files inside are locked.

use std::fs::File;
use std::io;

/// Folders cannot be locked.
///
/// # Errors
/// Always.
pub fn lock_folder(_folder: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Never: folders cannot be locked.
#[must_use]
pub fn is_folder_locked(_folder: &File) -> bool {
    false
}
