//! Who else could change a project: through its file, its folder, or any folder above, whose writers can replace what
//! is below.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{Gid, Group, Uid, User};

/// Permission bits that let everybody change a file.
const WRITABLE_BY_ALL: u32 = 0o002;
/// Permission bits that let a group change a file.
const WRITABLE_BY_GROUP: u32 = 0o020;
/// In a folder with this bit only root renames or removes files of others.
const STICKY: u32 = 0o1000;

/// Rejects a project that another user could change.
///
/// # Errors
/// Who could change it, through what, and the remedy.
pub(super) fn check_ownership(found: &Metadata, place: &Path) -> Result<(), String> {
    let own = nix::unistd::geteuid();
    let held = |what: &str, found: &Metadata, sticky_helps: bool| {
        let danger = find_other_writer(
            &FileMode::from_metadata(found),
            own.as_raw(),
            sticky_helps,
            is_private_group,
        );
        danger.map_or(Ok(()), |danger| Err(danger.describe(what)))
    };
    held("it", found, false)?;
    for (above, folder) in place.ancestors().skip(1).enumerate() {
        let what = format!("the folder {}", folder.display());
        let around = fs::metadata(folder).map_err(|e| format!("{what}: {e}"))?;
        // Others must not create files in the project's own folder; above it, only replacing the path matters.
        held(&what, &around, above > 0)?;
    }
    Ok(())
}

/// The attributes of a file that decide who can change it.
struct FileMode {
    uid: u32,
    gid: u32,
    mode: u32,
}

impl FileMode {
    fn from_metadata(found: &Metadata) -> Self {
        Self {
            uid: found.uid(),
            gid: found.gid(),
            mode: found.mode(),
        }
    }
}

/// Another user who can change a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OtherWriter {
    Owner(u32),
    Everybody,
    Group(u32),
}

impl OtherWriter {
    fn describe(self, what: &str) -> String {
        let of = match what {
            "it" => "the file",
            folder => folder,
        };
        match self {
            Self::Owner(uid) => format!(
                "{what} belongs to another user (number {uid}), who can change what it starts; make \
                 {of} yours, or name the file with --config"
            ),
            Self::Everybody => format!(
                "everybody can write to {what}, and so change what it starts; `chmod o-w` closes {of}, \
                 or name the file with --config"
            ),
            Self::Group(gid) => format!(
                "a group (number {gid}) can write to {what}, and so change what it starts; `chmod g-w` \
                 closes {of}, or name the file with --config"
            ),
        }
    }
}

/// Who except the user `own` and root can change a file of these bits; `private` tells whether a group has no other
/// members.
fn find_other_writer(
    bits: &FileMode,
    own: u32,
    sticky_helps: bool,
    private: impl Fn(u32) -> bool,
) -> Option<OtherWriter> {
    if bits.uid != own && bits.uid != 0 {
        return Some(OtherWriter::Owner(bits.uid));
    }
    if sticky_helps && bits.mode & STICKY != 0 {
        return None;
    }
    if bits.mode & WRITABLE_BY_ALL != 0 {
        return Some(OtherWriter::Everybody);
    }
    let by_group = bits.mode & WRITABLE_BY_GROUP != 0 && bits.gid != 0 && !private(bits.gid);
    by_group.then_some(OtherWriter::Group(bits.gid))
}

/// Whether a group is private: the user's primary group, with the user's name and no other members.
fn is_private_group(gid: u32) -> bool {
    let gid = Gid::from_raw(gid);
    let user = User::from_uid(Uid::effective()).ok().flatten();
    let group = Group::from_gid(gid).ok().flatten();
    user.zip(group).is_some_and(|(user, group)| {
        user.gid == gid && group.name == user.name && group.mem.iter().all(|m| *m == user.name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_user_and_root_may_be_writers() {
        let told = |uid, gid, mode, sticky_helps| {
            find_other_writer(&FileMode { uid, gid, mode }, 1000, sticky_helps, |gid| {
                gid == 1000
            })
        };
        for (uid, gid, mode) in [
            (1000, 1000, 0o40775),
            (1000, 100, 0o40755),
            (0, 0, 0o40775),
            (0, 0, 0o41777),
            (1000, 100, 0o41770),
        ] {
            assert_eq!(told(uid, gid, mode, true), None, "{uid} {gid} {mode:o}");
        }
        assert_eq!(told(1001, 0, 0o40700, true), Some(OtherWriter::Owner(1001)));
        // The sticky bit does not restrict the folder's owner.
        assert_eq!(told(1001, 0, 0o41777, true), Some(OtherWriter::Owner(1001)));
        assert_eq!(told(0, 0, 0o40777, true), Some(OtherWriter::Everybody));
        assert_eq!(told(0, 0, 0o41777, false), Some(OtherWriter::Everybody));
        assert_eq!(
            told(1000, 100, 0o40775, true),
            Some(OtherWriter::Group(100))
        );
        assert_eq!(told(0, 50, 0o42775, true), Some(OtherWriter::Group(50)));
    }
}
