//! The locations of the kernel's socket and of its persistent state.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use mgp_store::atomic_file;
use nix::fcntl::OFlag;
use nix::unistd::{User, geteuid};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

/// Longest path of a Unix socket on Linux, in bytes (`sun_path` without its NUL).
pub(crate) const SOCKET_PATH_MAX: usize = 107;
/// The socket's name in its folder.
pub(crate) const SOCKET_NAME: &str = "mgp.sock";
/// Stores the locations of the last kernel.
const LAST_USED: &str = "places.json";
/// Longest file that is read, in bytes: two paths have 8 KiB at most.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// The base directories for default locations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BaseDirs {
    /// `$XDG_RUNTIME_DIR` if it is this user's folder, else the system's usual one.
    pub(crate) runtime: Option<PathBuf>,
    /// `$XDG_DATA_HOME`.
    pub(crate) data_home: Option<PathBuf>,
    /// `$HOME`, or the home in the password database if it is not set or belongs to another user.
    pub(crate) home: Option<PathBuf>,
    /// The home in the password database.
    pub(crate) account_home: Option<PathBuf>,
    /// Saved by the last kernel that was started with default locations.
    pub(crate) last_used: LastUsed,
    /// The uid.
    pub(crate) uid: u32,
}

/// No home for persistent state.
#[derive(Debug, thiserror::Error)]
#[error(
    "neither HOME nor XDG_DATA_HOME is set: name a folder with MGP_DATA_DIR or with `dir` in [data]"
)]
pub(crate) struct NoHomeError;

impl BaseDirs {
    /// Reads the environment of this process and the password database. Relative folders do not
    /// count, as the XDG specification demands.
    #[must_use]
    pub(crate) fn from_env() -> Self {
        let folder = |name| {
            env::var_os(name)
                .map(PathBuf::from)
                .filter(|p| p.is_absolute())
        };
        let user = geteuid();
        let account = User::from_uid(user).ok().flatten().map(|user| user.dir);
        let account = account.filter(|home| home.is_dir());
        // Another user's home, as `sudo` may leave it, must not receive this user's files.
        let home = folder("HOME").filter(|home| account.is_none() || !is_owned_by_other(home));
        let usual = || Some(PathBuf::from(format!("/run/user/{user}")));
        let given = folder("XDG_RUNTIME_DIR").filter(|p| p.is_dir() && !is_owned_by_other(p));
        let bases = Self {
            runtime: given.or_else(|| usual().filter(|p| is_exclusively_owned(p))),
            data_home: folder("XDG_DATA_HOME"),
            home: home.or_else(|| account.clone()),
            account_home: account,
            last_used: LastUsed::default(),
            uid: user.as_raw(),
        };
        let last_used = bases.home_folder().map(|home| LastUsed::read(&home));
        Self {
            last_used: last_used.unwrap_or_default(),
            ..bases
        }
    }

    /// The socket: as configured, in the runtime folder, or below the home if that folder in /tmp belongs to another
    /// user.
    #[must_use]
    pub(crate) fn socket(&self, configured: Option<&Path>) -> PathBuf {
        if let Some(path) = configured {
            return path.to_owned();
        }
        let runtime = self.runtime_folder();
        let home = self.home_folder().filter(|_| is_foreign_or_link(&runtime));
        home.unwrap_or(runtime).join(SOCKET_NAME)
    }

    /// The owner's folder for state of the session.
    #[must_use]
    pub(crate) fn runtime_folder(&self) -> PathBuf {
        match &self.runtime {
            Some(runtime) => runtime.join("mgp"),
            None => PathBuf::from(format!("/tmp/mgp-{}", self.uid)),
        }
    }

    /// Why the socket is not at its usual location, with the remedy.
    #[must_use]
    pub(crate) fn socket_path_problem(&self) -> Option<String> {
        let folder = self.runtime_folder();
        is_foreign_or_link(&folder).then(|| {
            let folder = folder.display();
            format!(
                "{folder} belongs to another user and is left alone, so the socket is elsewhere; \
                 have {folder} removed, or set XDG_RUNTIME_DIR to a folder of your own"
            )
        })
    }

    /// The folder for persistent state, chosen like the socket; by default the one of the last kernel, while it exists.
    ///
    /// # Errors
    /// If none is configured and there is no home.
    pub(crate) fn data_dir(&self, configured: Option<&Path>) -> Result<PathBuf, NoHomeError> {
        if let Some(path) = configured.or(self.last_used.data_dir.as_deref()) {
            return Ok(path.to_owned());
        }
        let data_home = self.data_home.as_ref().map(|base| base.join("mgp"));
        data_home.or_else(|| self.home_folder()).ok_or(NoHomeError)
    }

