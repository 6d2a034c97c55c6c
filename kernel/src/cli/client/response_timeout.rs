//! Detects a kernel that does not answer.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mgp_platform::processes::{ProcessIdentity, ProcessState};

use crate::cli::failure::Failure;

/// Limit for the kernel's answer to `initialize`.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of checks while it is silent.
pub(in crate::cli) const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Consecutive checks that must find it stopped: a debugger may stop it for a shorter time.
const STOPPED_POLLS_MAX: u32 = 4;

/// The time since the last message of a kernel.
pub(in crate::cli) struct ResponseTimer {
    socket: PathBuf,
    process: Option<ProcessIdentity>,
    started_at: Instant,
    stopped_polls: u32,
}

impl ResponseTimer {
    /// The kernel at this socket, with its process if known.
    pub(in crate::cli) fn start(socket: &Path, pid: Option<i32>) -> Self {
        Self {
            socket: socket.to_owned(),
            process: pid.map(ProcessIdentity::from_pid),
            started_at: Instant::now(),
            stopped_polls: 0,
        }
    }

    /// Called after each [`POLL_INTERVAL`] without a message.
    ///
    /// # Errors
    /// If the kernel was stopped, or took too long.
    pub(in crate::cli) fn check(&mut self) -> Result<(), Failure> {
        let stopped = |process: &ProcessIdentity| process.state() == ProcessState::Stopped;
        self.stopped_polls = if self.process.as_ref().is_some_and(stopped) {
            self.stopped_polls + 1
        } else {
            0
        };
        if self.stopped_polls >= STOPPED_POLLS_MAX || self.started_at.elapsed() >= RESPONSE_TIMEOUT
        {
            Err(self.failure())
        } else {
            Ok(())
        }
    }

    fn failure(&self) -> Failure {
        let told = match (&self.process, self.stopped_polls) {
            (Some(process), 1..) => {
                let pid = process.pid();
                format!(
                    "the kernel (process {pid}) does not answer; it is stopped: kill -CONT {pid}"
                )
            }
            (Some(process), 0) => format!(
                "the kernel (process {}) at {} has not answered within {} s; it writes what is \
                 wrong to its terminal, or to kernel.log in its data folder",
                process.pid(),
                self.socket.display(),
                RESPONSE_TIMEOUT.as_secs()
            ),
            (None, _) => format!(
                "the kernel at {} took no connection within {} s: it is stopped (`kill -CONT` and \
                 its process makes it go on), or more wait than it can take",
                self.socket.display(),
                RESPONSE_TIMEOUT.as_secs()
            ),
        };
        Failure::Other(told)
    }
}
