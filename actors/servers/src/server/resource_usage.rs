//! What the processes of servers and the kernel itself use of the machine (MGP §11.3, §11.4).
//!
//! Nothing is looked up unless somebody asks or a server has limits. However many ask, the process table
//! is read by one thread at a time, and at most once within [`SNAPSHOT_MAX_AGE`]: a look takes some milliseconds
//! where a few hundred processes run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::servers::resources::{ResourceLimits, ResourceUsage};
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::health::ResourcesInUse;
use mgp_transports::child::{ProcessTree, ProcessUsage, measure_all, measure_self};
use tokio::sync::{Semaphore, watch};

use mgp_runtime::task;
use mgp_runtime::time::monotonic_now;

/// A look that is younger than this is not repeated, unless a life has begun since.
const SNAPSHOT_MAX_AGE: Duration = Duration::from_millis(500);

/// The lives that have processes, and what was seen of them last.
#[derive(Debug)]
pub struct ResourceMonitor {
    /// By the process id of the leader.
    running: Mutex<BTreeMap<i32, RunningTree>>,
    latest: watch::Sender<Arc<ResourceSnapshot>>,
    sampling: Semaphore,
}

/// One life of a server, or of an instance of it.
#[derive(Debug, Clone)]
struct RunningTree {
    generation: RunningGeneration,
    tree: ProcessTree,
}

/// Whose processes they are, and what they may use.
#[derive(Debug, Clone)]
pub struct RunningGeneration {
    /// The server, or the instance of it.
    pub key: ServerId,
    /// Whose instance it is.
    pub agent: Option<AgentId>,
    /// What its processes may use.
    pub limits: ResourceLimits,
}

/// What was seen at one moment.
#[derive(Debug, Default)]
pub struct ResourceSnapshot {
    taken_at: Option<MonotonicTime>,
    kernel: ResourceUsage,
    generations: BTreeMap<i32, (RunningGeneration, ResourceUsage)>,
    servers: BTreeMap<ServerId, ResourceUsage>,
}

/// Has the processes of a life counted, until it is dropped.
#[derive(Debug)]
pub(super) struct TrackedGeneration {
    monitor: Arc<ResourceMonitor>,
    leader: i32,
}

impl ResourceMonitor {
    /// Of a kernel without servers.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            running: Mutex::default(),
            latest: watch::Sender::default(),
            sampling: Semaphore::new(1),
        })
    }

    /// What is used now, or was a moment ago.
    pub async fn sample(&self) -> Arc<ResourceSnapshot> {
        if let Some(fresh) = self.fresh_snapshot() {
            return fresh;
        }
        let _turn = self.sampling.acquire().await;
        // Another one may have looked meanwhile.
        if let Some(fresh) = self.fresh_snapshot() {
            return fresh;
        }
        let running = self.running_trees();
        let look = task::run_blocking("resources.look", move || Arc::new(build_snapshot(&running)));
        let look = look.await.unwrap_or_default();
        self.latest.send_replace(look.clone());
        look
    }

    fn running_trees(&self) -> Vec<(i32, RunningTree)> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.clone().into_iter().collect()
    }

    /// The last look, however old: for who must not wait.
    #[must_use]
    pub(crate) fn latest(&self) -> Arc<ResourceSnapshot> {
        self.latest.borrow().clone()
    }

    /// The looks that are taken, by whomever.
    #[must_use]
    pub fn watch_snapshots(&self) -> watch::Receiver<Arc<ResourceSnapshot>> {
        self.latest.subscribe()
    }

    /// The last look, while it is young and has every life that runs.
    fn fresh_snapshot(&self) -> Option<Arc<ResourceSnapshot>> {
        let (now, look) = (monotonic_now(), self.latest());
        let young = look
            .taken_at
            .is_some_and(|at| now.duration_since(at) < SNAPSHOT_MAX_AGE);
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = running
            .keys()
            .all(|life| look.generations.contains_key(life));
        (young && whole).then_some(look)
    }

    /// Counts the processes of a life from now on. Their mark names `marked`.
    pub(super) fn track_generation(
        self: &Arc<Self>,
        leader: i32,
        life: RunningGeneration,
        kernel_mark: &str,
        marked: &ServerId,
    ) -> TrackedGeneration {
        let tree = RunningTree {
            generation: life,
            tree: ProcessTree::new(leader, kernel_mark, marked),
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
    /// What the kernel's own process uses.
    #[must_use]
    pub fn kernel(&self) -> ResourcesInUse {
        to_protocol_resources(self.kernel)
    }

    /// What the processes of a server use, or those of the instance of this name; `None` where it has none.
    #[must_use]
    pub fn server(&self, key: &ServerId) -> Option<ResourcesInUse> {
        self.servers.get(key).copied().map(to_protocol_resources)
    }

    /// When it was taken; `None` for none.
    #[must_use]
    pub fn taken_at(&self) -> Option<MonotonicTime> {
        self.taken_at
    }

    /// What each life uses, by the process id of its leader.
    pub fn generations(&self) -> impl Iterator<Item = (i32, &RunningGeneration, ResourceUsage)> {
        let lives = self.generations.iter();
        lives.map(|(leader, (life, used))| (*leader, life, *used))
    }

    /// What each of them uses.
    pub fn servers(&self) -> impl Iterator<Item = (&ServerId, ResourcesInUse)> {
        self.servers
            .iter()
            .map(|(key, used)| (key, to_protocol_resources(*used)))
    }
}

impl TrackedGeneration {
    /// What its processes use now, or did a moment ago.
    pub(super) async fn sample(&self) -> Option<ResourceUsage> {
        let look = self.monitor.sample().await;
        look.generations.get(&self.leader).map(|(_, used)| *used)
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
    let trees: Vec<_> = running.iter().map(|(_, life)| life.tree.clone()).collect();
    let mut look = ResourceSnapshot {
        taken_at: Some(monotonic_now()),
        kernel: to_resource_use(measure_self()),
        ..ResourceSnapshot::default()
    };
    look.kernel.processes += trees.len() as u64;
    for ((leader, life), usage) in running.iter().zip(measure_all(&trees)) {
        let usage = to_resource_use(usage);
        look.generations
            .insert(*leader, (life.generation.clone(), usage));
        let sum = look.servers.entry(life.generation.key.clone()).or_default();
        sum.memory += usage.memory;
        sum.cpu += usage.cpu;
        sum.descriptors += usage.descriptors;
        sum.processes += usage.processes;
    }
    look
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
