//! Resource usage of servers, from the process table: memory, processor time, descriptors, processes.
//!
//! One pass serves any number of servers: it reads `/proc/PID/stat` of every process once (some milliseconds for a few
//! hundred), the environment of those that left their server's tree, and the descriptors of servers' processes.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::time::Duration;

use mgp_protocol::ids::ServerId;
use nix::unistd::{Pid, SysconfVar, sysconf};

use super::descendants::{Descendant, ProcStat, ProcessSet};

/// Most processes that are read in one pass; on a machine with more the values are too low.
const MAX_PROCESSES: usize = 65_536;
/// Most bytes of an environment that are read: the mark of a server is in its first kilobytes.
const MAX_ENVIRONMENT: u64 = 256 << 10;
/// Most descriptors that are counted one by one, if the system does not report their number.
const MAX_DESCRIPTORS: usize = 1 << 20;

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
    pub fn new(leader: i32, kernel_mark: &str, id: &ServerId) -> Self {
        Self(ProcessSet::for_server(
            Pid::from_raw(leader),
            kernel_mark,
            id.as_str(),
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
    let own = ProcessRow::read(Pid::this());
    own.iter().for_each(|row| usage.add(row));
    usage
}

impl ProcessUsage {
    fn add(&mut self, row: &ProcessRow) {
        self.memory = self.memory.saturating_add(row.memory);
        self.cpu = self.cpu.saturating_add(row.cpu);
        let open = count_descriptors(row.process.pid);
        self.descriptors = self.descriptors.saturating_add(open);
        self.processes += 1;
    }
}

struct ProcessRow {
    process: Descendant,
    memory: u64,
    cpu: Duration,
}

impl ProcessRow {
    fn read(pid: Pid) -> Option<Self> {
        let stat = ProcStat::read(pid)?;
        Some(Self {
            process: stat.to_descendant(pid)?,
            memory: stat
                .pages()
                .saturating_mul(sysconf_or(SysconfVar::PAGE_SIZE, 4096)),
            cpu: Duration::from_secs(1)
                .saturating_mul(u32::try_from(stat.ticks()).unwrap_or(u32::MAX))
                / u32::try_from(sysconf_or(SysconfVar::CLK_TCK, 100)).unwrap_or(100),
        })
    }
}

fn sysconf_or(what: SysconfVar, usual: u64) -> u64 {
    let reported = sysconf(what).ok().flatten();
    reported
        .and_then(|reported| u64::try_from(reported).ok())
        .filter(|reported| *reported > 0)
        .unwrap_or(usual)
}

/// All running processes.
struct ProcessTable(Vec<ProcessRow>);

impl ProcessTable {
    fn read() -> Self {
        let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let rows = numbers.filter_map(|number| ProcessRow::read(Pid::from_raw(number)));
        Self(rows.take(MAX_PROCESSES).collect())
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
        let own = Pid::this();
        for (row, owner) in self.0.iter().zip(owners) {
            if owner.is_some() || row.process.pid == own || trees.is_empty() {
                continue;
            }
            let Some(all) = read_environment(row.process.pid) else {
                continue;
            };
            let is_marked = |tree: &ProcessTree| tree.0.is_marked_environment(&row.process, &all);
            *owner = trees.iter().position(is_marked);
        }
    }
}

fn find_owner(trees: &[ProcessTree], process: &Descendant) -> Option<usize> {
    trees
        .iter()
        .position(|tree| tree.0.contains_group_member(process))
}

fn read_environment(pid: Pid) -> Option<Vec<u8>> {
    let file = File::open(format!("/proc/{pid}/environ")).ok()?;
    let mut all = Vec::new();
    file.take(MAX_ENVIRONMENT).read_to_end(&mut all).ok()?;
    Some(all)
}

fn count_descriptors(pid: Pid) -> u64 {
    let folder = format!("/proc/{pid}/fd");
    match fs::metadata(&folder).map(|folder| folder.len()) {
        Ok(0) | Err(_) => {
            let open = fs::read_dir(&folder).into_iter().flatten();
            open.take(MAX_DESCRIPTORS).count() as u64
        }
        Ok(count) => count,
    }
}

#[cfg(test)]
mod tests {
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
        let tree = ProcessTree::new(leader, "nobody", &ServerId::new("a"));
        let none = ProcessTree::new(i32::MAX, "nobody", &ServerId::new("b"));
        let [usage, nothing] = measure_all(&[tree, none])[..] else {
            panic!("one for each");
        };
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert_eq!(usage.processes, 3, "{usage:?}");
        assert!(usage.memory > 0 && usage.descriptors >= 9, "{usage:?}");
        assert_eq!(nothing, ProcessUsage::default());
    }
}
