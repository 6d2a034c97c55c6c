//! Context hooks, fanned out and chained (MCPL §10).
//!
//! Before an inference all participating servers are asked at once. After it, those whose answer is awaited are asked
//! one after the other, in the order of [`HookPolicy::sort`], each with the text as the previous one left it. The
//! others are then notified of the final text. A server participates if it declares the hook, has an enabled set that
//! uses it, and the inference's owner may use it; nobody else sees the text (MCPL-145).

mod after_inference;
mod before_inference;
mod gate;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use mgp_mcpl_engine::feature_sets::ServerSets;
use mgp_mcpl_engine::hooks::HookPolicy;
use mgp_mcpl_engine::hooks::nesting::{HookDepths, NestedInference, should_notify};
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mcpl::context::AfterInference;
use mgp_protocol::mcpl::feature_sets::Capability;
use mgp_protocol::mgp::audit::Outcome;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::task;
use mgp_runtime::time::monotonic_now;
use mgp_servers::server::ServerTable;
use serde_json::Value;
use tokio::sync::Semaphore;

pub use self::before_inference::BeforeVerdict;
pub use self::gate::{AfterGate, AfterVerdict, GateKey};
use crate::agents::McplAgent;
use crate::audit::{self, McplActor, McplRecord};
use crate::host::McplHost;

/// Inferences in flight that no agent waits for, and what is held back until they have their verdict.
pub(crate) const BACKGROUND_MAX: usize = 64;

/// Whose inference it is.
#[derive(Clone, Debug)]
pub enum HookOrigin {
    /// An agent's own.
    Agent(McplAgent),
    /// The kernel's own, for a server that asked for it or pushed an event. Of an agent it has nothing.
    Server {
        /// Which. It is not asked about its own.
        server: ServerId,
        /// As [`Hooks::inference_depth`] said.
        depth: u8,
    },
}

/// An id of somebody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MappedIdKind {
    /// Of an inference.
    Inference,
    /// Of a conversation.
    Conversation,
}

/// Maps an id of one side to the id that a server gets, so that two agents' `conv_1` never collide.
#[derive(Clone)]
pub struct IdMapper(Arc<IdMapperFn>);

type IdMapperFn = dyn Fn(&HookOrigin, &ServerId, MappedIdKind, &str) -> String + Send + Sync;

impl IdMapper {
    /// Asks this function.
    pub(crate) fn new(
        pass: impl Fn(&HookOrigin, &ServerId, MappedIdKind, &str) -> String + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(pass))
    }

    /// What `server` is told.
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

/// The model of an agent's inference, as it reported it at a hook: the kernel has no model of its own.
#[derive(Clone, Debug)]
pub struct ObservedModel {
    /// Whose inference it is.
    pub agent: McplAgent,
    /// As `model/info` reports it, as JSON text.
    pub model: String,
}

/// What hooks are made of.
#[derive(Debug)]
pub struct HookDeps {
    /// Who is a server, and with which sets.
    pub host: Arc<McplHost>,
    /// Ids, as servers are told them.
    pub ids: IdMapper,
    /// Hears of the models that agents use.
    pub models: EventSink<ObservedModel>,
    /// Whose an instance is.
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

/// A server that takes part.
struct Participant {
    server: ServerId,
    sets: Arc<ServerSets>,
}

/// What a server was shown, and its outcome.
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

/// Ends the wait for a server's answer, however it ends.
struct PendingHook<'a> {
    hooks: &'a SharedHooks,
    server: &'a ServerId,
}

impl Hooks {
    /// Hooks by these rules.
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

