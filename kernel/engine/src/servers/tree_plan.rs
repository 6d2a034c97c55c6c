//! Decides which servers the supervision tree runs: configured ones and registered ones.
//!
//! A change has two steps. First its default policies are requested, so that no server has a tool before
//! they are in force. Then the change is made; if the policies are refused, it is dropped and everything
//! stays as it was.
//!
//! Also decides what follows the loss of an actor at the root of the tree.

pub mod reload;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::access::DefaultPolicy;

use self::reload::ConfigDiff;
use crate::clock::MonotonicTime;
use crate::policy::access::DefaultPolicies;
use crate::servers::spec::ServerSpec;

/// How many actors at the root may be restarted within this time. One more ends the kernel, because then
/// their input probably makes them fail.
const RESTARTS_MAX: usize = 5;
const RESTART_WINDOW: Duration = Duration::from_secs(60);

/// What the loss of an actor at the root means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossPolicy {
    /// The kernel stops in good order.
    StopKernel,
    /// It is restarted.
    Restart,
}

/// The configured servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Those that can be run, with unique ids.
    pub servers: Vec<ServerSpec>,
    /// Those that cannot, with the reasons.
    pub invalid: Vec<(ServerId, String)>,
    /// The default policies.
    pub policy: DefaultPolicy,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeEvent {
    /// The configuration was read. The names are those of registered servers, including those that wait for
    /// a person or are being removed.
    Configured(Configuration, BTreeSet<ServerId>),
    /// A server was registered.
    Registered(Box<ServerSpec>),
    /// A registered server is to be removed.
    Deregistered(ServerId),
    /// The requested default policies are in force.
    DefaultsSet,
    /// They were refused.
    DefaultsRejected,
    /// The supervisor of a server could not be started.
    StartFailed(ServerId, String),
    /// The supervisor of a server has ended or failed.
    Ended(ServerId),
    /// An actor at the root was lost, at this time.
    RootLost(&'static str, LossPolicy, MonotonicTime),
    /// The kernel stops: nothing is started any more.
    Stopping,
}

/// The effects, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeEffect {
    /// Request these default policies; answered by [`TreeEvent::DefaultsSet`] or
    /// [`TreeEvent::DefaultsRejected`].
    SetDefaults(DefaultPolicies),
    /// Stop and unlist a server. Its supervisor sends [`TreeEvent::Ended`] when it has ended.
    Stop(ServerId),
    /// List a server that cannot be run as configured.
    ListInvalid(ServerId, String),
    /// Start the supervisor of a server.
    Start(ServerSpec),
    /// List a server that is started when the previous one of its name has ended.
    ListPending(ServerSpec),
    /// Give a server another configuration.
    Reconfigure(ServerSpec),
    /// Unlist a broken server.
    Unlist(ServerId),
    /// Restart an actor at the root.
    RestartRoot(&'static str),
    /// Stop the kernel in good order.
    StopKernel,
}

/// The plan of the tree.
#[derive(Clone, Debug)]
pub struct TreePlan {
    /// All servers that are to run.
    desired: BTreeMap<ServerId, ServerSpec>,
    /// The registered ones among them.
    registered: BTreeSet<ServerId>,
    policy: DefaultPolicy,
    /// Those that have a supervisor, which may be stopping.
    supervised: BTreeSet<ServerId>,
    /// Those listed as broken.
    invalid: BTreeSet<ServerId>,
    /// The change whose default policies were requested.
    pending: Option<Change>,
    /// When actors at the root were restarted; at most [`RESTARTS_MAX`].
    restarts: VecDeque<MonotonicTime>,
    stopping: bool,
}

/// A change that waits for its default policies.
#[derive(Clone, Debug)]
enum Change {
    Configure {
        /// All servers that are to run afterwards.
        desired: BTreeMap<ServerId, ServerSpec>,
        invalid: Vec<(ServerId, String)>,
        policy: DefaultPolicy,
        registered: BTreeSet<ServerId>,
    },
    Register(Box<ServerSpec>),
}

impl TreePlan {
    /// A tree without servers.
    #[must_use]
    pub fn new() -> Self {
        Self {
            desired: BTreeMap::new(),
            registered: BTreeSet::new(),
            // The strictest, until a configuration says which.
            policy: DefaultPolicy::OptIn,
            supervised: BTreeSet::new(),
            invalid: BTreeSet::new(),
            pending: None,
            restarts: VecDeque::new(),
            stopping: false,
        }
    }

    /// Handles an event; returns the effects.
    pub fn handle(&mut self, event: TreeEvent) -> Vec<TreeEffect> {
        match event {
            TreeEvent::Configured(read, taken) => self.handle_configured(read, taken),
            TreeEvent::Registered(spec) => self.register(spec),
            TreeEvent::Deregistered(id) => self.deregister(&id),
            TreeEvent::DefaultsSet => match self.pending.take() {
                Some(Change::Configure {
                    desired: wanted,
                    invalid: broken,
                    policy,
                    registered: taken,
                }) => self.apply_configuration(wanted, broken, policy, &taken),
                Some(Change::Register(spec)) => {
                    self.registered.insert(spec.id.clone());
                    vec![self.add(*spec)]
                }
                None => Vec::new(),
            },
            TreeEvent::DefaultsRejected => {
                self.pending = None;
                Vec::new()
            }
            TreeEvent::StartFailed(id, why) => self.handle_start_failed(id, why),
            TreeEvent::Ended(id) => self.handle_ended(&id),
            TreeEvent::RootLost(name, loss, now) => self.handle_root_lost(name, loss, now),
            TreeEvent::Stopping => {
                self.stopping = true;
                Vec::new()
            }
        }
    }

    /// The configuration without servers whose name a registered one has. They count as broken, because
    /// their policies were not meant for the registered server.
    #[must_use]
    pub fn without_registered(
        &self,
        mut read: Configuration,
        taken: &BTreeSet<ServerId>,
    ) -> Configuration {
        let is_taken = |id: &ServerId| {
            taken.contains(id) && (!self.desired.contains_key(id) || self.registered.contains(id))
        };
        let (no, yes) = read
            .servers
            .into_iter()
            .partition(|spec| is_taken(&spec.id));
        read.servers = yes;
        let no: Vec<ServerSpec> = no;
        read.invalid.extend(no.into_iter().map(|spec| {
            let id = spec.id;
            let why = format!(
                "a server of the name {id} was registered while the kernel ran: give this one another name, or take that one out (`mgp servers remove {id}`)"
            );
            (id, why)
        }));
        read
    }

    /// The servers that are to run.
    pub fn desired(&self) -> impl Iterator<Item = &ServerId> {
        self.desired.keys()
    }

    /// Whether a registered server of this name is to run.
    #[must_use]
    pub fn has_registered(&self, id: &ServerId) -> bool {
        self.registered.contains(id)
    }

    /// True if the kernel stops.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    fn handle_configured(
        &mut self,
        read: Configuration,
        taken: BTreeSet<ServerId>,
    ) -> Vec<TreeEffect> {
        if self.stopping {
            return Vec::new();
        }
        let Configuration {
            servers,
            invalid: broken,
            policy,
        } = self.without_registered(read, &taken);
        let configured = servers.into_iter().map(|spec| (spec.id.clone(), spec));
        let mut wanted: BTreeMap<_, _> = configured.collect();
        // A server whose configuration is broken now keeps running as before.
        let stays = |id: &ServerId| {
            self.registered.contains(id) || broken.iter().any(|(broken, _)| broken == id)
        };
        for (id, spec) in self.desired.iter().filter(|(id, _)| stays(id)) {
            wanted.entry(id.clone()).or_insert_with(|| spec.clone());
        }
        let defaults = build_defaults(policy, wanted.values());
        self.pending = Some(Change::Configure {
            desired: wanted,
            invalid: broken,
            policy,
            registered: taken,
        });
        vec![TreeEffect::SetDefaults(defaults)]
    }

    /// Changes the running servers to those of the configuration; unchanged ones are not touched.
    fn apply_configuration(
        &mut self,
        wanted: BTreeMap<ServerId, ServerSpec>,
        broken: Vec<(ServerId, String)>,
        policy: DefaultPolicy,
        taken: &BTreeSet<ServerId>,
    ) -> Vec<TreeEffect> {
        self.policy = policy;
        let old: Vec<_> = self.desired.values().cloned().collect();
        let new: Vec<_> = wanted.into_values().collect();
        let diff = ConfigDiff::between_sets(&old, &new);
        let mut effects = Vec::new();
        for id in diff.removed {
            self.desired.remove(&id);
            effects.push(TreeEffect::Stop(id));
        }
        let mut shown: BTreeSet<ServerId> = std::mem::take(&mut self.invalid);
        for (id, why) in broken {
            shown.remove(&id);
            if !self.desired.contains_key(&id) {
                self.invalid.insert(id.clone());
                effects.push(TreeEffect::ListInvalid(id, why));
            }
        }
        for spec in diff.added {
            shown.remove(&spec.id);
            effects.push(self.add(spec));
        }
        for spec in diff.changed {
            self.desired.insert(spec.id.clone(), spec.clone());
            effects.push(TreeEffect::Reconfigure(spec));
        }
        let gone = shown.into_iter();
        let gone = gone.filter(|id| !self.desired.contains_key(id) && !taken.contains(id));
        effects.extend(gone.map(TreeEffect::Unlist));
        effects
    }

    fn register(&mut self, spec: Box<ServerSpec>) -> Vec<TreeEffect> {
        if self.stopping || self.desired.contains_key(&spec.id) {
            return Vec::new();
        }
        let defaults = build_defaults(self.policy, self.desired.values().chain([&*spec]));
        self.pending = Some(Change::Register(spec));
        vec![TreeEffect::SetDefaults(defaults)]
    }

    fn deregister(&mut self, id: &ServerId) -> Vec<TreeEffect> {
        if !self.registered.remove(id) {
            return Vec::new();
        }
        self.desired.remove(id);
        vec![TreeEffect::Stop(id.clone())]
    }

    /// A server removed just now may still be stopping: it is started when it has stopped.
    fn add(&mut self, spec: ServerSpec) -> TreeEffect {
        let id = &spec.id;
        self.desired.insert(id.clone(), spec.clone());
        self.invalid.remove(id);
        if self.supervised.insert(id.clone()) {
            TreeEffect::Start(spec)
        } else {
            TreeEffect::ListPending(spec)
        }
    }

    /// The next configuration with this server tries again.
    fn handle_start_failed(&mut self, id: ServerId, why: String) -> Vec<TreeEffect> {
        self.supervised.remove(&id);
        self.desired.remove(&id);
        self.registered.remove(&id);
        self.invalid.insert(id.clone());
        vec![TreeEffect::ListInvalid(id, why)]
    }

    /// A server that should run is started again, whether its supervisor failed or ended.
    fn handle_ended(&mut self, id: &ServerId) -> Vec<TreeEffect> {
        self.supervised.remove(id);
        let wanted = self.desired.get(id).filter(|_| !self.stopping);
        let Some(spec) = wanted.cloned() else {
            return Vec::new();
        };
        self.supervised.insert(id.clone());
        vec![TreeEffect::Start(spec)]
    }

    fn handle_root_lost(
        &mut self,
        name: &'static str,
        loss: LossPolicy,
        now: MonotonicTime,
    ) -> Vec<TreeEffect> {
        if self.stopping {
            return Vec::new();
        }
        self.restarts
            .retain(|before| now.duration_since(*before) < RESTART_WINDOW);
        if loss == LossPolicy::StopKernel || self.restarts.len() >= RESTARTS_MAX {
            return vec![TreeEffect::StopKernel];
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

/// The default policies.
fn build_defaults<'a>(
    kernel: DefaultPolicy,
    servers: impl Iterator<Item = &'a ServerSpec>,
) -> DefaultPolicies {
    let own = servers.filter_map(|spec| Some((spec.id.clone(), spec.default_policy()?)));
    DefaultPolicies {
        kernel,
        servers: own.collect(),
    }
}

#[cfg(test)]
mod tests;
