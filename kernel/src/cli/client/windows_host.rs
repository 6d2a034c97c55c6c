//! The Windows that this WSL runs on: where its clients have their files.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mgp_clients::{Platform, UserFolders, WindowsDrives};
use mgp_runtime::run_bounded;

/// Starting a program of Windows takes some 100 ms; without interoperability it fails at once.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Paths have at most 32,767 characters.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Windows and its user, as seen from here.
#[derive(Clone, Debug)]
pub(in crate::cli) struct WindowsHost {
    /// The folders of the user.
    pub(in crate::cli) folders: UserFolders,
    /// The drives.
    pub(in crate::cli) drives: WindowsDrives,
    /// The name of this WSL.
    pub(in crate::cli) distribution: String,
}

impl WindowsHost {
    /// `None` outside of WSL, and where it runs no programs of Windows.
    pub(super) fn detect() -> Option<Self> {
        let distribution = std::env::var("WSL_DISTRO_NAME").ok()?;
        if distribution.is_empty() {
            return None;
        }
        // No path has a question mark.
        let variables = "%USERPROFILE%?%APPDATA%";
        let folders = output_of(Command::new("cmd.exe").args(["/d", "/c", "echo", variables]))?;
        let (home, config) = folders.split_once('?')?;
        let root = output_of(Command::new("wslpath").args(["-u", "C:\\"]))?;
        let root = Path::new(root.trim_end_matches('/')).parent()?.to_owned();
        let drives = WindowsDrives { root };
        let home = drives.to_linux(home)?;
        Some(Self {
            folders: UserFolders {
                config: drives.to_linux(config)?,
                codex: home.join(".codex"),
                home,
                platform: Platform::Windows,
            },
            drives,
            distribution,
        })
    }

    /// Whether a file is on a drive of Windows.
    pub(in crate::cli) fn has(&self, path: &Path) -> bool {
        let mut parts = path.strip_prefix(&self.drives.root).into_iter().flatten();
        parts.next().is_some_and(|drive| drive.len() == 1)
    }
}

/// The first line of its output.
fn output_of(command: &mut Command) -> Option<String> {
    // Elsewhere it complains about a folder that is none of Windows.
    let folder: PathBuf = "/".into();
    let output = run_bounded(command.current_dir(folder), TIMEOUT, OUTPUT_BYTES_MAX).ok()?;
    let is_complete = output.status.is_some_and(|status| status.success());
    let text = String::from_utf8(output.stdout)
        .ok()
        .filter(|_| is_complete)?;
    text.lines().next().map(|line| line.trim().to_owned())
}
