//! What a kernel holds of the machine: its data folder, its descriptors, its randomness.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use fs4::fs_std::FileExt;
use mgp_callers::tasks::{self, TaskRecord};
use mgp_doors::agent_registry;
use mgp_engine::callers::seal::SealKey;
use mgp_engine::doors::agent_registry::AgentRegistry;
use mgp_engine::node_key::NodeKey;
use mgp_policy::access::Books;
use mgp_store::audit::Folder;
use mgp_store::trouble::explained;
use mgp_tools::registrar::Book;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::cli::UpOptions;
use crate::config::Auth;
use crate::paths::private_folder;
use crate::process::{Process, Standing};
use crate::record::LOCK;

/// What comes of a token that is removed.
const NEW_TOKEN: &str = "a new one is made at the next start, which whoever had this one needs";
/// What a kernel must be able to write at its start, in bytes: its keys, some records, a page of each file.
const ROOM: usize = 64 << 10;
/// Looks at the lock of a kernel that has ended, 2 s of them: a child that it was just starting holds a
/// copy until it becomes another program.
const DYING_LOOKS: u32 = 200;
/// Time between two of them.
const DYING_PACE: Duration = Duration::from_millis(10);
/// Shortest text that is taken for a token, in bytes: one of 32 hexadecimal digits has 128 bits.
const TOKEN_MIN: usize = 32;

/// Holds the data folder: a second kernel on it is refused (PRJ-009). The lock goes with the process,
/// however that ends.
///
/// # Errors
/// In words, who holds it or why it cannot be had.
pub(super) fn lock(data_dir: &Path) -> Result<File, String> {
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
    let mut looks = DYING_LOOKS;
    while !FileExt::try_lock_exclusive(&file).map_err(|e| format!("{}: {e}", path.display()))? {
        let holder = holder(&mut file);
        if looks == 0 || !holder.is_some_and(has_ended) {
            return Err(held(data_dir, holder));
        }
        looks -= 1;
        sleep(DYING_PACE);
    }
    let write = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    write.map_err(|e| explained(&path, &e))?;
    Ok(file)
}

/// The process that says it holds the lock.
fn holder(file: &mut File) -> Option<i32> {
    let mut pid = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut pid).ok()?;
    pid.trim().parse().ok()
}

fn has_ended(pid: i32) -> bool {
    Process::of(pid).standing() == Standing::Gone
}

fn held(data_dir: &Path, holder: Option<i32>) -> String {
    let pid = holder.map_or_else(|| "?".into(), |pid| pid.to_string());
    format!(
        "a kernel (process {pid}) already runs on {}; use it, stop it, or give this one its own folder with --data-dir and --socket",
        data_dir.display()
    )
}

/// Sees that the disk takes what a kernel writes at its start: a kernel that cannot write anything down
/// does nothing.
///
/// # Errors
/// In words, why it does not.
pub(super) fn has_room(data_dir: &Path) -> Result<(), String> {
    let path = data_dir.join("room");
    let tried = fs::write(&path, [0; ROOM]).and_then(|()| File::open(&path)?.sync_all());
    let removed = fs::remove_file(&path);
    tried.and(removed).map_err(|e| {
        let why = explained(data_dir, &e);
        format!(
            "the kernel needs room for {} KiB there to start: {why}",
            ROOM >> 10
        )
    })
}

