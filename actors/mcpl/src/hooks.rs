//! Context hooks, fanned out and chained (MCPL §10).
//!
//! Before an inference all participating servers are asked at once. After it, servers whose answer is awaited are asked
//! one after the other, in the order of [`HookPolicy::sort`], each with the text as the previous one left it. The others
//! are then notified of the final text. A server participates if it declares the hook, has an enabled set that uses it,
//! and the inference's owner may use it; nobody else sees the text (MCPL-145).

mod after_inference;
mod before_inference;
mod gate;
mod lifecycle;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use mgp_mcpl_engine::feature_sets::ServerSets;
use mgp_mcpl_engine::hooks::HookPolicy;
use mgp_mcpl_engine::hooks::nesting::{HookDepths, NestedInference, should_notify};
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mcpl::context::{AfterInference, Position};
use mgp_protocol::mcpl::feature_sets::Capability;
use mgp_protocol::mgp::audit::Outcome;
use mgp_runtime::time::monotonic_now;
use mgp_runtime::{EventSink, task};
use mgp_servers::ServerTable;
use serde_json::Value;
use tokio::sync::Semaphore;

pub use self::gate::AfterVerdict;
pub(crate) use self::gate::{AfterGate, GateKey};
use crate::agents::McplAgent;
use crate::audit::{self, McplActor, McplRecord};
use crate::host::McplHost;

/// Inferences in flight that no agent waits for, and outputs that wait for their verdict.
pub(crate) const BACKGROUND_MAX: usize = 64;

/// The owner of an inference.
#[derive(Clone, Debug)]
pub enum HookOrigin {
    /// An agent.
    Agent(McplAgent),
    /// The kernel, for a server that requested it or pushed an event. It has no data of an agent.
    Server {
        /// The server. It is not asked about its own inference.
        server: ServerId,
        /// The result of [`Hooks::inference_depth`].
        depth: u8,
    },
}

/// The kind of a foreign id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MappedIdKind {
    /// An inference.
    Inference,
    /// A conversation.
    Conversation,
}

/// Maps an id of one side to the id for a server, so that two agents' `conv_1` never collide.
#[derive(Clone)]
pub struct IdMapper(Arc<IdMapperFn>);

type IdMapperFn = dyn Fn(&HookOrigin, &ServerId, MappedIdKind, &str) -> String + Send + Sync;

impl IdMapper {
    /// Maps ids with this function.
    pub(crate) fn new(
        pass: impl Fn(&HookOrigin, &ServerId, MappedIdKind, &str) -> String + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(pass))
    }

    /// The id for `server`.
    #[must_use]
    pub(crate) fn map(
        &self,
        of: &HookOrigin,
        server: &ServerId,
        kind: MappedIdKind,
        id: &str,
    ) -> String {
        (self.0)(of, server, kind, id)
    }
}

impl fmt::Debug for IdMapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PassId")
    }
}

/// The model of an agent's inference, as a hook reported it: the kernel has no model of its own.
#[derive(Clone, Debug)]
pub struct ObservedModel {
    /// The agent.
    pub agent: McplAgent,
    /// In the form of `model/info`, as JSON text.
    pub model: String,
}

/// The dependencies of hooks.
#[derive(Debug)]
pub struct HookDeps {
    /// The servers and their sets.
    pub host: Arc<McplHost>,
    /// Maps ids for servers.
    pub ids: IdMapper,
    /// Receives the models that agents use.
    pub models: EventSink<ObservedModel>,
    /// The owners of instances.
    pub servers: Arc<ServerTable>,
}

/// Calls servers before and after inferences.
#[derive(Clone, Debug)]
pub struct Hooks(Arc<SharedHooks>);

#[derive(Debug)]
struct SharedHooks {
    deps: HookDeps,
    policy: RwLock<Arc<HookPolicy>>,
    depths: Mutex<HookDepths>,
    gate: AfterGate,
    background_permits: Arc<Semaphore>,
}

/// A participating server.
struct Participant {
    server: ServerId,
    sets: Arc<ServerSets>,
}

/// The audit record of a hook call: the disclosed text, and the outcome.
struct HookRecord<'a> {
    server: &'a ServerId,
    method: &'a str,
    inference: &'a str,
    feature_set: Option<&'a str>,
    outcome: Outcome,
    reason: Option<&'a str>,
    text: Option<&'a str>,
    details: Value,
}

