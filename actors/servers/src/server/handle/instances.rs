//! The instances of a server, one per agent, as used by calls.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

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

/// The length of the hash that names an instance: enough that two agents never share one.
const NAME_LENGTH: usize = 32;

/// The instances by owner.
pub(in crate::server) type InstanceMap = BTreeMap<InstanceOwner, Arc<ServerHandle>>;

/// The owner of an instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceOwner {
    /// The agent.
    pub(crate) agent: AgentId,
    /// The folder of the instance, if each folder has its own.
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

/// Locked by one generation at a time.
type GenerationLock = tokio::sync::Mutex<()>;

/// The instances in a server's handle.
#[derive(Debug)]
pub(super) struct InstanceTable {
    /// True if each agent has an instance.
    is_per_agent: AtomicBool,
    /// True if each agent also has one for each folder.
    is_per_folder: AtomicBool,
    published: Snapshot<InstanceMap>,
    /// The number of generations started since the kernel's start.
    generations_started: Counter,
    /// Locks by owner: a new instance starts only after the previous one has ended, even if a supervisor failed.
    locks: Mutex<HashMap<InstanceOwner, Weak<GenerationLock>>>,
}

/// The instance state in an instance's handle.
#[derive(Debug)]
pub(super) struct InstanceState {
    owner: InstanceOwner,
    key: ServerId,
    server: Weak<ServerHandle>,
    /// The login of the agent, if each has its own.
    login: OnceLock<Arc<ServerLogin>>,
    /// The extensions of the client that it was started for, as a JSON object.
    client_extensions: Arc<str>,
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
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| lock.strong_count() > 0);
        let known = locks.get(owner).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let lock = Arc::new(GenerationLock::default());
            locks.insert(owner.clone(), Arc::downgrade(&lock));
            lock
        })
    }
}

impl ServerHandle {
    /// The number of generations started since the kernel's start; 1 for a server that never ended by itself.
    #[must_use]
    pub fn generations_started(&self) -> u64 {
        self.instances.generations_started.get()
    }

    pub(in crate::server) fn count_generation(&self) {
        self.instances.generations_started.increment();
    }

    /// Creates the handle of an owner's instance, which is started at once.
    pub(in crate::server) fn instance_for(
        self: &Arc<Self>,
        owner: &InstanceOwner,
        client_extensions: Option<Arc<str>>,
    ) -> Arc<Self> {
        let own = InstanceState {
            owner: owner.clone(),
            key: self.instance_key(owner),
            server: Arc::downgrade(self),
            login: OnceLock::new(),
            client_extensions: client_extensions.unwrap_or_else(|| "{}".into()),
        };
        let (id, log, lock) = (
            self.id.clone(),
            self.log.clone(),
            self.instances.lock_for(owner),
        );
        let handle = Arc::new(Self::build(id, log, Some(own), lock));
        handle.mark_due();
        handle.record_use();
        handle
    }

    fn instance_key(&self, owner: &InstanceOwner) -> ServerId {
        let mut whose = blake3::Hasher::new();
        whose.update(owner.agent.as_str().as_bytes());
        if let Some(folder) = &owner.folder {
            // Agent names cannot contain it.
            whose.update(b"\0").update(folder.as_os_str().as_bytes());
        }
        self.id.instance(&whose.finalize().to_hex()[..NAME_LENGTH])
    }

    /// The owner of the instance for this caller's calls.
    ///
    /// # Errors
    /// The server runs in its caller's folder, and this caller has none.
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

    /// Sets the login for the instance's calls.
    pub(in crate::server) fn set_login(&self, login: Arc<ServerLogin>) {
        if let Some(own) = &self.instance {
            let _ = own.login.set(login);
        }
    }

    /// The login of the instance's agent, if each has its own.
    pub(in crate::server) fn agent_login(&self) -> Option<Arc<ServerLogin>> {
        self.instance.as_ref()?.login.get().cloned()
    }

    /// The extensions of the instance's client, as a JSON object; `None` for the server itself.
    pub(in crate::server) fn client_extensions(&self) -> Option<Arc<str>> {
        self.instance
            .as_ref()
            .map(|own| own.client_extensions.clone())
    }

    /// The agent of the instance; `None` for the server itself.
    #[must_use]
    pub(crate) fn agent(&self) -> Option<&AgentId> {
        self.instance.as_ref().map(|own| &own.owner.agent)
    }

    /// The id of the instance, or of the server itself.
    #[must_use]
    pub(crate) fn key(&self) -> &ServerId {
        self.instance.as_ref().map_or(&self.id, |own| &own.key)
    }

    /// The connection for this caller's calls, if there is one.
    #[must_use]
    pub(crate) fn link_for(&self, caller: &Caller) -> Option<Arc<Link>> {
        if self.has_own_instance(caller) {
            let owner = self.instance_owner(caller).ok()?;
            self.instances.published.load().get(&owner)?.link()
        } else {
            self.link()
        }
    }

    /// True while agents have instances of it.
    pub(super) fn has_instances(&self) -> bool {
        !self.instances.published.load().is_empty()
    }

    /// The connection for this caller's calls; starts the caller's instance if needed.
    ///
    /// # Errors
    /// As [`Self::connection`], of the server or the instance; [`Refusal::Overloaded`] if there are too many
    /// instances and none is idle.
    pub(crate) async fn connection_for(
        &self,
        caller: &Caller,
        in_flight: &InFlightCall,
    ) -> Result<Arc<Link>, Refusal> {
        let link = self.connection(Some(caller), in_flight).await?;
        if self.has_own_instance(caller) {
            let owner = self.instance_owner(caller)?;
            Box::pin(self.instance_connection(&owner, caller, in_flight)).await
        } else {
            Ok(link)
        }
    }

