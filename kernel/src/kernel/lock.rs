//! The lock on a data folder: a second kernel on it is refused (PRJ-009). It goes with the process, however
//! that ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use mgp_store::trouble::explained;

use super::process::{ProcessIdentity, ProcessState};
use crate::paths::{is_own, private_folder};

/// The lock's file in a data folder; it holds the number of the process.
pub(super) const LOCK: &str = "kernel.lock";
/// Longest lock file that is read, in bytes: it holds a number.
const LONGEST: u64 = 64 << 10;
/// Looks at the lock of a kernel that has ended, 2 s of them: a child that it was just starting holds a
/// copy until it becomes another program.
const LOOKS: u32 = 200;
/// Time between two of them.
const PACE: Duration = Duration::from_millis(10);

/// Holds a data folder, which is made where there is none, until the file is closed.
pub(crate) fn take(data_dir: &Path) -> Result<File, String> {
    private_folder(data_dir).map_err(|e| format!("the data folder: {e}"))?;
    let path = data_dir.join(LOCK);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|e| format!("{}: {e}", path.display()))?;
    let mut looks = LOOKS;
    while is_locked(file.try_lock()).map_err(|e| format!("{}: {e}", path.display()))? {
        let holder = named_in(&mut file);
        if looks == 0 || !holder.is_some_and(has_ended) {
            return Err(held(data_dir, holder));
        }
        looks -= 1;
        sleep(PACE);
    }
    let write = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    write.map_err(|e| explained(&path, &e))?;
    Ok(file)
}

/// The process that holds a data folder of this user, while one does.
#[must_use]
pub(crate) fn holder(data_dir: &Path) -> Option<i32> {
    if !is_own(data_dir) {
        return None;
    }
    let mut lock = File::open(data_dir.join(LOCK)).ok()?;
    let pid = named_in(&mut lock)?;
    is_locked(lock.try_lock_shared()).ok()?.then_some(pid)
}

/// The process that says it holds the lock.
fn named_in(file: &mut File) -> Option<i32> {
    let mut pid = String::new();
    file.rewind().ok()?;
    file.take(LONGEST).read_to_string(&mut pid).ok()?;
    pid.trim().parse().ok()
}

/// Whether somebody else has the lock that was tried.
fn is_locked(tried: Result<(), TryLockError>) -> io::Result<bool> {
    match tried {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(e)) => Err(e),
    }
}

fn has_ended(pid: i32) -> bool {
    ProcessIdentity::of(pid).state() == ProcessState::Gone
}

fn held(data_dir: &Path, holder: Option<i32>) -> String {
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
    fn a_folder_is_held_by_one_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let first = take(&path).unwrap();
        let refused = take(&path).unwrap_err();
        assert!(
            refused.contains(&std::process::id().to_string()),
            "{refused}"
        );
        drop(first);
        take(&path).unwrap();
    }

    /// CMCP-073: a killed kernel's lock may outlive it, in a child it was starting: the next kernel waits for
    /// that instead of telling of a kernel that runs no more.
    #[test]
    fn the_lock_of_a_dead_kernel_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let mut dead = Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        let mut copy = take(&path).unwrap();
        copy.set_len(0).unwrap();
        copy.rewind().unwrap();
        writeln!(copy, "{}", dead.id()).unwrap();
        let next = {
            let path = path.clone();
            std::thread::spawn(move || take(&path).map(drop))
        };
        let begun = Instant::now();
        while begun.elapsed() < 10 * PACE {
            assert!(!next.is_finished(), "it waits");
            std::thread::yield_now();
        }
        drop(copy);
        next.join().unwrap().unwrap();
    }
}
