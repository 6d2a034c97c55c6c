//! The `PATH` of the user's shell, with the additions of nvm, mise, pyenv and others.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::unistd::{User, geteuid};

use mgp_runtime::run_bounded;

/// Limit for the shell's startup files: a client waits for the kernel meanwhile.
const SHELL_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest output that is read, in bytes, including that of startup files.
const OUTPUT_MAX: usize = 1 << 20;
/// Precedes the environment: startup files may print, too.
const OUTPUT_MARKER: &str = "mgp-environment";

/// Runs the user's shell as a terminal does; `None` on failure.
pub(super) fn login_shell_path() -> Option<OsString> {
    let account = || Some(User::from_uid(geteuid()).ok()??.shell);
    let shell = env::var_os("SHELL").map(PathBuf::from).or_else(account)?;
    path_of_shell(&shell)
}

fn path_of_shell(shell: &PathBuf) -> Option<OsString> {
    let script = format!("printf '{OUTPUT_MARKER}\\0'; /usr/bin/env -0");
    let mut command = Command::new(shell);
    // nvm and others are in the files of interactive shells, further ones in those of login shells.
    command.args(["-l", "-i", "-c", &script]);
    // The socket of the service manager is not for the shell.
    command.env_remove("LISTEN_FDS").env_remove("LISTEN_PID");
    let output = run_bounded(&mut command, SHELL_TIMEOUT, OUTPUT_MAX).ok()?;
    parse_path(&output.stdout)
}

fn parse_path(output: &[u8]) -> Option<OsString> {
    let marker = format!("{OUTPUT_MARKER}\0").into_bytes();
    let at = output
        .windows(marker.len())
        .rposition(|part| part == marker.as_slice())?;
    let mut variables = output[at + marker.len()..].split(|byte| *byte == 0);
    let path = variables.find_map(|variable| variable.strip_prefix(b"PATH="))?;
    (!path.is_empty()).then(|| OsString::from_vec(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_path_is_found_after_other_output() {
        let output = b"welcome PATH=/no\nmgp-environment\0A=1\0PATH=/a:/b c\0B=2\0";
        assert_eq!(parse_path(output), Some("/a:/b c".into()));
        assert_eq!(parse_path(b"PATH=/a\0"), None);
        assert_eq!(parse_path(b"mgp-environment\0PATH=\0"), None);
    }

    /// Additions of startup files are found with any shell.
    #[test]
    fn the_shell_is_started_as_by_a_terminal() {
        let folder = tempfile::tempdir().unwrap();
        let shell = folder.path().join("shell");
        let text = "#!/bin/sh\n[ \"$1 $2 $3\" = '-l -i -c' ] || exit 1\necho hello\nPATH=/nvm:$PATH\nexport PATH\neval \"$4\"\n";
        fs::write(&shell, text).unwrap();
        fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
        let path = path_of_shell(&shell).unwrap();
        assert!(path.to_string_lossy().starts_with("/nvm:"), "{path:?}");
        assert_eq!(path_of_shell(&"/nowhere/shell".into()), None);
    }
}
