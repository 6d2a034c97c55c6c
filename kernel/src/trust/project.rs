//! A project's file, held against what was trusted.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use super::ownership;
use super::store::TrustStore;

/// Largest configuration file, in bytes: a thousand servers fit, a wrong file does not.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// What became of the project's file.
#[derive(Clone, Debug, Default)]
pub struct ProjectFile {
    /// What it says, where it is in force: the very bytes that were found to be trusted.
    pub(crate) effective_text: Option<String>,
    /// Distrust it, or its change, is not in force.
    pub(crate) untrusted: Option<UntrustedFile>,
}

/// A project's file that is not in force as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntrustedFile {
    /// The file.
    pub file: PathBuf,
    /// Whether it is in force as it was when it was trusted.
    pub(crate) trusted_version_in_force: bool,
    /// Distrust.
    pub(crate) reason: UntrustedReason,
}

/// Distrust a project's file is not in force as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UntrustedReason {
    /// Nobody has looked at it.
    New,
    /// It is not what was looked at.
    Changed,
    /// It could not be trusted as it lies there, or cannot be read; in words.
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
    /// The folder as one word of a shell.
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

/// The path a file is trusted under. Links on the way are followed, so that another way to the folder
/// is no other project. A link in the place of the file is not: what it leads to is run in this folder.
///
/// # Errors
/// Those of the folder.
pub fn trusted_path(file: &Path) -> io::Result<PathBuf> {
    let folder = file.parent().filter(|p| !p.as_os_str().is_empty());
    let folder = fs::canonicalize(folder.unwrap_or(Path::new(".")))?;
    Ok(folder.join(file.file_name().unwrap_or_default()))
}

/// What the bytes of a file are known by.
#[must_use]
pub fn hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// Reads a project's file once and says whether those bytes hold. Where they do not, but `held` is what
/// was trusted, that stays in force.
#[must_use]
pub fn evaluate(file: &Path, store: &TrustStore, held: Option<&str>) -> ProjectFile {
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
    // What cannot be read takes nothing back.
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

/// The text of a file that could be trusted: a plain file that nobody but this user and root can
/// change or swap, itself or by a folder on the way to it. `place` is a [`trusted_path`].
///
/// # Errors
/// In words, why it could not.
pub fn read_checked(place: &Path) -> Result<String, String> {
    let mut options = OpenOptions::new();
    // Nothing that lies there, a pipe or a terminal, holds up who looks at it.
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

    /// Two projects and what is trusted.
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
    fn what_was_looked_at_holds_and_nothing_else() {
        let world = World::new();
        let file = world.file("one");
        fs::write(&file, "a = 1\n").unwrap();
        assert_eq!(why(&world.judged(&file, None)), UntrustedReason::New);
        world.trust(&file, "a = 1\n");
        assert_eq!(world.judged(&file, None).effective_text.unwrap(), "a = 1\n");
        fs::write(&file, "a = 2\n").unwrap();
        assert_eq!(why(&world.judged(&file, None)), UntrustedReason::Changed);
        // What was trusted stays, and nothing that is merely remembered.
        let held = world.judged(&file, Some("a = 1\n"));
        assert_eq!(held.effective_text.as_deref(), Some("a = 1\n"));
        assert!(held.untrusted.unwrap().trusted_version_in_force);
        assert_eq!(
            why(&world.judged(&file, Some("a = 2\n"))),
            UntrustedReason::Changed
        );
        // A damaged store takes nothing back, and trusts nothing new.
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

    /// Another way to the folder is the same project; a link to a trusted file is another one, for what
    /// is run lies beside the link.
    #[test]
    fn a_project_is_a_folder_whatever_way_leads_there() {
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
    fn what_everybody_can_write_is_not_trusted() {
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

    /// Whoever may write to a folder above swaps the project for another one; a sticky folder, like the
    /// one for temporary files, keeps what is another's.
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
    fn whatever_lies_there_is_told_and_never_waited_for() {
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
