//! A process that cannot be mistaken for a later one with its number.

use std::os::fd::OwnedFd;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

/// A pidfd; `None` if the system has none, or the process was reaped.
#[derive(Debug)]
pub struct ProcessHandle(Option<OwnedFd>);

impl ProcessHandle {
    /// The process that has this number now.
    #[must_use]
    pub fn open(pid: Pid) -> Self {
        let pid = rustix::process::Pid::from_raw(pid.as_raw());
        Self(pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()))
    }

    /// Signals exactly this process.
    pub fn signal(&self, signal: Signal) {
        let number = rustix::process::Signal::from_named_raw(signal as i32);
        if let (Some(handle), Some(number)) = (&self.0, number) {
            let _ = pidfd_send_signal(handle, number);
        }
    }
}
