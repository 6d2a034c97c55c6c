//! The guard's own process: listens, and acts once. Plain code without a runtime, so that only the end of the process
//! can stop it.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mgp_platform::processes::{Process, ProcessSet};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp};

/// Watched groups: far more than the servers of one machine. Further ones are found by their mark alone.
const MAX_GROUPS: usize = 4096;

/// Longest line with a meaning, in bytes; a mark is shorter.
const MAX_LINE: usize = 256;

/// Time for servers to end on SIGTERM. Together with the following steps less than two seconds after the kernel.
pub(super) const GRACE: Duration = Duration::from_millis(500);

/// Time to make sure that killed processes are gone, and those they started meanwhile.
pub(super) const KILL_TIMEOUT: Duration = Duration::from_millis(800);

/// How often the process table is read.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Runs the guard: reads the kernel's lines from `input` until a `bye` or the kernel's death, and ends the kernel's
/// servers in the latter case. The process should exit when this returns.
///
/// Must be called on the main thread before any other is started: it blocks the signals by which terminals and service
/// managers end the kernel.
pub fn run(input: impl Read) {
    block_signals();
    let mut groups = GuardedGroups::default();
    if !follow_commands(input, &mut groups) {
        groups.terminate_all();
    }
}

fn block_signals() {
    let mut held = SigSet::empty();
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        held.add(signal);
    }
    let _ = held.thread_block();
}

/// Follows the kernel's lines; false when they end without a `bye`.
fn follow_commands(input: impl Read, groups: &mut GuardedGroups) -> bool {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    loop {
        let (used, is_complete) = match input.fill_buf() {
            Ok([]) => return false,
            Ok(bytes) => take_line(bytes, &mut line),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return false,
        };
        input.consume(used);
        if is_complete {
            if line == b"bye" {
                return true;
            }
            groups.apply_command(&String::from_utf8_lossy(&line));
            line.clear();
        }
    }
}

/// Appends the bytes of the line to `line`; returns the number of bytes used and whether the line has ended.
fn take_line(bytes: &[u8], line: &mut Vec<u8>) -> (usize, bool) {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let text = &bytes[..end.unwrap_or(bytes.len())];
    // One byte over the limit is stored, so that a line that is too long is recognized.
    let capacity = (MAX_LINE + 1).saturating_sub(line.len());
    line.extend_from_slice(&text[..text.len().min(capacity)]);
    (text.len() + usize::from(end.is_some()), end.is_some())
}

/// The watched processes.
#[derive(Debug, Default)]
struct GuardedGroups {
    mark: Option<String>,
    /// Groups, each with its leader at the time of the command.
    groups: HashMap<i32, Option<Process>>,
}

impl GuardedGroups {
    fn apply_command(&mut self, line: &str) {
        if line.len() > MAX_LINE {
            return;
        }
        match line.split_once(' ') {
            Some(("mark", mark)) if !mark.is_empty() => self.mark = Some(mark.to_owned()),
            Some(("+", group)) => self.add(group),
            Some(("-", group)) => {
                group
                    .parse()
                    .map(|group: i32| self.groups.remove(&group))
                    .ok();
            }
            _ => {}
        }
    }

    /// Ignores 0, which would signal the guard itself, 1, which would signal everybody, and the guard's own group.
    fn add(&mut self, group: &str) {
        let Ok(group) = group.parse::<i32>() else {
            return;
        };
        if group > 1 && group != getpgrp().as_raw() && self.groups.len() < MAX_GROUPS {
            self.groups
                .insert(group, Process::read(Pid::from_raw(group)));
        }
    }

    /// SIGTERM for all, SIGKILL for the remaining ones.
    fn terminate_all(&self) {
        let processes = self.processes();
        let living = processes.find_live();
        processes.signal(&living, Signal::SIGTERM);
        if wait_until_gone(GRACE, || processes.find_live().is_empty()) {
            return;
        }
        wait_until_gone(KILL_TIMEOUT, || {
            let living = processes.find_live();
            processes.signal(&living, Signal::SIGKILL);
            living.is_empty()
        });
    }

    fn processes(&self) -> ProcessSet {
        ProcessSet::for_kernel(self.groups(), self.mark.as_deref())
    }

    /// Skips groups whose leader is another process now: the number was reused. A leader that has ended keeps its number
    /// from being reused as long as its group has members.
    fn groups(&self) -> Vec<Pid> {
        let ours = |(group, leader): (&i32, &Option<Process>)| {
            let group = Pid::from_raw(*group);
            let now = Process::read(group);
            (now.is_none() || now == *leader).then_some(group)
        };
        self.groups.iter().filter_map(ours).collect()
    }
}

pub(super) fn wait_until_gone(timeout: Duration, mut is_gone: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < timeout {
        if is_gone() {
            return true;
        }
        sleep(POLL_INTERVAL);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(input: &[u8]) -> (GuardedGroups, bool) {
        let mut groups = GuardedGroups::default();
        let bye = follow_commands(input, &mut groups);
        (groups, bye)
    }

    #[test]
    fn groups_come_and_go() {
        let (groups, bye) = follow(b"mark m1\n+ 70000\n+ 70001\n- 70000\n- 5\n");
        assert_eq!(groups.mark.as_deref(), Some("m1"));
        assert_eq!(groups.groups.keys().collect::<Vec<_>>(), [&70001]);
        assert!(!bye);
        assert!(follow(b"+ 70000\nbye\n").1);
        assert!(
            !follow(b"bye").1,
            "a line that was cut off by death is no `bye`"
        );
    }

    #[test]
    fn garbage_is_ignored_and_never_becomes_a_group() {
        let own = getpgrp();
        let input = format!("+ 0\n+ 1\n+ -1\n+ {own}\n+\n+ x\n+ 99999999999\n\n\0\u{7f}\nmark \n");
        let long = vec![b'+'; 1 << 20];
        let input = [input.as_bytes(), &long, b"\n\xff\xfe\n+ 70002\n"].concat();
        let (groups, _) = follow(&input);
        assert_eq!(groups.groups.keys().collect::<Vec<_>>(), [&70002]);
        assert_eq!(groups.mark, None);
    }

    #[test]
    fn memory_is_bounded() {
        let lines: String = (2..10_000)
            .map(|n| format!("+ {}\n", 100_000 + n))
            .collect();
        assert_eq!(follow(lines.as_bytes()).0.groups.len(), MAX_GROUPS);
    }

    #[test]
    fn a_reused_number_is_left_alone() {
        // The process of this test stands for one that reused the number of a group.
        let own = Pid::this();
        let mut groups = GuardedGroups::default();
        groups.groups.insert(own.as_raw(), None);
        assert_eq!(groups.groups(), []);
        groups.groups.insert(own.as_raw(), Process::read(own));
        assert_eq!(groups.groups(), [own]);
    }
}
