//! What a kernel takes of the machine: descriptors, threads, and the folder it was started in.

use std::path::PathBuf;

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
pub(super) fn open_files() -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(DEFAULT_FILES, |(soft, _)| soft);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// What most systems give a process that asks for no more.
const DEFAULT_FILES: u64 = 1_024;

/// Threads that carry calls: half of the cores, because the servers and agents of this machine run on
/// the same ones, and a call that stays on one thread costs a third of one that changes threads.
pub(super) fn threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / 2).max(1)
}

/// Where the kernel was started: the working folder of children whose entry names none.
pub(super) fn folder() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| "/".into())
}
