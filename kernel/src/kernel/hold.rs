//! What a kernel holds of the machine: its data folder, its descriptors, its randomness.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fs4::fs_std::FileExt;
use mgp_actors::access::Books;
use mgp_actors::registrar::Book;
use mgp_actors::roster;
use mgp_actors::tasks::{self, Record};
use mgp_engine::node_key::NodeKey;
use mgp_engine::roster::Roster;
use mgp_engine::seal::SealKey;
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
    Ok((kept(&path)?, path))
}

/// The key that seals what clients bring back: made at the first start, so that it opens what the
/// kernel gave out in an earlier life.
///
/// # Errors
/// In words, why the file cannot be read or made, or what is wrong with it.
pub(super) fn seal_key(data_dir: &Path) -> Result<SealKey, String> {
    let path = data_dir.join("seal.key");
    let bytes = key(&path, "what clients hold of parked calls and tasks is lost")?;
    Ok(SealKey::new(bytes))
}

/// The key this node signs with: made at the first start, never replaced by itself.
///
/// # Errors
/// In words, why the file cannot be read or made, or what is wrong with it.
pub(super) fn node_key(data_dir: &Path) -> Result<NodeKey, String> {
    let path = data_dir.join("node.key");
    let bytes = key(&path, "nothing that was granted or denied holds any more")?;
    Ok(NodeKey::new(&bytes))
}

/// What was granted and denied on this node.
///
/// # Errors
/// In words, why it cannot be read, or what is wrong with it and what to do.
pub(super) fn books(data_dir: &Path) -> Result<Books, String> {
    let path = data_dir.join("grants.journal");
    let books = Books::open(&path, node_key(data_dir)?).map_err(|e| e.to_string())?;
    if let Some(cut) = books.cut() {
        tracing::warn!("{cut}");
    }
    Ok(books)
}

/// The servers that were registered while a kernel ran.
///
/// # Errors
/// In words, why it cannot be read, or what is wrong with it and what to do.
pub(super) fn registered(data_dir: &Path) -> Result<Book, String> {
    Book::open(&data_dir.join("registered.journal"))
}

/// Where the meanings of tools are kept.
pub(super) fn vectors_file(data_dir: &Path) -> PathBuf {
    data_dir.join("vectors")
}

/// 32 bytes of a key file; `lost` is what removing it costs.
fn key(path: &Path, lost: &str) -> Result<[u8; 32], String> {
    let text = kept(path)?;
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    };
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| {
        format!(
            "{} does not hold 64 hexadecimal digits; put a copy back, or remove it, and {lost}",
            path.display()
        )
    })
}

/// The key of what is digested in the audit log: made at the first start.
///
/// # Errors
/// In words, why the file cannot be read or made.
pub(super) fn audit_key(data_dir: &Path) -> Result<[u8; 32], String> {
    let path = data_dir.join("audit.key");
    // Whatever the file holds is as good a key as it was before.
    Ok(blake3::derive_key(
        "mgp 2026-11 audit key",
        kept(&path)?.as_bytes(),
    ))
}

/// Where tasks last.
pub(super) fn tasks_folder(data_dir: &Path) -> PathBuf {
    data_dir.join("tasks")
}

/// The tasks of earlier lives.
///
/// # Errors
/// In words, why the folder cannot be read or made.
pub(super) fn tasks(data_dir: &Path) -> Result<Vec<Record>, String> {
    let folder = tasks_folder(data_dir);
    tasks::load(&folder).map_err(|e| format!("{}: {e}", folder.display()))
}

/// Where the agents that have a token are kept.
pub(super) fn roster_file(data_dir: &Path) -> PathBuf {
    data_dir.join("agents.json")
}

/// The agents that have a token.
///
/// # Errors
/// In words, why the file cannot be read or what is wrong with it.
pub(super) fn roster(data_dir: &Path) -> Result<Roster, String> {
    roster::load(&roster_file(data_dir)).map_err(|e| e.to_string())
}

/// A secret in an owner-only file: 32 random bytes in hexadecimal, made when the file is empty.
fn kept(path: &Path) -> Result<String, String> {
    let explain = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut open = OpenOptions::new();
    open.read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    let mut file = open.open(path).map_err(explain)?;
    let mut secret = String::new();
    file.read_to_string(&mut secret).map_err(explain)?;
    match secret.trim() {
        "" => {
            let new = hex(&random::<32>());
            let folder = path.parent().unwrap_or(Path::new("."));
            writeln!(file, "{new}")
                .and_then(|()| file.sync_all())
                .and_then(|()| File::open(folder)?.sync_all())
                .map_err(explain)?;
            Ok(new)
        }
        kept => Ok(kept.to_owned()),
    }
}

/// Bytes in hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgp_engine::seal::Purpose;

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
    fn what_an_earlier_life_sealed_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let sealed = seal_key(dir.path())
            .unwrap()
            .seal(Purpose::Task, "a", &"record");
        let again = seal_key(dir.path()).unwrap();
        let opened: Result<String, _> = again.open(Purpose::Task, "a", &sealed);
        assert_eq!(opened.unwrap(), "record");
        std::fs::write(dir.path().join("seal.key"), "zz").unwrap();
        assert!(seal_key(dir.path()).unwrap_err().contains("hexadecimal"));
    }

    #[test]
    fn a_node_keeps_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let issuer = node_key(dir.path()).unwrap().issuer();
        assert_eq!(node_key(dir.path()).unwrap().issuer(), issuer);
        let file = dir.path().join("node.key").metadata().unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&file.permissions());
        assert_eq!(mode & 0o777, 0o600);
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
