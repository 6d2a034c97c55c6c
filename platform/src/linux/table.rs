//! The process table in `/proc`.

use std::fs::{self, File};
use std::io::Read;
use std::str::FromStr;
use std::thread::sleep;
use std::time::Duration;

use nix::unistd::{Pid, SysconfVar, sysconf};

use crate::process::{Process, ProcessState, Row};

/// Most bytes of an environment that are read; Linux allows a quarter of an 8 MiB stack.
const MAX_ENVIRONMENT: u64 = 2 << 20;
/// Most bytes of an environment that are read for usage: the mark of a server is in its first kilobytes.
const MAX_ENVIRONMENT_START: u64 = 256 << 10;
/// Most descriptors that are counted one by one, if the system does not report their number.
const MAX_DESCRIPTORS: usize = 1 << 20;

/// While a process starts a program it has no environment for some microseconds, and for longer when the program comes
/// from a slow disk: it is read this often, at this interval.
const START_READS: u32 = 100;
const START_READ_INTERVAL: Duration = Duration::from_millis(1);

/// Whether the environments of some processes of this user cannot be read.
pub(crate) const HIDES_ENVIRONMENTS: bool = false;

/// Start times are in clock ticks since the machine's start, and always read the same.
pub(crate) fn is_same_start(one: u64, other: u64) -> bool {
    one == other
}

/// All running processes.
pub(crate) fn read_all() -> impl Iterator<Item = Row> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(|number| read(Pid::from_raw(number)))
}

/// A process, unless it has ended; a zombie has.
pub(crate) fn read(pid: Pid) -> Option<Row> {
    let stat = ProcStat::read(pid)?;
    Some(Row {
        process: stat.to_process(pid)?,
        memory: stat
            .pages()
            .saturating_mul(sysconf_or(SysconfVar::PAGE_SIZE, 4096)),
        cpu: Duration::from_secs(1).saturating_mul(u32::try_from(stat.ticks()).unwrap_or(u32::MAX))
            / u32::try_from(sysconf_or(SysconfVar::CLK_TCK, 100)).unwrap_or(100),
    })
}

/// Those of the processes that still run, as they are now.
pub(crate) fn reread(processes: &[Process]) -> Vec<Process> {
    let now = processes.iter().filter_map(|before| {
        let now = read(before.pid)?.process;
        (now == *before).then_some(now)
    });
    now.collect()
}

/// The state and the start time of a process.
pub(crate) fn read_state(pid: Pid) -> Option<(ProcessState, u64)> {
    let stat = ProcStat::read(pid)?;
    let state = match stat.field(ProcStat::STATE) {
        Some("Z" | "X") => ProcessState::Exited,
        Some("T" | "t") => ProcessState::Stopped,
        Some(_) | None => ProcessState::Running,
    };
    Some((state, stat.number(ProcStat::STARTED)?))
}

/// Without `/proc` nothing can be read.
pub(crate) fn is_readable() -> bool {
    fs::exists("/proc/self/stat").unwrap_or(false)
}

/// The environment of a process of this user; waits while the process starts a program.
pub(crate) fn environment(pid: Pid) -> Option<Vec<u8>> {
    for _ in 0..START_READS {
        let all = read_environment(pid, MAX_ENVIRONMENT)?;
        if !all.is_empty() || !ProcStat::read(pid)?.is_starting() {
            return Some(all);
        }
        sleep(START_READ_INTERVAL);
    }
    None
}

/// The environments of those that belong to this user.
pub(crate) fn read_environments(processes: &[Process], mut each: impl FnMut(&Process, &[u8])) {
    for process in processes {
        if let Some(all) = environment(process.pid) {
            each(process, &all);
        }
    }
}

/// The first part of each, as it is now.
pub(crate) fn read_environment_starts(
    processes: &[Process],
    mut each: impl FnMut(&Process, &[u8]),
) {
    for process in processes {
        if let Some(all) = read_environment(process.pid, MAX_ENVIRONMENT_START) {
            each(process, &all);
        }
    }
}

fn read_environment(pid: Pid, max: u64) -> Option<Vec<u8>> {
    let file = File::open(format!("/proc/{pid}/environ")).ok()?;
    let mut all = Vec::new();
    file.take(max).read_to_end(&mut all).ok()?;
    Some(all)
}

/// The open descriptors of a process; 0 if they may not be read.
pub(crate) fn count_descriptors(pid: Pid) -> u64 {
    let folder = format!("/proc/{pid}/fd");
    match fs::metadata(&folder).map(|folder| folder.len()) {
        Ok(0) | Err(_) => {
            let open = fs::read_dir(&folder).into_iter().flatten();
            open.take(MAX_DESCRIPTORS).count() as u64
        }
        Ok(count) => count,
    }
}

fn sysconf_or(what: SysconfVar, usual: u64) -> u64 {
    let reported = sysconf(what).ok().flatten();
    reported
        .and_then(|reported| u64::try_from(reported).ok())
        .filter(|reported| *reported > 0)
        .unwrap_or(usual)
}

/// The text of `/proc/PID/stat`; its fields are counted from the one after the name.
struct ProcStat(String);

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

    fn read(pid: Pid) -> Option<Self> {
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
    fn ticks(&self) -> u64 {
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
    fn pages(&self) -> u64 {
        self.number(Self::RESIDENT).unwrap_or(0)
    }

    fn to_process(&self, pid: Pid) -> Option<Process> {
        // A process whose first thread has ended continues in the others.
        let threads = self.number(Self::THREADS).unwrap_or(0_u32);
        if matches!(self.field(Self::STATE)?, "Z" | "X") && threads <= 1 {
            return None;
        }
        Some(Process {
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
        let parse = |stat: &str| ProcStat(stat.into()).to_process(Pid::from_raw(7));
        let stat = "7 (a) Z (b) S 1 42 43 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 0 0";
        let process = parse(stat).unwrap();
        assert_eq!(
            (process.group, process.started),
            (Pid::from_raw(42), 987_654)
        );
        assert!(parse("7 (x) Z 1 2 3").is_none());
        let ended = "7 (x) Z 1 42 43 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 0 0";
        assert!(parse(ended).is_none());
        let others_run = ended.replace("20 0 1 0", "20 0 2 0");
        assert!(parse(&others_run).is_some());
        assert!(parse("garbage").is_none());
    }
}
