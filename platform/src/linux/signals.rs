//! Which signals this process was started to ignore.

use nix::sys::signal::Signal;

/// Whether the signal is ignored (`nohup`).
#[must_use]
pub fn ignores_signal(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_in_mask(&status, signal as i32)
}

/// Whether a process with this `/proc/PID/status` ignores the signal.
fn is_in_mask(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or_default() & (1 << (signal - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status = "Name:\tmgp\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n";
        assert!(is_in_mask(status, 1) && is_in_mask(status, 13));
        assert!(!is_in_mask(status, 15) && !is_in_mask("", 1));
    }
}
