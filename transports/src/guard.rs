//! A process that outlives a killed kernel and ends its servers.
//!
//! The guard is the kernel's own program, started again with a hidden argument. It reads lines from a pipe that only
//! the kernel holds: `mark <mark>` once, `+ <group>` and `- <group>` as servers start and end, `bye` before an orderly
//! end. When the pipe closes without a `bye` the kernel is dead. Servers started in its last moment are found by their
//! mark.
//!
//! If the guard is killed together with its kernel, the next kernel on the same data finds the remaining processes by
//! the mark alone ([`sweep`]).

mod sweep;
mod watch;

use std::io::{self, PipeWriter, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tokio::process::{Child, Command};
use tokio::time::timeout;

pub use sweep::{SweepReport, sweep};
pub use watch::run;

/// How long the guard may take to exit after `bye`.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The kernel's end of a guard. Dropping it ends the guard without harm to the servers, which another guard may already
/// watch.
#[derive(Debug)]
pub struct Guard {
    process: Child,
    line: PipeWriter,
}

impl Guard {
    /// Starts `exe args…`, which has to call [`run`] on its stdin. Needs a tokio runtime. [`own_program`] survives
    /// an upgrade of the file, if the system permits it.
    ///
    /// [`own_program`]: mgp_platform::processes::own_program
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(exe: &Path, args: &[&str], mark: &str) -> io::Result<Self> {
        let (stdin, line) = io::pipe()?;
        fcntl(line.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let process = Command::new(exe)
            .args(args)
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .stdin(stdin)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let guard = Self { process, line };
        guard.write_line(format_args!("mark {mark}\n"))?;
        Ok(guard)
    }

    /// Adds a process group, at once and without waiting.
    ///
    /// # Errors
    /// The guard is dead, or stopped with a full pipe: start another one.
    pub fn watch(&self, group: i32) -> io::Result<()> {
        self.write_line(format_args!("+ {group}\n"))
    }

    /// Removes a group that has ended.
    ///
    /// # Errors
    /// As of [`Guard::watch`].
    pub fn unwatch(&self, group: i32) -> io::Result<()> {
        self.write_line(format_args!("- {group}\n"))
    }

    /// The guard's pid; `None` once it was found to have ended.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.id()
    }

    /// Waits until the guard has died. Cancel safe.
    ///
    /// # Errors
    /// The system call failed.
    pub async fn exited(&mut self) -> io::Result<ExitStatus> {
        self.process.wait().await
    }

    /// Ends the guard, and waits up to a second for its exit.
    pub async fn dismiss(mut self) {
        if self.write_line(format_args!("bye\n")).is_ok() {
            let _ = timeout(EXIT_TIMEOUT, self.process.wait()).await;
        }
    }

    /// A line is shorter than `PIPE_BUF`, so it is written whole or not at all.
    fn write_line(&self, line: std::fmt::Arguments<'_>) -> io::Result<()> {
        (&self.line).write_all(line.to_string().as_bytes())
    }
}

impl Drop for Guard {
    /// A guard that cannot receive the `bye` would take the end of its pipe for the kernel's death.
    fn drop(&mut self) {
        if self.write_line(format_args!("bye\n")).is_err() {
            let _ = self.process.start_kill();
        }
    }
}
