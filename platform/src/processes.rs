//! Processes, and all that belong to a server: members of its group, its descendants, and processes that left both but
//! still have its mark in their environment, if the system shows that.
//!
//! Process numbers are reused. A process is signalled only if it is verified right before: the same number with the same
//! start time.

mod identity;
mod usage;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::process::find_below;
pub use crate::process::{MARK_VARIABLE, Process, ProcessState};
pub use crate::system::handle::ProcessHandle;
pub use crate::system::program::own_program;
pub use crate::system::signals::ignores_signal;
use crate::system::table;
pub use identity::ProcessIdentity;
pub use usage::{ProcessTree, ProcessUsage, measure_all, measure_self};

/// Whether one of these processes still runs. Blocks.
#[must_use]
pub fn is_any_alive(processes: &[Process]) -> bool {
    !table::reread(processes).is_empty()
}

/// Whether a process has this number.
#[must_use]
pub fn is_running(pid: i32) -> bool {
    Process::read(Pid::from_raw(pid)).is_some()
}

/// The environment of a process of this user, if the system shows it.
#[must_use]
pub fn read_environment(pid: i32) -> Option<Vec<u8>> {
    table::environment(Pid::from_raw(pid))
}

/// The processes of one server, or of all servers of a kernel.
#[derive(Clone, Debug)]
pub struct ProcessSet {
    groups: Vec<Pid>,
    /// The prefix of an environment entry; no process is marked when it is empty.
    mark: Vec<u8>,
    /// The start time of the first of them: older processes are not members, and are not examined further.
    since: u64,
}

impl ProcessSet {
    /// The processes of the server `id` with this leader.
    #[must_use]
    pub fn for_server(leader: Pid, kernel_mark: &str, id: &str) -> Self {
        Self {
            groups: vec![leader],
            mark: format!("{MARK_VARIABLE}={kernel_mark}:{id}\0").into(),
            since: Process::read(leader).map_or(0, |process| process.started),
        }
    }

    /// The processes of all servers of a kernel; without a mark only those in the groups.
    #[must_use]
    pub fn for_kernel(groups: Vec<Pid>, kernel_mark: Option<&str>) -> Self {
        let mark = kernel_mark.map(|mark| format!("{MARK_VARIABLE}={mark}:"));
        Self {
            groups,
            mark: mark.unwrap_or_default().into(),
            since: 0,
        }
    }

    /// The running ones. Takes some milliseconds for a few hundred processes.
    #[must_use]
    pub fn find_live(&self) -> Vec<Process> {
        let this = Pid::this();
        let all = table::read_all().map(|row| row.process);
        let all: Vec<_> = all.filter(|process| process.pid != this).collect();
        let candidates = all.iter().filter(|process| self.is_recent(process));
        let (mut found, others): (Vec<Process>, Vec<Process>) =
            candidates.partition(|process| self.groups.contains(&process.group));
        if !self.mark.is_empty() {
            table::read_environments(&others, |process, environment| {
                if has_mark(environment, &self.mark) {
                    found.push(*process);
                }
            });
        }
        if table::HIDES_ENVIRONMENTS {
            let parents = found.iter().map(|process| process.pid);
            let below = find_below(parents.collect(), all);
            let left: Vec<_> = below.into_iter().filter(|it| !found.contains(it)).collect();
            found.extend(left);
        }
        found
    }

    /// Signals the groups, and those of `living` that are now outside of them.
    pub fn signal(&self, living: &[Process], signal: Signal) {
        self.signal_groups(signal);
        let now = table::reread(living).into_iter();
        for process in now.filter(|now| !self.groups.contains(&now.group)) {
            let _ = kill(process.pid, signal);
        }
    }

    /// Kills the running processes, and then those that they started meanwhile.
    pub fn kill(&self) {
        for _ in 0..2 {
            self.signal(&self.find_live(), Signal::SIGKILL);
        }
    }

    /// Signals the groups; they may be gone already.
    pub fn signal_groups(&self, signal: Signal) {
        for group in &self.groups {
            let _ = killpg(*group, signal);
        }
    }

    fn is_recent(&self, process: &Process) -> bool {
        process.started >= self.since || table::is_same_start(process.started, self.since)
    }

    /// Whether a process is in a group and not older than the first member.
    fn contains_group_member(&self, process: &Process) -> bool {
        self.is_recent(process) && self.groups.contains(&process.group)
    }

    /// Whether this environment of a process has the mark.
    fn is_marked_environment(&self, process: &Process, environment: &[u8]) -> bool {
        self.is_recent(process) && has_mark(environment, &self.mark)
    }
}

fn has_mark(environment: &[u8], mark: &[u8]) -> bool {
    let mut entries = environment.split_inclusive(|byte| *byte == 0);
    entries.any(|entry| entry.starts_with(mark))
}

/// The same number with the same start time.
impl PartialEq for Process {
    fn eq(&self, other: &Self) -> bool {
        self.pid == other.pid && table::is_same_start(self.started, other.started)
    }
}

impl Process {
    /// The process with this number, unless it has ended; a zombie has.
    #[must_use]
    pub fn read(pid: Pid) -> Option<Self> {
        table::read(pid).map(|row| row.process)
    }

    /// Whether the same process still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        Self::read(self.pid).is_some_and(|now| now == *self)
    }

    /// Signals the process, unless its number was reused.
    pub fn signal(&self, signal: Signal) {
        let held = ProcessHandle::open(self.pid);
        if self.is_alive() {
            held.signal(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_a_whole_entry_for_one_server() {
        let environment = b"A=MGP_SERVER=m:a\0MGP_SERVER=m:ab\0";
        let carries = |kin: &ProcessSet| super::has_mark(environment, &kin.mark);
        let leader = Pid::from_raw(1);
        assert!(carries(&ProcessSet::for_server(leader, "m", "ab")));
        assert!(!carries(&ProcessSet::for_server(leader, "m", "a")));
        assert!(carries(&ProcessSet::for_kernel(vec![], Some("m"))));
        assert!(!carries(&ProcessSet::for_kernel(vec![], Some("n"))));
    }

    #[test]
    fn this_process_is_never_found() {
        let this = Process::read(Pid::this()).unwrap();
        assert!(this.is_alive());
        assert!(
            !ProcessSet::for_kernel(vec![this.group], None)
                .find_live()
                .contains(&this)
        );
    }

    /// A child that left the group is found by its parent.
    #[test]
    fn descendants_are_found_in_other_groups() {
        use std::os::unix::process::CommandExt;
        let mut child = std::process::Command::new("sleep");
        let mut child = child.arg("60").process_group(0).spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed());
        let all = table::read_all().map(|row| row.process).collect();
        let found = find_below(vec![Pid::this()], all);
        let found = found.iter().find(|process| process.pid == pid).unwrap();
        assert_eq!((found.group, found.parent), (pid, Pid::this()));
        found.signal(Signal::SIGKILL);
        child.wait().unwrap();
        assert!(!found.is_alive() && !is_any_alive(&[*found]));
    }
}
