//! The interpreters for registered programs.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

/// The interpreters that the operator configured. Others are looked up in the kernel's `PATH`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interpreters {
    /// For Python. The interpreter of a virtual environment has its packages.
    pub python: Option<PathBuf>,
    /// For JavaScript.
    pub node: Option<PathBuf>,
}

/// The usual name of an interpreter, without its version, and its commands.
const NAMES: [(&str, &[&str]); 2] = [
    ("python", &["python3", "python"]),
    ("node", &["node", "nodejs"]),
];

impl Interpreters {
    /// The usual name for a command: `python` also for the absolute path of the operator's interpreter, which an agent
    /// that runs on it may send.
    #[must_use]
    pub(crate) fn usual_name(&self, command: &str) -> Option<&'static str> {
        let path = Path::new(command);
        NAMES.iter().find_map(|(name, names)| {
            let folder = self.configured_path(name).and_then(Path::parent);
            let file = path.file_name().and_then(|file| file.to_str());
            // The same interpreter, under longer names in the same folder.
            let in_folder = folder.is_some() && path.parent() == folder;
            let is_variant = in_folder && file.is_some_and(|file| file.starts_with(name));
            (is_variant || names.contains(&command)).then_some(*name)
        })
    }

    /// The path of the interpreter with this usual name. Blocks.
    #[must_use]
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        if let Some(path) = self.configured_path(name) {
            return Some(path.to_owned());
        }
        let (_, names) = NAMES.iter().find(|(usual, _)| *usual == name)?;
        let path = std::env::var_os("PATH")?;
        let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let folders = folders.iter().filter(|folder| folder.is_absolute());
        let mut candidates = folders.flat_map(|folder| names.iter().map(|name| folder.join(name)));
        candidates.find(|path| is_program(path))
    }

    fn configured_path(&self, name: &str) -> Option<&Path> {
        match name {
            "python" => self.python.as_deref(),
            "node" => self.node.as_deref(),
            _ => None,
        }
    }
}

/// Whether it is a program, not a script that looks one up (as version managers install them): such a script would
/// have to start a process, which the sandbox forbids.
fn is_program(path: &Path) -> bool {
    let mut start = [0; 2];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && &start != b"#!" && access(path, AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_is_known_by_its_usual_names_and_its_own_path() {
        let interpreters = Interpreters {
            python: Some("/srv/venv/bin/python".into()),
            node: None,
        };
        for command in [
            "python",
            "python3",
            "/srv/venv/bin/python",
            "/srv/venv/bin/python3.12",
        ] {
            assert_eq!(
                interpreters.usual_name(command),
                Some("python"),
                "{command}"
            );
        }
        assert_eq!(interpreters.usual_name("nodejs"), Some("node"));
        for command in [
            "/usr/bin/python",
            "/srv/venv/bin/pip",
            "python3.12",
            "uvx",
            "",
            "/",
        ] {
            assert_eq!(interpreters.usual_name(command), None, "{command}");
        }
        assert_eq!(interpreters.find("python"), interpreters.python);
        assert_eq!(interpreters.find("ruby"), None);
    }

    #[test]
    fn a_script_is_no_interpreter() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str, mode| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        assert!(is_program(&write("python3", "\u{7f}ELF", 0o755)));
        assert!(!is_program(&write("shim", "#!/bin/sh\n", 0o755)));
        assert!(!is_program(&write("text", "\u{7f}ELF", 0o644)) || nix::unistd::getuid().is_root());
        assert!(!is_program(&folder.path().join("absent")));
    }
}
