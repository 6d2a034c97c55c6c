//! Finds descendants in the process table: members of a group, and processes that left it but still have the mark in
//! their environment.
//!
//! Processes below a subreaper are found by their parents alone, which they cannot change.
//!
//! Process numbers are reused. A process is signalled only if it is verified right before: the same number with the same
//! start time.

use std::fs::{self, File};
use std::io::Read;
use std::str::FromStr;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

use super::spec::MARK_VARIABLE;

/// Most bytes of an environment that are read; Linux allows a quarter of an 8 MiB stack.
const MAX_ENVIRONMENT: u64 = 2 << 20;

/// While a process starts a program it has no environment for some microseconds, and for longer when the program comes
/// from a slow disk: it is read this often, at this interval.
const START_READS: u32 = 100;
const START_READ_INTERVAL: Duration = Duration::from_millis(1);

/// The descendants of this process, whatever group or session they are in. Children of an ended process belong to the
/// subreaper above it.
#[must_use]
pub fn find_descendants(root: Pid) -> Vec<Descendant> {
    let mut rest = processes().collect::<Vec<_>>();
    let mut found = Vec::<Descendant>::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        let children = rest.extract_if(.., |process| process.parent == parent);
        let children: Vec<_> = children.collect();
        parents.extend(children.iter().map(|child| child.pid));
        found.extend(children);
    }
    found
}

/// All running processes.
fn processes() -> impl Iterator<Item = Descendant> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    numbers
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|number| Descendant::read(Pid::from_raw(number)))
}

/// The processes of one server, or of all servers of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct ProcessSet {
    groups: Vec<Pid>,
    /// The prefix of an environment entry; no process is marked when it is empty.
    mark: Vec<u8>,
    /// The start time of the first of them, in clock ticks: older processes are not members, and are not examined further.
    since: u64,
}

impl ProcessSet {
    /// The processes of the server `id` with this leader.
    pub(crate) fn for_server(leader: Pid, kernel_mark: &str, id: &str) -> Self {
        Self {
            groups: vec![leader],
            mark: format!("{MARK_VARIABLE}={kernel_mark}:{id}\0").into(),
            since: Descendant::read(leader).map_or(0, |process| process.started),
        }
    }

    /// The processes of all servers of a kernel; without a mark only those in the groups.
    pub(crate) fn for_kernel(groups: Vec<Pid>, kernel_mark: Option<&str>) -> Self {
        let mark = kernel_mark.map(|mark| format!("{MARK_VARIABLE}={mark}:"));
        Self {
            groups,
            mark: mark.unwrap_or_default().into(),
            since: 0,
        }
    }

    /// The running ones. Takes some milliseconds for a few hundred processes.
    pub(crate) fn find_live(&self) -> Vec<Descendant> {
        let this = Pid::this();
        processes()
            .filter(|process| process.pid != this)
            .filter(|process| process.started >= self.since)
            .filter(|process| self.groups.contains(&process.group) || self.is_marked(process.pid))
            .collect()
    }

    /// Signals the groups, and those of `living` that are now outside of them.
    pub(crate) fn signal(&self, living: &[Descendant], signal: Signal) {
        self.signal_groups(signal);
        let outside = |process: &&Descendant| {
            let now = process.read_current();
            now.is_some_and(|now| !self.groups.contains(&now.group))
        };
        for process in living.iter().filter(outside) {
            let _ = kill(process.pid, signal);
        }
    }

    /// Kills the running processes, and then those that they started meanwhile.
    pub(crate) fn kill(&self) {
        for _ in 0..2 {
            self.signal(&self.find_live(), Signal::SIGKILL);
        }
    }

    /// Signals the groups; they may be gone already.
    pub(crate) fn signal_groups(&self, signal: Signal) {
        for group in &self.groups {
            let _ = killpg(*group, signal);
        }
    }

    fn is_marked(&self, pid: Pid) -> bool {
        !self.mark.is_empty() && environment(pid).is_some_and(|all| has_mark(&all, &self.mark))
    }

    /// Whether a process is in a group and not older than the first member.
    pub(super) fn contains_group_member(&self, process: &Descendant) -> bool {
        process.started >= self.since && self.groups.contains(&process.group)
    }

    /// Whether this environment of a process has the mark.
    pub(super) fn is_marked_environment(&self, process: &Descendant, environment: &[u8]) -> bool {
        process.started >= self.since && has_mark(environment, &self.mark)
    }
}

/// The environment of a process of this user; waits while the process starts a program.
fn environment(pid: Pid) -> Option<Vec<u8>> {
    for _ in 0..START_READS {
        let mut all = Vec::new();
        let file = File::open(format!("/proc/{pid}/environ")).ok()?;
        file.take(MAX_ENVIRONMENT).read_to_end(&mut all).ok()?;
        if !all.is_empty() || !ProcStat::read(pid)?.is_starting() {
            return Some(all);
        }
        sleep(START_READ_INTERVAL);
    }
    None
}

fn has_mark(environment: &[u8], mark: &[u8]) -> bool {
    let mut entries = environment.split_inclusive(|byte| *byte == 0);
    entries.any(|entry| entry.starts_with(mark))
}

