//! The step of the launcher that this process runs, and the variables passed on to the server.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use mgp_transports::child::{MARK_VARIABLE, SERVER_PREFIX};

use super::LAUNCH_ARG;

/// The variable that names the step.
const STEP_VAR: &str = "MGP_SANDBOX_STEP";

/// A step of the launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Supervises the server.
    Leader,
    /// The first process of the PID namespace.
    Init,
    /// Becomes the server.
    Inside,
}

impl Step {
    const NAMES: [(&str, Self); 2] = [("init", Self::Init), ("inside", Self::Inside)];

    pub(super) fn current() -> Self {
        let name = env::var(STEP_VAR).unwrap_or_default();
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map_or(Self::Leader, |(_, step)| *step)
    }

    /// The command that runs this program as another step, for the same server.
    pub(super) fn command(self, exe: &Path) -> Command {
        let mut command = Command::new(exe);
        let name = Self::NAMES.iter().find(|(_, step)| *step == self);
        command
            .arg(LAUNCH_ARG)
            .env(STEP_VAR, name.map_or("", |(n, _)| *n));
        command
    }
}

/// The server's environment, under its own names.
pub(super) fn environment() -> impl Iterator<Item = (OsString, OsString)> {
    env::vars_os().filter_map(|(name, value)| {
        let own = name.as_bytes().strip_prefix(SERVER_PREFIX.as_bytes());
        let name_bytes = own.or_else(|| (name == MARK_VARIABLE).then_some(name.as_bytes()))?;
        Some((std::ffi::OsStr::from_bytes(name_bytes).to_owned(), value))
    })
}
