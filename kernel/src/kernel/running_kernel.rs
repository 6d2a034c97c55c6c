//! The record of a running kernel, in folders that clients find knowing only the user. Clients give their children
//! `HOME` and `PATH`, but not the environment of the shell in which the kernel was started.
//!
//! A record is a hint. It counts only while its kernel holds the data folder; clients verify the peer at the
//! socket.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::lock::{RECORD_FILE, find_holder};
use crate::paths::{read_owned_json, write_owned_json};

/// A running kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunningKernel {
    /// Its process id.
    pub(crate) pid: u32,
    /// Start time in seconds since 1970.
    pub(crate) since: u64,
    /// Its socket.
    pub(crate) socket: PathBuf,
    /// Its data folder.
    pub(crate) data_dir: PathBuf,
    /// Whether its data folder was set explicitly; otherwise it is the user's usual kernel.
    pub(crate) named: bool,
}

impl RunningKernel {
    /// The kernel recorded in a folder, if it runs.
    #[must_use]
    pub(crate) fn find_live(folder: &Path) -> Option<Self> {
        let record = Self::read_record(folder)?;
        let pid = find_holder(&record.data_dir)?;
        (i64::from(record.pid) == i64::from(pid)).then_some(record)
    }

    /// The record in a folder, whether its kernel runs or not.
    #[must_use]
    pub(crate) fn read_record(folder: &Path) -> Option<Self> {
        read_owned_json(folder, RECORD_FILE)
    }

    /// Whether this kernel crashed: it no longer holds its folder, but did not remove its record, as a graceful
    /// shutdown does.
    #[must_use]
    pub(crate) fn has_crashed(&self) -> bool {
        find_holder(&self.data_dir).is_none()
            && Self::read_record(&self.data_dir).as_ref() == Some(self)
    }

    /// Writes it into a folder atomically.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        write_owned_json(self, folder, RECORD_FILE)
    }

    /// Removes it from a folder, unless it is another kernel's.
    pub(crate) fn remove(&self, folder: &Path) {
        if Self::read_record(folder).as_ref() == Some(self) {
            // A record that remains does not count once its kernel has ended.
            let _ = fs::remove_file(folder.join(RECORD_FILE));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::time::{Duration, Instant};

    use nix::unistd::geteuid;

    use super::super::lock::LOCK_FILE;
    use super::*;

    /// A folder locked by this process, and its record.
    fn lock_and_record(folder: &Path) -> (File, RunningKernel) {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
        let pid = std::process::id();
        fs::write(folder.join(LOCK_FILE), format!("{pid}\n")).unwrap();
        let lock = File::open(folder.join(LOCK_FILE)).unwrap();
        lock.lock().unwrap();
        let record = RunningKernel {
            pid,
            since: 7,
            socket: "/run/mgp.sock".into(),
            data_dir: folder.to_owned(),
            named: false,
        };
        (lock, record)
    }

    /// Point 1: a record counts exactly while its kernel holds its folder.
    #[test]
    fn a_record_counts_as_long_as_its_kernel_runs() {
        let root = tempfile::tempdir().unwrap();
        let (lock, record) = lock_and_record(root.path());
        assert_eq!(RunningKernel::find_live(root.path()), None);
        record.write(root.path()).unwrap();
        assert_eq!(
            RunningKernel::find_live(root.path()).as_ref(),
            Some(&record)
        );
        assert!(!record.has_crashed(), "it may be ending");
        drop(lock);
        // A process that another test is starting has the lock until it executes its program.
        let deadline = Instant::now() + Duration::from_secs(20);
        while !record.has_crashed() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(record.has_crashed());
        assert_eq!(
            RunningKernel::find_live(root.path()),
            None,
            "its kernel has ended"
        );
        let other = RunningKernel {
            since: 8,
            ..record.clone()
        };
        other.remove(root.path());
        assert!(
            root.path().join(RECORD_FILE).exists(),
            "it is not the other's"
        );
        record.remove(root.path());
        assert!(!root.path().join(RECORD_FILE).exists());
        assert!(!record.has_crashed(), "it was told to stop");
    }

    /// Point 1: a file that another user may have written is ignored.
    #[test]
    fn a_record_writable_by_others_does_not_count() {
        let root = tempfile::tempdir().unwrap();
        let (_lock, record) = lock_and_record(root.path());
        record.write(root.path()).unwrap();
        let file = root.path().join(RECORD_FILE);
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        mode(&file, 0o622).unwrap();
        assert_eq!(
            RunningKernel::find_live(root.path()),
            None,
            "others may write the file"
        );
        mode(&file, 0o600).unwrap();
        mode(root.path(), 0o777).unwrap();
        assert_eq!(
            RunningKernel::find_live(root.path()),
            None,
            "or put another there"
        );
        mode(root.path(), 0o700).unwrap();
        assert!(RunningKernel::find_live(root.path()).is_some());
        fs::rename(&file, root.path().join("real")).unwrap();
        symlink("real", &file).unwrap();
        assert_eq!(RunningKernel::find_live(root.path()), None, "it is a link");
        fs::rename(root.path().join("real"), &file).unwrap();
        if geteuid().is_root() {
            chown(&file, Some(4711), None).unwrap();
            assert_eq!(
                RunningKernel::find_live(root.path()),
                None,
                "it is another user's"
            );
        }
    }
}
