//! Finds the program of a server, or explains what is missing.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

/// Searched when the child has no `PATH`.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// No folder of `PATH` has the program.
    #[error("there is no program {command:?} in PATH ({searched}){hint}")]
    NotFound {
        /// The name looked for.
        command: String,
        /// The searched folders, separated by colons.
        searched: String,
        /// Where the program usually comes from, or empty.
        hint: &'static str,
    },
    /// There is no file at the path, or it is a folder.
    #[error("there is no program at {}", .0.display())]
    NoSuchFile(PathBuf),
    /// The file is not executable.
    #[error("{} is not executable (`chmod +x` makes it so)", .0.display())]
    NotExecutable(PathBuf),
    /// The working folder is missing, no folder, or cannot be entered.
    #[error("the working folder {} cannot be entered: {why}", path.display())]
    BadFolder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// The program is a script whose interpreter is missing, or is built for another system.
    #[error("{} is there, but what its first line or its header asks for is not", .0.display())]
    NoInterpreter(PathBuf),
    /// Another error of the system: no processes or descriptors left, a NUL in an argument, a file that is no program.
    #[error("{} cannot be started: {why}", path.display())]
    System {
        /// The program.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
}

/// The path of `command` as the child would find it; validates the working folder.
pub(super) fn find(
    command: &str,
    path: Option<&OsStr>,
    cwd: Option<&Path>,
) -> Result<PathBuf, SpawnError> {
    if let Some(cwd) = cwd {
        check_folder(cwd)?;
    }
    if command.contains('/') {
        return check_executable(resolve_path(cwd, command.as_ref()));
    }
    let path = path.unwrap_or(USUAL_PATH.as_ref());
    let mut found = None;
    // An empty entry means the working folder, where nobody expects programs.
    for folder in std::env::split_paths(path).filter(|folder| !folder.as_os_str().is_empty()) {
        match check_executable(resolve_path(cwd, &folder.join(command))) {
            Ok(program) => return Ok(program),
            Err(error @ SpawnError::NotExecutable(_)) => found = found.or(Some(error)),
            Err(_) => {}
        }
    }
    Err(found.unwrap_or_else(|| SpawnError::NotFound {
        command: command.to_owned(),
        searched: path.to_string_lossy().into_owned(),
        hint: hint(command),
    }))
}

fn resolve_path(cwd: Option<&Path>, path: &Path) -> PathBuf {
    cwd.map_or_else(|| path.to_owned(), |cwd| cwd.join(path))
}

fn check_executable(path: PathBuf) -> Result<PathBuf, SpawnError> {
    if !path.is_file() {
        return Err(SpawnError::NoSuchFile(path));
    }
    if access(&path, AccessFlags::X_OK).is_err() {
        return Err(SpawnError::NotExecutable(path));
    }
    std::path::absolute(&path).map_err(|why| SpawnError::System { path, why })
}

fn check_folder(cwd: &Path) -> Result<(), SpawnError> {
    let bad = |why| SpawnError::BadFolder {
        path: cwd.to_owned(),
        why,
    };
    if !cwd.metadata().map_err(bad)?.is_dir() {
        return Err(bad(io::ErrorKind::NotADirectory.into()));
    }
    access(cwd, AccessFlags::X_OK).map_err(|errno| bad(errno.into()))
}

/// Explains a failed start of a program that was found.
pub(super) fn explain_failure(program: &Path, why: io::Error) -> SpawnError {
    let path = program.to_owned();
    if why.kind() == io::ErrorKind::NotFound {
        return SpawnError::NoInterpreter(path);
    }
    SpawnError::System { path, why }
}

fn hint(command: &str) -> &'static str {
    match command {
        "npx" | "npm" | "node" => "; it comes with Node.js, which is not installed or not in PATH",
        "uvx" | "uv" => {
            "; it comes with uv (docs.astral.sh/uv), which is not installed or not in PATH"
        }
        "python" | "python3" | "pip" | "pipx" => "; Python is not installed or not in PATH",
        "docker" | "podman" => "; a container engine is not installed or not in PATH",
        "bun" | "bunx" => "; Bun is not installed or not in PATH",
        "deno" => "; Deno is not installed or not in PATH",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(command: &str, path: &str, cwd: Option<&Path>) -> String {
        find(command, Some(path.as_ref()), cwd)
            .unwrap_err()
            .to_string()
    }

    /// CMCP-072: each failure names its cause.
    #[test]
    fn a_missing_program_is_explained() {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("plain");
        std::fs::write(&plain, "").unwrap();
        let path = folder.path().to_str().unwrap();
        assert_eq!(
            error("npx", "/a:/b", None),
            "there is no program \"npx\" in PATH (/a:/b); it comes with Node.js, which is not \
             installed or not in PATH"
        );
        let not_executable = format!("{path}/plain is not executable (`chmod +x` makes it so)");
        assert_eq!(error("plain", path, None), not_executable);
        assert_eq!(
            error("./plain", "", Some(folder.path())),
            format!("{path}/./plain{}", &not_executable[path.len() + 6..])
        );
        assert_eq!(
            error("/no/such", "", None),
            "there is no program at /no/such"
        );
        assert!(error("sh", "/bin", Some(&plain)).contains("cannot be entered"));
        assert!(error("sh", "/bin", Some(Path::new("/no/such"))).contains("cannot be entered"));
    }

    #[test]
    fn the_first_program_in_path_is_used_and_the_working_folder_is_never_searched() {
        let program = find("sh", Some("/no/such:/bin:/usr/bin".as_ref()), None).unwrap();
        assert_eq!(program, Path::new("/bin/sh"));
        assert!(find("sh", Some("".as_ref()), Some("/bin".as_ref())).is_err());
    }
}
