//! A process by its number, which is reused once the process was reaped.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Exact for a child that was not reaped yet; for other processes the caller verifies the start time right before.
#[derive(Debug)]
pub struct ProcessHandle(Pid);

impl ProcessHandle {
    /// The process that has this number now.
    #[must_use]
    pub fn open(pid: Pid) -> Self {
        Self(pid)
    }

    /// Signals this process.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(self.0, signal);
    }
}
