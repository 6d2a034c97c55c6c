//! What a process table says of a process.

use std::time::Duration;

use nix::unistd::Pid;

/// The variable that marks a server and all its descendants: `<kernel_mark>:<id>`.
pub const MARK_VARIABLE: &str = "MGP_SERVER";

/// A process that was running when it was read.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    pub(crate) pid: Pid,
    pub(crate) parent: Pid,
    pub(crate) group: Pid,
    /// In the units of the process table, since a fixed time.
    pub(crate) started: u64,
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// It is runnable or waits.
    Running,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// It has ended; zombies count as ended.
    Exited,
}

/// A process of the process table, with its usage.
pub(crate) struct Row {
    pub(crate) process: Process,
    /// Resident memory in bytes.
    pub(crate) memory: u64,
    /// Processor time of the process and of its descendants that ended and were waited for.
    pub(crate) cpu: Duration,
}

/// The processes below these.
pub(crate) fn find_below(mut parents: Vec<Pid>, mut rest: Vec<Process>) -> Vec<Process> {
    let mut found = Vec::<Process>::new();
    while let Some(parent) = parents.pop() {
        let children = rest.extract_if(.., |process| process.parent == parent);
        let children: Vec<_> = children.collect();
        parents.extend(children.iter().map(|child| child.pid));
        found.extend(children);
    }
    found
}
