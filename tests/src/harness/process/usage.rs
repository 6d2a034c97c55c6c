//! What processes take from the machine, as /proc tells it.

use std::fs;
use std::time::Duration;

/// Ticks a second in /proc/PID/stat: what Linux shows to programs on every machine it runs on.
const TICKS: u64 = 100;

/// What a set of processes has taken so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time, user and system, children excluded.
    pub cpu: Duration,
    /// Resident memory in bytes.
    pub resident: u64,
}

impl Usage {
    /// Of these processes together; one that has ended counts nothing.
    #[must_use]
    pub fn of(pids: &[u32]) -> Self {
        let each = pids.iter().filter_map(|&pid| Self::of_one(pid));
        each.fold(Self::default(), |sum, one| Self {
            cpu: sum.cpu + one.cpu,
            resident: sum.resident + one.resident,
        })
    }

    /// Of this process.
    #[must_use]
    pub fn own() -> Self {
        Self::of(&[std::process::id()])
    }

    fn of_one(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: u64 = resident?.trim().trim_end_matches(" kB").parse().ok()?;
        Some(Self {
            cpu: cpu(&stat)?,
            resident: kib * 1024,
        })
    }
}

/// What a process holds right now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holding {
    /// Resident memory in bytes.
    pub resident: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Threads.
    pub threads: u64,
}

impl Holding {
    /// Of this process; nothing of one that has ended.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let threads = status
            .lines()
            .find_map(|line| line.strip_prefix("Threads:"));
        let open = fs::read_dir(format!("/proc/{pid}/fd"));
        Self {
            resident: Usage::of(&[pid]).resident,
            descriptors: open.map_or(0, |open| open.count() as u64),
            threads: threads.and_then(|n| n.trim().parse().ok()).unwrap_or(0),
        }
    }
}

/// The processes that `pid` has started and that still run, and theirs.
#[must_use]
pub fn below(pid: u32) -> Vec<u32> {
    let folders = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: Vec<(u32, u32)> = folders
        .filter_map(|f| parentage(&f.file_name().to_string_lossy()))
        .collect();
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(
            all.iter()
                .filter(|(_, p)| *p == parent)
                .map(|(child, _)| child),
        );
        at += 1;
    }
    found.split_off(1)
}

/// A process and its parent.
fn parentage(folder: &str) -> Option<(u32, u32)> {
    let pid = folder.parse().ok()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some((pid, fields(&stat)?.nth(1)?.parse().ok()?))
}

fn cpu(stat: &str) -> Option<Duration> {
    let mut times = fields(stat)?.skip(11);
    let (user, system): (u64, u64) = (times.next()?.parse().ok()?, times.next()?.parse().ok()?);
    Some(Duration::from_millis((user + system) * 1000 / TICKS))
}

/// The fields from the third on: the second, a name in parentheses, may hold anything.
fn fields(stat: &str) -> Option<impl Iterator<Item = &str>> {
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_fields_are_read_whatever_the_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 9 9 20 0 1 0 1";
        assert_eq!(cpu(stat), Some(Duration::from_secs(2)));
        assert_eq!(fields(stat).unwrap().nth(1), Some("1"));
        assert!(Usage::own().resident > 0);
        let held = Holding::of(std::process::id());
        assert!(held.resident > 0 && held.descriptors > 2 && held.threads > 0);
    }
}
