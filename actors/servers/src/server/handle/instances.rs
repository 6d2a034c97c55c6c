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
use mgp_sync::snapshot::Snapshot;
use serde_json::json;
use serde_json::value::RawValue;

use super::{ServerHandle, ms};
use crate::link::{Link, List};
use crate::login::ServerLogin;
use crate::server::ServerMsg;
use crate::server::resources::ResourceLook;
use mgp_callers::exchange::Exchange;
use mgp_callers::request::Caller;
use mgp_runtime::metrics::GrowingCount;
use mgp_runtime::time::moment;

/// Length of the hash that names an instance: enough that two agents never share one.
const NAME: usize = 32;

/// Instances by whom they are for.
pub(in crate::server) type Table = BTreeMap<InstanceOwner, Arc<ServerHandle>>;

/// For whom an instance is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceOwner {
    /// Its agent.
    pub agent: AgentId,
    /// The folder it runs in, where each folder has its own.
    pub folder: Option<Arc<Path>>,
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
type LifeLock = tokio::sync::Mutex<()>;

/// What a server's handle holds of its instances.
#[derive(Debug)]
pub(super) struct ShownInstances {
    /// Each agent has an instance.
    apart: AtomicBool,
    /// And one for each folder.
    by_folder: AtomicBool,
    shown: Snapshot<Table>,
    /// Lives of the server that were begun since the kernel's start.
    begun: GrowingCount,
    /// Locks: the next instance for somebody starts only after the last one ended, even if a supervisor failed.
    turns: Mutex<HashMap<InstanceOwner, Weak<LifeLock>>>,
}

/// What the handle of an instance holds.
#[derive(Debug)]
pub(super) struct OfAgent {
    owner: InstanceOwner,
    key: ServerId,
    /// When it was last used, in milliseconds of the kernel's clock.
    used: AtomicU64,
    of: Weak<ServerHandle>,
    /// The login of its agent, where each has its own.
    login: OnceLock<Arc<ServerLogin>>,
}

impl ShownInstances {
    pub(super) fn none() -> Self {
        Self {
            apart: AtomicBool::new(false),
            by_folder: AtomicBool::new(false),
            shown: Snapshot::new(Table::new()),
            begun: GrowingCount::new(),
            turns: Mutex::default(),
        }
    }

    fn turn(&self, owner: &InstanceOwner) -> Arc<LifeLock> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| turn.strong_count() > 0);
        let known = turns.get(owner).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let turn = Arc::new(LifeLock::default());
            turns.insert(owner.clone(), Arc::downgrade(&turn));
            turn
        })
    }
}

impl ServerHandle {
    /// Lives of it that were begun since the kernel's start; one that never ended by itself has one.
    #[must_use]
    pub fn lives_begun(&self) -> u64 {
        self.lives.begun.get()
    }

    pub(in crate::server) fn life_begins(&self) {
        self.lives.begun.one_more();
    }

    /// The handle of somebody's instance, which is started at once.
    pub(in crate::server) fn of_owner(self: &Arc<Self>, owner: &InstanceOwner) -> Arc<Self> {
        let own = OfAgent {
            owner: owner.clone(),
            key: self.key_for(owner),
            used: AtomicU64::new(0),
            of: Arc::downgrade(self),
            login: OnceLock::new(),
        };
        let (id, log, turn) = (self.id.clone(), self.log.clone(), self.lives.turn(owner));
        let handle = Arc::new(Self::made(id, log, Some(own), turn));
        handle.make_due();
        handle.touch();
        handle
    }

    fn key_for(&self, owner: &InstanceOwner) -> ServerId {
        let mut whose = blake3::Hasher::new();
        whose.update(owner.agent.as_str().as_bytes());
        if let Some(folder) = &owner.folder {
            // No agent has it in its name.
            whose.update(b"\0").update(folder.as_os_str().as_bytes());
        }
        self.id.instance(&whose.finalize().to_hex()[..NAME])
    }

