//! Removes folders that a server filled, of any depth: with two open folders at a time and without
//! recursion.
//!
//! Inner folders are moved up before their parent is removed, so that no path gets too long.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::fs::{chmodat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

/// Maximum number of names read at once: a folder may hold more than fits into memory.
const NAMES_PER_READ: usize = 1024;

/// Removes a folder with its contents, or a file, or a link without its target. A missing path counts as
/// removed.
///
/// # Errors
/// The system's; the contents may be removed partially.
pub fn remove(path: &Path) -> io::Result<()> {
    match unlinkat(CWD, path, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // The system reports one or the other for a folder.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let top = open_folder(CWD, path)?;
    let mut moved = 0_u64;
    loop {
        let names = read_names(&top)?;
        if names.is_empty() {
            break;
        }
        for name in names {
            if !try_remove(&top, &name)? {
                remove_folder(&top, &name, &mut moved)?;
            }
        }
    }
    drop(top);
    Ok(unlinkat(CWD, path, AtFlags::REMOVEDIR)?)
}

/// Removes a folder inside this one; its inner folders are moved into this one.
fn remove_folder(top: &OwnedFd, name: &CString, moved: &mut u64) -> io::Result<()> {
    let folder = open_folder(top, name.as_c_str())?;
    loop {
        let names = read_names(&folder)?;
        if names.is_empty() {
            break;
        }
        for inner in names {
            if try_remove(&folder, &inner)? {
                continue;
            }
            // A folder can only be moved if its owner may write it.
            drop(open_folder(&folder, inner.as_c_str())?);
            move_up(&folder, &inner, top, moved)?;
        }
    }
    drop(folder);
    Ok(unlinkat(top, name.as_c_str(), AtFlags::REMOVEDIR)?)
}

fn move_up(folder: &OwnedFd, name: &CString, top: &OwnedFd, moved: &mut u64) -> io::Result<()> {
    loop {
        *moved += 1;
        let to = format!("removed-{moved}");
        // An empty folder of that name is replaced: it is to be removed, too.
        match renameat(folder, name.as_c_str(), top, to) {
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
            done => return Ok(done?),
        }
    }
}

/// Tries to remove a file or an empty folder directly; false for other folders.
fn try_remove(folder: &OwnedFd, name: &CString) -> io::Result<bool> {
    match unlinkat(folder, name.as_c_str(), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    match unlinkat(folder, name.as_c_str(), AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Opens a folder without following links; the owner's permissions may be missing.
fn open_folder(at: impl AsFd, name: impl rustix::path::Arg + Copy) -> io::Result<OwnedFd> {
    let found = statat(&at, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = Mode::from_raw_mode(found.st_mode);
    let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
    if is_folder && !mode.contains(Mode::RWXU) {
        chmodat(&at, name, mode | Mode::RWXU, AtFlags::empty())?;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(&at, name, flags, Mode::empty())?)
}

fn read_names(folder: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if ![c".", c".."].contains(&name) {
            names.push(name.to_owned());
        }
        if names.len() == NAMES_PER_READ {
            break;
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Exceeds both the stack depth and the open-file limit.
    const DEEP: usize = 30_000;

    #[test]
    fn deeply_nested_folders_are_removed_without_following_links() {
        let folder = tempfile::tempdir().unwrap();
        let (kept, top) = (folder.path().join("kept"), folder.path().join("top"));
        fs::create_dir_all(&top).unwrap();
        fs::write(&kept, "").unwrap();
        symlink(folder.path(), top.join("link")).unwrap();
        for wide in 0..NAMES_PER_READ + 10 {
            fs::write(top.join(wide.to_string()), "").unwrap();
        }
        let mut at = open_folder(CWD, top.as_path()).unwrap();
        for _ in 0..DEEP {
            rustix::fs::mkdirat(&at, "removed-1", Mode::RWXU).unwrap();
            at = open_folder(&at, "removed-1").unwrap();
        }
        fs::set_permissions(top.join("removed-1"), fs::Permissions::from_mode(0o0)).unwrap();
        remove(&top).unwrap();
        assert!(kept.exists() && !top.exists());
        symlink(&kept, &top).unwrap();
        remove(&top).unwrap();
        remove(&top).unwrap();
        assert!(kept.exists());
    }
}
