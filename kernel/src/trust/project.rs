//! Compares a project's file with its trusted version.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use super::ownership;
use super::store::TrustStore;

/// Largest configuration file, in bytes: a thousand servers fit.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;

/// The result for the project's file.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProjectFile {
    /// The text in force: exactly the bytes that were checked.
    pub(crate) effective_text: Option<String>,
    /// Why it, or its change, is not in force.
    pub(crate) untrusted: Option<UntrustedFile>,
}

/// A project's file that is not in force as it is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UntrustedFile {
    /// The file.
    pub(crate) file: PathBuf,
    /// Whether its trusted version is in force.
    pub(crate) trusted_version_in_force: bool,
    /// The reason.
    pub(crate) reason: UntrustedReason,
}

/// Why a project's file is not in force as it is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UntrustedReason {
    /// It was never reviewed.
    New,
    /// It differs from the reviewed version.
    Changed,
    /// Its location cannot be trusted, or it cannot be read; with a description.
    Unusable(String),
}

impl fmt::Display for UntrustedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, folder) = (self.file.display(), self.folder());
        match (&self.reason, self.trusted_version_in_force) {
            (UntrustedReason::New, _) => write!(
                f,
                "{file} is left out, for it was never trusted: `mgp trust {folder}` shows what it \
                 would start, and asks"
            ),
            (UntrustedReason::Changed, false) => write!(
                f,
                "{file} is left out, for it has changed since it was trusted: `mgp trust {folder}` \
                 shows what it would start now, and asks"
            ),
            (UntrustedReason::Changed, true) => write!(
                f,
                "{file} has changed and holds as it was when it was trusted: `mgp trust {folder}` \
                 shows what it would start now, and asks"
            ),
            (UntrustedReason::Unusable(why), false) => write!(f, "{file} is left out: {why}"),
            (UntrustedReason::Unusable(why), true) => {
                write!(f, "{file} holds as it was when it was trusted: {why}")
            }
        }
    }
}

