//! Finds the configuration files in force (MGP §15.2, A-01). Only their paths; nothing is read.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Names the only configuration file, instead of a lookup.
pub(crate) const OVERRIDE_VARIABLE: &str = "MGP_CONFIG_PATH";
/// The project's file, in the current folder.
pub const PROJECT_FILE: &str = "mgp.toml";
/// The user's file, in the configuration folder.
pub(crate) const USER_FILE: &str = "mgp/servers.toml";
/// The project files that the user has trusted, next to the user's file.
pub(crate) const TRUST_FILE: &str = "trusted.json";
/// The folder of sealed secrets, next to the user's file. Their key is elsewhere.
pub(crate) const SEALED_FOLDER: &str = "sealed";
/// The folder of private files of servers, next to the user's file.
pub(crate) const SECRETS_FOLDER: &str = "secrets";

/// The inputs of the lookup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigLookup {
    /// `--config FILE`: like the variable, but with precedence.
    pub explicit: Option<PathBuf>,
    /// `$MGP_CONFIG_PATH`.
    pub variable: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`.
    pub config_home: Option<PathBuf>,
    /// `$HOME`.
    pub home: Option<PathBuf>,
    /// The current folder, absolute.
    pub current_dir: PathBuf,
}

/// The role of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigKind {
    /// `./mgp.toml`: applies only once the user has trusted it, whoever wrote it.
    Project,
    /// `~/.config/mgp/servers.toml`.
    User,
    /// Named by `--config` or `$MGP_CONFIG_PATH`; then it is the only one.
    Override,
}

/// A path where a configuration file is or may be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// Absolute path.
    pub path: PathBuf,
    /// Its role.
    pub kind: ConfigKind,
    /// Whether the file exists now. Absent paths are watched, too.
    pub exists: bool,
}

/// Why the lookup failed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigLookupError {
    /// The named file does not exist.
    #[error("{by} names {path}, and there is no such file", path = path.display())]
    Missing {
        /// `--config` or the variable.
        by: &'static str,
        /// The named path.
        path: PathBuf,
    },
    /// A folder, or a path that cannot be examined.
    #[error("{path} cannot be read as a configuration file: {why}", path = path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
}

impl ConfigLookup {
    /// Reads the environment of this process. Empty variables count as unset.
    ///
    /// # Errors
    /// The current folder is gone.
    pub fn from_env(explicit: Option<PathBuf>) -> io::Result<Self> {
        let path = |name| {
            env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        let folder = env::current_dir()?;
        Ok(Self {
            explicit: explicit.map(|path| folder.join(path)),
            variable: path(OVERRIDE_VARIABLE).map(|path| folder.join(path)),
            config_home: path("XDG_CONFIG_HOME"),
            home: path("HOME"),
            current_dir: folder,
        })
    }

    /// The named file, and the option that names it.
    #[must_use]
    pub fn explicit_file(&self) -> Option<(&'static str, PathBuf)> {
        let explicit = self.explicit.as_ref().map(|path| ("--config", path));
        let variable = || {
            self.variable
                .as_ref()
                .map(|path| ("$MGP_CONFIG_PATH", path))
        };
        explicit
            .or_else(variable)
            .map(|(by, path)| (by, self.current_dir.join(path)))
    }

    /// The path of the project's file.
    #[must_use]
    pub fn project_file(&self) -> PathBuf {
        self.current_dir.join(PROJECT_FILE)
    }

    /// The path of the user's file; `None` without a home. A relative `$XDG_CONFIG_HOME` is invalid and ignored, as its
    /// specification demands.
    #[must_use]
    pub fn user_file(&self) -> Option<PathBuf> {
        let absolute = |path: &&PathBuf| path.is_absolute();
        let config_home = self.config_home.as_ref().filter(absolute).cloned();
        let below_home = || {
            self.home
                .as_ref()
                .filter(absolute)
                .map(|h| h.join(".config"))
        };
        config_home.or_else(below_home).map(|c| c.join(USER_FILE))
    }

    /// The path of the trusted project files; `None` without a home.
    #[must_use]
    pub fn trust_file(&self) -> Option<PathBuf> {
        self.user_file().map(|file| file.with_file_name(TRUST_FILE))
    }

    /// The folder of sealed secrets, by their names; `None` without a home.
    #[must_use]
    pub fn sealed_folder(&self) -> Option<PathBuf> {
        self.user_file()
            .map(|file| file.with_file_name(SEALED_FOLDER))
    }

    /// The folder of secrets that are one file each; `None` without a home.
    #[must_use]
    pub fn secrets_folder(&self) -> Option<PathBuf> {
        self.user_file()
            .map(|file| file.with_file_name(SECRETS_FOLDER))
    }
}

/// The files in force and the paths to watch, by descending precedence: the named one, or otherwise the project's
/// before the user's.
///
/// # Errors
/// [`ConfigLookupError`] when a named file is missing, or a path cannot be examined. Not for the project's: a folder's
/// contents must not keep a kernel from starting there; the error is reported when it is read.
pub fn config_files(look_up: &ConfigLookup) -> Result<Vec<ConfigFile>, ConfigLookupError> {
    if let Some((by, path)) = look_up.explicit_file() {
        let file = probe_file(path, ConfigKind::Override)?;
        return if file.exists {
            Ok(vec![file])
        } else {
            Err(ConfigLookupError::Missing {
                by,
                path: file.path,
            })
        };
    }
    let mut files = vec![probe_file(look_up.project_file(), ConfigKind::Project)?];
    if let Some(path) = look_up.user_file() {
        files.push(probe_file(path, ConfigKind::User)?);
    }
    Ok(files)
}

fn probe_file(path: PathBuf, kind: ConfigKind) -> Result<ConfigFile, ConfigLookupError> {
    match is_file(&path) {
        Ok(present) => Ok(ConfigFile {
            path,
            kind,
            exists: present,
        }),
        Err(_) if kind == ConfigKind::Project => Ok(ConfigFile {
            path,
            kind,
            exists: true,
        }),
        Err(why) => Err(ConfigLookupError::Unreadable { path, why }),
    }
}

fn is_file(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => Ok(true),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        root: tempfile::TempDir,
        look_up: ConfigLookup,
    }

    impl World {
        /// `project/` is the current folder, `home/` the home; creates the `present` files.
        fn with(present: &[&str]) -> Self {
            let root = tempfile::tempdir().unwrap();
            for folder in ["project", "home/.config/mgp", "xdg/mgp"] {
                fs::create_dir_all(root.path().join(folder)).unwrap();
            }
            for file in present {
                fs::write(root.path().join(file), "").unwrap();
            }
            let look_up = ConfigLookup {
                home: Some(root.path().join("home")),
                current_dir: root.path().join("project"),
                ..ConfigLookup::default()
            };
            Self { root, look_up }
        }

        fn found(&self) -> Vec<(String, ConfigKind, bool)> {
            let name = |p: &Path| {
                p.strip_prefix(self.root.path())
                    .unwrap()
                    .display()
                    .to_string()
            };
            let files = config_files(&self.look_up).unwrap();
            files
                .iter()
                .map(|f| (name(&f.path), f.kind, f.exists))
                .collect()
        }
    }

    const PROJECT: &str = "project/mgp.toml";
    const USER: &str = "home/.config/mgp/servers.toml";
    const OTHER: &str = "project/other.toml";

    /// MGP-214, A-01: project before user, whichever of them exist; absent paths are returned too.
    #[test]
    fn project_and_user_files_are_found_in_their_order() {
        for (project, user) in [(true, true), (true, false), (false, true), (false, false)] {
            let both = [(project, PROJECT), (user, USER)];
            let present: Vec<_> = both.iter().filter(|(p, _)| *p).map(|(_, f)| *f).collect();
            let want = [
                (PROJECT.to_owned(), ConfigKind::Project, project),
                (USER.to_owned(), ConfigKind::User, user),
            ];
            assert_eq!(World::with(&present).found(), want);
        }
    }

    /// MGP-214, A-01: the variable names the only file, and `--config` takes precedence.
    #[test]
    fn a_named_file_is_the_only_one() {
        let mut world = World::with(&[PROJECT, USER, OTHER, "project/explicit.toml"]);
        world.look_up.variable = Some(world.root.path().join(OTHER));
        assert_eq!(
            world.found(),
            [(OTHER.to_owned(), ConfigKind::Override, true)]
        );
        world.look_up.explicit = Some("explicit.toml".into());
        let explicit = "project/explicit.toml".to_owned();
        assert_eq!(world.found(), [(explicit, ConfigKind::Override, true)]);
    }

    /// MGP-214, A-01: a missing named file is an error, without a fallback to the others.
    #[test]
    fn a_missing_named_file_is_an_error() {
        let mut world = World::with(&[PROJECT, USER]);
        world.look_up.variable = Some("gone.toml".into());
        let error = config_files(&world.look_up).unwrap_err().to_string();
        assert!(error.starts_with("$MGP_CONFIG_PATH names "), "{error}");
        assert!(error.contains("project/gone.toml"), "{error}");
    }

    #[test]
    fn the_configuration_home_is_respected_when_it_is_absolute() {
        let mut world = World::with(&["xdg/mgp/servers.toml"]);
        world.look_up.config_home = Some(world.root.path().join("xdg"));
        let user = ("xdg/mgp/servers.toml".to_owned(), ConfigKind::User, true);
        assert_eq!(world.found()[1], user);
        world.look_up.config_home = Some("xdg".into());
        assert_eq!(world.found()[1], (USER.to_owned(), ConfigKind::User, false));
    }

    #[test]
    fn without_a_home_there_is_only_the_project() {
        let mut world = World::with(&[PROJECT]);
        world.look_up.home = None;
        assert_eq!(
            world.found(),
            [(PROJECT.to_owned(), ConfigKind::Project, true)]
        );
    }

    #[test]
    fn a_folder_in_place_of_a_file_is_an_error() {
        let mut world = World::with(&[]);
        world.look_up.explicit = Some(world.root.path().join("home"));
        let error = config_files(&world.look_up).unwrap_err();
        assert!(
            matches!(error, ConfigLookupError::Unreadable { .. }),
            "{error}"
        );
    }

    /// A cloned project cannot keep a kernel from starting in its folder.
    #[test]
    fn a_folder_in_place_of_a_projects_file_is_only_reported() {
        let world = World::with(&[]);
        fs::create_dir(world.root.path().join(PROJECT)).unwrap();
        assert_eq!(
            world.found()[0],
            (PROJECT.to_owned(), ConfigKind::Project, true)
        );
    }
}
