//! The record of a running kernel, and what the last one keeps for the next: where those look who know
//! no more than the user. Clients give their children `HOME` and `PATH`, and not what the shell had in
//! which the kernel was started.
//!
//! A record is a hint. What it says counts only while the kernel it names holds its data folder, and
//! who answers at the socket is asked for by the client.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use mgp_store::atomic_file;
use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::paths::is_own;

/// The lock that says which process holds a data folder.
pub const LOCK: &str = "kernel.lock";
/// The record's file.
const RECORD: &str = "kernel.json";
/// The file of what is kept.
const KEPT: &str = "places.json";
/// Longest file that is read, in bytes: two paths have 8 KiB at most.
const LONGEST: u64 = 64 << 10;

/// A kernel that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its process.
    pub pid: u32,
    /// When it started, in seconds since 1970.
    pub since: u64,
    /// Where it listens.
    pub socket: PathBuf,
    /// The folder it holds.
    pub data_dir: PathBuf,
    /// Whether its data folder was named. One that was not is the user's usual kernel.
    pub named: bool,
}

impl Record {
    /// The kernel that is recorded in a folder, while it runs.
    #[must_use]
    pub fn live(folder: &Path) -> Option<Self> {
        let record = Self::left(folder)?;
        let pid = holder(&record.data_dir)?;
        (i64::from(record.pid) == i64::from(pid)).then_some(record)
    }

    /// What is recorded in a folder, whether that kernel runs or not.
    #[must_use]
    pub fn left(folder: &Path) -> Option<Self> {
        read(folder, RECORD)
    }

    /// Whether this kernel fell: it holds its folder no more, and has not taken its record back, as one
    /// does that is told to stop.
    #[must_use]
    pub fn has_fallen(&self) -> bool {
        holder(&self.data_dir).is_none() && Self::left(&self.data_dir).as_ref() == Some(self)
    }

    /// Writes it into a folder, whole or not at all.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        write(self, folder, RECORD)
    }

    /// Takes it out of a folder, unless another kernel's is there.
    pub fn forget(&self, folder: &Path) {
        if Self::left(folder).as_ref() == Some(self) {
            // One that stays says nothing once its kernel has ended.
            let _ = fs::remove_file(folder.join(RECORD));
        }
    }
}

/// Where a kernel that was started without names had its things, for one that is started by who knows
/// less.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The data folder.
    pub data_dir: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`, where it was set.
    pub config_home: Option<PathBuf>,
}

impl Kept {
    /// What is kept below a home, as far as it is still there and nobody else's.
    #[must_use]
    pub fn read(folder: &Path) -> Self {
        let kept: Self = read(folder, KEPT).unwrap_or_default();
        Self {
            data_dir: kept.data_dir.filter(|dir| is_own(dir)),
            config_home: kept.config_home.filter(|dir| dir.is_dir()),
        }
    }

    /// Keeps it for the next kernel.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        match read::<Self>(folder, KEPT).as_ref() == Some(self) {
            true => Ok(()),
            false => write(self, folder, KEPT),
        }
    }
}

/// The process that holds a data folder of this user, while one does.
#[must_use]
pub fn holder(data_dir: &Path) -> Option<i32> {
    if !is_own(data_dir) {
        return None;
    }
    let mut lock = File::open(data_dir.join(LOCK)).ok()?;
    let mut pid = String::new();
    (&mut lock).take(LONGEST).read_to_string(&mut pid).ok()?;
    match lock.try_lock_shared() {
        Err(TryLockError::WouldBlock) => pid.trim().parse().ok(),
        Err(TryLockError::Error(_)) | Ok(()) => None,
    }
}

/// Only a file that nobody else can have written, in such a folder, is read.
fn read<T: DeserializeOwned>(folder: &Path, name: &str) -> Option<T> {
    if !is_own(folder) {
        return None;
    }
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let mut open = OpenOptions::new();
    open.read(true).custom_flags(flags.bits());
    let file = open.open(folder.join(name)).ok()?;
    let found = file.metadata().ok()?;
    let others = found.permissions().mode() & 0o022;
    if !found.is_file() || found.uid() != geteuid().as_raw() || others != 0 {
        return None;
    }
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn write(value: &impl Serialize, folder: &Path, name: &str) -> io::Result<()> {
    let text = serde_json::to_vec(value).expect("a record is always JSON");
    atomic_file::write_unsynced(&folder.join(name), &text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    /// A folder that this process holds, and its record.
    fn held(folder: &Path) -> (File, Record) {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
        let pid = std::process::id();
        fs::write(folder.join(LOCK), format!("{pid}\n")).unwrap();
        let lock = File::open(folder.join(LOCK)).unwrap();
        lock.lock().unwrap();
        let record = Record {
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
        assert_eq!(Record::live(root.path()), None);
        record.write(root.path()).unwrap();
        assert_eq!(Record::live(root.path()).as_ref(), Some(&record));
        assert!(!record.has_fallen(), "it may be ending");
        drop(lock);
        assert!(record.has_fallen());
        assert_eq!(Record::live(root.path()), None, "its kernel has ended");
        let other = Record {
            since: 8,
            ..record.clone()
        };
        other.forget(root.path());
        assert!(root.path().join(RECORD).exists(), "it is not the other's");
        record.forget(root.path());
        assert!(!root.path().join(RECORD).exists());
        assert!(!record.has_fallen(), "it was told to stop");
    }

    /// Point 1: a file that somebody else may have written leads nobody anywhere.
    #[test]
    fn a_record_that_others_could_have_written_does_not_count() {
        let root = tempfile::tempdir().unwrap();
        let (_lock, record) = held(root.path());
        record.write(root.path()).unwrap();
        let file = root.path().join(RECORD);
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        mode(&file, 0o622).unwrap();
        assert_eq!(Record::live(root.path()), None, "others may write the file");
        mode(&file, 0o600).unwrap();
        mode(root.path(), 0o777).unwrap();
        assert_eq!(Record::live(root.path()), None, "or put another there");
        mode(root.path(), 0o700).unwrap();
        assert!(Record::live(root.path()).is_some());
        fs::rename(&file, root.path().join("real")).unwrap();
        symlink("real", &file).unwrap();
        assert_eq!(Record::live(root.path()), None, "it is a link");
        fs::rename(root.path().join("real"), &file).unwrap();
        if geteuid().is_root() {
            chown(&file, Some(4711), None).unwrap();
            assert_eq!(Record::live(root.path()), None, "it is another user's");
        }
    }

    #[test]
    fn what_is_kept_counts_as_long_as_it_is_there() {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let place = |name: &str| {
            let folder = root.path().join(name);
            crate::paths::private_folder(&folder).unwrap();
            Some(folder)
        };
        let kept = Kept {
            data_dir: place("data"),
            config_home: place("config"),
        };
        assert_eq!(Kept::read(root.path()), Kept::default());
        kept.write(root.path()).unwrap();
        assert_eq!(Kept::read(root.path()), kept);
        fs::remove_dir(root.path().join("data")).unwrap();
        fs::remove_dir(root.path().join("config")).unwrap();
        assert_eq!(Kept::read(root.path()), Kept::default());
    }
}