impl UntrustedFile {
    /// The folder, quoted for a shell.
    fn folder(&self) -> String {
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        let text = folder.to_string_lossy();
        let harmless = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
        if text.chars().all(harmless) {
            text.into_owned()
        } else {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
    }
}

/// The path under which a file is trusted. Links to its folder are resolved, so that each folder is one project. A link
/// in place of the file is not: what it refers to runs in this folder.
///
/// # Errors
/// Those of the folder.
pub(crate) fn trusted_path(file: &Path) -> io::Result<PathBuf> {
    let folder = file.parent().filter(|p| !p.as_os_str().is_empty());
    let folder = fs::canonicalize(folder.unwrap_or(Path::new(".")))?;
    Ok(folder.join(file.file_name().unwrap_or_default()))
}

/// The hash that identifies the bytes of a file.
#[must_use]
pub(crate) fn hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// Reads a project's file once and decides whether those bytes are trusted. If not, and `held` is the trusted version,
/// that stays in force.
#[must_use]
pub(crate) fn evaluate(file: &Path, store: &TrustStore, held: Option<&str>) -> ProjectFile {
    let read = trusted_path(file)
        .map_err(|e| e.to_string())
        .and_then(|place| Ok((read_checked(&place)?, place)));
    let trusted = |place: &Path| store.find(place).map(|entry| entry.blake3.clone());
    let (why, place) = match read {
        Ok((text, place)) => match (trusted(&place), store.load_error()) {
            (Some(trusted), _) if trusted == hash(&text) => {
                return ProjectFile {
                    effective_text: Some(text),
                    untrusted: None,
                };
            }
            (Some(_), _) => (UntrustedReason::Changed, place),
            (None, Some(wrong)) => (
                UntrustedReason::Unusable(format!("nothing is trusted, for {wrong}")),
                place,
            ),
            (None, None) => (UntrustedReason::New, place),
        },
        Err(why) => (
            UntrustedReason::Unusable(why),
            trusted_path(file).unwrap_or_else(|_| file.to_owned()),
        ),
    };
    // An unreadable store revokes nothing.
    let unknown = store.load_error().is_some();
    let as_trusted =
        |text: &&str| unknown || trusted(&place).is_some_and(|trusted| trusted == hash(text));
    let held = held.filter(as_trusted).map(str::to_owned);
    let untrusted = UntrustedFile {
        file: place,
        trusted_version_in_force: held.is_some(),
        reason: why,
    };
    ProjectFile {
        effective_text: held,
        untrusted: Some(untrusted),
    }
}

/// The text of a trustable file: a regular file that only this user and root can change or replace, directly or through
/// a folder on its path. `place` is a [`trusted_path`].
///
/// # Errors
/// Why it cannot be trusted.
pub(crate) fn read_checked(place: &Path) -> Result<String, String> {
    let mut options = OpenOptions::new();
    // Opening a pipe or a terminal must not block.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = options.read(true).custom_flags(flags.bits()).open(place);
    let file = file.map_err(|e| format!("it cannot be read: {e}"))?;
    let found = file.metadata().map_err(|e| e.to_string())?;
    if !found.is_file() {
        return Err("it is no plain file".into());
    }
    ownership::check_ownership(&found, place)?;
    read_text(file)
}

fn read_text(file: File) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|e| format!("it cannot be read: {e}"))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it has more than {FILE_BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::trust::{TrustedFile, modify_store};

    /// Two projects and a trust store.
    struct World {
        folder: tempfile::TempDir,
    }

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            for project in ["one", "other"] {
                fs::create_dir(folder.path().join(project)).unwrap();
            }
            Self { folder }
        }

        fn file(&self, project: &str) -> PathBuf {
            self.folder.path().join(project).join("mgp.toml")
        }

        fn store(&self) -> TrustStore {
            TrustStore::open(Some(&self.folder.path().join("trusted.json")))
        }

        fn trust(&self, file: &Path, text: &str) {
            let entry = TrustedFile {
                file: trusted_path(file).unwrap(),
                blake3: hash(text),
                at: String::new(),
            };
            let path = self.folder.path().join("trusted.json");
            modify_store(Some(&path), |entries| entries.push(entry)).unwrap();
        }

        fn judged(&self, file: &Path, held: Option<&str>) -> ProjectFile {
            evaluate(file, &self.store(), held)
        }
    }

    fn why(project: &ProjectFile) -> UntrustedReason {
        assert_eq!(project.effective_text, None);
        project.untrusted.clone().unwrap().reason
    }

    #[test]
    fn only_reviewed_bytes_are_trusted() {
        let world = World::new();
        let file = world.file("one");
        fs::write(&file, "a = 1\n").unwrap();
        assert_eq!(why(&world.judged(&file, None)), UntrustedReason::New);
        world.trust(&file, "a = 1\n");
        assert_eq!(world.judged(&file, None).effective_text.unwrap(), "a = 1\n");
        fs::write(&file, "a = 2\n").unwrap();
        assert_eq!(why(&world.judged(&file, None)), UntrustedReason::Changed);
        // The trusted text stays in force; other remembered text does not.
        let held = world.judged(&file, Some("a = 1\n"));
        assert_eq!(held.effective_text.as_deref(), Some("a = 1\n"));
        assert!(held.untrusted.unwrap().trusted_version_in_force);
        assert_eq!(
            why(&world.judged(&file, Some("a = 2\n"))),
            UntrustedReason::Changed
        );
        // A damaged store revokes nothing, and trusts nothing new.
        fs::write(world.folder.path().join("trusted.json"), "{").unwrap();
        assert!(
            world
                .judged(&file, Some("a = 1\n"))
                .effective_text
                .is_some()
        );
        assert!(matches!(
            why(&world.judged(&file, None)),
            UntrustedReason::Unusable(_)
        ));
    }

    /// Another path to the folder is the same project; a link to a trusted file is another one, because what it runs is
    /// next to the link.
    #[test]
    fn a_project_is_its_folder_under_any_path() {
        let world = World::new();
        let file = world.file("one");
        fs::write(&file, "a = 1\n").unwrap();
        world.trust(&file, "a = 1\n");
        let way = world.folder.path().join("way");
        symlink(file.parent().unwrap(), &way).unwrap();
        assert!(
            world
                .judged(&way.join("mgp.toml"), None)
                .effective_text
                .is_some()
        );
        symlink(&file, world.file("other")).unwrap();
        assert_eq!(
            why(&world.judged(&world.file("other"), None)),
            UntrustedReason::New
        );
    }

    #[test]
    fn world_writable_files_are_not_trusted() {
        let world = World::new();
        let file = world.file("one");
        fs::write(&file, "a = 1\n").unwrap();
        world.trust(&file, "a = 1\n");
        for (path, mode) in [(file.as_path(), 0o666), (file.parent().unwrap(), 0o777)] {
            let before = fs::metadata(path).unwrap().permissions();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            let UntrustedReason::Unusable(words) = why(&world.judged(&file, None)) else {
                panic!("{}", path.display());
            };
            assert!(words.contains("everybody can write"), "{words}");
            fs::set_permissions(path, before).unwrap();
        }
        assert!(world.judged(&file, None).effective_text.is_some());
    }

    /// A writer of a folder above can replace the project; a sticky folder, like the one for temporary files, protects
    /// entries of others.
    #[test]
    fn a_project_below_a_folder_that_others_can_write_is_not_trusted() {
        let world = World::new();
        let above = world.folder.path().join("above");
        let project = above.join("between").join("project");
        fs::create_dir_all(&project).unwrap();
        let file = project.join("mgp.toml");
        fs::write(&file, "a = 1\n").unwrap();
        world.trust(&file, "a = 1\n");
        let open = |mode| fs::set_permissions(&above, fs::Permissions::from_mode(mode)).unwrap();
        open(0o777);
        let UntrustedReason::Unusable(words) = why(&world.judged(&file, None)) else {
            panic!("it holds");
        };
        let named = fs::canonicalize(&above).unwrap().display().to_string();
        assert!(
            words.contains(&named) && words.contains("chmod o-w"),
            "{words}"
        );
        for mode in [0o1777, 0o755] {
            open(mode);
            assert!(
                world.judged(&file, None).effective_text.is_some(),
                "{mode:o}"
            );
        }
    }

    #[test]
    fn other_kinds_of_files_are_reported_without_blocking() {
        let world = World::new();
        let (file, other) = (world.file("one"), world.file("other"));
        symlink("/dev/zero", &file).unwrap();
        nix::unistd::mkfifo(&other, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for file in [&file, &other] {
            assert_eq!(
                why(&world.judged(file, None)),
                UntrustedReason::Unusable("it is no plain file".into())
            );
        }
        fs::remove_file(&file).unwrap();
        fs::write(&file, vec![b'#'; FILE_BYTES_MAX as usize + 1]).unwrap();
        assert!(matches!(
            why(&world.judged(&file, None)),
            UntrustedReason::Unusable(_)
        ));
        fs::write(&file, b"\xff").unwrap();
        assert!(matches!(
            why(&world.judged(&file, None)),
            UntrustedReason::Unusable(_)
        ));
    }
}
