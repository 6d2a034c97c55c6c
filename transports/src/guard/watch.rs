//! The guard's own process: listens, and acts once. Plain code without a runtime, so that nothing
//! but the end of the process can stop it.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp};

use crate::child::descendants::{Descendant, ProcessSet};

/// Groups remembered: far more than the servers of one machine. Later ones have only their mark.
const MAX_GROUPS: usize = 4096;

/// Longest line that means something, in bytes; a mark is shorter.
const MAX_LINE: usize = 256;

/// Time for servers to end on SIGTERM. With what follows less than two seconds after the kernel.
pub(super) const GRACE: Duration = Duration::from_millis(500);

/// Time to make sure that killed processes are gone, and those they started meanwhile.
pub(super) const KILL_TIMEOUT: Duration = Duration::from_millis(800);

/// How often the process table is looked through.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// The guard's whole life: reads the kernel's lines from `input` until it says `bye` or dies, and
/// ends the kernel's servers in the latter case. The process should exit when this returns.
///
/// Has to be called on the main thread before any other is started: it holds off the signals by
/// which terminals and service managers end the kernel.
pub fn run(input: impl Read) {
    block_signals();
    let mut wards = GuardedGroups::default();
    if !follow_commands(input, &mut wards) {
        wards.terminate_all();
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
fn follow_commands(input: impl Read, wards: &mut GuardedGroups) -> bool {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    loop {
        let (used, ended) = match input.fill_buf() {
            Ok([]) => return false,
            Ok(bytes) => take_line(bytes, &mut line),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return false,
        };
        input.consume(used);
        if ended {
            if line == b"bye" {
                return true;
            }
            wards.apply_command(&String::from_utf8_lossy(&line));
            line.clear();
        }
    }
}

/// Adds to `line` what belongs to it; answers how many bytes were used and whether it has ended.
fn take_line(bytes: &[u8], line: &mut Vec<u8>) -> (usize, bool) {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let text = &bytes[..end.unwrap_or(bytes.len())];
    // One byte over the limit is kept, so that a line that is too long is seen to be.
    let room = (MAX_LINE + 1).saturating_sub(line.len());
    line.extend_from_slice(&text[..text.len().min(room)]);
    (text.len() + usize::from(end.is_some()), end.is_some())
}

/// Who is under guard.
#[derive(Debug, Default)]
struct GuardedGroups {
    mark: Option<String>,
    /// Groups, each with its leader as it was when the kernel named it.
    groups: HashMap<i32, Option<Descendant>>,
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

    /// 0 would signal the guard itself and 1 everybody: only true groups of others are taken.
    fn add(&mut self, group: &str) {
        let Ok(group) = group.parse::<i32>() else {
            return;
        };
        if group > 1 && group != getpgrp().as_raw() && self.groups.len() < MAX_GROUPS {
            self.groups
                .insert(group, Descendant::read(Pid::from_raw(group)));
        }
    }

    /// SIGTERM for all, SIGKILL for those who stay.
    fn terminate_all(&self) {
        let kin = self.processes();
        let living = kin.find_live();
        kin.signal(&living, Signal::SIGTERM);
        if wait_until_gone(GRACE, || kin.find_live().is_empty()) {
            return;
        }
        wait_until_gone(KILL_TIMEOUT, || {
            let living = kin.find_live();
            kin.signal(&living, Signal::SIGKILL);
            living.is_empty()
        });
    }

    fn processes(&self) -> ProcessSet {
        ProcessSet::for_kernel(self.groups(), self.mark.as_deref())
    }

    /// A number whose leader is another one now was given to a stranger. A leader that has ended
    /// keeps its number from being used again for as long as its group has members.
    fn groups(&self) -> Vec<Pid> {
        let ours = |(group, leader): (&i32, &Option<Descendant>)| {
            let group = Pid::from_raw(*group);
            let now = Descendant::read(group);
            (now.is_none() || now == *leader).then_some(group)
        };
        self.groups.iter().filter_map(ours).collect()
    }
}

pub(super) fn wait_until_gone(patience: Duration, mut gone: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < patience {
        if gone() {
            return true;
        }
        sleep(POLL_INTERVAL);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(input: &[u8]) -> (GuardedGroups, bool) {
        let mut wards = GuardedGroups::default();
        let bye = follow_commands(input, &mut wards);
        (wards, bye)
    }

    #[test]
    fn groups_come_and_go() {
        let (wards, bye) = heard(b"mark m1\n+ 70000\n+ 70001\n- 70000\n- 5\n");
        assert_eq!(wards.mark.as_deref(), Some("m1"));
        assert_eq!(wards.groups.keys().collect::<Vec<_>>(), [&70001]);
        assert!(!bye);
        assert!(heard(b"+ 70000\nbye\n").1);
        assert!(!heard(b"bye").1, "a line cut off by death is no farewell");
    }

    #[test]
    fn garbage_is_survived_and_never_becomes_a_group() {
        let own = getpgrp();
        let input = format!("+ 0\n+ 1\n+ -1\n+ {own}\n+\n+ x\n+ 99999999999\n\n\0\u{7f}\nmark \n");
        let long = vec![b'+'; 1 << 20];
        let input = [input.as_bytes(), &long, b"\n\xff\xfe\n+ 70002\n"].concat();
        let (wards, _) = heard(&input);
        assert_eq!(wards.groups.keys().collect::<Vec<_>>(), [&70002]);
        assert_eq!(wards.mark, None);
    }

    #[test]
    fn memory_is_bounded() {
        let lines: String = (2..10_000)
            .map(|n| format!("+ {}\n", 100_000 + n))
            .collect();
        assert_eq!(heard(lines.as_bytes()).0.groups.len(), MAX_GROUPS);
    }

    #[test]
    fn a_number_given_to_a_stranger_is_left_alone() {
        // The process this test runs in stands for one that got the number of a group.
        let own = Pid::this();
        let mut wards = GuardedGroups::default();
        wards.groups.insert(own.as_raw(), None);
        assert_eq!(wards.groups(), []);
        wards.groups.insert(own.as_raw(), Descendant::read(own));
        assert_eq!(wards.groups(), [own]);
    }
}
