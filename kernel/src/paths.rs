//! Where the kernel's socket and the things that last are.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Longest path of a Unix socket on Linux, in bytes (`sun_path` without its NUL).
pub const LONGEST_SOCKET_PATH: usize = 107;

/// What the places depend on when nobody names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bases {
    /// `$XDG_RUNTIME_DIR`, when it is a folder.
    pub runtime: Option<PathBuf>,
    /// `$XDG_DATA_HOME`.
    pub data_home: Option<PathBuf>,
    /// `$HOME`.
    pub home: Option<PathBuf>,
    /// The user's number.
    pub uid: u32,
}

/// There is no home to keep anything in.
#[derive(Debug, thiserror::Error)]
#[error(
    "neither HOME nor XDG_DATA_HOME is set: name a folder with MGP_DATA_DIR or with `dir` in [data]"
)]
pub struct NoHome;

impl Bases {
    /// Reads the environment of this process. Relative folders do not count, as the XDG
    /// specification demands.
    #[must_use]
    pub fn from_env() -> Self {
        let folder = |name| {
            env::var_os(name)
                .map(PathBuf::from)
                .filter(|p| p.is_absolute())
        };
        Self {
            runtime: folder("XDG_RUNTIME_DIR").filter(|p| p.is_dir()),
            data_home: folder("XDG_DATA_HOME"),
            home: folder("HOME"),
            uid: nix::unistd::geteuid().as_raw(),
        }
    }

    /// The socket: as configured, or in the runtime folder.
    #[must_use]
    pub fn socket(&self, configured: Option<&Path>) -> PathBuf {
        match configured {
            Some(path) => path.to_owned(),
            None => self.runtime_folder().join("mgp.sock"),
        }
    }

    /// The owner's folder for what lives as long as the session.
    #[must_use]
    pub fn runtime_folder(&self) -> PathBuf {
        match &self.runtime {
            Some(runtime) => runtime.join("mgp"),
            None => PathBuf::from(format!("/tmp/mgp-{}", self.uid)),
        }
    }

    /// The folder for what lasts, chosen like the socket.
    ///
    /// # Errors
    /// When none is configured and there is no home.
    pub fn data_dir(&self, configured: Option<&Path>) -> Result<PathBuf, NoHome> {
        if let Some(path) = configured {
            return Ok(path.to_owned());
        }
        let below_home = || self.home.as_ref().map(|home| home.join(".local/share"));
        let base = self.data_home.clone().or_else(below_home);
        base.map(|base| base.join("mgp")).ok_or(NoHome)
    }
}

/// Makes sure that a folder is there and nobody but its owner can look into it.
///
/// # Errors
/// When it cannot be made, is no folder, belongs to somebody else or is open to others: somebody may
/// have put it there to listen in.
pub fn private_folder(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        Ok(()) | Err(_) => {}
    }
    let found = fs::symlink_metadata(path)?;
    let refused = |why: &str| Err(io::Error::other(format!("{} {why}", path.display())));
    if !found.is_dir() {
        return refused("is not a folder");
    }
    if found.uid() != nix::unistd::geteuid().as_raw() {
        return refused("belongs to another user");
    }
    match found.permissions().mode() & 0o077 {
        0 => Ok(()),
        _ => refused("can be entered by other users; run `chmod 700` on it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bases() -> Bases {
        Bases {
            home: Some("/home/ada".into()),
            uid: 1000,
            ..Bases::default()
        }
    }

    #[test]
    fn the_socket_is_as_configured_or_in_the_runtime_folder() {
        let bases = bases();
        assert_eq!(bases.socket(Some(Path::new("/c"))), Path::new("/c"));
        assert_eq!(bases.socket(None), Path::new("/tmp/mgp-1000/mgp.sock"));
        let session = Bases {
            runtime: Some("/run/user/1000".into()),
            ..bases
        };
        assert_eq!(
            session.socket(None),
            Path::new("/run/user/1000/mgp/mgp.sock")
        );
    }

    #[test]
    fn what_lasts_is_as_configured_or_below_the_data_home() {
        let dir = |b: &Bases| b.data_dir(None).ok();
        assert_eq!(dir(&bases()), Some("/home/ada/.local/share/mgp".into()));
        let data_home = Some("/data".into());
        let with_data_home = Bases {
            data_home,
            ..bases()
        };
        assert_eq!(dir(&with_data_home), Some("/data/mgp".into()));
        assert_eq!(dir(&Bases::default()), None);
        let configured = Bases::default().data_dir(Some(Path::new("/c")));
        assert_eq!(configured.ok(), Some("/c".into()));
    }

    #[test]
    fn a_private_folder_is_made_and_an_open_one_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a/b");
        private_folder(&folder).unwrap();
        private_folder(&folder).unwrap();
        assert_eq!(
            fs::metadata(&folder).unwrap().permissions().mode() & 0o777,
            0o700
        );
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(
            private_folder(&folder)
                .unwrap_err()
                .to_string()
                .contains("chmod 700")
        );
        std::os::unix::fs::symlink(root.path(), root.path().join("link")).unwrap();
        assert!(private_folder(&root.path().join("link")).is_err());
    }
}
