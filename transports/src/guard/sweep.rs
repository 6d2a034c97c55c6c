//! What a kernel left behind whose guard was killed, too: the next kernel ends it.

use nix::sys::signal::Signal;

use super::watch::{GRACE, KILL_TIMEOUT, wait_until_gone};
use crate::child::descendants::ProcessSet;

/// What was found and what is still there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Processes that lived.
    pub found: usize,
    /// Those that live on; none but such as hang in the system.
    pub remaining: usize,
}

/// Ends every process whose environment carries one of these marks: SIGTERM, and SIGKILL for those who
/// stay. Each is, right before, still the process that was found. Takes some milliseconds when there
/// is none, and less than two seconds in any case.
#[must_use]
pub fn sweep(marks: &[String]) -> SweepReport {
    let kin = |mark: &String| ProcessSet::for_kernel(Vec::new(), Some(mark));
    let all: Vec<ProcessSet> = marks.iter().map(kin).collect();
    let signal = |signal: Option<Signal>| {
        let each = all.iter().map(|kin| {
            let living = kin.find_live();
            if let Some(signal) = signal {
                kin.signal(&living, signal);
            }
            living.len()
        });
        each.sum::<usize>()
    };
    let found = signal(Some(Signal::SIGTERM));
    let mut left = found;
    if found > 0 && !wait_until_gone(GRACE, || signal(None) == 0) {
        wait_until_gone(KILL_TIMEOUT, || {
            left = signal(Some(Signal::SIGKILL));
            left == 0
        });
    } else {
        left = 0;
    }
    SweepReport {
        found,
        remaining: left,
    }
}
