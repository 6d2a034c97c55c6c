//! What a kernel left behind whose guard was killed, too: the next kernel ends it.

use nix::sys::signal::Signal;

use super::watch::{GRACE, LAST_WAIT, gone_within};
use crate::child::descendants::Kin;

/// What was found and what is still there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Processes that lived.
    pub found: usize,
    /// Those that live on; none but such as hang in the system.
    pub left: usize,
}

/// Ends every process whose environment carries one of these marks: SIGTERM, and SIGKILL for those who
/// stay. Each is, right before, still the process that was found. Takes some milliseconds when there
/// is none, and less than two seconds in any case.
#[must_use]
pub fn sweep(marks: &[String]) -> Swept {
    let kin = |mark: &String| Kin::of_kernel(Vec::new(), Some(mark));
    let all: Vec<Kin> = marks.iter().map(kin).collect();
    let signal = |signal: Option<Signal>| {
        let each = all.iter().map(|kin| {
            let living = kin.living();
            if let Some(signal) = signal {
                kin.signal(&living, signal);
            }
            living.len()
        });
        each.sum::<usize>()
    };
    let found = signal(Some(Signal::SIGTERM));
    let mut left = found;
    if found > 0 && !gone_within(GRACE, || signal(None) == 0) {
        gone_within(LAST_WAIT, || {
            left = signal(Some(Signal::SIGKILL));
            left == 0
        });
    } else {
        left = 0;
    }
    Swept { found, left }
}
