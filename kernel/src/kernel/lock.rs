//! The lock on a data folder: a second kernel on it is rejected (PRJ-009). The system releases it when the process
//! ends, however it ends.
//!
//! Two things are locked. The folder itself, if the system can lock one: it cannot be removed meanwhile. And the file
//! `kernel.lock`, by which kernels of older versions are rejected and reject this one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use mgp_store::{explain_io_error, regular_file};
use serde::Deserialize;

use crate::paths::{ensure_private_folder, is_exclusively_owned, read_owned_json};
use mgp_platform::lock;
use mgp_platform::processes::{ProcessIdentity, ProcessState};

/// The lock file in a data folder; it contains the process id.
pub(super) const LOCK_FILE: &str = "kernel.lock";
/// The record of a running kernel.
pub(super) const RECORD_FILE: &str = "kernel.json";
/// Longest lock file that is read, in bytes.
const LOCK_FILE_BYTES_MAX: u64 = 64 << 10;
/// Attempts to lock after a kernel has ended, for 2 s: a child that it was starting holds a copy of the lock until
/// it executes another program.
const ATTEMPTS: u32 = 200;
/// Time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The process id in a kernel's record.
#[derive(Deserialize)]
struct RecordedProcess {
    pid: i32,
}

/// A locked data folder, until this is dropped.
#[derive(Debug)]
pub(crate) struct FolderLock {
    file: File,
    folder: File,
}

impl FolderLock {
    /// The lock of the kernel before this one in this process: the same open file and folder.
    #[must_use]
    pub(super) fn inherit((file, folder): (File, File)) -> Self {
        Self { file, folder }
    }

    /// What holds it, for the next program in this process.
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.file.as_fd(), self.folder.as_fd()]
    }

    /// Whether it is the lock on this folder.
    pub(super) fn locks(&self, data_dir: &Path) -> bool {
        let id = |it: fs::Metadata| (it.dev(), it.ino());
        let locked = self.folder.metadata().map(id);
        locked.is_ok_and(|locked| fs::metadata(data_dir).map(id).is_ok_and(|it| it == locked))
    }
}

/// Locks a data folder, and creates it if absent. A folder locked by another kernel is not changed.
pub(crate) fn acquire(data_dir: &Path) -> Result<FolderLock, String> {
    ensure_private_folder(data_dir).map_err(|e| format!("the data folder: {e}"))?;
    let path = data_dir.join(LOCK_FILE);
    let explain = |e: io::Error| explain_io_error(&path, &e);
    let mut looks = ATTEMPTS;
    let mut lock = loop {
        if let Some(lock) = try_acquire(data_dir).map_err(explain)? {
            break lock;
        }
        let holder = recorded_holder(data_dir);
        if looks == 0 || !holder.is_some_and(has_ended) {
            return Err(already_locked_message(data_dir, holder));
        }
        looks -= 1;
        sleep(RETRY_INTERVAL);
    };
    let file = &mut lock.file;
    let write = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    write.map_err(explain)?;
    Ok(lock)
}

fn try_acquire(data_dir: &Path) -> io::Result<Option<FolderLock>> {
    let folder = File::open(data_dir)?;
    if lock::is_folder_locked(&folder) {
        return Ok(None);
    }
    let path = data_dir.join(LOCK_FILE);
    let mut open = OpenOptions::new();
    open.read(true).write(true).create(true).truncate(false);
    let file = regular_file::open_with(&path, open.mode(0o600))?;
    if is_locked(file.try_lock())? {
        return Ok(None);
    }
    lock_shared(&folder);
    // Another kernel may start at the same time, and the file may be removed at any time.
    let found = file.metadata()?;
    let is_there = fs::metadata(&path).is_ok_and(|there| there.ino() == found.ino());
    let is_certain = is_there && !lock::is_folder_locked(&folder);
    Ok(is_certain.then_some(FolderLock { file, folder }))
}

/// Locks a folder until all copies of this description are closed. Some systems and network file systems do not support
/// it: there only the lock file counts.
fn lock_shared(folder: &File) {
    if let Err(error) = lock::lock_folder(folder) {
        tracing::debug!(%error, "the data folder itself cannot be locked");
    }
}

