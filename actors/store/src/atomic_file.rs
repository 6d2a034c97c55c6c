//! Atomic file writes: the contents go to a temporary file in the same folder, which is then renamed. Errors name the
//! file.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use mgp_runtime::randomness;

use crate::health::with_path;

/// Readable and writable for the owner only.
const PRIVATE: u32 = 0o600;

/// Replaces a file, readable for its owner only. Afterwards it survives a power cut. After an error the
/// old file is still there or, when only its folder could not be synced, the new one.
///
/// # Errors
/// The system's.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_with_mode(path, bytes, PRIVATE)
}

/// As [`write`], with these permissions.
///
/// # Errors
/// The system's.
pub fn write_with_mode(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let written = replace(path, |draft| {
        if mode != PRIVATE {
            draft.set_permissions(Permissions::from_mode(mode))?;
        }
        draft.write_all(bytes)?;
        draft.sync_all()
    });
    let written = written.and_then(|()| sync_name(path));
    written.map_err(|error| with_path(path, &error))
}

/// Maximum number of links that are followed, the same as the system's limit.
const LINKS_MAX: usize = 40;

/// The target of a path after following links; the target need not exist.
#[must_use]
pub fn behind_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&path) else {
            break;
        };
        path = parent_folder(&path).join(target);
    }
    fs::canonicalize(&path).unwrap_or(path)
}

/// Replaces a file that need not outlast a power cut, readable for its owner alone.
///
/// # Errors
/// The system's; then the old one is still there.
pub fn write_unsynced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let written = replace(path, |draft| draft.write_all(bytes));
    written.map_err(|error| with_path(path, &error))
}

/// Syncs the folder of this file, so that the names in it survive a power cut.
///
/// # Errors
/// The system's.
pub fn sync_folder(of: &Path) -> io::Result<()> {
    File::open(parent_folder(of))?.sync_all()
}

/// Makes a folder, and those above it that are missing, for their owner alone. Their names survive a power cut: that
/// of a file in a new folder does not without those of its folders.
///
/// # Errors
/// The system's.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
        .collect();
    let created = DirBuilder::new().recursive(true).mode(0o700).create(path);
    let created = created.and_then(|()| missing.into_iter().rev().try_for_each(sync_name));
    created.map_err(|error| with_path(path, &error))
}

/// Syncs the name of this file, as far as the file system can.
fn sync_name(path: &Path) -> io::Result<()> {
    match sync_folder(path) {
        // Some network file systems cannot sync folders, and a user's files may be on one.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

fn replace(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let draft = temporary_path(path);
    let mut open = OpenOptions::new();
    let mut file = open
        .write(true)
        .create_new(true)
        .mode(PRIVATE)
        .open(&draft)?;
    let replaced = fill(&mut file).and_then(|()| fs::rename(&draft, path));
    if replaced.is_err() {
        // It takes up space and is of no use.
        let _ = fs::remove_file(&draft);
    }
    replaced
}

/// A unique temporary name for each writer, so that concurrent writers of one file do not mix.
fn temporary_path(path: &Path) -> PathBuf {
    let number = u64::from_le_bytes(randomness::random_bytes());
    parent_folder(path).join(format!(".{number:016x}.new"))
}

fn parent_folder(of: &Path) -> &Path {
    let parent = of.parent().filter(|folder| !folder.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::explain_io_error;

    fn names(folder: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let names = fs::read_dir(folder).unwrap().map(name);
        names.map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn write_replaces_the_file_with_the_requested_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("it");
        for (mode, text) in [(0o600, "first, and long"), (0o666, "second"), (0o600, "")] {
            match mode {
                PRIVATE => write(&path, text.as_bytes()).unwrap(),
                _ => write_with_mode(&path, text.as_bytes(), mode).unwrap(),
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            let found = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode);
        }
        write_unsynced(&path, b"third").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "third");
        assert_eq!(names(dir.path()), ["it"]);
    }

    #[test]
    fn create_folder_creates_missing_parents() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        create_folder(&path).unwrap();
        create_folder(&path).unwrap();
        for created in [&*path, &dir.path().join("a")] {
            let mode = fs::metadata(created).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
        fs::write(path.join("file"), "").unwrap();
        assert!(create_folder(&path.join("file/c")).is_err());
    }

    #[test]
    fn failed_write_leaves_old_file_and_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("it");
        fs::create_dir_all(path.join("not empty")).unwrap();
        for written in [write(&path, b"x"), write_unsynced(&path, b"x")] {
            let failed = written.unwrap_err();
            assert!(
                failed.to_string().starts_with(path.to_str().unwrap()),
                "{failed}"
            );
            assert_eq!(explain_io_error(&path, &failed), failed.to_string());
        }
        assert_eq!(names(dir.path()), ["it"]);
        assert!(write(&dir.path().join("missing/it"), b"x").is_err());
    }

    #[test]
    fn concurrent_writers_leave_one_complete_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("it");
        std::thread::scope(|scope| {
            for n in 0..8_u8 {
                let path = &path;
                scope.spawn(move || write_unsynced(path, &[b'a' + n; 4096]).unwrap());
            }
        });
        let text = fs::read(&path).unwrap();
        assert!(text.len() == 4096 && text.iter().all(|b| *b == text[0]));
        assert_eq!(names(dir.path()), ["it"]);
    }
}
