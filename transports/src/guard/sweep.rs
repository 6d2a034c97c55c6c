//! Ends the processes that a killed kernel with a killed guard left behind.

use mgp_platform::processes::ProcessSet;
use nix::sys::signal::Signal;

use super::watch::{GRACE, KILL_TIMEOUT, wait_until_gone};

/// The processes that were found, and those that remain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Processes that were alive.
    pub found: usize,
    /// Processes that are still alive; only those that hang in the system.
    pub remaining: usize,
}

/// Ends every process with one of these marks in its environment: SIGTERM, then SIGKILL for the remaining ones. The
/// identity of each is verified right before. Takes some milliseconds when there is none, and always less than two
/// seconds.
#[must_use]
pub fn sweep(marks: &[String]) -> SweepReport {
    let processes = |mark: &String| ProcessSet::for_kernel(Vec::new(), Some(mark));
    let all: Vec<ProcessSet> = marks.iter().map(processes).collect();
    let signal = |signal: Option<Signal>| {
        let each = all.iter().map(|processes| {
            let living = processes.find_live();
            if let Some(signal) = signal {
                processes.signal(&living, signal);
            }
            living.len()
        });
        each.sum::<usize>()
    };
    let found = signal(Some(Signal::SIGTERM));
    let mut remaining = found;
    if found > 0 && !wait_until_gone(GRACE, || signal(None) == 0) {
        wait_until_gone(KILL_TIMEOUT, || {
            remaining = signal(Some(Signal::SIGKILL));
            remaining == 0
        });
    } else {
        remaining = 0;
    }
    SweepReport { found, remaining }
}