/// A process that was running when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descendant {
    pub(super) pid: Pid,
    pub(super) parent: Pid,
    pub(super) group: Pid,
    /// In clock ticks since the machine's start.
    started: u64,
}

impl Descendant {
    /// The process with this number, unless it has ended; a zombie has.
    pub(crate) fn read(pid: Pid) -> Option<Self> {
        ProcStat::read(pid)?.to_descendant(pid)
    }

    /// Whether the same process still runs.
    pub(crate) fn is_alive(&self) -> bool {
        self.read_current().is_some()
    }

    /// Signals the process, unless its number was reused.
    pub fn signal(&self, signal: Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid.as_raw());
        let number = rustix::process::Signal::from_named_raw(signal as i32);
        let (Some(pid), Some(number)) = (pid, number) else {
            return;
        };
        // The pidfd pins the process, which is verified before the signal.
        if let Ok(held) = pidfd_open(pid, PidfdFlags::empty())
            && self.is_alive()
        {
            let _ = pidfd_send_signal(held, number);
        }
    }

    fn read_current(&self) -> Option<Self> {
        Self::read(self.pid).filter(|now| now.started == self.started)
    }
}

/// The text of `/proc/PID/stat`; its fields are counted from the one after the name.
pub(super) struct ProcStat(String);

impl ProcStat {
    const STATE: usize = 0;
    const PARENT: usize = 1;
    const GROUP: usize = 2;
    const FLAGS: usize = 6;
    const USER_TIME: usize = 11;
    const SYSTEM_TIME: usize = 12;
    const USER_TIME_OF_ENDED: usize = 13;
    const SYSTEM_TIME_OF_ENDED: usize = 14;
    const THREADS: usize = 17;
    const STARTED: usize = 19;
    const RESIDENT: usize = 21;
    const ENVIRONMENT_END: usize = 48;

    /// The flag of kernel threads, which never have an environment.
    const KERNEL_THREAD: u64 = 0x0020_0000;

    pub(super) fn read(pid: Pid) -> Option<Self> {
        let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Some(Self(String::from_utf8_lossy(&text).into_owned()))
    }

    /// The name is in parentheses and may contain some itself.
    fn field(&self, number: usize) -> Option<&str> {
        let (_, fields) = self.0.rsplit_once(") ")?;
        fields.split_ascii_whitespace().nth(number)
    }

    fn number<T: FromStr>(&self, field: usize) -> Option<T> {
        self.field(field)?.parse().ok()
    }

    /// Processor time of the process and of its descendants that ended and were waited for, in clock ticks.
    pub(super) fn ticks(&self) -> u64 {
        let times = [
            Self::USER_TIME,
            Self::SYSTEM_TIME,
            Self::USER_TIME_OF_ENDED,
            Self::SYSTEM_TIME_OF_ENDED,
        ];
        let ticks = times.map(|field| self.number(field).unwrap_or(0));
        ticks.into_iter().fold(0, u64::saturating_add)
    }

    /// Resident memory, in pages.
    pub(super) fn pages(&self) -> u64 {
        self.number(Self::RESIDENT).unwrap_or(0)
    }

    pub(super) fn to_descendant(&self, pid: Pid) -> Option<Descendant> {
        // A process whose first thread has ended continues in the others.
        let threads = self.number(Self::THREADS).unwrap_or(0_u32);
        if matches!(self.field(Self::STATE)?, "Z" | "X") && threads <= 1 {
            return None;
        }
        Some(Descendant {
            pid,
            parent: Pid::from_raw(self.number(Self::PARENT)?),
            group: Pid::from_raw(self.number(Self::GROUP)?),
            started: self.number(Self::STARTED)?,
        })
    }

    /// Whether the process is between two programs.
    fn is_starting(&self) -> bool {
        let of_system = |flags: u64| flags & Self::KERNEL_THREAD != 0;
        self.number(Self::ENVIRONMENT_END) == Some(0_u64)
            && !self.number(Self::FLAGS).is_none_or(of_system)
            && self.field(Self::STATE) != Some("Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parentheses_in_a_name_are_accepted() {
        let parse = |stat: &str| ProcStat(stat.into()).to_descendant(Pid::from_raw(7));
        let stat = "7 (a) Z (b) S 1 42 43 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 0 0";
        let process = parse(stat).unwrap();
        assert_eq!(
            (process.group, process.started),
            (Pid::from_raw(42), 987_654)
        );
        assert_eq!(parse("7 (x) Z 1 2 3"), None);
        let ended = "7 (x) Z 1 42 43 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 0 0";
        assert_eq!(parse(ended), None);
        let others_run = ended.replace("20 0 1 0", "20 0 2 0");
        assert!(parse(&others_run).is_some());
        assert_eq!(parse("garbage"), None);
    }

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
        let this = Descendant::read(Pid::this()).unwrap();
        assert!(this.is_alive());
        assert!(
            !ProcessSet::for_kernel(vec![this.group], None)
                .find_live()
                .contains(&this)
        );
    }
}
