//! The trust store: a file that is read and replaced as a whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use mgp_store::{atomic_file, explain_io_error, regular_file};
use serde::{Deserialize, Serialize};

/// Projects stored at once, far more than a person works on. One more is rejected with a message that says how to
/// remove others.
const ENTRIES_MAX: usize = 1024;
/// Longest file that is read, in bytes: [`ENTRIES_MAX`] with long paths.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A project's file as it was trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrustedFile {
    /// The file: its folder without links, and its name.
    pub(crate) file: PathBuf,
    /// BLAKE3 of its bytes, in hexadecimal digits.
    pub(crate) blake3: String,
    /// When, as RFC 3339.
    pub(crate) at: String,
}

/// The trusted projects.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrustStore {
    entries: Vec<TrustedFile>,
    /// Why nothing is trusted.
    load_error: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
struct TrustFileContents {
    trusted: Vec<TrustedFile>,
}

/// Why trust could not be changed; it is as before.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrustError {
    /// No location for the file.
    #[error(
        "there is no home to keep it in: set HOME, or name the file with --config, which is trust \
         for one start"
    )]
    NoHome,
    /// The file is damaged.
    #[error("{0}; remove the file, and every project is asked about again")]
    Damaged(String),
    /// There are [`ENTRIES_MAX`].
    #[error(
        "{ENTRIES_MAX} projects are trusted already: `mgp trust --list` shows them, `mgp untrust \
         FOLDER` lets one go"
    )]
    Full,
    /// The system's error.
    #[error("{}", explain_io_error(.path, .why))]
    System {
        /// The file or its folder.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
}

impl TrustStore {
    /// Reads the store. A damaged file, or one that others could have written, trusts nothing.
    #[must_use]
    pub(crate) fn open(path: Option<&Path>) -> Self {
        let Some(path) = path else {
            return Self::with_error("there is no home to keep trust in".into());
        };
        match read_entries(path) {
            Ok(entries) => Self {
                entries,
                load_error: None,
            },
            Err(why) => Self::with_error(format!("{}: {why}", path.display())),
        }
    }

    fn with_error(why: String) -> Self {
        Self {
            entries: Vec::new(),
            load_error: Some(why),
        }
    }

    #[must_use]
    pub(crate) fn entries(&self) -> &[TrustedFile] {
        &self.entries
    }

    #[must_use]
    pub(crate) fn find(&self, file: &Path) -> Option<&TrustedFile> {
        self.entries.iter().find(|entry| entry.file == file)
    }

    /// Why nothing is trusted, if the store has failed.
    #[must_use]
    pub(crate) fn load_error(&self) -> Option<&str> {
        self.load_error.as_deref()
    }
}

/// Changes the store, one process at a time; the file is replaced atomically and readable only by its owner.
///
/// # Errors
/// [`TrustError`]; then nothing has changed.
pub(crate) fn modify_store<T>(
    path: Option<&Path>,
    edit: impl FnOnce(&mut Vec<TrustedFile>) -> T,
) -> Result<T, TrustError> {
    let path = path.ok_or(TrustError::NoHome)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let system = |why| TrustError::System {
        path: path.to_owned(),
        why,
    };
    atomic_file::create_folder(folder).map_err(system)?;
    let _turn = lock_file(&path.with_extension("lock")).map_err(system)?;
    let damaged = |why| TrustError::Damaged(format!("{}: {why}", path.display()));
    let mut entries = read_entries(path).map_err(damaged)?;
    let before = entries.len();
    let done = edit(&mut entries);
    if entries.len() > ENTRIES_MAX && entries.len() > before {
        return Err(TrustError::Full);
    }
    write_entries(path, entries).map_err(system)?;
    Ok(done)
}

/// Locked until dropped; others wait, as long as writing a small file takes.
fn lock_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = regular_file::open_with(path, &mut options)?;
    file.lock()?;
    Ok(file)
}

fn read_entries(path: &Path) -> Result<Vec<TrustedFile>, String> {
    let file = match regular_file::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened.map_err(|e| e.to_string())?,
    };
    let found = file.metadata().map_err(|e| e.to_string())?;
    let user = nix::unistd::geteuid().as_raw();
    if found.uid() != user || found.mode() & 0o022 != 0 {
        return Err(
            "others could have written it; it counts when it is yours and `chmod 600`".into(),
        );
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|e| e.to_string())?;
    let written: TrustFileContents =
        serde_json::from_str(&text).map_err(|e| format!("not what mgp wrote ({e})"))?;
    Ok(written.trusted)
}

fn write_entries(path: &Path, trusted: Vec<TrustedFile>) -> io::Result<()> {
    let text = serde_json::to_string_pretty(&TrustFileContents { trusted })?;
    atomic_file::write(path, format!("{text}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn entry(number: usize) -> TrustedFile {
        TrustedFile {
            file: format!("/p{number}/mgp.toml").into(),
            blake3: "00".into(),
            at: String::new(),
        }
    }

    #[test]
    fn the_store_is_readable_only_by_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config/mgp/trusted.json");
        assert!(TrustStore::open(Some(&path)).entries().is_empty());
        modify_store(Some(&path), |entries| entries.push(entry(1))).unwrap();
        let mode = fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        let store = TrustStore::open(Some(&path));
        assert_eq!(store.find(Path::new("/p1/mgp.toml")), Some(&entry(1)));
        modify_store(Some(&path), Vec::clear).unwrap();
        assert!(TrustStore::open(Some(&path)).entries().is_empty());
    }

    #[test]
    fn foreign_or_damaged_stores_trust_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trusted.json");
        modify_store(Some(&path), |entries| entries.push(entry(1))).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        let open = TrustStore::open(Some(&path));
        assert!(open.entries().is_empty() && open.load_error().unwrap().contains("chmod 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "{\"trusted\":[{").unwrap();
        assert!(TrustStore::open(Some(&path)).load_error().is_some());
        let refused = modify_store(Some(&path), Vec::clear)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("remove the file"), "{refused}");
        assert!(matches!(
            modify_store(None, |_| ()),
            Err(TrustError::NoHome)
        ));
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trusted.json");
        let fill = |entries: &mut Vec<TrustedFile>| entries.extend((0..ENTRIES_MAX).map(entry));
        modify_store(Some(&path), fill).unwrap();
        let one_more = modify_store(Some(&path), |entries| entries.push(entry(ENTRIES_MAX)));
        assert!(matches!(one_more, Err(TrustError::Full)));
        assert_eq!(TrustStore::open(Some(&path)).entries().len(), ENTRIES_MAX);
        modify_store(Some(&path), |entries| entries.truncate(1)).unwrap();
    }
}
