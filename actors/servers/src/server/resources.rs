//! What the processes of servers and the kernel itself use of the machine (MGP §11.3, §11.4).
//!
//! Nothing is looked up unless somebody asks or a server has limits. However many ask, the process table
//! is read by one thread at a time, and at most once within [`FRESH`]: a look takes some milliseconds
//! where a few hundred processes run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::servers::resources::{ResourceLimits, ResourceUse};
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::health::ResourcesInUse;
use mgp_transports::child::{ProcessTree, ProcessUsage, usage_of_this, usages};
use tokio::sync::{Semaphore, watch};

use mgp_runtime::task;
use mgp_runtime::time::moment;

/// A look that is younger than this is not repeated, unless a life has begun since.
const FRESH: Duration = Duration::from_millis(500);

/// The lives that have processes, and what was seen of them last.
#[derive(Debug)]
pub struct ResourceFigures {
    /// By the process id of the leader.
    running: Mutex<BTreeMap<i32, RunningTree>>,
    latest: watch::Sender<Arc<ResourceLook>>,
    looking: Semaphore,
}

/// One life of a server, or of an instance of it.
#[derive(Debug, Clone)]
struct RunningTree {
    life: RunningLife,
    tree: ProcessTree,
}

/// Whose processes they are, and what they may use.
#[derive(Debug, Clone)]
pub struct RunningLife {
    /// The server, or the instance of it.
    pub key: ServerId,
    /// Whose instance it is.
    pub agent: Option<AgentId>,
    /// What its processes may use.
    pub limits: ResourceLimits,
}

/// What was seen at one moment.
#[derive(Debug, Default)]
pub struct ResourceLook {
    at: Option<MonotonicTime>,
    kernel: ResourceUse,
    lives: BTreeMap<i32, (RunningLife, ResourceUse)>,
    servers: BTreeMap<ServerId, ResourceUse>,
}

/// Has the processes of a life counted, until it is dropped.
#[derive(Debug)]
pub(super) struct CountedLife {
    figures: Arc<ResourceFigures>,
    leader: i32,
}

impl ResourceFigures {
    /// Of a kernel without servers.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            running: Mutex::default(),
            latest: watch::Sender::default(),
            looking: Semaphore::new(1),
        })
    }

    /// What is used now, or was a moment ago.
    pub async fn look(&self) -> Arc<ResourceLook> {
        if let Some(fresh) = self.fresh() {
            return fresh;
        }
        let _turn = self.looking.acquire().await;
        // Another one may have looked meanwhile.
        if let Some(fresh) = self.fresh() {
            return fresh;
        }
        let running = self.running();
        let look = task::blocking("resources.look", move || Arc::new(seen(&running)));
        let look = look.await.unwrap_or_default();
        self.latest.send_replace(look.clone());
        look
    }

    fn running(&self) -> Vec<(i32, RunningTree)> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.clone().into_iter().collect()
    }

    /// The last look, however old: for who must not wait.
    #[must_use]
    pub fn latest(&self) -> Arc<ResourceLook> {
        self.latest.borrow().clone()
    }

    /// The looks that are taken, by whomever.
    #[must_use]
    pub fn looks(&self) -> watch::Receiver<Arc<ResourceLook>> {
        self.latest.subscribe()
    }

    /// The last look, while it is young and has every life that runs.
    fn fresh(&self) -> Option<Arc<ResourceLook>> {
        let (now, look) = (moment(), self.latest());
        let young = look.at.is_some_and(|at| now.since(at) < FRESH);
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = running.keys().all(|life| look.lives.contains_key(life));
        (young && whole).then_some(look)
    }

    /// Counts the processes of a life from now on. Their mark names `marked`.
    pub(super) fn count(
        self: &Arc<Self>,
        leader: i32,
        life: RunningLife,
        kernel_mark: &str,
        marked: &ServerId,
    ) -> CountedLife {
        let tree = RunningTree {
            life,
            tree: ProcessTree::new(leader, kernel_mark, marked),
        };
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.insert(leader, tree);
        CountedLife {
            figures: self.clone(),
            leader,
        }
    }
}

impl ResourceLook {
    /// What the kernel's own process uses.
    #[must_use]
    pub fn kernel(&self) -> ResourcesInUse {
        told(self.kernel)
    }

    /// What the processes of a server use, or those of the instance of this name; `None` where it has none.
    #[must_use]
    pub fn server(&self, key: &ServerId) -> Option<ResourcesInUse> {
        self.servers.get(key).copied().map(told)
    }

    /// When it was taken; `None` for none.
    #[must_use]
    pub fn at(&self) -> Option<MonotonicTime> {
        self.at
    }

    /// What each life uses, by the process id of its leader.
    pub fn lives(&self) -> impl Iterator<Item = (i32, &RunningLife, ResourceUse)> {
        let lives = self.lives.iter();
        lives.map(|(leader, (life, used))| (*leader, life, *used))
    }

    /// What each of them uses.
    pub fn servers(&self) -> impl Iterator<Item = (&ServerId, ResourcesInUse)> {
        self.servers.iter().map(|(key, used)| (key, told(*used)))
    }
}

impl CountedLife {
    /// What its processes use now, or did a moment ago.
    pub(super) async fn look(&self) -> Option<ResourceUse> {
        let look = self.figures.look().await;
        look.lives.get(&self.leader).map(|(_, used)| *used)
    }
}

impl Drop for CountedLife {
    fn drop(&mut self) {
        let running = &self.figures.running;
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        running.remove(&self.leader);
    }
}

fn seen(running: &[(i32, RunningTree)]) -> ResourceLook {
    let trees: Vec<_> = running.iter().map(|(_, life)| life.tree.clone()).collect();
    let mut look = ResourceLook {
        at: Some(moment()),
        kernel: used(usage_of_this()),
        ..ResourceLook::default()
    };
    look.kernel.processes += trees.len() as u64;
    for ((leader, life), usage) in running.iter().zip(usages(&trees)) {
        let usage = used(usage);
        look.lives.insert(*leader, (life.life.clone(), usage));
        let sum = look.servers.entry(life.life.key.clone()).or_default();
        sum.memory += usage.memory;
        sum.cpu += usage.cpu;
        sum.descriptors += usage.descriptors;
        sum.processes += usage.processes;
    }
    look
}

fn used(usage: ProcessUsage) -> ResourceUse {
    let ProcessUsage {
        memory,
        cpu,
        descriptors,
        processes,
    } = usage;
    ResourceUse {
        memory,
        cpu,
        descriptors,
        processes,
    }
}

fn told(used: ResourceUse) -> ResourcesInUse {
    ResourcesInUse {
        memory_bytes: used.memory,
        cpu_seconds: used.cpu.as_secs_f64(),
        open_descriptors: used.descriptors,
        children: used.processes.saturating_sub(1),
    }
}
