//! The launcher of a sandboxed server: this program, started again with a hidden argument. Plain code
//! without a runtime: what one thread gives up, its other threads would keep.
//!
//! Between fork and exec there is no safe code, so each step is a process of its own:
//!
//! ```text
//! leader   stays above the server, which it starts and whose end it tells       leader.rs
//!  ├ init    the first process of the server's own process namespace            init.rs
//!  └ inside  shuts the last doors and becomes the server                        inside.rs
//! ```

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use mgp_engine::servers::sandbox::SandboxPolicy;
use mgp_transports::child::{FOR_SERVER, MARK_VARIABLE};

use super::{LAUNCH, POLICY, init, inside, leader};

/// Which step this process is.
const STEP: &str = "MGP_SANDBOX_STEP";

/// One step of the launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Leader,
    Init,
    Inside,
}

impl Step {
    const NAMED: [(&str, Self); 2] = [("init", Self::Init), ("inside", Self::Inside)];

    fn of_this_process() -> Self {
        let name = env::var(STEP).unwrap_or_default();
        let found = Self::NAMED.iter().find(|(known, _)| *known == name);
        found.map_or(Self::Leader, |(_, step)| *step)
    }

    /// This program as another step, for the same server.
    pub(super) fn command(self, exe: &Path) -> Command {
        let mut command = Command::new(exe);
        let name = Self::NAMED.iter().find(|(_, step)| *step == self);
        command.arg(LAUNCH).env(STEP, name.map_or("", |(n, _)| *n));
        command
    }
}

/// Starts the server in its sandbox: the program's path, its name, its arguments; an empty path starts
/// nothing once all is shut. Answers the code to exit with when the server has ended.
///
/// # Errors
/// In words, why the server was not started.
pub fn launch(command: &[OsString]) -> Result<u8, String> {
    let policy = env::var(POLICY).map_err(|_| "it has no policy".to_owned());
    let policy = policy.and_then(|text| {
        serde_json::from_str::<SandboxPolicy>(&text)
            .map_err(|e| format!("its policy cannot be read: {e}"))
    });
    let done = policy.and_then(|policy| match (Step::of_this_process(), command) {
        (Step::Init, _) => init::run(&policy),
        (Step::Leader, [_, _, ..]) => leader::run(&policy, command),
        (Step::Inside, [program, name, args @ ..]) => {
            Err(inside::become_server(&policy, program, name, args))
        }
        (Step::Leader | Step::Inside, _) => Err("it wants a program and its name".into()),
    });
    done.map_err(|why| format!("the sandbox cannot be closed, so the server is not started: {why}"))
}

/// The server's variables, under their own names.
pub(super) fn environment() -> impl Iterator<Item = (OsString, OsString)> {
    env::vars_os().filter_map(|(name, value)| {
        let own = name.as_bytes().strip_prefix(FOR_SERVER.as_bytes());
        let kept = own.or_else(|| (name == MARK_VARIABLE).then_some(name.as_bytes()))?;
        Some((std::ffi::OsStr::from_bytes(kept).to_owned(), value))
    })
}
