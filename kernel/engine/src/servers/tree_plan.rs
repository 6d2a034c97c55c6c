//! Which servers the supervision tree runs: those of the configuration, and those that were registered.
//!
//! A change has two steps. First the default policies it needs are asked for, so that no server has a
//! tool before they are in force; the change itself follows when they are, and is dropped when they are
//! refused: then everything is as it was before.
//!
//! It also decides what becomes of the other actors at the root of the tree when one is lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::access::DefaultPolicy;

use crate::clock::MonotonicTime;
use crate::policy::access::Defaults;
use crate::servers::reload::Reload;
use crate::servers::spec::ServerSpec;

/// So many actors at the root may be started again within so long; one more ends the kernel, for what
/// they are made again from is what breaks them.
const RESTARTS: usize = 5;
const WITHIN: Duration = Duration::from_secs(60);

/// What it means to lose an actor at the root of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The kernel ends in good order.
    EndsKernel,
    /// It is started again.
    Restarted,
}

/// What the configuration says of servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Those that can be run; each id once.
    pub servers: Vec<ServerSpec>,
    /// Those that cannot, and why.
    pub broken: Vec<(ServerId, String)>,
    /// What agents may do where nothing was granted or denied.
    pub policy: DefaultPolicy,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeEvent {
    /// The configuration was read. The names are those of registered servers, also of those that wait
    /// for a person or are being taken out.
    Configured(Configuration, BTreeSet<ServerId>),
    /// A server was registered.
    Registered(Box<ServerSpec>),
    /// A registered server is to go.
    Deregistered(ServerId),
    /// The default policies that were asked for are in force.
    DefaultsSet,
    /// They are not.
    DefaultsRefused,
    /// The supervisor of a server could not be started.
    NotStarted(ServerId, String),
    /// The supervisor of a server has ended or failed.
    Ended(ServerId),
    /// An actor at the root was lost, at this time.
    RootLost(&'static str, Loss, MonotonicTime),
    /// The kernel ends: nothing is started any more.
    Stopping,
}

/// What the tree is to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeEffect {
    /// Ask for these default policies; answered by [`TreeEvent::DefaultsSet`] or
    /// [`TreeEvent::DefaultsRefused`].
    SetDefaults(Defaults),
    /// Stop a server, and show it no more. Its supervisor says [`TreeEvent::Ended`] when it has.
    Stop(ServerId),
    /// Show a server that cannot be run as it is configured.
    ShowBroken(ServerId, String),
    /// Start the supervisor of a server.
    Start(ServerSpec),
    /// Show a server that is started when the earlier one of its name has ended.
    Hold(ServerSpec),
    /// Give a server another configuration.
    Reconfigure(ServerSpec),
    /// Show a broken one no more.
    Hide(ServerId),
    /// Start an actor at the root again.
    RestartRoot(&'static str),
    /// End the kernel in good order.
    EndKernel,
}

/// The plan of the tree.
#[derive(Clone, Debug)]
pub struct TreePlan {
    /// All that are to run.
    wanted: BTreeMap<ServerId, ServerSpec>,
    /// Those of them that were registered.
    registered: BTreeSet<ServerId>,
    policy: DefaultPolicy,
    /// Those that have a supervisor, which may be ending.
    supervised: BTreeSet<ServerId>,
    /// Those that are shown as broken.
    broken: BTreeSet<ServerId>,
    /// The change whose default policies were asked for.
    pending: Option<Change>,
    /// When actors at the root were started again; no more than [`RESTARTS`].
    restarts: VecDeque<MonotonicTime>,
    stopping: bool,
}

/// A change that waits for its default policies.
#[derive(Clone, Debug)]
enum Change {
    Configure {
        /// All that are to run afterwards.
        wanted: BTreeMap<ServerId, ServerSpec>,
        broken: Vec<(ServerId, String)>,
        policy: DefaultPolicy,
        taken: BTreeSet<ServerId>,
    },
    Register(Box<ServerSpec>),
}

impl TreePlan {
    /// A tree without servers.
    #[must_use]
    pub fn new() -> Self {
        Self {
            wanted: BTreeMap::new(),
            registered: BTreeSet::new(),
            // The strictest, until a configuration says which.
            policy: DefaultPolicy::OptIn,
            supervised: BTreeSet::new(),
            broken: BTreeSet::new(),
            pending: None,
            restarts: VecDeque::new(),
            stopping: false,
        }
    }

    /// Takes note of what happened; answers what is to be done.
    pub fn handle(&mut self, event: TreeEvent) -> Vec<TreeEffect> {
        match event {
            TreeEvent::Configured(read, taken) => self.configured(read, taken),
            TreeEvent::Registered(spec) => self.register(spec),
            TreeEvent::Deregistered(id) => self.deregister(&id),
            TreeEvent::DefaultsSet => match self.pending.take() {
                Some(Change::Configure {
                    wanted,
                    broken,
                    policy,
                    taken,
                }) => self.configure(wanted, broken, policy, &taken),
                Some(Change::Register(spec)) => {
                    self.registered.insert(spec.id.clone());
                    vec![self.add(*spec)]
                }
                None => Vec::new(),
            },
            TreeEvent::DefaultsRefused => {
                self.pending = None;
                Vec::new()
            }
            TreeEvent::NotStarted(id, why) => self.not_started(id, why),
            TreeEvent::Ended(id) => self.ended(&id),
            TreeEvent::RootLost(name, loss, now) => self.root_lost(name, loss, now),
            TreeEvent::Stopping => {
                self.stopping = true;
                Vec::new()
            }
        }
    }

    /// The configuration without the servers whose name a registered one has, which count as broken: what
    /// agents may do on that one was not said of another.
    #[must_use]
    pub fn without_taken(
        &self,
        mut read: Configuration,
        taken: &BTreeSet<ServerId>,
    ) -> Configuration {
        let is_taken = |id: &ServerId| {
            taken.contains(id) && (!self.wanted.contains_key(id) || self.registered.contains(id))
        };
        let (no, yes) = read
            .servers
            .into_iter()
            .partition(|spec| is_taken(&spec.id));
        read.servers = yes;
        let no: Vec<ServerSpec> = no;
        read.broken.extend(no.into_iter().map(|spec| {
            let id = spec.id;
            let why = format!(
                "a server of the name {id} was registered while the kernel ran: give this one another name, or take that one out (`mgp servers remove {id}`)"
            );
            (id, why)
        }));
        read
    }

    /// Those that are to run.
    pub fn wanted(&self) -> impl Iterator<Item = &ServerId> {
        self.wanted.keys()
    }

    /// Whether a registered server of this name is to run.
    #[must_use]
    pub fn has_registered(&self, id: &ServerId) -> bool {
        self.registered.contains(id)
    }

    /// Whether the kernel ends.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    fn configured(&mut self, read: Configuration, taken: BTreeSet<ServerId>) -> Vec<TreeEffect> {
        if self.stopping {
            return Vec::new();
        }
        let Configuration {
            servers,
            broken,
            policy,
        } = self.without_taken(read, &taken);
        let configured = servers.into_iter().map(|spec| (spec.id.clone(), spec));
        let mut wanted: BTreeMap<_, _> = configured.collect();
        // An entry that is broken now leaves its server as it was.
        let stays = |id: &ServerId| {
            self.registered.contains(id) || broken.iter().any(|(broken, _)| broken == id)
        };
        for (id, spec) in self.wanted.iter().filter(|(id, _)| stays(id)) {
            wanted.entry(id.clone()).or_insert_with(|| spec.clone());
        }
        let defaults = defaults(policy, wanted.values());
        self.pending = Some(Change::Configure {
            wanted,
            broken,
            policy,
            taken,
        });
        vec![TreeEffect::SetDefaults(defaults)]
    }

    /// Makes the running servers those of the configuration; what did not change is not touched.
    fn configure(
        &mut self,
        wanted: BTreeMap<ServerId, ServerSpec>,
        broken: Vec<(ServerId, String)>,
        policy: DefaultPolicy,
        taken: &BTreeSet<ServerId>,
    ) -> Vec<TreeEffect> {
        self.policy = policy;
        let old: Vec<_> = self.wanted.values().cloned().collect();
        let new: Vec<_> = wanted.into_values().collect();
        let diff = Reload::between(&old, &new);
        let mut effects = Vec::new();
        for id in diff.removed {
            self.wanted.remove(&id);
            effects.push(TreeEffect::Stop(id));
        }
        let mut shown: BTreeSet<ServerId> = std::mem::take(&mut self.broken);
        for (id, why) in broken {
            shown.remove(&id);
            if !self.wanted.contains_key(&id) {
                self.broken.insert(id.clone());
                effects.push(TreeEffect::ShowBroken(id, why));
            }
        }
        for spec in diff.added {
            shown.remove(&spec.id);
            effects.push(self.add(spec));
        }
        for spec in diff.changed {
            self.wanted.insert(spec.id.clone(), spec.clone());
            effects.push(TreeEffect::Reconfigure(spec));
        }
        let gone = shown.into_iter();
        let gone = gone.filter(|id| !self.wanted.contains_key(id) && !taken.contains(id));
        effects.extend(gone.map(TreeEffect::Hide));
        effects
    }

    fn register(&mut self, spec: Box<ServerSpec>) -> Vec<TreeEffect> {
        if self.stopping || self.wanted.contains_key(&spec.id) {
            return Vec::new();
        }
        let defaults = defaults(self.policy, self.wanted.values().chain([&*spec]));
        self.pending = Some(Change::Register(spec));
        vec![TreeEffect::SetDefaults(defaults)]
    }

    fn deregister(&mut self, id: &ServerId) -> Vec<TreeEffect> {
        if !self.registered.remove(id) {
            return Vec::new();
        }
        self.wanted.remove(id);
        vec![TreeEffect::Stop(id.clone())]
    }

    /// A server that was taken out a moment ago may still be ending: it is started when it has.
    fn add(&mut self, spec: ServerSpec) -> TreeEffect {
        let id = &spec.id;
        self.wanted.insert(id.clone(), spec.clone());
        match self.supervised.insert(id.clone()) {
            true => TreeEffect::Start(spec),
            false => TreeEffect::Hold(spec),
        }
    }

    /// The next configuration that names it tries again.
    fn not_started(&mut self, id: ServerId, why: String) -> Vec<TreeEffect> {
        self.supervised.remove(&id);
        self.wanted.remove(&id);
        self.registered.remove(&id);
        self.broken.insert(id.clone());
        vec![TreeEffect::ShowBroken(id, why)]
    }

    /// Failed or ended, a server that is still wanted is started again.
    fn ended(&mut self, id: &ServerId) -> Vec<TreeEffect> {
        self.supervised.remove(id);
        let wanted = self.wanted.get(id).filter(|_| !self.stopping);
        let Some(spec) = wanted.cloned() else {
            return Vec::new();
        };
        self.supervised.insert(id.clone());
        vec![TreeEffect::Start(spec)]
    }

    fn root_lost(&mut self, name: &'static str, loss: Loss, now: MonotonicTime) -> Vec<TreeEffect> {
        if self.stopping {
            return Vec::new();
        }
        self.restarts.retain(|before| now.since(*before) < WITHIN);
        if loss == Loss::EndsKernel || self.restarts.len() >= RESTARTS {
            return vec![TreeEffect::EndKernel];
        }
        self.restarts.push_back(now);
        vec![TreeEffect::RestartRoot(name)]
    }
}

impl Default for TreePlan {
    fn default() -> Self {
        Self::new()
    }
}

/// What agents may do where nothing was granted or denied.
fn defaults<'a>(kernel: DefaultPolicy, servers: impl Iterator<Item = &'a ServerSpec>) -> Defaults {
    let own = servers.filter_map(|spec| Some((spec.id.clone(), spec.policy()?)));
    Defaults {
        kernel,
        servers: own.collect(),
    }
}

#[cfg(test)]
mod tests;
