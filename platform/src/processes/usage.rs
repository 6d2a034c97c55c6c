//! Resource usage of servers, from the process table: memory, processor time, descriptors, processes.
//!
//! One pass serves any number of servers: it reads every process once (some milliseconds for a few hundred), the
//! environment of those that left their server's tree, and the descriptors of servers' processes.

use std::collections::HashMap;
use std::time::Duration;

use nix::unistd::Pid;

use super::ProcessSet;
use crate::process::{Process, Row};
use crate::system::table;

/// Most processes that are read in one pass; on a machine with more the values are too low.
const MAX_PROCESSES: usize = 65_536;

/// The resource usage of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    /// Resident memory in bytes; shared memory counts for each process.
    pub memory: u64,
    /// Processor time of the running processes, and of their ended descendants.
    pub cpu: Duration,
    /// Open descriptors of the processes whose descriptors may be read.
    pub descriptors: u64,
    /// The number of processes.
    pub processes: u64,
}

/// Identifies the processes of one server instance.
#[derive(Clone, Debug)]
pub struct ProcessTree(ProcessSet);

impl ProcessTree {
    /// The processes below this leader, in its group or with its mark.
    #[must_use]
    pub fn new(leader: i32, kernel_mark: &str, id: &str) -> Self {
        Self(ProcessSet::for_server(
            Pid::from_raw(leader),
            kernel_mark,
            id,
        ))
    }
}

/// The current usage of each tree, in their order. Blocks.
#[must_use]
pub fn measure_all(trees: &[ProcessTree]) -> Vec<ProcessUsage> {
    let table = ProcessTable::read();
    let owners = table.find_owners(trees);
    let mut sums = vec![ProcessUsage::default(); trees.len()];
    for (row, owner) in table.0.iter().zip(owners) {
        if let Some(owner) = owner {
            sums[owner].add(row);
        }
    }
    sums
}

/// The usage of this process alone. Blocks.
#[must_use]
pub fn measure_self() -> ProcessUsage {
    let mut usage = ProcessUsage::default();
    let own = table::read(Pid::this());
    own.iter().for_each(|row| usage.add(row));
    usage
}

impl ProcessUsage {
    fn add(&mut self, row: &Row) {
        self.memory = self.memory.saturating_add(row.memory);
        self.cpu = self.cpu.saturating_add(row.cpu);
        let open = table::count_descriptors(row.process.pid);
        self.descriptors = self.descriptors.saturating_add(open);
        self.processes += 1;
    }
}

/// All running processes.
struct ProcessTable(Vec<Row>);

impl ProcessTable {
    fn read() -> Self {
        Self(table::read_all().take(MAX_PROCESSES).collect())
    }

    /// The tree of each process: that of its nearest ancestor with a known tree.
    fn find_owners(&self, trees: &[ProcessTree]) -> Vec<Option<usize>> {
        let indices = self.0.iter().enumerate();
        let indices: HashMap<Pid, usize> = indices
            .map(|(index, row)| (row.process.pid, index))
            .collect();
        let known: Vec<_> = self
            .0
            .iter()
            .map(|row| find_owner(trees, &row.process))
            .collect();
        let parent = |index: usize| indices.get(&self.0[index].process.parent).copied();
        let mut owners: Vec<_> = (0..known.len())
            .map(|index| {
                // Bounded by the table, which may be inconsistent if it changed while it was read.
                let mut ancestors =
                    std::iter::successors(Some(index), |index| parent(*index)).take(known.len());
                ancestors.find_map(|index| known[index])
            })
            .collect();
        self.find_strays(trees, &mut owners);
        owners
    }

    /// Finds processes that left their server's group and lost their parent, by their mark.
    fn find_strays(&self, trees: &[ProcessTree], owners: &mut [Option<usize>]) {
        if trees.is_empty() {
            return;
        }
        let own = Pid::this();
        let indices = (0..self.0.len()).filter(|index| owners[*index].is_none());
        let strays = indices.map(|index| (self.0[index].process.pid, index));
        let strays: HashMap<_, _> = strays.filter(|(pid, _)| *pid != own).collect();
        let processes = strays.values().map(|index| self.0[*index].process);
        let processes: Vec<_> = processes.collect();
        table::read_environment_starts(&processes, |process, environment| {
            let is_marked = |tree: &ProcessTree| tree.0.is_marked_environment(process, environment);
            owners[strays[&process.pid]] = trees.iter().position(is_marked);
        });
    }
}

fn find_owner(trees: &[ProcessTree], process: &Process) -> Option<usize> {
    trees
        .iter()
        .position(|tree| tree.0.contains_group_member(process))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn this_process_uses_memory_and_time_and_has_descriptors() {
        let usage = measure_self();
        assert_eq!(usage.processes, 1);
        assert!(usage.memory > 1 << 20, "{usage:?}");
        assert!(usage.descriptors >= 3, "{usage:?}");
    }

    /// MGP-135: descendants count for the server, and no other process does.
    #[test]
    fn a_tree_has_all_descendants_of_its_leader() {
        let mut shell = std::process::Command::new("sh");
        shell.args([
            "-c",
            "sleep 60 & a=$!; sleep 60 & echo; read line; kill $a $!",
        ]);
        shell.stdin(std::process::Stdio::piped());
        shell.stdout(std::process::Stdio::piped());
        let mut shell = std::os::unix::process::CommandExt::process_group(&mut shell, 0)
            .spawn()
            .unwrap();
        let mut byte = [0];
        shell
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut byte)
            .unwrap();
        let leader = shell.id().cast_signed();
        let tree = ProcessTree::new(leader, "nobody", "a");
        let none = ProcessTree::new(i32::MAX, "nobody", "b");
        let [usage, nothing] = measure_all(&[tree, none])[..] else {
            panic!("one for each");
        };
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert_eq!(usage.processes, 3, "{usage:?}");
        assert!(usage.memory > 0, "{usage:?}");
        let is_counted = crate::WEAKNESSES.iter().all(|it| it.area != "resources");
        assert_eq!(usage.descriptors >= 9, is_counted, "{usage:?}");
        assert_eq!(nothing, ProcessUsage::default());
    }
}
