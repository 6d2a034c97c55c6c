//! The process table as `ps` reports it, by names that every system knows.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::unistd::Pid;

use crate::process::{Process, ProcessState, Row};

const PS: &str = "/bin/ps";
/// Most bytes of its output that are read: some hundred thousand processes.
const OUTPUT_MAX: u64 = 16 << 20;
/// Most descriptors of this process that are counted.
const MAX_DESCRIPTORS: usize = 1 << 20;

/// Start times are in seconds, and computed anew by some systems at each read.
const START_TOLERANCE: u64 = 2;
/// Whether the environments of some processes of this user cannot be read: macOS hides those of its own programs.
pub(crate) const HIDES_ENVIRONMENTS: bool = true;
/// The option by which `ps` shows environments after the arguments.
const WITH_ENVIRONMENT: &str = if cfg!(target_os = "macos") {
    "-E"
} else if cfg!(target_os = "linux") {
    "e"
} else {
    "-e"
};

/// Whether two start times may be of one process.
pub(crate) fn is_same_start(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= START_TOLERANCE
}

/// All running processes.
pub(crate) fn read_all() -> impl Iterator<Item = Row> {
    let rows = report(&["-A"]).into_iter();
    rows.filter_map(ReportedProcess::into_row)
}

/// A process, unless it has ended; a zombie has.
pub(crate) fn read(pid: Pid) -> Option<Row> {
    find(pid)?.into_row()
}

/// Those of the processes that still run, as they are now.
pub(crate) fn reread(processes: &[Process]) -> Vec<Process> {
    if processes.is_empty() {
        return Vec::new();
    }
    let now = read_all().map(|row| row.process);
    now.filter(|now| processes.contains(now)).collect()
}

/// The state and the start time of a process.
pub(crate) fn read_state(pid: Pid) -> Option<(ProcessState, u64)> {
    let found = find(pid)?;
    Some((found.state, found.started))
}

/// Without `ps` nothing can be read.
pub(crate) fn is_readable() -> bool {
    find(Pid::this()).is_some()
}

/// `None`: `ps` does not show where an entry ends.
pub(crate) fn environment(_pid: Pid) -> Option<Vec<u8>> {
    None
}

/// The words of the arguments and environments of those that are shown, each as an entry. Nobody else knows a mark.
pub(crate) fn read_environments(processes: &[Process], mut each: impl FnMut(&Process, &[u8])) {
    if processes.is_empty() {
        return;
    }
    let (text, _) = run_ps(&["-A", WITH_ENVIRONMENT, "-ww", "-o", "pid=", "-o", "args="]);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let pid = words.next().and_then(|pid| pid.parse().ok());
        let pid = pid.map(Pid::from_raw);
        if let Some(process) = processes.iter().find(|it| Some(it.pid) == pid) {
            let entries: String = words.flat_map(|word| [word, "\0"]).collect();
            each(process, entries.as_bytes());
        }
    }
}

/// The same: `ps` shows them whole.
pub(crate) fn read_environment_starts(processes: &[Process], each: impl FnMut(&Process, &[u8])) {
    read_environments(processes, each);
}

/// The open descriptors of this process; 0 for others.
pub(crate) fn count_descriptors(pid: Pid) -> u64 {
    if pid != Pid::this() {
        return 0;
    }
    let open = fs::read_dir("/dev/fd").into_iter().flatten();
    open.take(MAX_DESCRIPTORS).count() as u64
}

fn find(pid: Pid) -> Option<ReportedProcess> {
    let found = report(&["-p", &pid.to_string()]).into_iter();
    found.into_iter().find(|process| process.pid == pid)
}

/// What `ps` reports of the selected processes, without itself.
fn report(selection: &[&str]) -> Vec<ReportedProcess> {
    let columns = [
        "pid=", "ppid=", "pgid=", "state=", "rss=", "time=", "lstart=",
    ];
    let columns = columns.into_iter().flat_map(|column| ["-o", column]);
    let (text, own) = run_ps(&selection.iter().copied().chain(columns).collect::<Vec<_>>());
    let all = text.lines().filter_map(ReportedProcess::parse);
    all.filter(|process| process.pid != own).collect()
}

/// The output of `ps`, and its process. Empty if it cannot be run.
fn run_ps(options: &[&str]) -> (String, Pid) {
    let mut ps = Command::new(PS);
    ps.args(options);
    ps.env_clear().envs([("LC_ALL", "C"), ("TZ", "UTC0")]);
    ps.stdin(Stdio::null()).stderr(Stdio::null());
    let Ok(mut ps) = ps.stdout(Stdio::piped()).spawn() else {
        return (String::new(), Pid::this());
    };
    let own = Pid::from_raw(ps.id().cast_signed());
    let mut text = Vec::new();
    if let Some(output) = ps.stdout.take() {
        let _ = output.take(OUTPUT_MAX).read_to_end(&mut text);
    }
    let _ = ps.wait();
    (String::from_utf8_lossy(&text).into_owned(), own)
}

