//! What a kernel takes of the machine: descriptors, threads, and the folder it was started in.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;

use mgp_runtime::task::{self, SpawnThreadError};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Every connection and child needs descriptors; the usual soft limit of 1,024 is soon reached.
pub(super) fn raise_file_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// How many descriptors the kernel may have open.
pub(super) fn open_file_limit() -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(DEFAULT_FILE_LIMIT, |(soft, _)| soft);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Half of the descriptors are for HTTP and a quarter for the socket: of fewer than this, the last quarter would not be
/// enough for the kernel's own files and its first servers.
const FILES_MIN: usize = 256;

/// Sees that there are descriptors enough for what nobody else may take.
pub(super) fn check_file_limit(open_files: usize) -> Result<(), String> {
    match open_files {
        FILES_MIN.. => Ok(()),
        few => Err(format!(
            "this process may have {few} open files, and a kernel needs {FILES_MIN}: raise `ulimit -Hn`, or \
             `LimitNOFILE=` of its unit"
        )),
    }
}

/// What most systems give a process that asks for no more.
const DEFAULT_FILE_LIMIT: u64 = 1_024;

/// Threads that carry calls: half of the cores, because the servers and agents of this machine run on
/// the same ones, and a call that stays on one thread costs a third of one that changes threads.
pub(super) fn worker_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / 2).max(1)
}

/// Threads that a kernel starts besides: of its files, its view, its model, and for what waits for the disk.
const EXTRA_THREADS: usize = 12;

/// Sees that a kernel gets the threads it cannot do without: later it would fall for each of them in another way.
pub(super) fn check_threads() -> Result<(), SpawnThreadError> {
    spawn_and_join_threads(worker_threads() + EXTRA_THREADS, |wait| {
        task::spawn_thread("trial", wait)
    })
}

/// Has so many threads at once, and ends them.
fn spawn_and_join_threads(
    count: usize,
    start: impl Fn(Box<dyn FnOnce() + Send>) -> Result<JoinHandle<()>, SpawnThreadError>,
) -> Result<(), SpawnThreadError> {
    let held = Arc::new(RwLock::new(()));
    let until = held.write().unwrap_or_else(PoisonError::into_inner);
    let wait = || {
        let held = held.clone();
        Box::new(move || drop(held.read()))
    };
    let started: Vec<_> = (0..count).map(|_| start(wait())).collect();
    drop(until);
    started.into_iter().try_for_each(|thread| {
        let _ = thread?.join();
        Ok(())
    })
}

/// Where the kernel was started: the working folder of children whose entry names none.
pub(super) fn start_folder() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| "/".into())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_limit_of_files_that_is_too_low_is_named() {
        assert!(check_file_limit(256).is_ok());
        let refused = check_file_limit(255).unwrap_err();
        assert!(refused.contains("ulimit -Hn"), "{refused}");
    }

    #[test]
    fn a_thread_limit_is_named_as_one() {
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