    async fn instance_connection(
        &self,
        owner: &InstanceOwner,
        caller: &Caller,
        in_flight: &InFlightCall,
    ) -> Result<Arc<Link>, Refusal> {
        let known = self.instances.published.load().get(owner).cloned();
        let there = known.filter(|one| one.link.get().is_some());
        let one = match there {
            Some(one) => one,
            None => {
                let extensions = caller.extensions.clone();
                let opened = |reply| ServerMsg::OpenInstance(owner.clone(), extensions, reply);
                let supervisor = self.supervisor().map_err(|_| self.not_ready_refusal())?;
                let opened = supervisor.ask(opened).await;
                opened.map_err(|_| self.not_ready_refusal())??
            }
        };
        one.record_use();
        let connected = one.connection(Some(caller), in_flight).await;
        match (connected, one.agent_login()) {
            (Err(refusal), Some(login)) if login.park_reason().is_some() => {
                Err(self.sign_in_refusal(&login, caller, refusal).await)
            }
            (connected, _) => connected,
        }
    }

    /// The refusal for an agent that has to sign in: with the address as a URL elicitation if its client
    /// supports that (2025-11-25), else as text.
    async fn sign_in_refusal(
        &self,
        login: &Arc<ServerLogin>,
        caller: &Caller,
        refusal: Refusal,
    ) -> Refusal {
        let client = caller.live_connection();
        let offer = match login.offer_sign_in(client.as_ref()).await {
            Ok(offer) => offer,
            Err(error) => {
                tracing::warn!(server = %self.id, %error, "no login can be offered");
                return refusal;
            }
        };
        let (server, agent) = (&self.id, &caller.agent);
        let message = format!("Server {server} wants a login for {agent}");
        let supports_url =
            caller.version == Version::V2025_11_25 && caller.capabilities.elicitation_url;
        if !supports_url {
            return Refusal::Forbidden(format!(
                "{message}: sign in at {} and call again",
                offer.url
            ));
        }
        let message = format!("Sign in at {server}, for {agent} alone.");
        let error = json!({
            "code": URL_ELICITATION_REQUIRED,
            "message": format!("{message}: sign in, then call again"),
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
            // A caller without a folder has no instance, and so no subscriptions under its key.
            true => self.instance_key(&self.instance_owner(caller).unwrap_or(InstanceOwner {
                agent: caller.agent.clone(),
                folder: None,
            })),
            false => self.id.clone(),
        }
    }

    /// The key of this caller's event subscriptions at the server. For servers on other nodes each agent has its
    /// own, because the owner decides for each.
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

    /// The connection of the instance with this key, or of the server itself. Servers on other nodes have only
    /// one.
    #[must_use]
    pub fn link_by_key(&self, key: &ServerId) -> Option<Arc<Link>> {
        if *key == self.id || self.id.is_remote() {
            return self.link();
        }
        let instances = self.instances.published.load();
        instances.values().find(|one| one.key() == key)?.link()
    }

    /// Ends the instances of a removed agent; resolves when no further call reaches them.
    pub async fn end_instances_of(&self, agent: &AgentId) {
        if !self.instances.is_per_agent.load(Ordering::Relaxed) {
            return;
        }
        // Without a supervisor there are no instances.
        if let Ok(supervisor) = self.supervisor() {
            let ended = |reply| ServerMsg::EndInstances(agent.clone(), reply);
            let _ = supervisor.ask(ended).await;
        }
    }

    /// True if this caller has an instance of its own; the operator has none.
    fn has_own_instance(&self, caller: &Caller) -> bool {
        self.instances.is_per_agent.load(Ordering::Relaxed) && !caller.operator
    }

    /// Sets whether each agent has an instance, and one for each folder.
    pub(in crate::server) fn configure_instances(&self, apart: bool, by_folder: bool) {
        self.instances
            .is_per_folder
            .store(by_folder, Ordering::Relaxed);
        self.instances.is_per_agent.store(apart, Ordering::Relaxed);
    }

    pub(in crate::server) fn publish_instances(&self, table: InstanceMap) {
        self.instances.published.store(Arc::new(table));
    }

    /// Fetches the server's own list again after an instance reported a change.
    pub(in crate::server) fn refetch_server_list(&self, list: List) {
        if let Some(server) = self.instance.as_ref().and_then(|own| own.server.upgrade()) {
            server.refetch_list(list);
        }
    }

    /// The in-flight calls of the server and its instances.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        let own = self.link().map_or(0, |link| link.in_flight() as u64);
        let instances = self.instances.published.load();
        let instances = instances.values().filter_map(|one| one.link());
        own + instances.map(|link| link.in_flight() as u64).sum::<u64>()
    }

    /// The reports of its instances for the operator.
    pub(super) fn instance_reports(&self, snapshot: &ResourceSnapshot) -> Vec<Instance> {
        let instances = self.instances.published.load();
        let reports = instances.iter().map(|(owner, one)| {
            let status = one.status();
            Instance {
                agent: owner.agent.to_string(),
                folder: owner.folder.as_ref().map(|at| at.display().to_string()),
                state: status.state.to_string(),
                since_ms: ms(monotonic_now().duration_since(status.since)),
                pid: status.process(),
                uses: snapshot.server(one.key()),
                in_flight: one.link().map_or(0, |link| link.in_flight() as u64),
            }
        });
        reports.collect()
    }
}
