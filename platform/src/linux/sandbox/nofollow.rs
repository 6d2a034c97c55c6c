//! Opens the paths of a policy without following links: paths were resolved before, and one that became a link
//! since is not opened.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

/// Opens a file or folder whose path has no links; `None` if there is none.
pub(super) fn open(path: &Path) -> Option<OwnedFd> {
    let handle = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = handle | OFlags::DIRECTORY;
    let mut at = openat(CWD, "/", folder, Mode::empty()).ok()?;
    let mut names = path.components().peekable();
    while let Some(part) = names.next() {
        let Component::Normal(name) = part else {
            continue;
        };
        let flags = match names.peek() {
            Some(_) => folder,
            None => handle,
        };
        at = openat(&at, name, flags, Mode::empty()).ok()?;
    }
    (file_type(&at)? != FileType::Symlink).then_some(at)
}

/// Opens a file of `/proc/self`, which is a link itself.
pub(super) fn open_proc(path: &Path) -> Option<OwnedFd> {
    openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}

pub(super) fn is_folder(opened: impl AsFd) -> bool {
    file_type(opened) == Some(FileType::Directory)
}

fn file_type(opened: impl AsFd) -> Option<FileType> {
    let found = fstat(opened).ok()?;
    Some(FileType::from_raw_mode(found.st_mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_not_followed_anywhere_in_path() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().canonicalize().unwrap().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        symlink(at("a"), at("link")).unwrap();
        assert!(open(&at("a/b")).is_some_and(is_folder));
        for path in ["link", "link/b", "absent"] {
            assert!(open(&at(path)).is_none(), "{path}");
        }
    }
}
