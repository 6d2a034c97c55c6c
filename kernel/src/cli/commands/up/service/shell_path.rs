//! The `PATH` of the user's shell, with what nvm, mise, pyenv and others add to it in its files.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::unistd::{User, geteuid};

use mgp_runtime::bounded_output::run_bounded;

/// How long the files of a shell may take: a client waits for the kernel meanwhile.
const SHELL_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest environment that is read, in bytes, with what the files print before.
const OUTPUT_MAX: usize = 1 << 20;
/// Stands before the environment: files of a shell may print, too.
const OUTPUT_MARKER: &str = "mgp-environment";

/// Asks the user's shell, as a terminal would start it; `None` when it does not say.
pub(super) fn login_shell_path() -> Option<OsString> {
    let account = || Some(User::from_uid(geteuid()).ok()??.shell);
    let shell = env::var_os("SHELL").map(PathBuf::from).or_else(account)?;
    path_of_shell(&shell)
}

fn path_of_shell(shell: &PathBuf) -> Option<OsString> {
    let script = format!("printf '{OUTPUT_MARKER}\\0'; /usr/bin/env -0");
    let mut command = Command::new(shell);
    // nvm and its like are in what an interactive shell reads, others in what a login shell reads.
    command.args(["-l", "-i", "-c", &script]);
    // It is no program that the service manager has handed a socket to.
    command.env_remove("LISTEN_FDS").env_remove("LISTEN_PID");
    let output = run_bounded(&mut command, SHELL_TIMEOUT, OUTPUT_MAX).ok()?;
    parse_path(&output.stdout)
}

fn parse_path(output: &[u8]) -> Option<OsString> {
    let mark = format!("{OUTPUT_MARKER}\0").into_bytes();
    let at = output
        .windows(mark.len())
        .rposition(|part| part == mark.as_slice())?;
    let mut variables = output[at + mark.len()..].split(|byte| *byte == 0);
    let path = variables.find_map(|variable| variable.strip_prefix(b"PATH="))?;
    (!path.is_empty()).then(|| OsString::from_vec(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_path_is_found_behind_what_a_shell_prints() {
        let output = b"welcome PATH=/no\nmgp-environment\0A=1\0PATH=/a:/b c\0B=2\0";
        assert_eq!(parse_path(output), Some("/a:/b c".into()));
        assert_eq!(parse_path(b"PATH=/a\0"), None);
        assert_eq!(parse_path(b"mgp-environment\0PATH=\0"), None);
    }

    /// What the files of a shell add is there, whichever shell it is.
    #[test]
    fn a_shell_is_asked_as_a_terminal_starts_it() {
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
