//! This program.

use std::path::PathBuf;

/// A path to the running program, which survives an upgrade of its file.
#[must_use]
pub fn own_program() -> PathBuf {
    "/proc/self/exe".into()
}