/// Files that are missing from a folder that a kernel has run on, each with what that means. Asked before
/// anything is made there.
pub(super) fn missing(options: &UpOptions) -> Vec<String> {
    let data_dir = &options.data_dir;
    if Folder::of(data_dir).beside().is_none() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut look = |path: PathBuf, means: &str| {
        if path.try_exists().is_ok_and(|there| !there) {
            found.push(format!("{} is missing: {means}", path.display()));
        }
    };
    let http = &options.loaded.kernel.http;
    if http.enabled && http.auth != Auth::None {
        look(
            data_dir.join("token"),
            "a new one is made, and whoever had the old one needs it; or put a copy of the old one back and start the kernel again",
        );
    }
    look(
        roster_file(data_dir),
        "no agent has a token any more; put a copy back and start the kernel again, or make new ones with `mgp agents add`",
    );
    found
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
    let token = kept(&path, NEW_TOKEN)?;
    let bad = |what: &str| {
        Err(format!(
            "{} {what}; remove it, and {NEW_TOKEN}",
            path.display()
        ))
    };
    match () {
        () if token.len() < TOKEN_MIN => bad(&format!(
            "holds {} characters, and a token has {TOKEN_MIN} at least",
            token.len()
        )),
        () if !token.bytes().all(|b| b.is_ascii_graphic()) => {
            bad("holds what no token has: a space, or something else that is no visible ASCII")
        }
        () => Ok((token, path)),
    }
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
    let text = kept(path, lost)?;
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
        kept(
            &path,
            "arguments have other digests in the audit log from then on",
        )?
        .as_bytes(),
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
pub(super) fn tasks(data_dir: &Path) -> Result<Vec<TaskRecord>, String> {
    let folder = tasks_folder(data_dir);
    tasks::load(&folder).map_err(|e| format!("{}: {e}", folder.display()))
}

/// Where the agents that have a token are kept.
pub(super) fn roster_file(data_dir: &Path) -> PathBuf {
    data_dir.join("agents.json")
}

/// The agents that have a token. The file is made where there is none, so that it can be missed.
///
/// # Errors
/// In words, why the file cannot be read or made, or what is wrong with it.
pub(super) fn roster(data_dir: &Path) -> Result<AgentRegistry, String> {
    let path = roster_file(data_dir);
    let roster = agent_registry::load(&path).map_err(|e| e.to_string())?;
    if !path.exists() {
        agent_registry::begin(&path).map_err(|e| explained(&path, &e))?;
    }
    Ok(roster)
}

/// A secret in an owner-only file: 32 random bytes in hexadecimal, made where there is none. `lost` is what
/// removing it comes to.
fn kept(path: &Path, lost: &str) -> Result<String, String> {
    let bytes = match fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return made(path).map_err(|e| explained(path, &e));
        }
        read => read.map_err(|e| explained(path, &e))?,
    };
    let shown = path.display();
    let bad = |what: &str| format!("{shown} {what}; put a copy back, or remove it, and {lost}");
    let text = String::from_utf8(bytes).map_err(|_| bad("is damaged: it is not text"))?;
    match text.trim() {
        "" => Err(bad("is empty")),
        kept => Ok(kept.to_owned()),
    }
}

/// A new secret, in its file whole or not at all.
fn made(path: &Path) -> io::Result<String> {
    let new = hex(&random::<32>());
    let draft = path.with_extension("new");
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(true).mode(0o600);
    let mut file = open.open(&draft)?;
    writeln!(file, "{new}")?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(new)
}

/// Bytes in hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;
    use mgp_engine::callers::seal::Purpose;

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

    /// CMCP-073: a killed kernel's lock may outlive it, in a child it was starting: the next kernel waits for
    /// that instead of telling of a kernel that runs no more.
    #[test]
    fn the_lock_of_a_dead_kernel_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let mut dead = Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        let mut copy = lock(&path).unwrap();
        copy.set_len(0).unwrap();
        copy.rewind().unwrap();
        writeln!(copy, "{}", dead.id()).unwrap();
        let next = {
            let path = path.clone();
            std::thread::spawn(move || lock(&path).map(drop))
        };
        let begun = Instant::now();
        while begun.elapsed() < 10 * DYING_PACE {
            assert!(!next.is_finished(), "it waits");
            std::thread::yield_now();
        }
        drop(copy);
        next.join().unwrap().unwrap();
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

    /// Whatever is wrong with a secret of the kernel's is told with its path and with what to do; a few
    /// letters are no token.
    #[test]
    fn a_bad_token_or_key_is_named_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let cases: [(&[u8], &str); 5] = [
            (b"", "is empty"),
            (b"\n", "is empty"),
            (b"\xff\xfe", "it is not text"),
            (b"x\n", "holds 1 characters"),
            (b"0123456789abcdef 0123456789abcdef", "a space"),
        ];
        for (bytes, why) in cases {
            fs::write(&path, bytes).unwrap();
            let told = token(dir.path()).unwrap_err();
            assert!(told.contains(why) && told.contains("remove it"), "{told}");
            assert!(told.starts_with(&path.display().to_string()), "{told}");
            assert_eq!(fs::read(&path).unwrap(), bytes, "nothing is changed");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(token(dir.path()).unwrap().0.len(), 64);
        fs::write(dir.path().join("node.key"), b"\xff").unwrap();
        let told = node_key(dir.path()).err().unwrap();
        assert!(told.contains("nothing that was granted"), "{told}");
    }
}
