//! The record of a running kernel, where those look who know no more than the user. Clients give their
//! children `HOME` and `PATH`, and not what the shell had in which the kernel was started.
//!
//! A record is a hint. What it says counts only while the kernel it names holds its data folder, and
//! who answers at the socket is asked for by the client.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::lock::{RECORD_FILE, find_holder};
use crate::paths::{read_owned_json, write_owned_json};

/// A kernel that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunningKernel {
    /// Its process.
    pub(crate) pid: u32,
    /// When it started, in seconds since 1970.
    pub(crate) since: u64,
    /// Where it listens.
    pub(crate) socket: PathBuf,
    /// The folder it holds.
    pub(crate) data_dir: PathBuf,
    /// Whether its data folder was named. One that was not is the user's usual kernel.
    pub(crate) named: bool,
}

impl RunningKernel {
    /// The kernel that is recorded in a folder, while it runs.
    #[must_use]
    pub(crate) fn find_live(folder: &Path) -> Option<Self> {
        let record = Self::read_record(folder)?;
        let pid = find_holder(&record.data_dir)?;
        (i64::from(record.pid) == i64::from(pid)).then_some(record)
    }

    /// What is recorded in a folder, whether that kernel runs or not.
    #[must_use]
    pub(crate) fn read_record(folder: &Path) -> Option<Self> {
        read_owned_json(folder, RECORD_FILE)
    }

    /// Whether this kernel fell: it holds its folder no more, and has not taken its record back, as one
    /// does that is told to stop.
    #[must_use]
    pub(crate) fn has_crashed(&self) -> bool {
        find_holder(&self.data_dir).is_none()
            && Self::read_record(&self.data_dir).as_ref() == Some(self)
    }

    /// Writes it into a folder, whole or not at all.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        write_owned_json(self, folder, RECORD_FILE)
    }

    /// Takes it out of a folder, unless another kernel's is there.
    pub(crate) fn remove(&self, folder: &Path) {
        if Self::read_record(folder).as_ref() == Some(self) {
            // One that stays says nothing once its kernel has ended.
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

    /// A folder that this process holds, and its record.
    fn held(folder: &Path) -> (File, RunningKernel) {
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

    /// Point 1: a record counts while its kernel holds its folder, and only then.
    #[test]
    fn a_record_counts_as_long_as_its_kernel_runs() {
        let root = tempfile::tempdir().unwrap();
        let (lock, record) = held(root.path());
        assert_eq!(RunningKernel::find_live(root.path()), None);
        record.write(root.path()).unwrap();
        assert_eq!(
            RunningKernel::find_live(root.path()).as_ref(),
            Some(&record)
        );
        assert!(!record.has_crashed(), "it may be ending");
        drop(lock);
        // A process that another test starts just now has the lock until it runs its own program.
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

    /// Point 1: a file that somebody else may have written leads nobody anywhere.
    #[test]
    fn a_record_that_others_could_have_written_does_not_count() {
        let root = tempfile::tempdir().unwrap();
        let (_lock, record) = held(root.path());
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