    /// Whose instance this caller's calls go to.
    ///
    /// # Errors
    /// The server runs in the folder of its caller, and this one has none.
    fn owner_of(&self, caller: &Caller) -> Result<InstanceOwner, Refusal> {
        let agent = caller.agent.clone();
        if !self.lives.by_folder.load(Ordering::Relaxed) {
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
    pub(in crate::server) fn has_login(&self, login: Arc<ServerLogin>) {
        if let Some(own) = &self.own {
            let _ = own.login.set(login);
        }
    }

    /// The login of the agent of this instance, where each has its own.
    pub(in crate::server) fn own_login(&self) -> Option<Arc<ServerLogin>> {
        self.own.as_ref()?.login.get().cloned()
    }

    /// The agent of this instance; `None` for the server itself.
    #[must_use]
    pub fn agent(&self) -> Option<&AgentId> {
        self.own.as_ref().map(|own| &own.owner.agent)
    }

    /// The name of this instance, or of the server itself.
    #[must_use]
    pub fn key(&self) -> &ServerId {
        self.own.as_ref().map_or(&self.id, |own| &own.key)
    }

    /// The handle this caller's calls use, if it exists.
    #[must_use]
    pub fn link_of(&self, caller: &Caller) -> Option<Arc<Link>> {
        match self.parts(caller) {
            true => {
                let owner = self.owner_of(caller).ok()?;
                self.lives.shown.load().get(&owner)?.link()
            }
            false => self.link(),
        }
    }

    /// The connection for this caller's calls; its own instance is started when there is none.
    ///
    /// # Errors
    /// As [`Self::connection`], of the server or the instance; [`Refusal::Overloaded`] where there are
    /// too many instances and none is idle.
    pub async fn connection_of(
        &self,
        caller: &Caller,
        exchange: &Exchange,
    ) -> Result<Arc<Link>, Refusal> {
        let link = self.connection(Some(caller), exchange).await?;
        match self.parts(caller) {
            true => {
                let owner = self.owner_of(caller)?;
                Box::pin(self.own_connection(&owner, caller, exchange)).await
            }
            false => Ok(link),
        }
    }

    async fn own_connection(
        &self,
        owner: &InstanceOwner,
        caller: &Caller,
        exchange: &Exchange,
    ) -> Result<Arc<Link>, Refusal> {
        let known = self.lives.shown.load().get(owner).cloned();
        let there = known.filter(|one| one.link.get().is_some());
        let one = match there {
            Some(one) => one,
            None => {
                let asked = |reply| ServerMsg::OpenInstance(owner.clone(), reply);
                let supervisor = self.supervisor().map_err(|_| self.not_ready())?;
                let asked = supervisor.ask(asked).await;
                asked.map_err(|_| self.not_ready())??
            }
        };
        one.touch();
        let connected = one.connection(Some(caller), exchange).await;
        match (connected, one.own_login()) {
            (Err(refusal), Some(login)) if login.parked().is_some() => {
                Err(self.sign_in_first(&login, caller, refusal).await)
            }
            (connected, _) => connected,
        }
    }

    /// The refusal of a call whose agent has to sign in: with the address, as an elicitation where its client can
    /// show that (2025-11-25), else in words.
    async fn sign_in_first(
        &self,
        login: &Arc<ServerLogin>,
        caller: &Caller,
        refusal: Refusal,
    ) -> Refusal {
        let standing = caller.standing();
        let offer = match login.offer(standing.as_ref()).await {
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
    pub fn key_of(&self, caller: &Caller) -> ServerId {
        match self.parts(caller) {
            // Who has no folder has no instance, and so nothing under its name.
            true => self.key_for(&self.owner_of(caller).unwrap_or(InstanceOwner {
                agent: caller.agent.clone(),
                folder: None,
            })),
            false => self.id.clone(),
        }
    }

    /// The key of this caller's event subscriptions at the server. Of one of another node each agent has its own, since
    /// its owner decides for each.
    #[must_use]
    pub fn events_key_of(&self, caller: &Caller) -> ServerId {
        match self.id.is_of_node() {
            true => self.key_for(&InstanceOwner {
                agent: caller.abroad(),
                folder: None,
            }),
            false => self.key_of(caller),
        }
    }

    /// The connection of the instance of this name, or of the server itself. One of another node has no other.
    #[must_use]
    pub fn link_named(&self, key: &ServerId) -> Option<Arc<Link>> {
        if *key == self.id || self.id.is_of_node() {
            return self.link();
        }
        let shown = self.lives.shown.load();
        shown.values().find(|one| one.key() == key)?.link()
    }

    /// Whether this caller has an instance of its own; the operator has none.
    fn parts(&self, caller: &Caller) -> bool {
        self.lives.apart.load(Ordering::Relaxed) && !caller.operator
    }

    /// Whether each agent has an instance, and one for each folder.
    pub(in crate::server) fn set_apart(&self, apart: bool, by_folder: bool) {
        self.lives.by_folder.store(by_folder, Ordering::Relaxed);
        self.lives.apart.store(apart, Ordering::Relaxed);
    }

    pub(in crate::server) fn show_instances(&self, table: Table) {
        self.lives.shown.store(Arc::new(table));
    }

    /// An instance reports a changed list: the server's own lists are fetched again.
    pub(in crate::server) fn refresh_all(&self, list: List) {
        if let Some(server) = self.own.as_ref().and_then(|own| own.of.upgrade()) {
            server.refresh(list);
        }
    }

    /// Notes that the instance is used now.
    pub(in crate::server) fn touch(&self) {
        if let Some(own) = &self.own {
            let now = ms(moment().since_start());
            own.used.store(now, Ordering::Relaxed);
        }
    }

    /// When it was last wanted.
    pub(in crate::server) fn used(&self) -> Duration {
        let used = self
            .own
            .as_ref()
            .map_or(0, |own| own.used.load(Ordering::Relaxed));
        Duration::from_millis(used)
    }

    /// Whether it is starting, is waited for, has a call under way or has subscriptions.
    pub(in crate::server) fn is_in_use(&self) -> bool {
        let starts = matches!(
            self.state(),
            LifecycleState::Registered | LifecycleState::Connecting
        );
        let link = self.link.get();
        let busy = link.is_some_and(|link| link.in_flight() > 0 || link.is_followed());
        starts || busy || self.waiters.taken() > 0
    }

    /// Calls under way, at it and at its instances.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        let own = self.link().map_or(0, |link| link.in_flight() as u64);
        let shown = self.lives.shown.load();
        let instances = shown.values().filter_map(|one| one.link());
        own + instances.map(|link| link.in_flight() as u64).sum::<u64>()
    }

    /// Its instances as the operator sees them.
    pub(super) fn instances(&self, look: &ResourceLook) -> Vec<Instance> {
        let shown = self.lives.shown.load();
        let told = shown.iter().map(|(owner, one)| {
            let status = one.status();
            Instance {
                agent: owner.agent.to_string(),
                folder: owner.folder.as_ref().map(|at| at.display().to_string()),
                state: status.state.to_string(),
                since_ms: ms(moment().since(status.since)),
                pid: status.process(),
                uses: look.server(one.key()),
                in_flight: one.link().map_or(0, |link| link.in_flight() as u64),
            }
        });
        told.collect()
    }
}
