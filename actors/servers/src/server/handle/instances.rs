//! The instances of a server, one per agent, as calls use them.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_protocol::dialect::Version;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::servers::Instance;
use mgp_protocol::refusal::{Refusal, URL_ELICITATION_REQUIRED};
use mgp_sync::Snapshot;
use serde_json::json;
use serde_json::value::RawValue;

use super::{ServerHandle, ms};
use crate::link::{Link, List};
use crate::login::ServerLogin;
use crate::server::ServerMsg;
use crate::server::resource_usage::ResourceSnapshot;
use mgp_callers::InFlightCall;
use mgp_callers::request::Caller;
use mgp_runtime::Counter;
use mgp_runtime::time::monotonic_now;

/// Length of the hash that names an instance: enough that two agents never share one.
const NAME_LENGTH: usize = 32;

/// Instances by whom they are for.
pub(in crate::server) type InstanceMap = BTreeMap<InstanceOwner, Arc<ServerHandle>>;

/// For whom an instance is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceOwner {
    /// Its agent.
    pub(crate) agent: AgentId,
    /// The folder it runs in, where each folder has its own.
    pub(crate) folder: Option<Arc<Path>>,
}

impl fmt::Display for InstanceOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.folder {
            Some(folder) => write!(f, "{} in {}", self.agent, folder.display()),
            None => write!(f, "{}", self.agent),
        }
    }
}

/// Held by one life at a time.
type GenerationLock = tokio::sync::Mutex<()>;

/// What a server's handle holds of its instances.
#[derive(Debug)]
pub(super) struct InstanceTable {
    /// Each agent has an instance.
    is_per_agent: AtomicBool,
    /// And one for each folder.
    is_per_folder: AtomicBool,
    published: Snapshot<InstanceMap>,
    /// Lives of the server that were begun since the kernel's start.
    generations_started: Counter,
    /// Locks: the next instance for somebody starts only after the last one ended, even if a supervisor failed.
    locks: Mutex<HashMap<InstanceOwner, Weak<GenerationLock>>>,
}

/// What the handle of an instance holds.
#[derive(Debug)]
pub(super) struct InstanceState {
    owner: InstanceOwner,
    key: ServerId,
    /// When it was last used, in milliseconds of the kernel's clock.
    last_used_ms: AtomicU64,
    server: Weak<ServerHandle>,
    /// The login of its agent, where each has its own.
    login: OnceLock<Arc<ServerLogin>>,
}

impl InstanceTable {
    pub(super) fn new() -> Self {
        Self {
            is_per_agent: AtomicBool::new(false),
            is_per_folder: AtomicBool::new(false),
            published: Snapshot::new(InstanceMap::new()),
            generations_started: Counter::new(),
            locks: Mutex::default(),
        }
    }

    fn lock_for(&self, owner: &InstanceOwner) -> Arc<GenerationLock> {
        let mut turns = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| turn.strong_count() > 0);
        let known = turns.get(owner).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let turn = Arc::new(GenerationLock::default());
            turns.insert(owner.clone(), Arc::downgrade(&turn));
            turn
        })
    }
}

impl ServerHandle {
    /// Lives of it that were begun since the kernel's start; one that never ended by itself has one.
    #[must_use]
    pub fn generations_started(&self) -> u64 {
        self.instances.generations_started.get()
    }

    pub(in crate::server) fn count_generation(&self) {
        self.instances.generations_started.increment();
    }

    /// The handle of somebody's instance, which is started at once.
    pub(in crate::server) fn instance_for(self: &Arc<Self>, owner: &InstanceOwner) -> Arc<Self> {
        let own = InstanceState {
            owner: owner.clone(),
            key: self.instance_key(owner),
            last_used_ms: AtomicU64::new(0),
            server: Arc::downgrade(self),
            login: OnceLock::new(),
        };
        let (id, log, turn) = (
            self.id.clone(),
            self.log.clone(),
            self.instances.lock_for(owner),
        );
        let handle = Arc::new(Self::build(id, log, Some(own), turn));
        handle.mark_due();
        handle.record_use();
        handle
    }

    fn instance_key(&self, owner: &InstanceOwner) -> ServerId {
        let mut whose = blake3::Hasher::new();
        whose.update(owner.agent.as_str().as_bytes());
        if let Some(folder) = &owner.folder {
            // No agent has it in its name.
            whose.update(b"\0").update(folder.as_os_str().as_bytes());
        }
        self.id.instance(&whose.finalize().to_hex()[..NAME_LENGTH])
    }

