//! Files as every system has them.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Longest path of a socket, in bytes: the field of the BSDs has 104, the last one is 0.
pub const SOCKET_PATH_MAX: usize = 103;

/// A file by its inode, which a later file may get.
#[derive(Debug)]
pub struct PinnedFile {
    device: u64,
    inode: u64,
}

impl PinnedFile {
    /// Remembers a file of any kind, a socket too. A link is not followed.
    ///
    /// # Errors
    /// There is no such file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let found = path.symlink_metadata()?;
        Ok(Self {
            device: found.dev(),
            inode: found.ino(),
        })
    }

    /// Whether the file is at this path.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        let there = path.symlink_metadata();
        there.is_ok_and(|there| (self.device, self.inode) == (there.dev(), there.ino()))
    }
}

/// Whether each process sees another file at this path: never.
#[must_use]
pub fn is_per_process(_path: &Path) -> bool {
    false
}

/// The path as any process would name its own: the same.
#[must_use]
pub fn to_any_process(path: PathBuf) -> PathBuf {
    path
}