    /// Other rules hold from now on.
    pub fn set_policy(&self, policy: HookPolicy) {
        *self
            .0
            .policy
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    /// What is held back after inferences.
    #[must_use]
    pub(crate) fn gate(&self) -> &AfterGate {
        &self.0.gate
    }

    /// Whether an answer of this server to a hook is waited for: it must not ask for an inference meanwhile.
    #[must_use]
    pub fn is_pending(&self, server: &ServerId) -> bool {
        self.0.depths().is_pending(server)
    }

    /// The depth of an inference that a server requests now, for [`HookOrigin::Server`].
    ///
    /// # Errors
    /// Why it gets none (MCPL §10.7).
    pub(crate) fn inference_depth(&self, server: &ServerId) -> Result<u8, NestedInference> {
        self.0.depths().inference_depth(server, monotonic_now())
    }

    /// An inference whose agent does not wait: the servers after it are asked and notified all the same. When
    /// [`BACKGROUND_MAX`] of these are in flight, a further one notifies nobody.
    pub fn notify_after(&self, origin: HookOrigin, params: String) {
        let Ok(room) = self.0.background_permits.clone().try_acquire_owned() else {
            tracing::warn!(
                "context/afterInference comes faster than servers answer; one is told nobody"
            );
            return;
        };
        let hooks = self.clone();
        task::spawn_detached("mcpl.inferred", async move {
            match AfterInference::read(&params) {
                Ok(told) => drop(hooks.after_inference(&origin, &told).await),
                Err(why) => tracing::debug!("context/afterInference cannot be read: {why}"),
            }
            drop(room);
        });
    }

    /// Does this with the verdict on an inference, when it is there. Where [`BACKGROUND_MAX`] of these wait, a
    /// further one is not done.
    pub fn on_verdict(
        &self,
        origin: &HookOrigin,
        inference: &str,
        then: impl FnOnce(AfterVerdict) + Send + 'static,
    ) {
        let Ok(room) = self.0.background_permits.clone().try_acquire_owned() else {
            tracing::warn!("too much waits for context/afterInference; something is not sent");
            return;
        };
        let (hooks, key) = (self.clone(), GateKey::new(origin, inference));
        task::spawn_detached("mcpl.held_back", async move {
            // The chain has begun by the time its last answer is written, or begins at once.
            let wait = hooks.0.policy().after * 2;
            then(hooks.gate().verdict(&key, wait).await);
            drop(room);
        });
    }

    /// Whether a server must be awaited after an inference of this origin: until it has answered, nothing of the
    /// inference is sent on.
    #[must_use]
    pub fn should_wait_after(&self, origin: &HookOrigin) -> bool {
        let policy = self.0.policy();
        let closed = || {
            policy
                .fail_closed
                .iter()
                .any(|server| origin.can_show_to(server))
        };
        let all = self.0.participants(origin, Capability::AfterInference);
        all.iter().any(|taking| taking.sets.abilities.blocking) || closed()
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

    /// The servers that take part in a hook, in their order.
    fn participants(&self, origin: &HookOrigin, uses: Capability) -> Vec<Participant> {
        let sets = self.deps.host.sets().load();
        let depth = origin.depth();
        let hears = |server: &ServerId, sets: &ServerSets| {
            let asks = sets
                .sets_using(Capability::InferenceRequest)
                .next()
                .is_some();
            let waited_for = uses == Capability::AfterInference && sets.abilities.blocking;
            should_notify(depth, asks, waited_for)
                && self.can_see(origin, server)
                && sets
                    .sets_using(uses)
                    .any(|(set, _)| origin.allows_set(server, set))
        };
        let all = sets.servers_using(uses);
        let all = all.filter(|(server, sets)| hears(server, sets));
        let mut all: Vec<_> = all
            .map(|(server, sets)| Participant {
                server: server.clone(),
                sets: sets.clone(),
            })
            .collect();
        self.policy().sort(&mut all, |taking| &taking.server);
        all
    }

    /// Whether a server's answer may come in the name of this set, by what is enabled now.
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

    fn can_see(&self, origin: &HookOrigin, server: &ServerId) -> bool {
        match origin {
            HookOrigin::Agent(agent) => is_server_of(&self.deps.servers, agent, server),
            // An instance is one agent's own.
            HookOrigin::Server { .. } => origin.can_show_to(server) && !server.is_instance(),
        }
    }

    /// Records that a server saw a text, and its answer.
    fn record(&self, origin: &HookOrigin, seen: HookRecord<'_>) {
        let record = McplRecord {
            server: seen.server,
            method: seen.method,
            feature_set: seen.feature_set,
            inference: Some(seen.inference),
            agent: origin.agent(),
            actor: match origin {
                HookOrigin::Agent(_) => McplActor::Agent,
                HookOrigin::Server { .. } => McplActor::Kernel,
            },
            outcome: seen.outcome,
            reason: seen.reason,
            text: seen.text.map(str::as_bytes),
            details: seen.details,
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

    /// Whether its inferences are shown to a server of this id.
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

/// Whether a server, or an instance of one, serves this agent: one that has an instance for itself is served by that
/// alone.
pub(crate) fn is_server_of(servers: &ServerTable, agent: &McplAgent, server: &ServerId) -> bool {
    let id = server.server();
    let key = servers
        .load()
        .get(&id)
        .map(|handle| handle.event_subscription_key(agent.caller()));
    key.as_ref() == Some(server) && agent.can_see(&id)
}
