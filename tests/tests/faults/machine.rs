//! What the machine says of processes.

use std::fs;

use mgp_tests::harness::{DEADLINE, wait_until};

/// True while the process runs; one that has ended and was not yet waited for does not.
pub(crate) fn runs(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let state = stat
        .rsplit_once(") ")
        .map(|(_, fields)| fields.chars().next());
    !matches!(state.flatten(), Some('Z' | 'X'))
}

/// Waits until none of the processes runs.
pub(crate) async fn all_gone(pids: &[u32]) {
    let what = format!("{pids:?} are gone");
    wait_until(&what, DEADLINE, async || !pids.iter().any(|pid| runs(*pid))).await;
}

/// The most memory a process had resident so far, in bytes.
pub(crate) fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap() * 1024
}

/// Where the descriptors of a process lead.
pub(crate) fn descriptors(pid: u32) -> Vec<String> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let targets = open.filter_map(|fd| fs::read_link(fd.path()).ok());
    targets.map(|target| target.display().to_string()).collect()
}

/// The environment a process was started with, as `NAME=value`.
pub(crate) fn environment(pid: u32) -> Vec<String> {
    let all = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let entries = all
        .split(|byte| *byte == 0)
        .filter(|entry| !entry.is_empty());
    entries
        .map(|entry| String::from_utf8_lossy(entry).into_owned())
        .collect()
}
