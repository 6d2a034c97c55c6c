//! Resource usage of servers' processes and the kernel (MGP §11.3, §11.4).
//!
//! Usage is read only on request or for servers with limits. One thread at a time reads the process table, at
//! most once within [`SNAPSHOT_MAX_AGE`]: it takes some milliseconds with a few hundred processes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::servers::resources::{ResourceLimits, ResourceUsage};
use mgp_platform::processes::{ProcessTree, ProcessUsage, measure_all, measure_self};
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::health::ResourcesInUse;
use tokio::sync::{Semaphore, watch};

use mgp_runtime::task;
use mgp_runtime::time::monotonic_now;

/// A younger snapshot is reused, unless a generation has started since.
const SNAPSHOT_MAX_AGE: Duration = Duration::from_millis(500);

/// The generations with processes, and their last usage.
#[derive(Debug)]
pub struct ResourceMonitor {
    /// By the process id of the leader.
    running: Mutex<BTreeMap<i32, RunningTree>>,
    latest: watch::Sender<Arc<ResourceSnapshot>>,
    sampling: Semaphore,
}

/// One generation of a server or instance.
#[derive(Debug, Clone)]
struct RunningTree {
    generation: RunningGeneration,
    tree: ProcessTree,
}

/// The owner of processes, and their limits.
#[derive(Debug, Clone)]
pub struct RunningGeneration {
    /// The id of the server or instance.
    pub key: ServerId,
    /// The agent of an instance.
    pub agent: Option<AgentId>,
    /// The limits of the processes.
    pub limits: ResourceLimits,
}

/// Resource usage at one moment.
#[derive(Debug, Default)]
pub struct ResourceSnapshot {
    taken_at: Option<MonotonicTime>,
    kernel: ResourceUsage,
    generations: BTreeMap<i32, (RunningGeneration, ResourceUsage)>,
    servers: BTreeMap<ServerId, ResourceUsage>,
}

/// Tracks the processes of a generation until dropped.
#[derive(Debug)]
pub(super) struct TrackedGeneration {
    monitor: Arc<ResourceMonitor>,
    leader: i32,
}

impl ResourceMonitor {
    /// Creates a monitor without generations.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            running: Mutex::default(),
            latest: watch::Sender::default(),
            sampling: Semaphore::new(1),
        })
    }

    /// The current usage, or a recent snapshot.
    pub async fn sample(&self) -> Arc<ResourceSnapshot> {
        if let Some(fresh) = self.fresh_snapshot() {
            return fresh;
        }
        let _turn = self.sampling.acquire().await;
        // Another task may have read it meanwhile.
        if let Some(fresh) = self.fresh_snapshot() {
            return fresh;
        }
        let running = self.running_trees();
        let snapshot =
            task::run_blocking("resources.look", move || Arc::new(build_snapshot(&running)));
        let snapshot = snapshot.await.unwrap_or_default();
        self.latest.send_replace(snapshot.clone());
        snapshot
    }

    fn running_trees(&self) -> Vec<(i32, RunningTree)> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.clone().into_iter().collect()
    }

    /// The last snapshot, however old, without waiting.
    #[must_use]
    pub(crate) fn latest(&self) -> Arc<ResourceSnapshot> {
        self.latest.borrow().clone()
    }

    /// A watch on all new snapshots.
    #[must_use]
    pub fn watch_snapshots(&self) -> watch::Receiver<Arc<ResourceSnapshot>> {
        self.latest.subscribe()
    }

    /// The last snapshot, if it is recent and contains all running generations.
    fn fresh_snapshot(&self) -> Option<Arc<ResourceSnapshot>> {
        let (now, snapshot) = (monotonic_now(), self.latest());
        let young = snapshot
            .taken_at
            .is_some_and(|at| now.duration_since(at) < SNAPSHOT_MAX_AGE);
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = running
            .keys()
            .all(|generation| snapshot.generations.contains_key(generation));
        (young && whole).then_some(snapshot)
    }

    /// Tracks the processes of a generation from now on. `marked` is the name in their mark.
    pub(super) fn track_generation(
        self: &Arc<Self>,
        leader: i32,
        generation: RunningGeneration,
        kernel_mark: &str,
        marked: &ServerId,
    ) -> TrackedGeneration {
        let tree = RunningTree {
            generation,
            tree: ProcessTree::new(leader, kernel_mark, marked.as_str()),
        };
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.insert(leader, tree);
        TrackedGeneration {
            monitor: self.clone(),
            leader,
        }
    }
}

impl ResourceSnapshot {
    /// The usage of the kernel's own process.
    #[must_use]
    pub fn kernel(&self) -> ResourcesInUse {
        to_protocol_resources(self.kernel)
    }

    /// The usage of a server's processes, or of the instance with this id; `None` without processes.
    #[must_use]
    pub fn server(&self, key: &ServerId) -> Option<ResourcesInUse> {
        self.servers.get(key).copied().map(to_protocol_resources)
    }

    /// The time of the snapshot; `None` for an empty one.
    #[must_use]
    pub fn taken_at(&self) -> Option<MonotonicTime> {
        self.taken_at
    }

    /// The usage of each generation, by the process id of its leader.
    pub fn generations(&self) -> impl Iterator<Item = (i32, &RunningGeneration, ResourceUsage)> {
        let generations = self.generations.iter();
        generations.map(|(leader, (generation, used))| (*leader, generation, *used))
    }

    /// The usage of each server.
    pub fn servers(&self) -> impl Iterator<Item = (&ServerId, ResourcesInUse)> {
        self.servers
            .iter()
            .map(|(key, used)| (key, to_protocol_resources(*used)))
    }
}

impl TrackedGeneration {
    /// The current usage of its processes, or a recent one.
    pub(super) async fn sample(&self) -> Option<ResourceUsage> {
        let snapshot = self.monitor.sample().await;
        snapshot
            .generations
            .get(&self.leader)
            .map(|(_, used)| *used)
    }
}

impl Drop for TrackedGeneration {
    fn drop(&mut self) {
        let running = &self.monitor.running;
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        running.remove(&self.leader);
    }
}

fn build_snapshot(running: &[(i32, RunningTree)]) -> ResourceSnapshot {
    let trees: Vec<_> = running
        .iter()
        .map(|(_, generation)| generation.tree.clone())
        .collect();
    let mut snapshot = ResourceSnapshot {
        taken_at: Some(monotonic_now()),
        kernel: to_resource_use(measure_self()),
        ..ResourceSnapshot::default()
    };
    snapshot.kernel.processes += trees.len() as u64;
    for ((leader, generation), usage) in running.iter().zip(measure_all(&trees)) {
        let usage = to_resource_use(usage);
        snapshot
            .generations
            .insert(*leader, (generation.generation.clone(), usage));
        let sum = snapshot
            .servers
            .entry(generation.generation.key.clone())
            .or_default();
        sum.memory += usage.memory;
        sum.cpu += usage.cpu;
        sum.descriptors += usage.descriptors;
        sum.processes += usage.processes;
    }
    snapshot
}

fn to_resource_use(usage: ProcessUsage) -> ResourceUsage {
    let ProcessUsage {
        memory,
        cpu,
        descriptors,
        processes,
    } = usage;
    ResourceUsage {
        memory,
        cpu,
        descriptors,
        processes,
    }
}

fn to_protocol_resources(used: ResourceUsage) -> ResourcesInUse {
    ResourcesInUse {
        memory_bytes: used.memory,
        cpu_seconds: used.cpu.as_secs_f64(),
        open_descriptors: used.descriptors,
        children: used.processes.saturating_sub(1),
    }
}
