//! The instances of a server, one per agent, as calls use them.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::servers::Instance;
use mgp_protocol::refusal::Refusal;
use mgp_sync::snapshot::Snapshot;

use super::{ServerHandle, ms};
use crate::link::{Link, List};
use crate::server::ServerMsg;
use crate::server::resources::ResourceLook;
use mgp_callers::exchange::Exchange;
use mgp_callers::request::Caller;
use mgp_runtime::time::moment;

/// Length of the hash that names an instance: enough that two agents never share one.
const NAME: usize = 32;

/// Instances by agent.
pub(in crate::server) type Table = BTreeMap<AgentId, Arc<ServerHandle>>;

/// Held by one life at a time.
type LifeLock = tokio::sync::Mutex<()>;

/// What a server's handle holds of its instances.
#[derive(Debug)]
pub(super) struct ShownInstances {
    /// Each agent has an instance.
    apart: AtomicBool,
    shown: Snapshot<Table>,
    /// Locks: an agent's next instance starts only after its last one ended, even if a supervisor failed.
    turns: Mutex<HashMap<AgentId, Weak<LifeLock>>>,
}

/// What the handle of an instance holds.
#[derive(Debug)]
pub(super) struct OfAgent {
    agent: AgentId,
    key: ServerId,
    /// When it was last used, in milliseconds of the kernel's clock.
    used: AtomicU64,
    of: Weak<ServerHandle>,
}

impl ShownInstances {
    pub(super) fn none() -> Self {
        Self {
            apart: AtomicBool::new(false),
            shown: Snapshot::new(Table::new()),
            turns: Mutex::default(),
        }
    }

    fn turn(&self, agent: &AgentId) -> Arc<LifeLock> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| turn.strong_count() > 0);
        let known = turns.get(agent).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let turn = Arc::new(LifeLock::default());
            turns.insert(agent.clone(), Arc::downgrade(&turn));
            turn
        })
    }
}

impl ServerHandle {
    /// The handle of an agent's instance, which is started at once.
    pub(in crate::server) fn of_agent(self: &Arc<Self>, agent: &AgentId) -> Arc<Self> {
        let own = OfAgent {
            agent: agent.clone(),
            key: self.key_for(agent),
            used: AtomicU64::new(0),
            of: Arc::downgrade(self),
        };
        let (id, log, turn) = (self.id.clone(), self.log.clone(), self.lives.turn(agent));
        let handle = Arc::new(Self::made(id, log, Some(own), turn));
        handle.make_due();
        handle.touch();
        handle
    }

    fn key_for(&self, agent: &AgentId) -> ServerId {
        let whose = blake3::hash(agent.as_str().as_bytes()).to_hex();
        self.id.instance(&whose[..NAME])
    }

    /// The agent of this instance; `None` for the server itself.
    #[must_use]
    pub fn agent(&self) -> Option<&AgentId> {
        self.own.as_ref().map(|own| &own.agent)
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
            true => self.lives.shown.load().get(&caller.agent)?.link(),
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
        let link = self.connection(exchange).await?;
        match self.parts(caller) {
            true => Box::pin(self.own_connection(&caller.agent, exchange)).await,
            false => Ok(link),
        }
    }

    async fn own_connection(
        &self,
        agent: &AgentId,
        exchange: &Exchange,
    ) -> Result<Arc<Link>, Refusal> {
        let known = self.lives.shown.load().get(agent).cloned();
        let there = known.filter(|one| one.link.get().is_some());
        let one = match there {
            Some(one) => one,
            None => {
                let asked = |reply| ServerMsg::OpenInstance(agent.clone(), reply);
                let supervisor = self.supervisor().map_err(|_| self.not_ready())?;
                let asked = supervisor.ask(asked).await;
                asked.map_err(|_| self.not_ready())??
            }
        };
        one.touch();
        one.connection(exchange).await
    }

    /// The key of this caller's subscriptions at the server.
    #[must_use]
    pub fn key_of(&self, caller: &Caller) -> ServerId {
        match self.parts(caller) {
            true => self.key_for(&caller.agent),
            false => self.id.clone(),
        }
    }

    /// The key of this caller's event subscriptions at the server. Of one of another node each agent has its own, since
    /// its owner decides for each.
    #[must_use]
    pub fn events_key_of(&self, caller: &Caller) -> ServerId {
        match self.id.is_of_node() {
            true => self.key_for(&caller.abroad()),
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

    pub(in crate::server) fn set_apart(&self, apart: bool) {
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
        starts || busy || self.waiters.load(Ordering::Relaxed) > 0
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
        let told = shown.iter().map(|(agent, one)| {
            let status = one.status();
            Instance {
                agent: agent.to_string(),
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
