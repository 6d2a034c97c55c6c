//! Resources of the machine: descriptors, threads, and the folder the kernel was started in.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use mgp_runtime::task::{self, SpawnThreadError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Every connection and child needs descriptors; the usual soft limit of 1,024 is soon reached.
pub(super) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raise = |current| setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    // Some systems report no limit, and accept only one.
    let _ = raise(limit.maximum).or_else(|_| raise(Some(FILE_LIMIT_OF_SYSTEMS)));
}

/// The number of descriptors that the kernel may open.
pub(super) fn open_file_limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

/// Half of the descriptors are for HTTP and a quarter for the socket: below this, the last quarter does not suffice
/// for the kernel's own files and its first servers.
const FILES_MIN: usize = 256;

/// Checks that there are enough descriptors.
pub(super) fn check_file_limit(open_files: usize) -> Result<(), String> {
    match open_files {
        FILES_MIN.. => Ok(()),
        few => Err(format!(
            "this process may have {few} open files, and a kernel needs {FILES_MIN}: raise `ulimit -Hn`, or \
             `LimitNOFILE=` of its unit"
        )),
    }
}

/// `OPEN_MAX` of macOS.
const FILE_LIMIT_OF_SYSTEMS: u64 = 10_240;

/// Worker threads: half of the cores, because the servers and agents of this machine use the same ones, and a call
/// that stays on one thread costs a third of one that changes threads.
pub(super) fn worker_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / 2).max(1)
}

/// How often freed memory is given back.
const RETURN_INTERVAL: Duration = Duration::from_secs(10);
/// After so many allocations that are not small the allocator looks for pages that are free.
const ALLOCATIONS_BETWEEN_COLLECTIONS: usize = 10_000;
/// An allocation that is not small, in bytes.
const COUNTED_ALLOCATION: usize = 2_048;
/// One that a thread has no memory for, in bytes: for it, free pages are given back first.
const LARGE_ALLOCATION: usize = 4 << 20;

/// Gives memory that was freed back to the system after a load: the allocator does it when it is used in earnest, which
/// small allocations of an idle kernel are not. Half a millisecond each time; what is allocated here is not touched.
pub(super) async fn return_freed_memory() {
    let allocate = |bytes| drop(std::hint::black_box(Vec::<u8>::with_capacity(bytes)));
    loop {
        tokio::time::sleep(RETURN_INTERVAL).await;
        (0..ALLOCATIONS_BETWEEN_COLLECTIONS).for_each(|_| allocate(COUNTED_ALLOCATION));
        allocate(LARGE_ALLOCATION);
    }
}

/// Other threads: for files, the audit view, the model, and blocking work on the disk.
const EXTRA_THREADS: usize = 12;

/// Checks that the kernel gets its threads: without this, each missing one would fail in a different way later.
pub(super) fn check_threads() -> Result<(), SpawnThreadError> {
    spawn_and_join_threads(worker_threads() + EXTRA_THREADS, |wait| {
        task::spawn_thread("trial", wait)
    })
}

/// Runs so many threads at once, and ends them.
fn spawn_and_join_threads(
    count: usize,
    start: impl Fn(Box<dyn FnOnce() + Send>) -> Result<JoinHandle<()>, SpawnThreadError>,
) -> Result<(), SpawnThreadError> {
    let start_gate = Arc::new(RwLock::new(()));
    let until = start_gate.write().unwrap_or_else(PoisonError::into_inner);
    let wait = || {
        let start_gate = start_gate.clone();
        Box::new(move || drop(start_gate.read()))
    };
    let started: Vec<_> = (0..count).map(|_| start(wait())).collect();
    drop(until);
    started.into_iter().try_for_each(|thread| {
        let _ = thread?.join();
        Ok(())
    })
}

/// The folder the kernel was started in: the working folder of children whose entry names none.
pub(super) fn start_folder() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| "/".into())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_low_file_limit_is_reported() {
        assert!(check_file_limit(256).is_ok());
        let refused = check_file_limit(255).unwrap_err();
        assert!(refused.contains("ulimit -Hn"), "{refused}");
    }

    #[test]
    fn a_thread_limit_is_reported() {
        assert!(check_threads().is_ok());
        let started = AtomicUsize::new(0);
        let limited = |wait: Box<dyn FnOnce() + Send>| match started.fetch_add(1, Ordering::SeqCst)
        {
            0..5 => task::spawn_thread("trial", wait),
            _ => Err(io::Error::from(io::ErrorKind::WouldBlock).into()),
        };
        let refused = spawn_and_join_threads(8, limited).unwrap_err().to_string();
        assert!(refused.contains("ulimit -u"), "{refused}");
    }
}
