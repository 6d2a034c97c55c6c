//! Files as every system has them.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Longest path of a socket, in bytes: the field of the BSDs has 104, the last one is 0.
pub const SOCKET_PATH_MAX: usize = 103;

/// A file by its inode, which a later file may get, and by the time of its last write.
#[derive(Debug)]
pub struct PinnedFile(Metadata);

impl PinnedFile {
    /// Remembers a file of any kind, a socket too. A link is not followed.
    ///
    /// # Errors
    /// There is no such file.
    pub fn open(path: &Path) -> io::Result<Self> {
        path.symlink_metadata().map(Self)
    }

    /// Whether the file is at this path.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        let id = |file: &Metadata| (file.dev(), file.ino(), file.mtime(), file.mtime_nsec());
        let there = path.symlink_metadata();
        there.is_ok_and(|there| id(&self.0) == id(&there))
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
