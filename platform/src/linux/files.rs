//! Files that only this system has, or opens in its own way.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

/// Longest path of a socket, in bytes: the system's field has 108, the last one is 0.
pub const SOCKET_PATH_MAX: usize = 107;

/// A file by its inode, which is not reused while this exists.
#[derive(Debug)]
pub struct PinnedFile(File);

impl PinnedFile {
    /// Pins a file of any kind, a socket too. A link is not followed.
    ///
    /// # Errors
    /// There is no such file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let flags = (OFlag::O_PATH | OFlag::O_NOFOLLOW).bits();
        let file = options.read(true).custom_flags(flags).open(path)?;
        Ok(Self(file))
    }

    /// Whether the file is at this path.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        let (Ok(ours), Ok(there)) = (self.0.metadata(), path.symlink_metadata()) else {
            return false;
        };
        (ours.dev(), ours.ino()) == (there.dev(), there.ino())
    }
}

/// Whether each process sees another file at this path.
#[must_use]
pub fn is_per_process(path: &Path) -> bool {
    path.starts_with("/proc")
}

/// The path as any process would name its own: `/proc/self` in place of this process's number.
#[must_use]
pub fn to_any_process(path: PathBuf) -> PathBuf {
    let own = Path::new("/proc").join(std::process::id().to_string());
    let inner = path.strip_prefix(own).map(Path::to_owned);
    inner.map_or(path, |inner| Path::new("/proc/self").join(inner))
}