/// A line of `ps`.
struct ReportedProcess {
    pid: Pid,
    parent: Pid,
    group: Pid,
    state: ProcessState,
    /// In KiB.
    resident: u64,
    cpu: Duration,
    /// In seconds since 1970.
    started: u64,
}

impl ReportedProcess {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let mut number = || words.next()?.parse().ok().map(Pid::from_raw);
        let (pid, parent, group) = (number()?, number()?, number()?);
        let state = match words.next()?.as_bytes() {
            [b'Z' | b'X', ..] => ProcessState::Exited,
            [b'T' | b't', ..] => ProcessState::Stopped,
            _ => ProcessState::Running,
        };
        let (resident, cpu) = (words.next()?.parse().ok()?, parse_duration(words.next()?)?);
        let date: Vec<_> = words.collect();
        let [_, month, day, time, year] = date[..] else {
            return None;
        };
        Some(Self {
            pid,
            parent,
            group,
            state,
            resident,
            cpu,
            started: parse_date(month, day, time, year)?,
        })
    }

    /// `None` for a zombie.
    fn into_row(self) -> Option<Row> {
        (self.state != ProcessState::Exited).then_some(Row {
            process: Process {
                pid: self.pid,
                parent: self.parent,
                group: self.group,
                started: self.started,
            },
            memory: self.resident.saturating_mul(1024),
            cpu: self.cpu,
        })
    }
}

/// `[[DD-]HH:]MM:SS[.HH]`: systems differ in the parts that they write.
fn parse_duration(text: &str) -> Option<Duration> {
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let mut seconds = 0.0;
    for part in clock.split(':') {
        let part: f64 = part.parse().ok()?;
        seconds = seconds * 60.0 + part;
    }
    let days: u64 = days.parse().ok()?;
    let clock = Duration::try_from_secs_f64(seconds).ok()?;
    Duration::from_secs(days.checked_mul(86_400)?).checked_add(clock)
}

/// `Nov 30 05:34:35 2026` in UTC, as seconds since 1970.
fn parse_date(month: &str, day: &str, time: &str, year: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let month = MONTHS.iter().position(|name| *name == month)? as u64;
    let (day, year): (u64, u64) = (day.parse().ok()?, year.parse().ok()?);
    // Counted from March on, so that a leap day is the last of its year.
    let (year, month) = if month < 2 {
        (year.checked_sub(1)?, month + 10)
    } else {
        (year, month - 2)
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    let days = (365 * year + leap_days + (month * 153 + 2) / 5 + day).checked_sub(719_469)?;
    Some(days * 86_400 + parse_duration(time)?.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_durations_of_all_systems_are_parsed() {
        let date = |text: &str| {
            let words: Vec<_> = text.split(' ').collect();
            parse_date(words[0], words[1], words[2], words[3])
        };
        assert_eq!(date("Jan 1 00:00:00 1970"), Some(0));
        assert_eq!(date("Feb 29 12:00:01 2024"), Some(1_709_208_001));
        assert_eq!(date("Mar 1 00:00:00 2024"), Some(1_709_251_200));
        assert_eq!(date("Nov 30 05:34:35 2026"), Some(1_796_016_875));
        assert_eq!(date("Nov x 05:34:35 2026"), None);
        let millis = |text: &str| parse_duration(text).map(|it| it.as_millis());
        assert_eq!(millis("00:00:07"), Some(7_000));
        assert_eq!(millis("1-02:03:04"), Some(93_784_000));
        assert_eq!(millis("123:45.50"), Some(7_425_500));
        assert_eq!(millis("-"), None);
    }

    #[test]
    fn zombies_are_no_rows_but_have_a_state() {
        let line = "  7  1  42 Z+  0 00:00:00 Mon Nov 30 05:34:35 2026";
        let zombie = ReportedProcess::parse(line).unwrap();
        assert_eq!(zombie.state, ProcessState::Exited);
        assert!(zombie.into_row().is_none());
        let stopped = ReportedProcess::parse(&line.replace("Z+", "T")).unwrap();
        assert_eq!(
            (stopped.state, stopped.group),
            (ProcessState::Stopped, Pid::from_raw(42))
        );
        assert!(ReportedProcess::parse("garbage").is_none());
    }
}