/// The process that locks a data folder of this user, if any.
#[must_use]
pub(crate) fn find_holder(data_dir: &Path) -> Option<i32> {
    if !is_exclusively_owned(data_dir) {
        return None;
    }
    let by_folder = File::open(data_dir).is_ok_and(|folder| lock::is_folder_locked(&folder));
    let file = regular_file::open(&data_dir.join(LOCK_FILE)).ok();
    let by_file = file.and_then(|file| is_locked(file.try_lock_shared()).ok());
    (by_folder || by_file == Some(true))
        .then(|| recorded_holder(data_dir))
        .flatten()
}

/// The process recorded as holder: in the lock file or, if that was removed, in the kernel's record.
fn recorded_holder(data_dir: &Path) -> Option<i32> {
    let by_file = regular_file::open(&data_dir.join(LOCK_FILE));
    let by_file = by_file.ok().and_then(|file| {
        let mut pid = String::new();
        file.take(LOCK_FILE_BYTES_MAX)
            .read_to_string(&mut pid)
            .ok()?;
        pid.trim().parse().ok()
    });
    by_file.or_else(|| Some(read_owned_json::<RecordedProcess>(data_dir, RECORD_FILE)?.pid))
}

/// Whether another process has the lock.
fn is_locked(result: Result<(), TryLockError>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(e)) => Err(e),
    }
}

fn has_ended(pid: i32) -> bool {
    ProcessIdentity::from_pid(pid).state() == ProcessState::Exited
}

fn already_locked_message(data_dir: &Path, holder: Option<i32>) -> String {
    let pid = holder.map_or_else(|| "?".into(), |pid| pid.to_string());
    format!(
        "a kernel (process {pid}) already runs on {}; use it, stop it, or give this one its own folder with --data-dir and --socket",
        data_dir.display()
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    /// PRJ-009.
    #[test]
    fn a_folder_is_locked_by_one_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let first = acquire(&path).unwrap();
        let refused = acquire(&path).unwrap_err();
        assert!(
            refused.contains(&std::process::id().to_string()),
            "{refused}"
        );
        drop(first);
        acquire(&path).unwrap();
    }

    /// A cleaner or a person may remove the lock file as stale.
    #[test]
    fn a_folder_stays_locked_after_its_lock_file_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let first = acquire(&path).unwrap();
        fs::remove_file(path.join(LOCK_FILE)).unwrap();
        assert!(acquire(&path).unwrap_err().contains("already runs on"));
        let left: Vec<_> = fs::read_dir(&path).unwrap().collect();
        assert!(left.is_empty(), "nothing is made there: {left:?}");
        drop(first);
        acquire(&path).unwrap();
    }

    /// As a kernel of an older version locks it.
    #[test]
    fn a_lock_file_alone_locks_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        drop(acquire(&path).unwrap());
        let older = File::open(path.join(LOCK_FILE)).unwrap();
        older.lock().unwrap();
        assert!(acquire(&path).unwrap_err().contains("already runs on"));
        assert_eq!(find_holder(&path), i32::try_from(std::process::id()).ok());
        let own = acquire(&dir.path().join("other")).unwrap();
        let seen_by_older = File::open(dir.path().join("other").join(LOCK_FILE)).unwrap();
        assert!(is_locked(seen_by_older.try_lock()).unwrap());
        drop(own);
    }

    /// CMCP-073: a killed kernel's lock may outlive it in a child that it was starting. The next kernel waits for that
    /// instead of reporting a running kernel.
    #[test]
    fn the_lock_of_a_dead_kernel_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let mut dead = Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        let mut copy = acquire(&path).unwrap();
        copy.file.set_len(0).unwrap();
        copy.file.rewind().unwrap();
        writeln!(copy.file, "{}", dead.id()).unwrap();
        let next = {
            let path = path.clone();
            std::thread::spawn(move || acquire(&path).map(drop))
        };
        let begun = Instant::now();
        while begun.elapsed() < 10 * RETRY_INTERVAL {
            assert!(!next.is_finished(), "it waits");
            std::thread::yield_now();
        }
        drop(copy);
        next.join().unwrap().unwrap();
    }
}