/// Ends the wait for a server's answer when dropped.
struct PendingHook<'a> {
    hooks: &'a SharedHooks,
    server: &'a ServerId,
}

impl Hooks {
    /// Hooks with this policy.
    #[must_use]
    pub fn new(policy: HookPolicy, from: HookDeps) -> Self {
        Self(Arc::new(SharedHooks {
            deps: from,
            policy: RwLock::new(Arc::new(policy)),
            depths: Mutex::default(),
            gate: AfterGate::default(),
            background_permits: Arc::new(Semaphore::new(BACKGROUND_MAX)),
        }))
    }

    /// Replaces the policy.
    pub fn set_policy(&self, policy: HookPolicy) {
        *self
            .0
            .policy
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    /// The gate for output after inferences.
    #[must_use]
    pub(crate) fn gate(&self) -> &AfterGate {
        &self.0.gate
    }

    /// The depth of an inference that a server requests now, for [`HookOrigin::Server`].
    ///
    /// # Errors
    /// The reason why it gets none (MCPL §10.7).
    pub(crate) fn inference_depth(&self, server: &ServerId) -> Result<u8, NestedInference> {
        self.0.depths().inference_depth(server, monotonic_now())
    }

    /// Runs the hooks after an inference whose agent does not wait. When [`BACKGROUND_MAX`] of these are in flight, a further
    /// one notifies nobody.
    pub fn notify_after(&self, origin: HookOrigin, params: String) {
        let Ok(permit) = self.0.background_permits.clone().try_acquire_owned() else {
            tracing::warn!(
                "context/afterInference arrives faster than servers answer; one notifies nobody"
            );
            return;
        };
        let hooks = self.clone();
        task::spawn_detached("mcpl.inferred", async move {
            match AfterInference::read(&params) {
                Ok(after_params) => drop(hooks.after_inference(&origin, &after_params).await),
                Err(why) => tracing::debug!("context/afterInference cannot be read: {why}"),
            }
            drop(permit);
        });
    }

    /// Calls `then` with the verdict on an inference. When [`BACKGROUND_MAX`] of these wait, a further one is dropped.
    pub fn on_verdict(
        &self,
        origin: &HookOrigin,
        inference: &str,
        then: impl FnOnce(AfterVerdict) + Send + 'static,
    ) {
        let Ok(permit) = self.0.background_permits.clone().try_acquire_owned() else {
            tracing::warn!("too many outputs wait for context/afterInference; one is dropped");
            return;
        };
        let (hooks, key) = (self.clone(), GateKey::new(origin, inference));
        task::spawn_detached("mcpl.held_back", async move {
            // The chain has started by the time its last answer is written, or starts at once.
            let wait = hooks.0.policy().after * 2;
            then(hooks.gate().verdict(&key, wait).await);
            drop(permit);
        });
    }

    /// Whether a server must be awaited after an inference of this origin: until it has answered, no output of the inference
    /// is sent.
    #[must_use]
    pub fn should_wait_after(&self, origin: &HookOrigin) -> bool {
        let policy = self.0.policy();
        let is_fail_closed = || {
            policy
                .fail_closed
                .iter()
                .any(|server| origin.can_show_to(server))
        };
        let all = self.0.participants(origin, Capability::AfterInference);
        all.iter()
            .any(|participant| participant.sets.abilities.blocking)
            || is_fail_closed()
    }
}

impl SharedHooks {
    fn depths(&self) -> MutexGuard<'_, HookDepths> {
        self.depths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn policy(&self) -> Arc<HookPolicy> {
        let policy = self.policy.read();
        policy.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The servers that participate in a hook, in their order.
    fn participants(&self, origin: &HookOrigin, uses: Capability) -> Vec<Participant> {
        let sets = self.deps.host.sets().load();
        let depth = origin.depth();
        let participates = |server: &ServerId, sets: &ServerSets| {
            let declares_hook = sets
                .sets_using(Capability::InferenceRequest)
                .next()
                .is_some();
            let is_awaited = uses == Capability::AfterInference && sets.abilities.blocking;
            should_notify(depth, declares_hook, is_awaited)
                && self.can_see(origin, server)
                && sets
                    .sets_using(uses)
                    .any(|(set, _)| origin.allows_set(server, set))
        };
        let all = sets.servers_using(uses);
        let all = all.filter(|(server, sets)| participates(server, sets));
        let mut all: Vec<_> = all
            .map(|(server, sets)| Participant {
                server: server.clone(),
                sets: sets.clone(),
            })
            .collect();
        self.policy()
            .sort(&mut all, |participant| &participant.server);
        all
    }

    /// Whether a server's answer may name this set, which must be enabled now.
    fn check_set(
        &self,
        origin: &HookOrigin,
        server: &ServerId,
        set: &str,
        uses: Capability,
    ) -> Result<(), String> {
        let sets = self.deps.host.sets().load();
        let admitted = sets.find_usable_set(server, set, uses);
        admitted.map_err(|error| format!("{} ({set:?})", error.message))?;
        if origin.allows_set(server, set) {
            Ok(())
        } else {
            Err(format!("the agent does not want the set {set:?}"))
        }
    }

    /// Whether a server may add at this position now, whatever was granted when it was asked (0.5 §5.4).
    fn check_position(&self, server: &ServerId, position: Position) -> Result<(), String> {
        let sets = self.deps.host.sets().load();
        let needed = match position {
            Position::System => Capability::InjectSystem,
            Position::BeforeUser => Capability::InjectBeforeUser,
            Position::AfterUser => Capability::InjectAfterUser,
        };
        if sets.get(server).is_some_and(|sets| sets.is_granted(needed)) {
            Ok(())
        } else {
            Err(format!("{needed} is not granted"))
        }
    }

    fn can_see(&self, origin: &HookOrigin, server: &ServerId) -> bool {
        match origin {
            HookOrigin::Agent(agent) => is_server_of(&self.deps.servers, agent, server),
            // An instance belongs to one agent.
            HookOrigin::Server { .. } => origin.can_show_to(server) && !server.is_instance(),
        }
    }

    /// Records that a server saw a text, and its answer.
    fn record(&self, origin: &HookOrigin, hook_record: HookRecord<'_>) {
        let record = McplRecord {
            server: hook_record.server,
            method: hook_record.method,
            feature_set: hook_record.feature_set,
            inference: Some(hook_record.inference),
            agent: origin.agent(),
            actor: match origin {
                HookOrigin::Agent(_) => McplActor::Agent,
                HookOrigin::Server { .. } => McplActor::Kernel,
            },
            outcome: hook_record.outcome,
            reason: hook_record.reason,
            text: hook_record.text.map(str::as_bytes),
            details: hook_record.details,
        };
        audit::record(self.deps.host.audit(), &record);
    }

    fn begin_wait<'a>(&'a self, origin: &HookOrigin, server: &'a ServerId) -> PendingHook<'a> {
        self.depths().begin(server, origin.depth(), monotonic_now());
        PendingHook {
            hooks: self,
            server,
        }
    }
}

impl Drop for PendingHook<'_> {
    fn drop(&mut self) {
        self.hooks.depths().end(self.server);
    }
}

impl HookOrigin {
    fn depth(&self) -> u8 {
        match self {
            Self::Agent(_) => 0,
            Self::Server { depth, .. } => *depth,
        }
    }

    /// Whether its inferences may be shown to this server.
    fn can_show_to(&self, server: &ServerId) -> bool {
        match self {
            Self::Agent(agent) => agent.can_see(server),
            Self::Server { server: own, .. } => own.server() != server.server(),
        }
    }

    fn allows_set(&self, server: &ServerId, set: &str) -> bool {
        match self {
            Self::Agent(agent) => agent.allows_set(&server.server(), set),
            Self::Server { .. } => true,
        }
    }

    fn agent(&self) -> Option<&AgentId> {
        match self {
            Self::Agent(agent) => Some(&agent.id),
            Self::Server { .. } => None,
        }
    }
}

/// Whether a server, or an instance of one, serves this agent: an agent with its own instance is served by that alone.
pub(crate) fn is_server_of(servers: &ServerTable, agent: &McplAgent, server: &ServerId) -> bool {
    let id = server.server();
    let key = servers
        .load()
        .get(&id)
        .map(|handle| handle.event_subscription_key(agent.caller()));
    key.as_ref() == Some(server) && agent.can_see(&id)
}
