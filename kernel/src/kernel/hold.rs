//! What a kernel holds of the machine: its data folder, its descriptors, its randomness.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fs4::fs_std::FileExt;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::paths::private_folder;

/// Holds the data folder: a second kernel on it is refused (PRJ-009). The lock goes with the process,
/// however that ends.
///
/// # Errors
/// In words, who holds it or why it cannot be had.
pub(super) fn lock(data_dir: &Path) -> Result<File, String> {
    private_folder(data_dir).map_err(|e| format!("the data folder: {e}"))?;
    let path = data_dir.join("kernel.lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|e| format!("{}: {e}", path.display()))?;
    let held =
        FileExt::try_lock_exclusive(&file).map_err(|e| format!("{}: {e}", path.display()))?;
    if !held {
        let mut pid = String::new();
        let _ = file.read_to_string(&mut pid);
        return Err(format!(
            "a kernel (process {}) already runs on {}; use it, stop it, or give this one its own folder with --data-dir and --socket",
            pid.trim(),
            data_dir.display()
        ));
    }
    let write = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    write.map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(file)
}

/// Every connection and child needs descriptors; the usual soft limit of 1,024 is soon reached.
pub(super) fn raise_file_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Threads that carry calls: half of the cores, because the servers and agents of this machine run on
/// the same ones, and a call that stays on one thread costs a third of one that changes threads.
pub(super) fn threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / 2).max(1)
}

/// Bytes nobody can guess.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    bytes
}

/// Where the kernel was started: the working folder of children whose entry names none.
pub(super) fn folder() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| "/".into())
}

/// The operator's token: made at the first start, kept in an owner-only file.
///
/// # Errors
/// In words, why the file cannot be read or made.
pub(super) fn token(data_dir: &Path) -> Result<(String, PathBuf), String> {
    let path = data_dir.join("token");
    let explain = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut open = OpenOptions::new();
    open.read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    let mut file = open.open(&path).map_err(explain)?;
    let mut token = String::new();
    file.read_to_string(&mut token).map_err(explain)?;
    let token = match token.trim() {
        "" => {
            let new = super::hex(&random::<32>());
            writeln!(file, "{new}")
                .and_then(|()| file.sync_all())
                .map_err(explain)?;
            new
        }
        kept => kept.to_owned(),
    };
    Ok((token, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PRJ-009.
    #[test]
    fn a_folder_is_held_by_one_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let first = lock(&path).unwrap();
        let refused = lock(&path).unwrap_err();
        assert!(
            refused.contains(&std::process::id().to_string()),
            "{refused}"
        );
        drop(first);
        lock(&path).unwrap();
    }

    #[test]
    fn the_token_stays_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (first, path) = token(dir.path()).unwrap();
        assert_eq!(token(dir.path()).unwrap().0, first);
        assert_eq!(first.len(), 64);
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
}
