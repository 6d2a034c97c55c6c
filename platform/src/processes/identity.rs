//! The state of a process as the system reports it: running, stopped or ended.

use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::process::ProcessState;
use crate::system::table;

/// A process, distinguished from a later one with the same id by its start time.
#[derive(Clone, Copy, Debug)]
pub struct ProcessIdentity {
    pid: i32,
    /// In the units of the process table; `None` if the system does not report it.
    started: Option<u64>,
}

impl ProcessIdentity {
    /// The process that has this id now.
    #[must_use]
    pub fn from_pid(pid: i32) -> Self {
        let started = table::read_state(Pid::from_raw(pid)).map(|(_, started)| started);
        Self { pid, started }
    }

    /// Its id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Its state now.
    #[must_use]
    pub fn state(&self) -> ProcessState {
        match (table::read_state(Pid::from_raw(self.pid)), self.started) {
            (Some((_, now)), Some(then)) if !table::is_same_start(now, then) => {
                ProcessState::Exited
            }
            (Some(_), None) => ProcessState::Exited,
            (Some((state, _)), Some(_)) => state,
            (None, _) if table::is_readable() => ProcessState::Exited,
            // Without a process table only the process id can be tested.
            (None, _) => match kill(Pid::from_raw(self.pid), None) {
                Ok(()) => ProcessState::Running,
                Err(_) => ProcessState::Exited,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::sys::signal::Signal;
    use nix::sys::wait::{WaitPidFlag, waitpid};

    use super::*;

    /// A process is followed from running over stopped to its end, before its parent waits for it.
    #[test]
    fn a_zombie_counts_as_ended() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id().cast_signed();
        let process = ProcessIdentity::from_pid(pid);
        assert_eq!(process.state(), ProcessState::Running);
        let system = Pid::from_raw(pid);
        kill(system, Signal::SIGSTOP).unwrap();
        waitpid(system, Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert_eq!(process.state(), ProcessState::Stopped);
        kill(system, Signal::SIGKILL).unwrap();
        while process.state() != ProcessState::Exited {
            std::thread::yield_now();
        }
        assert!(kill(system, None).is_ok(), "its number is still taken");
        child.wait().unwrap();
        assert_eq!(process.state(), ProcessState::Exited);
    }
}
