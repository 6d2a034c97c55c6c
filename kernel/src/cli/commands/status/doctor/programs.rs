//! Checks that the kernel finds the programs that start servers.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use mgp_engine::servers::spec::ServerTransport;

use super::environment::process_environment;
use super::finding::Finding;
use super::{CheckContext, PLACEHOLDER_VALUE};

const AREA: &str = "programs";

/// Installation hints for programs that are often missing.
const INSTALL_HINTS: [(&str, &str); 6] = [
    ("npx", "install Node.js: https://nodejs.org"),
    ("node", "install Node.js: https://nodejs.org"),
    ("uvx", "install uv: https://docs.astral.sh/uv"),
    ("uv", "install uv: https://docs.astral.sh/uv"),
    (
        "docker",
        "install Docker: https://docs.docker.com/engine/install",
    ),
    ("bunx", "install Bun: https://bun.sh"),
];

pub(super) fn check(cx: &CheckContext<'_>) -> Vec<Finding> {
    let own = std::env::var_os("PATH").unwrap_or_default();
    let kernels = cx
        .status
        .as_ref()
        .and_then(|status| process_path(status.pid));
    let path = kernels.as_deref().unwrap_or(&own);
    let mut found = Vec::new();
    let mut good = 0;
    for server in cx.loaded.servers.iter().flatten() {
        let ServerTransport::Stdio { command, env, .. } = &server.transport else {
            continue;
        };
        if command.contains(PLACEHOLDER_VALUE) {
            continue;
        }
        let its_own = env.get("PATH").map(OsString::from);
        if find_program(command, its_own.as_deref().unwrap_or(path)).is_some() {
            good += 1;
            continue;
        }
        let message = format!(
            "{} is started with `{command}`, which is not there",
            server.id
        );
        found.push(match find_program(command, &own) {
            Some(place) if kernels.is_some() => Finding::broken(
                AREA,
                format!("{message} for the kernel; here it is {}", place.display()),
            )
            .with_command("mgp down && mgp up --detach, or mgp service install"),
            Some(_) | None => match INSTALL_HINTS.iter().find(|(name, _)| name == command) {
                Some((_, remedy)) => Finding::broken(AREA, message).with_command(*remedy),
                None => Finding::broken(AREA, message),
            },
        });
    }
    if found.is_empty() && good > 0 {
        found.push(Finding::good(
            AREA,
            format!("all {good} that servers are started with are there"),
        ));
    }
    found
}

/// The `PATH` of a running process of this user.
fn process_path(pid: u32) -> Option<OsString> {
    let mut variables = process_environment(pid)?.into_iter();
    variables.find_map(|(name, path)| (name == "PATH").then_some(path))
}

/// The path of a program, as a process with this `PATH` finds it.
pub(in crate::cli::commands) fn find_program(command: &str, path: &OsStr) -> Option<PathBuf> {
    let runs = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    if command.contains('/') {
        return Some(Path::new(command).to_owned()).filter(runs);
    }
    std::env::split_paths(path)
        .map(|folder| folder.join(command))
        .find(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_an_executable_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("npx");
        fs::write(&file, "").unwrap();
        let path = folder.path().as_os_str().to_owned();
        assert_eq!(find_program("npx", &path), None);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find_program("npx", &path).as_ref(), Some(&file));
        assert_eq!(
            find_program(&file.to_string_lossy(), OsStr::new("")),
            Some(file)
        );
        assert_eq!(find_program("uvx", &path), None);
        assert!(process_path(std::process::id()).is_some());
    }
}
