//! The step of the launcher that this process runs.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::launch::LAUNCH_ARGUMENT;

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
            .arg(LAUNCH_ARGUMENT)
            .env(STEP_VAR, name.map_or("", |(n, _)| *n));
        command
    }
}