    /// The folder below the home, which depends on no other variable.
    #[must_use]
    pub(crate) fn home_folder(&self) -> Option<PathBuf> {
        self.home.as_deref().map(user_data_folder)
    }

    /// Folders that record a kernel of this user, in lookup order: below the home of the password database, which all
    /// clients know, and below `HOME` if that differs.
    #[must_use]
    pub(crate) fn record_folders(&self) -> Vec<PathBuf> {
        let mut folders: Vec<_> = self
            .account_home
            .as_deref()
            .map(user_data_folder)
            .into_iter()
            .collect();
        folders.extend(self.home_folder().filter(|home| !folders.contains(home)));
        folders
    }
}

/// The locations of a kernel that was started with defaults, for a later start with fewer variables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastUsed {
    /// The data folder.
    pub(crate) data_dir: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`, if it was set.
    pub(crate) config_home: Option<PathBuf>,
}

impl LastUsed {
    /// Reads the stored locations that still exist and are not another user's.
    #[must_use]
    pub(crate) fn read(folder: &Path) -> Self {
        let kept: Self = read_owned_json(folder, LAST_USED).unwrap_or_default();
        Self {
            data_dir: kept.data_dir.filter(|dir| is_exclusively_owned(dir)),
            config_home: kept.config_home.filter(|dir| dir.is_dir()),
        }
    }

    /// Stores the locations for the next kernel.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        if read_owned_json::<Self>(folder, LAST_USED).as_ref() == Some(self) {
            Ok(())
        } else {
            write_owned_json(self, folder, LAST_USED)
        }
    }
}

fn user_data_folder(home: &Path) -> PathBuf {
    home.join(".local/share/mgp")
}

/// Whether a folder exists and belongs to another user.
fn is_owned_by_other(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.uid() != geteuid().as_raw())
}

/// Whether something exists that another user created, or that is a link.
fn is_foreign_or_link(path: &Path) -> bool {
    let taken = |found: fs::Metadata| found.uid() != geteuid().as_raw() || !found.is_dir();
    fs::symlink_metadata(path).is_ok_and(taken)
}

/// Whether this is a folder that only this user can change.
#[must_use]
pub(crate) fn is_exclusively_owned(path: &Path) -> bool {
    let is_private = |found: fs::Metadata| {
        let others = found.permissions().mode() & 0o022;
        found.is_dir() && found.uid() == geteuid().as_raw() && others == 0
    };
    fs::symlink_metadata(path).is_ok_and(is_private)
}

/// A temporary folder that only this user can enter: in the usual place, or in `/tmp` if that path is too long for a
/// socket. Removed when dropped.
///
/// # Errors
/// If it cannot be created.
pub(crate) fn temporary_folder(prefix: &str) -> io::Result<TempDir> {
    let make = |base: &Path| tempfile::Builder::new().prefix(prefix).tempdir_in(base);
    let folder = make(&env::temp_dir())?;
    if folder.path().join(SOCKET_NAME).as_os_str().len() > SOCKET_PATH_MAX {
        make(Path::new("/tmp"))
    } else {
        Ok(folder)
    }
}

/// Creates a folder if absent, and checks that only its owner can read it.
///
/// # Errors
/// If it cannot be created, is no folder, belongs to another user or is open to others, who may have put it there to
/// intercept connections.
pub(crate) fn ensure_private_folder(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_err() {
        atomic_file::create_folder(path)?;
    }
    let found = fs::symlink_metadata(path)?;
    let refused = |why: &str| Err(io::Error::other(format!("{} {why}", path.display())));
    if !found.is_dir() {
        return refused("is not a folder");
    }
    if found.uid() != geteuid().as_raw() {
        return refused("belongs to another user");
    }
    match found.permissions().mode() & 0o077 {
        0 => Ok(()),
        _ => refused("can be entered by other users; run `chmod 700` on it"),
    }
}

/// Reads JSON from a file that no other user can have written, in such a folder.
#[must_use]
pub(crate) fn read_owned_json<T: DeserializeOwned>(folder: &Path, name: &str) -> Option<T> {
    if !is_exclusively_owned(folder) {
        return None;
    }
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let mut open = OpenOptions::new();
    open.read(true).custom_flags(flags.bits());
    let file = open.open(folder.join(name)).ok()?;
    let found = file.metadata().ok()?;
    let others = found.permissions().mode() & 0o022;
    if !found.is_file() || found.uid() != geteuid().as_raw() || others != 0 {
        return None;
    }
    let mut text = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Writes JSON into a folder as [`replace_allowed`] does.
///
/// # Errors
/// Those of the file system.
pub(crate) fn write_owned_json(
    value: &impl Serialize,
    folder: &Path,
    name: &str,
) -> io::Result<()> {
    let text = serde_json::to_vec(value).expect("what is written is always JSON");
    atomic_file::write_unsynced(&folder.join(name), &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A uid without a folder in /tmp.
    const UID: u32 = 4_000_000_001;

    fn bases() -> BaseDirs {
        BaseDirs {
            home: Some("/home/ada".into()),
            uid: UID,
            ..BaseDirs::default()
        }
    }

    #[test]
    fn the_socket_is_as_configured_or_in_the_runtime_folder() {
        let bases = bases();
        assert_eq!(bases.socket(Some(Path::new("/c"))), Path::new("/c"));
        assert_eq!(
            bases.socket(None),
            Path::new("/tmp/mgp-4000000001/mgp.sock")
        );
        let session = BaseDirs {
            runtime: Some("/run/user/1000".into()),
            ..bases
        };
        assert_eq!(
            session.socket(None),
            Path::new("/run/user/1000/mgp/mgp.sock")
        );
    }

    /// Another user's folder is not used, and the remedy is reported.
    #[test]
    fn a_runtime_folder_of_another_user_is_skipped() {
        let root = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/usr", root.path().join("mgp")).unwrap();
        let bases = BaseDirs {
            runtime: Some(root.path().into()),
            ..bases()
        };
        let elsewhere = Path::new("/home/ada/.local/share/mgp/mgp.sock");
        assert_eq!(bases.socket(None), elsewhere);
        assert!(
            bases
                .socket_path_problem()
                .unwrap()
                .contains("belongs to another user")
        );
        fs::remove_file(root.path().join("mgp")).unwrap();
        assert_eq!(bases.socket(None), root.path().join("mgp/mgp.sock"));
        assert_eq!(bases.socket_path_problem(), None);
    }

    /// The home of the password database comes first.
    #[test]
    fn records_are_below_the_account_home_and_below_home() {
        let folder = |home: &str| PathBuf::from(home).join(".local/share/mgp");
        assert_eq!(bases().record_folders(), [folder("/home/ada")]);
        let account = |home: &str| BaseDirs {
            account_home: Some(home.into()),
            ..bases()
        };
        let both = [folder("/root"), folder("/home/ada")];
        assert_eq!(account("/root").record_folders(), both);
        assert_eq!(account("/home/ada").record_folders(), both[1..]);
    }

    #[test]
    fn persistent_state_is_as_configured_or_below_the_data_home() {
        let dir = |b: &BaseDirs| b.data_dir(None).ok();
        assert_eq!(dir(&bases()), Some("/home/ada/.local/share/mgp".into()));
        let data_home = Some("/data".into());
        let with_data_home = BaseDirs {
            data_home,
            ..bases()
        };
        assert_eq!(dir(&with_data_home), Some("/data/mgp".into()));
        let last_used = LastUsed {
            data_dir: Some("/before/mgp".into()),
            ..LastUsed::default()
        };
        let after = BaseDirs {
            last_used,
            ..with_data_home
        };
        assert_eq!(dir(&after), Some("/before/mgp".into()));
        assert_eq!(dir(&BaseDirs::default()), None);
        let configured = BaseDirs::default().data_dir(Some(Path::new("/c")));
        assert_eq!(configured.ok(), Some("/c".into()));
    }

    #[test]
    fn last_used_locations_count_while_they_exist() {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let place = |name: &str| {
            let folder = root.path().join(name);
            ensure_private_folder(&folder).unwrap();
            Some(folder)
        };
        let kept = LastUsed {
            data_dir: place("data"),
            config_home: place("config"),
        };
        assert_eq!(LastUsed::read(root.path()), LastUsed::default());
        kept.write(root.path()).unwrap();
        assert_eq!(LastUsed::read(root.path()), kept);
        fs::remove_dir(root.path().join("data")).unwrap();
        fs::remove_dir(root.path().join("config")).unwrap();
        assert_eq!(LastUsed::read(root.path()), LastUsed::default());
    }

    #[test]
    fn a_private_folder_is_created_and_an_open_one_rejected() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a/b");
        ensure_private_folder(&folder).unwrap();
        ensure_private_folder(&folder).unwrap();
        assert_eq!(
            fs::metadata(&folder).unwrap().permissions().mode() & 0o777,
            0o700
        );
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(
            ensure_private_folder(&folder)
                .unwrap_err()
                .to_string()
                .contains("chmod 700")
        );
        std::os::unix::fs::symlink(root.path(), root.path().join("link")).unwrap();
        assert!(ensure_private_folder(&root.path().join("link")).is_err());
    }
}
