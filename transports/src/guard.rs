//! Nobody is left behind when the kernel is killed: a process that outlives it ends its servers.
//!
//! The guard is the kernel's own program, started again with a hidden argument. It reads lines
//! from a pipe that only the kernel holds: `mark <mark>` once, `+ <group>` and `- <group>` as
//! servers come and go, `bye` before an orderly end. When the pipe closes without a `bye` the
//! kernel is dead. Servers started in its last moment are found by their mark.
//!
//! Where the guard is killed together with its kernel, the next kernel on the same data finds what both
//! left by the mark alone ([`sweep`]).

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

/// How long the guard may take to leave after `bye`.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The kernel's end of a guard. Dropped, it lets the guard go without harm to the servers, which
/// another guard may by then be watching.
#[derive(Debug)]
pub struct Guard {
    process: Child,
    line: PipeWriter,
}

impl Guard {
    /// Starts `exe args…`, which has to call [`run`] on its stdin. Needs a tokio runtime.
    /// `/proc/self/exe` is an `exe` that survives an upgrade of the file.
    ///
    /// # Errors
    /// Those of starting a process.
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

    /// Puts a process group under guard, at once and without waiting.
    ///
    /// # Errors
    /// The guard is dead, or has been stopped and its pipe is full: start another.
    pub fn watch(&self, group: i32) -> io::Result<()> {
        self.write_line(format_args!("+ {group}\n"))
    }

    /// Takes a group that has ended out of guard.
    ///
    /// # Errors
    /// As of [`Guard::watch`].
    pub fn unwatch(&self, group: i32) -> io::Result<()> {
        self.write_line(format_args!("- {group}\n"))
    }

    /// The number of the guard's process; `None` once it was seen to have ended.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.id()
    }

    /// Waits until the guard has died. May be dropped and called again.
    ///
    /// # Errors
    /// Those of waiting for a process.
    pub async fn exited(&mut self) -> io::Result<ExitStatus> {
        self.process.wait().await
    }

    /// Sends the guard home, and waits a second for it to go.
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
    /// A guard that cannot hear the `bye` would take the end of its pipe for the kernel's death.
    fn drop(&mut self) {
        if self.write_line(format_args!("bye\n")).is_err() {
            let _ = self.process.start_kill();
        }
    }
}
