//! Users for sandboxed servers if the kernel runs as root: each server gets a separate user, who can reach only
//! the server's own folder.

use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use mgp_engine::servers::sandbox::SandboxPolicy;
use mgp_platform::files;
use nix::unistd::{Gid, Group, Uid, User};

/// User ids that systems reserve for dynamic users.
pub(super) const UID_RANGE: RangeInclusive<u32> = 61_184..=65_519;
/// Two servers started at the same time must not get the same user.
static ASSIGNMENT_LOCK: Mutex<()> = Mutex::new(());

/// Gives the folder to its user and returns that user: the previous one, else one that owns no other server's
/// folder and has no name on this system. Without a separate file tree (`namespaces`) the user must be able to
/// pass the parent folders.
///
/// # Errors
/// The folder cannot be given away or reached, as text.
pub(super) fn assign_user(folder: &Path, namespaces: bool) -> Result<u32, String> {
    let _one = ASSIGNMENT_LOCK
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let previous = owner(folder).filter(|user| UID_RANGE.contains(user));
    let user = previous
        .or_else(|| find_free_user(folder))
        .ok_or("no user is free for it")?;
    // Files made by the server already belong to its user; only those made by the kernel do not.
    let deep = previous.is_none();
    change_owner(folder, user, deep, 0).map_err(|e| {
        format!(
            "the kernel runs as root and cannot give {} to the user {user}, as whom the server would run: {e}; \
             run the kernel as another user",
            folder.display()
        )
    })?;
    match find_closed_ancestor(folder).filter(|_| !namespaces) {
        None => Ok(user),
        Some(folder) => Err(format!(
            "the kernel runs as root, and the user {user}, as whom the server would run, cannot enter {}; run the \
             kernel as another user, or let it make namespaces (in a container: CAP_SYS_ADMIN)",
            folder.display()
        )),
    }
}

/// The first parent of this folder that other users may not pass.
fn find_closed_ancestor(folder: &Path) -> Option<&Path> {
    let above: Vec<_> = folder.ancestors().skip(1).collect();
    let is_passable =
        |folder: &&Path| fs::metadata(folder).is_ok_and(|found| found.mode() & 0o1 != 0);
    above.into_iter().rev().find(|folder| !is_passable(folder))
}

fn owner(path: &Path) -> Option<u32> {
    fs::symlink_metadata(path).ok().map(|found| found.uid())
}

fn find_free_user(folder: &Path) -> Option<u32> {
    let folders = folder.parent().and_then(|folder| fs::read_dir(folder).ok());
    let folders = folders.into_iter().flatten().flatten();
    let taken: Vec<_> = folders.filter_map(|entry| owner(&entry.path())).collect();
    let named = |user: u32| {
        let person = User::from_uid(Uid::from_raw(user));
        let group = Group::from_gid(Gid::from_raw(user));
        person.ok().flatten().is_some() || group.ok().flatten().is_some()
    };
    // The search starts at a different id for each folder, so that two kernels on a machine rarely collide.
    let hash = blake3::hash(folder.as_os_str().as_encoded_bytes());
    let first = u16::from_le_bytes([hash.as_bytes()[0], hash.as_bytes()[1]]);
    let count = UID_RANGE.end() - UID_RANGE.start() + 1;
    let from = u32::from(first) % count;
    let all = (0..count).map(|step| UID_RANGE.start() + (from + step) % count);
    all.into_iter()
        .find(|user| !taken.contains(user) && !named(*user))
}

/// The maximum depth of folders given away; deeper folders made by the server already belong to it.
const DEPTH_MAX: usize = 64;

fn change_owner(path: &Path, user: u32, deep: bool, level: usize) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    // A hard link to another user's file is not given away.
    let shared = !found.is_dir() && found.nlink() > 1;
    if found.uid() != user && !shared {
        lchown(path, Some(user), Some(user))?;
    }
    if found.is_dir() && level < DEPTH_MAX && (deep || level == 0) {
        for entry in fs::read_dir(path)? {
            change_owner(&entry?.path(), user, deep, level + 1)?;
        }
    }
    Ok(())
}

/// Lets this user read the folder and its files, and nobody else except the owner.
pub(super) fn grant_read(folder: &Path, user: u32) -> io::Result<()> {
    lchown(folder, None, Some(user))?;
    for entry in fs::read_dir(folder)? {
        lchown(entry?.path(), None, Some(user))?;
    }
    Ok(())
}

/// Paths that the policy opens but the user cannot reach, as text.
pub(super) fn find_unreachable(policy: &SandboxPolicy) -> Vec<String> {
    let user = policy.user.unwrap_or_default();
    let opened = [
        (&policy.read, 0o4, "read"),
        (&policy.execute, 0o5, "run"),
        (&policy.write, 0o2, "written"),
    ];
    let mut notes = Vec::new();
    for (paths, needed, word) in opened {
        for path in paths
            .iter()
            .filter(|path| !files::is_per_process(path) && !path.starts_with("/dev"))
        {
            let Ok(found) = fs::metadata(path) else {
                continue;
            };
            let others = match (found.uid() == user, found.gid() == user) {
                (true, _) => found.mode() >> 6,
                (false, true) => found.mode() >> 3,
                (false, false) => found.mode(),
            };
            if others & needed != needed {
                notes.push(format!(
                    "{} cannot be {word} by the user {user}, as whom it runs instead of root: open it to others \
                     with `chmod`, or give it to that user with `chown`",
                    path.display()
                ));
            }
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_folder_keeps_its_own_user() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("not run as root: no folder was given away");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let users: Vec<_> = (0..20)
            .map(|n| {
                let folder = folder.path().join(format!("of-{n}"));
                fs::create_dir_all(folder.join("home/deep")).unwrap();
                let user = assign_user(&folder, true).unwrap();
                assert_eq!(owner(&folder.join("home/deep")), Some(user));
                assert_eq!(assign_user(&folder, true).unwrap(), user);
                user
            })
            .collect();
        let different: std::collections::BTreeSet<_> = users.iter().collect();
        assert_eq!(different.len(), users.len());
        assert!(users.iter().all(|user| UID_RANGE.contains(user)));
    }
}