    /// Whose instance this caller's calls go to.
    ///
    /// # Errors
    /// The server runs in the folder of its caller, and this one has none.
    fn instance_owner(&self, caller: &Caller) -> Result<InstanceOwner, Refusal> {
        let agent = caller.agent.clone();
        if !self.instances.is_per_folder.load(Ordering::Relaxed) {
            return Ok(InstanceOwner {
                agent,
                folder: None,
            });
        }
        match caller.activity.folder().cloned() {
            Some(folder) => Ok(InstanceOwner {
                agent,
                folder: Some(folder),
            }),
            None => Err(Refusal::Forbidden(format!(
                "server {} runs in the folder of its caller (`cwd = \"caller\"`), and this client has said none: \
                 one that starts `mgp stdio` in the folder it works in says it; over HTTP and from other nodes \
                 nobody does",
                self.id
            ))),
        }
    }

    /// The instance calls with this login.
    pub(in crate::server) fn set_login(&self, login: Arc<ServerLogin>) {
        if let Some(own) = &self.instance {
            let _ = own.login.set(login);
        }
    }

    /// The login of the agent of this instance, where each has its own.
    pub(in crate::server) fn agent_login(&self) -> Option<Arc<ServerLogin>> {
        self.instance.as_ref()?.login.get().cloned()
    }

    /// The agent of this instance; `None` for the server itself.
    #[must_use]
    pub(crate) fn agent(&self) -> Option<&AgentId> {
        self.instance.as_ref().map(|own| &own.owner.agent)
    }

    /// The name of this instance, or of the server itself.
    #[must_use]
    pub(crate) fn key(&self) -> &ServerId {
        self.instance.as_ref().map_or(&self.id, |own| &own.key)
    }

    /// The handle this caller's calls use, if it exists.
    #[must_use]
    pub(crate) fn link_for(&self, caller: &Caller) -> Option<Arc<Link>> {
        if self.has_own_instance(caller) {
            let owner = self.instance_owner(caller).ok()?;
            self.instances.published.load().get(&owner)?.link()
        } else {
            self.link()
        }
    }

    /// The connection for this caller's calls; its own instance is started when there is none.
    ///
    /// # Errors
    /// As [`Self::connection`], of the server or the instance; [`Refusal::Overloaded`] where there are
    /// too many instances and none is idle.
    pub(crate) async fn connection_for(
        &self,
        caller: &Caller,
        exchange: &InFlightCall,
    ) -> Result<Arc<Link>, Refusal> {
        let link = self.connection(Some(caller), exchange).await?;
        if self.has_own_instance(caller) {
            let owner = self.instance_owner(caller)?;
            Box::pin(self.instance_connection(&owner, caller, exchange)).await
        } else {
            Ok(link)
        }
    }

    async fn instance_connection(
        &self,
        owner: &InstanceOwner,
        caller: &Caller,
        exchange: &InFlightCall,
    ) -> Result<Arc<Link>, Refusal> {
        let known = self.instances.published.load().get(owner).cloned();
        let there = known.filter(|one| one.link.get().is_some());
        let one = match there {
            Some(one) => one,
            None => {
                let asked = |reply| ServerMsg::OpenInstance(owner.clone(), reply);
                let supervisor = self.supervisor().map_err(|_| self.not_ready_refusal())?;
                let asked = supervisor.ask(asked).await;
                asked.map_err(|_| self.not_ready_refusal())??
            }
        };
        one.record_use();
        let connected = one.connection(Some(caller), exchange).await;
        match (connected, one.agent_login()) {
            (Err(refusal), Some(login)) if login.park_reason().is_some() => {
                Err(self.sign_in_refusal(&login, caller, refusal).await)
            }
            (connected, _) => connected,
        }
    }

    /// The refusal of a call whose agent has to sign in: with the address, as an elicitation where its client can
    /// show that (2025-11-25), else in words.
    async fn sign_in_refusal(
        &self,
        login: &Arc<ServerLogin>,
        caller: &Caller,
        refusal: Refusal,
    ) -> Refusal {
        let standing = caller.live_connection();
        let offer = match login.offer_sign_in(standing.as_ref()).await {
            Ok(offer) => offer,
            Err(error) => {
                tracing::warn!(server = %self.id, %error, "no login can be offered");
                return refusal;
            }
        };
        let (server, agent) = (&self.id, &caller.agent);
        let words = format!("Server {server} wants a login for {agent}");
        let asked = caller.version == Version::V2025_11_25 && caller.capabilities.elicitation_url;
        if !asked {
            return Refusal::Forbidden(format!("{words}: sign in at {} and call again", offer.url));
        }
        let message = format!("Sign in at {server}, for {agent} alone.");
        let error = json!({
            "code": URL_ELICITATION_REQUIRED,
            "message": format!("{words}: sign in, then call again"),
            "data": {"elicitations": [{
                "mode": "url", "elicitationId": offer.id, "url": offer.url, "message": message,
            }]},
        });
        match RawValue::from_string(error.to_string()) {
            Ok(error) => Refusal::Peer(error),
            Err(_) => refusal,
        }
    }

