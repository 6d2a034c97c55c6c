//! The state of a process as the system reports it: running, stopped or ended.

use std::fs;
use std::io;
use std::path::Path;

use nix::sys::signal::kill;
use nix::unistd::Pid;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessState {
    /// It is runnable or waits.
    Running,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// It has ended; zombies count as ended.
    Exited,
}

/// A process, distinguished from a later one with the same id by its start time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessIdentity {
    pid: i32,
    /// In clock ticks since boot; `None` if the system does not report it.
    start_ticks: Option<u64>,
}

impl ProcessIdentity {
    /// The process that has this id now.
    pub(crate) fn from_pid(pid: i32) -> Self {
        let start_ticks = read_stat(pid).ok().and_then(|stat| stat.start_ticks);
        Self { pid, start_ticks }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn state(&self) -> ProcessState {
        match read_stat(self.pid) {
            Ok(now) if now.start_ticks != self.start_ticks => ProcessState::Exited,
            Ok(now) => now.state,
            Err(_) if Path::new("/proc/self/stat").exists() => ProcessState::Exited,
            // Without /proc only the process id can be tested.
            Err(_) => match kill(Pid::from_raw(self.pid), None) {
                Ok(()) => ProcessState::Running,
                Err(_) => ProcessState::Exited,
            },
        }
    }
}

/// Fields of `/proc/PID/stat`.
struct ProcStat {
    state: ProcessState,
    start_ticks: Option<u64>,
}

fn read_stat(pid: i32) -> io::Result<ProcStat> {
    let text = fs::read(format!("/proc/{pid}/stat"))?;
    Ok(parse_stat(&String::from_utf8_lossy(&text)))
}

/// The name is in parentheses and may contain some; the fields after it are counted from the state.
fn parse_stat(text: &str) -> ProcStat {
    let fields = text.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let mut fields = fields.split_ascii_whitespace();
    let state = match fields.next() {
        Some("Z" | "X") => ProcessState::Exited,
        Some("T" | "t") => ProcessState::Stopped,
        Some(_) | None => ProcessState::Running,
    };
    let started = fields.nth(18).and_then(|started| started.parse().ok());
    ProcStat {
        state,
        start_ticks: started,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::sys::signal::Signal;
    use nix::sys::wait::{WaitPidFlag, waitpid};

    use super::*;

    #[test]
    fn names_with_parentheses_are_parsed() {
        let rest = "1 42 43 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 0 0";
        for (state, want) in [
            ("S", ProcessState::Running),
            ("T", ProcessState::Stopped),
            ("Z", ProcessState::Exited),
        ] {
            let stat = parse_stat(&format!("7 (a) Z (b) {state} {rest}"));
            assert_eq!((stat.state, stat.start_ticks), (want, Some(987_654)));
        }
    }

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
