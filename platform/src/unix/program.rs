//! This program.

use std::path::PathBuf;
use std::sync::OnceLock;

/// The path of the program at the first call. After an upgrade of the file it leads to the new program.
#[must_use]
pub fn own_program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let find = || std::env::current_exe().unwrap_or_else(|_| "mgp".into());
    PROGRAM.get_or_init(find).clone()
}
