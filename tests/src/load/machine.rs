//! What it was measured on.

use std::fs;
use std::thread::available_parallelism;

use super::Nginx;

/// One line: processor, cores, memory, system, nginx, and how busy the machine was before.
#[must_use]
pub fn description() -> String {
    let cores = available_parallelism().map_or(1, usize::from);
    let processor = field("/proc/cpuinfo", "model name").unwrap_or_default();
    let memory = field("/proc/meminfo", "MemTotal").unwrap_or_default();
    let kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or_default();
    let system = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let nginx = Nginx::version().unwrap_or_else(|| "no nginx".to_owned());
    let busy = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let (busy, _) = busy.split_once(' ').unwrap_or_default();
    format!(
        "{processor}, {cores} cores, {} GiB, Linux {}, {nginx}; load average before: {busy}",
        kib.div_ceil(1024 * 1024),
        system.trim()
    )
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
