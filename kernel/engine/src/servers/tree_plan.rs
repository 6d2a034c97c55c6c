//! Decides which servers the supervision tree runs: configured ones and registered ones.
//!
//! A change has two steps. First its default policies are requested, so that no server offers a tool before they
//! are in force. Then the change is applied; if the policies are rejected, it is dropped.
//!
//! Also decides how to react to the loss of an actor at the root of the tree.

pub(crate) mod reload;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::access::DefaultPolicy;

use self::reload::ConfigDiff;
use crate::clock::MonotonicTime;
use crate::policy::access::DefaultPolicies;
use crate::servers::spec::ServerSpec;

/// Restarts of root actors allowed within [`RESTART_WINDOW`]. One more stops the kernel, because the actors' input
/// probably makes them fail.
const RESTARTS_MAX: usize = 5;
const RESTART_WINDOW: Duration = Duration::from_secs(60);

/// What the loss of an actor at the root means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossPolicy {
    /// The kernel shuts down gracefully.
    StopKernel,
    /// The actor is restarted.
    Restart,
}

/// The configured servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Valid servers, with unique ids.
    pub servers: Vec<ServerSpec>,
    /// Invalid servers, with the reasons.
    pub invalid: Vec<(ServerId, String)>,
    /// The default policies.
    pub policy: DefaultPolicies,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeEvent {
    /// The configuration was read. The ids are those of registered servers, including those that wait for approval or
    /// are being removed.
    Configured(Configuration, BTreeSet<ServerId>),
    /// A server was registered.
    Registered(Box<ServerSpec>),
    /// The removal of a registered server is requested.
    Deregistered(ServerId),
    /// The requested default policies are in force.
    DefaultsSet,
    /// The requested default policies were rejected.
    DefaultsRejected,
    /// The supervisor of a server could not be started.
    StartFailed(ServerId, String),
    /// The supervisor of a server has ended or failed.
    Ended(ServerId),
    /// A root actor was lost at this time.
    RootLost(&'static str, LossPolicy, MonotonicTime),
    /// The kernel shuts down: nothing is started from now on.
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
    /// List a server that starts when the previous one of its name has ended.
    ListPending(ServerSpec),
    /// Give a server another configuration.
    Reconfigure(ServerSpec),
    /// Unlist an invalid server.
    Unlist(ServerId),
    /// Restart a root actor.
    RestartRoot(&'static str),
    /// Shut the kernel down gracefully.
    StopKernel,
}

/// The plan of the tree.
#[derive(Clone, Debug)]
pub struct TreePlan {
    /// All servers that should run.
    desired: BTreeMap<ServerId, ServerSpec>,
    /// The registered ones among them.
    registered: BTreeSet<ServerId>,
    policy: DefaultPolicies,
    /// Servers with a supervisor, which may be stopping.
    supervised: BTreeSet<ServerId>,
    /// Servers listed as invalid.
    invalid: BTreeSet<ServerId>,
    /// The change whose default policies were requested.
    pending: Option<Change>,
    /// When root actors were restarted; at most [`RESTARTS_MAX`].
    restarts: VecDeque<MonotonicTime>,
    is_stopping: bool,
}

/// A change that waits for its default policies.
#[derive(Clone, Debug)]
enum Change {
    Configure {
        /// All servers that should run afterwards.
        desired: BTreeMap<ServerId, ServerSpec>,
        invalid: Vec<(ServerId, String)>,
        policy: DefaultPolicies,
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
            // The strictest, until a configuration sets the policy.
            policy: DefaultPolicies {
                kernel: DefaultPolicy::OptIn,
                servers: std::collections::HashMap::new(),
                group: None,
            },
            supervised: BTreeSet::new(),
            invalid: BTreeSet::new(),
            pending: None,
            restarts: VecDeque::new(),
            is_stopping: false,
        }
    }

    /// Handles an event; returns the effects.
    pub fn handle(&mut self, event: TreeEvent) -> Vec<TreeEffect> {
        match event {
            TreeEvent::Configured(config, registered) => self.handle_configured(config, registered),
            TreeEvent::Registered(spec) => self.register(spec),
            TreeEvent::Deregistered(id) => self.deregister(&id),
            TreeEvent::DefaultsSet => match self.pending.take() {
                Some(Change::Configure {
                    desired,
                    invalid,
                    policy,
                    registered,
                }) => self.apply_configuration(desired, invalid, policy, &registered),
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
                self.is_stopping = true;
                Vec::new()
            }
        }
    }

    /// Moves servers whose name a registered one has to the invalid ones, because their policies were not meant for
    /// the registered server.
    #[must_use]
    pub fn without_registered(
        &self,
        mut config: Configuration,
        registered: &BTreeSet<ServerId>,
    ) -> Configuration {
        let is_taken = |id: &ServerId| {
            registered.contains(id)
                && (!self.desired.contains_key(id) || self.registered.contains(id))
        };
        let (taken, free): (Vec<ServerSpec>, _) = config
            .servers
            .into_iter()
            .partition(|spec| is_taken(&spec.id));
        config.servers = free;
        config.invalid.extend(taken.into_iter().map(|spec| {
            let id = spec.id;
            let why = format!(
                "a server of the name {id} was registered while the kernel ran: give this one another name, or take that one out (`mgp servers remove {id}`)"
            );
            (id, why)
        }));
        config
    }

    /// The servers that should run.
    pub fn desired(&self) -> impl Iterator<Item = &ServerId> {
        self.desired.keys()
    }

    /// Whether a registered server of this name should run.
    #[must_use]
    pub fn has_registered(&self, id: &ServerId) -> bool {
        self.registered.contains(id)
    }

    /// True if the kernel shuts down.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    fn handle_configured(
        &mut self,
        config: Configuration,
        registered: BTreeSet<ServerId>,
    ) -> Vec<TreeEffect> {
        if self.is_stopping {
            return Vec::new();
        }
        let Configuration {
            servers,
            invalid,
            policy,
        } = self.without_registered(config, &registered);
        let configured = servers.into_iter().map(|spec| (spec.id.clone(), spec));
        let mut desired: BTreeMap<_, _> = configured.collect();
        // A server whose configuration became invalid keeps running as before.
        let stays = |id: &ServerId| {
            self.registered.contains(id) || invalid.iter().any(|(invalid, _)| invalid == id)
        };
        for (id, spec) in self.desired.iter().filter(|(id, _)| stays(id)) {
            desired.entry(id.clone()).or_insert_with(|| spec.clone());
        }
        let defaults = build_defaults(&policy, desired.values());
        self.pending = Some(Change::Configure {
            desired,
            invalid,
            policy,
            registered,
        });
        vec![TreeEffect::SetDefaults(defaults)]
    }

    /// Leaves unchanged servers running.
    fn apply_configuration(
        &mut self,
        desired: BTreeMap<ServerId, ServerSpec>,
        invalid: Vec<(ServerId, String)>,
        policy: DefaultPolicies,
        registered: &BTreeSet<ServerId>,
    ) -> Vec<TreeEffect> {
        self.policy = policy;
        let old: Vec<_> = self.desired.values().cloned().collect();
        let new: Vec<_> = desired.into_values().collect();
        let diff = ConfigDiff::between_sets(&old, &new);
        let mut effects = Vec::new();
        for id in diff.removed {
            self.desired.remove(&id);
            effects.push(TreeEffect::Stop(id));
        }
        let mut unlisted: BTreeSet<ServerId> = std::mem::take(&mut self.invalid);
        for (id, why) in invalid {
            unlisted.remove(&id);
            if !self.desired.contains_key(&id) {
                self.invalid.insert(id.clone());
                effects.push(TreeEffect::ListInvalid(id, why));
            }
        }
        for spec in diff.added {
            unlisted.remove(&spec.id);
            effects.push(self.add(spec));
        }
        for spec in diff.changed {
            self.desired.insert(spec.id.clone(), spec.clone());
            effects.push(TreeEffect::Reconfigure(spec));
        }
        unlisted.retain(|id| !self.desired.contains_key(id) && !registered.contains(id));
        effects.extend(unlisted.into_iter().map(TreeEffect::Unlist));
        effects
    }

    fn register(&mut self, spec: Box<ServerSpec>) -> Vec<TreeEffect> {
        if self.is_stopping || self.desired.contains_key(&spec.id) {
            return Vec::new();
        }
        let defaults = build_defaults(&self.policy, self.desired.values().chain([&*spec]));
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

    /// A server that was just removed may still be stopping: it starts when that has ended.
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

    /// The next configuration that has this server tries again.
    fn handle_start_failed(&mut self, id: ServerId, why: String) -> Vec<TreeEffect> {
        self.supervised.remove(&id);
        self.desired.remove(&id);
        self.registered.remove(&id);
        self.invalid.insert(id.clone());
        vec![TreeEffect::ListInvalid(id, why)]
    }

    /// Starts a desired server again, whether its supervisor failed or ended.
    fn handle_ended(&mut self, id: &ServerId) -> Vec<TreeEffect> {
        self.supervised.remove(id);
        let desired = self.desired.get(id).filter(|_| !self.is_stopping);
        let Some(spec) = desired.cloned() else {
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
        if self.is_stopping {
            return Vec::new();
        }
        self.restarts
            .retain(|restart| now.duration_since(*restart) < RESTART_WINDOW);
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

fn build_defaults<'a>(
    kernel: &DefaultPolicies,
    servers: impl Iterator<Item = &'a ServerSpec>,
) -> DefaultPolicies {
    let by_server = servers.filter_map(|spec| Some((spec.id.clone(), spec.default_policy()?)));
    DefaultPolicies {
        servers: by_server.collect(),
        ..kernel.clone()
    }
}

#[cfg(test)]
mod tests;