    /// The key of this caller's subscriptions at the server.
    #[must_use]
    pub fn subscription_key(&self, caller: &Caller) -> ServerId {
        match self.has_own_instance(caller) {
            // Who has no folder has no instance, and so nothing under its name.
            true => self.instance_key(&self.instance_owner(caller).unwrap_or(InstanceOwner {
                agent: caller.agent.clone(),
                folder: None,
            })),
            false => self.id.clone(),
        }
    }

    /// The key of this caller's event subscriptions at the server. Of one of another node each agent has its own, since
    /// its owner decides for each.
    #[must_use]
    pub fn event_subscription_key(&self, caller: &Caller) -> ServerId {
        if self.id.is_remote() {
            self.instance_key(&InstanceOwner {
                agent: caller.remote_identity(),
                folder: None,
            })
        } else {
            self.subscription_key(caller)
        }
    }

    /// The connection of the instance of this name, or of the server itself. One of another node has no other.
    #[must_use]
    pub fn link_by_key(&self, key: &ServerId) -> Option<Arc<Link>> {
        if *key == self.id || self.id.is_remote() {
            return self.link();
        }
        let shown = self.instances.published.load();
        shown.values().find(|one| one.key() == key)?.link()
    }

    /// Whether this caller has an instance of its own; the operator has none.
    fn has_own_instance(&self, caller: &Caller) -> bool {
        self.instances.is_per_agent.load(Ordering::Relaxed) && !caller.operator
    }

    /// Whether each agent has an instance, and one for each folder.
    pub(in crate::server) fn configure_instances(&self, apart: bool, by_folder: bool) {
        self.instances
            .is_per_folder
            .store(by_folder, Ordering::Relaxed);
        self.instances.is_per_agent.store(apart, Ordering::Relaxed);
    }

    pub(in crate::server) fn publish_instances(&self, table: InstanceMap) {
        self.instances.published.store(Arc::new(table));
    }

    /// An instance reports a changed list: the server's own lists are fetched again.
    pub(in crate::server) fn refetch_server_list(&self, list: List) {
        if let Some(server) = self.instance.as_ref().and_then(|own| own.server.upgrade()) {
            server.refetch_list(list);
        }
    }

    /// Notes that the instance is used now.
    pub(in crate::server) fn record_use(&self) {
        if let Some(own) = &self.instance {
            let now = ms(monotonic_now().since_start());
            own.last_used_ms.store(now, Ordering::Relaxed);
        }
    }

    /// When it was last wanted.
    pub(in crate::server) fn last_used(&self) -> Duration {
        let used = self
            .instance
            .as_ref()
            .map_or(0, |own| own.last_used_ms.load(Ordering::Relaxed));
        Duration::from_millis(used)
    }

    /// Whether it is starting, is waited for, has a call under way or has subscriptions.
    pub(in crate::server) fn is_in_use(&self) -> bool {
        let starts = matches!(
            self.state(),
            LifecycleState::Registered | LifecycleState::Connecting
        );
        let link = self.link.get();
        let busy = link.is_some_and(|link| link.in_flight() > 0 || link.has_subscriptions());
        starts || busy || self.waiting_calls.taken_count() > 0
    }

    /// Calls under way, at it and at its instances.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        let own = self.link().map_or(0, |link| link.in_flight() as u64);
        let shown = self.instances.published.load();
        let instances = shown.values().filter_map(|one| one.link());
        own + instances.map(|link| link.in_flight() as u64).sum::<u64>()
    }

    /// Its instances as the operator sees them.
    pub(super) fn instance_reports(&self, look: &ResourceSnapshot) -> Vec<Instance> {
        let shown = self.instances.published.load();
        let told = shown.iter().map(|(owner, one)| {
            let status = one.status();
            Instance {
                agent: owner.agent.to_string(),
                folder: owner.folder.as_ref().map(|at| at.display().to_string()),
                state: status.state.to_string(),
                since_ms: ms(monotonic_now().duration_since(status.since)),
                pid: status.process(),
                uses: look.server(one.key()),
                in_flight: one.link().map_or(0, |link| link.in_flight() as u64),
            }
        });
        told.collect()
    }
}
