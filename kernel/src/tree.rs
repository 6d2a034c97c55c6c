//! The supervision tree: who lives under whom, and what happens when one of them fails.
//!
//! ```text
//! tree ─┬─ guard            fails: the kernel ends
//!       ├─ subscriptions    fails: the kernel ends
//!       ├─ catalog          fails: the kernel ends
//!       ├─ finder           fails: the kernel ends
//!       ├─ roster           fails: the kernel ends
//!       ├─ access           fails: the kernel ends
//!       ├─ agents           fails: the kernel ends
//!       │   ├─ connection…  fails: only that agent is disconnected
//!       │   ├─ session…     fails: only that session ends
//!       │   └─ listener…    fails: only that subscription ends
//!       └─ server…          fails: only that server is started again
//! ```
//!
//! What everybody leans on cannot be lost without losing what it knows, so its failure ends the
//! kernel in good order; whoever keeps the kernel running starts it anew.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use mgp_callers::directory::Directory;
use mgp_callers::request::Answering;
use mgp_engine::policy::access::Defaults;
use mgp_engine::servers::lifecycle::TransitionReason;
use mgp_engine::servers::reload::Reload;
use mgp_engine::servers::spec::ServerSpec;
use mgp_policy::access::AccessHandle;
use mgp_policy::permissions::PermissionsHandle;
use mgp_policy::pins::PinsHandle;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::access::DefaultPolicy;
use mgp_runtime::mailbox::{AskError, Letter, Mailbox, Reply};
use mgp_servers::guard::GuardHandle;
use mgp_servers::server::{Connector, ServerActor, ServerHandle, ServerMsg, ServerTable};
use mgp_store::audit::AuditHandle;
use mgp_tools::catalog::CatalogHandle;
use mgp_tools::registrar::{Ground, Names};
use mgp_tools::subscriptions::SubscriptionsHandle;
use mgp_transports::log::ServerLog;
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::config::{BrokenServer, Loaded};
use crate::source::Source;

/// Why the supervisor of a server that was taken out ends.
const REMOVED: &str = "removed";
/// How often, and at which distance, it is looked whether a server is gone from the lists.
const UNLISTED: usize = 100;
const LOOK: Duration = Duration::from_millis(10);

/// The way to the tree.
#[derive(Debug, Clone)]
pub struct TreeHandle(Mailbox<TreeMsg>);

impl TreeHandle {
    /// Reads the configuration again; answers what is wrong with it.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn reload(&self) -> Result<Vec<String>, AskError> {
        self.0.ask(TreeMsg::Reload).await
    }

    /// Stops every server; resolves when all have stopped.
    pub async fn stop_servers(&self) {
        if let Ok(stopping) = self.0.ask(TreeMsg::StopServers).await {
            for stopped in stopping {
                let _ = stopped.await;
            }
        }
    }
}

impl Ground for TreeHandle {
    fn plant(&self, spec: ServerSpec) -> Answering<bool> {
        let tree = self.0.clone();
        let ask = async move {
            tree.ask(|reply| TreeMsg::Plant(Box::new(spec), reply))
                .await
        };
        Box::pin(async move { ask.await.unwrap_or(false) })
    }

    fn uproot(&self, id: ServerId) -> Answering<Option<oneshot::Receiver<()>>> {
        let tree = self.0.clone();
        let ask = async move { tree.ask(|reply| TreeMsg::Uproot(id, reply)).await };
        Box::pin(async move { ask.await.ok().flatten() })
    }

    fn freed(&self, id: ServerId) -> Answering<()> {
        let tree = self.0.clone();
        let ask = async move { tree.ask(|reply| TreeMsg::Freed(id, reply)).await };
        Box::pin(async move { ask.await.unwrap_or_default() })
    }
}

/// What the tree is told and asked.
#[derive(Debug)]
pub enum TreeMsg {
    /// Read the configuration again.
    Reload(Reply<Vec<String>>),
    /// Supervise a server that was registered; false when there is one of that name.
    Plant(Box<ServerSpec>, Reply<bool>),
    /// Take a registered server out; what is answered resolves when it has stopped.
    Uproot(ServerId, Reply<Option<oneshot::Receiver<()>>>),
    /// A name that a server of the configuration may have waited for is free.
    Freed(ServerId, Reply<()>),
    /// The kernel ends.
    StopServers(Reply<Vec<tokio::sync::oneshot::Receiver<()>>>),
}

/// What every server's supervisor needs.
#[derive(Debug, Clone)]
pub struct ServerParts {
    /// Where its tools are shown.
    pub catalog: CatalogHandle,
    /// Where its subscriptions are kept.
    pub subscriptions: SubscriptionsHandle,
    /// Who wants which of its log messages.
    pub directory: Arc<Directory>,
    /// What ends its processes when the kernel dies.
    pub guard: GuardHandle,
    /// How it is connected to.
    pub connector: Arc<Connector>,
    /// What each may do.
    pub permissions: PermissionsHandle,
    /// What tools were when they were approved.
    pub pins: PinsHandle,
    /// Where its coming and going is written down.
    pub audit: AuditHandle,
}

/// What never changes.
#[derive(Debug)]
pub struct TreeActor {
    /// What every server's supervisor needs.
    pub parts: ServerParts,
    /// All servers, published.
    pub servers: Arc<ServerTable>,
    /// Where the configuration comes from.
    pub source: Arc<Source>,
    /// Who is told of default policies.
    pub access: AccessHandle,
    /// The names of registered servers.
    pub names: Arc<Names>,
    /// Ends the kernel.
    pub closing: CancellationToken,
    /// What everybody leans on.
    pub pillars: Vec<ActorCell>,
}

/// What does.
#[derive(Debug)]
pub struct TreeState {
    specs: BTreeMap<ServerId, ServerSpec>,
    /// Those that were registered, beside those of the files.
    registered: BTreeMap<ServerId, ServerSpec>,
    policy: DefaultPolicy,
    supervisors: HashMap<ActorId, ServerId>,
    stopping: bool,
}

impl TreeActor {
    /// Grows the tree with the servers of `loaded`.
    ///
    /// # Errors
    /// When the actor cannot be started.
    pub async fn grow(self, loaded: &Loaded) -> Result<TreeHandle, ractor::SpawnErr> {
        let first = plan(loaded);
        let (actor, _) = Actor::spawn(None, self, first).await?;
        Ok(TreeHandle(Mailbox::new(actor)))
    }
}

/// Resolves when nobody is shown anything of this server any more, or after a second: another one may
/// have its name by then.
async fn unlisted(catalog: &CatalogHandle, id: &ServerId) {
    for _ in 0..UNLISTED {
        if catalog.shown().catalog.counts(id).is_none() {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The servers that can be run, those that cannot, with the reason, and the kernel's default policy.
type Plan = (Vec<ServerSpec>, Vec<(ServerId, String)>, DefaultPolicy);

fn plan(loaded: &Loaded) -> Plan {
    let good = loaded
        .servers
        .iter()
        .filter_map(|s| s.as_ref().ok().cloned());
    let bad = loaded.servers.iter().filter_map(|s| s.as_ref().err());
    let bad = bad.filter_map(|broken: &BrokenServer| {
        let id = broken.id.clone()?;
        Some((id, broken.problem.render(false)))
    });
    let policy = loaded.kernel.access.default_policy;
    (good.collect(), bad.collect(), policy)
}

/// What agents may do where nothing was granted or denied.
fn defaults(kernel: DefaultPolicy, servers: &[ServerSpec]) -> Defaults {
    let own = servers
        .iter()
        .filter_map(|spec| Some((spec.id.clone(), spec.policy()?)));
    let servers = own.collect();
    Defaults { kernel, servers }
}

impl Actor for TreeActor {
    type Msg = Letter<TreeMsg>;
    type State = TreeState;
    type Arguments = Plan;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        first: Plan,
    ) -> Result<TreeState, ActorProcessingErr> {
        for pillar in &self.pillars {
            pillar.link(myself.get_cell());
        }
        let mut state = TreeState {
            specs: BTreeMap::new(),
            registered: BTreeMap::new(),
            policy: first.2,
            supervisors: HashMap::new(),
            stopping: false,
        };
        let first = self.without_registered(&state, first);
        self.apply(&myself, &mut state, first).await;
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        letter: Self::Msg,
        state: &mut TreeState,
    ) -> Result<(), ActorProcessingErr> {
        match letter.message {
            TreeMsg::Reload(reply) => reply.send(self.reload(&myself, state).await),
            TreeMsg::Plant(spec, reply) => reply.send(self.plant(&myself, state, *spec).await),
            TreeMsg::Uproot(id, reply) => reply.send(self.uproot(state, &id).await),
            TreeMsg::Freed(id, reply) => {
                if self.source.ids().contains(&id) {
                    self.reload(&myself, state).await;
                }
                reply.send(());
            }
            TreeMsg::StopServers(reply) => {
                state.stopping = true;
                reply.send(self.stop_servers(state));
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut TreeState,
    ) -> Result<(), ActorProcessingErr> {
        let (who, why) = match event {
            SupervisionEvent::ActorFailed(who, why) => (who, why.to_string()),
            SupervisionEvent::ActorTerminated(who, _, why) => {
                (who, why.unwrap_or_else(|| "ended".into()))
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {
                return Ok(());
            }
        };
        self.fell(&myself, state, &who, &why).await;
        Ok(())
    }
}

impl TreeActor {
    /// One function treats failed and ended: a server that is still wanted is started again.
    async fn fell(
        &self,
        me: &ActorRef<Letter<TreeMsg>>,
        state: &mut TreeState,
        who: &ActorCell,
        why: &str,
    ) {
        let Some(id) = state.supervisors.remove(&who.get_id()) else {
            if !state.stopping && !self.closing.is_cancelled() {
                tracing::error!(actor = ?who.get_id(), why, "the kernel cannot go on without it");
                self.closing.cancel();
            }
            return;
        };
        let Some(spec) = state.specs.get(&id).cloned().filter(|_| !state.stopping) else {
            return;
        };
        if why != REMOVED {
            tracing::error!(server = %id, why, "its supervisor failed and is started again");
        }
        self.supervise(me, state, spec).await;
    }

    async fn reload(&self, me: &ActorRef<Letter<TreeMsg>>, state: &mut TreeState) -> Vec<String> {
        let Some(loaded) = self.source.read() else {
            return Vec::new();
        };
        let mut problems = self.source.publish(&loaded);
        if loaded.is_usable() && !state.stopping {
            // Before anybody is started with them.
            self.parts.audit.redact(loaded.secrets());
            let plan = self.without_registered(state, plan(&loaded));
            let added = plan.1.iter().map(|(_, why)| why);
            problems.extend(
                added
                    .filter(|why| !problems.contains(why))
                    .cloned()
                    .collect::<Vec<_>>(),
            );
            self.apply(me, state, plan).await;
        }
        problems
    }

    /// The plan without the servers whose name a registered one has: what agents may do on that one was
    /// not said of another.
    fn without_registered(&self, state: &TreeState, (good, mut bad, policy): Plan) -> Plan {
        let names = self.names.load();
        let is_its = |id: &ServerId| {
            names.contains(id)
                && (!state.specs.contains_key(id) || state.registered.contains_key(id))
        };
        let (taken, good): (Vec<_>, Vec<_>) = good.into_iter().partition(|spec| is_its(&spec.id));
        bad.extend(taken.into_iter().map(|spec| {
            let id = spec.id;
            let why = format!(
                "a server of the name {id} was registered while the kernel ran: give this one another name, or take that one out (`mgp servers remove {id}`)"
            );
            tracing::warn!("{why}");
            (id, why)
        }));
        (good, bad, policy)
    }

    /// Makes the running servers those of the plan; what did not change is not touched. An entry
    /// that is broken now leaves its server as it was.
    async fn apply(&self, me: &ActorRef<Letter<TreeMsg>>, state: &mut TreeState, plan: Plan) {
        let (good, bad, policy) = plan;
        let old: Vec<_> = state.specs.values().cloned().collect();
        let kept = old.iter().filter(|s| bad.iter().any(|(id, _)| *id == s.id));
        let mut new: Vec<_> = good.into_iter().chain(kept.cloned()).collect();
        let others = state.registered.values();
        let others: Vec<_> = others
            .filter(|o| new.iter().all(|s| s.id != o.id))
            .collect();
        new.extend(others.into_iter().cloned());
        state.policy = policy;
        // Before any of them has a tool.
        if let Err(error) = self.access.set_defaults(defaults(policy, &new)).await {
            tracing::error!(%error, "the configuration is not taken up");
            return;
        }
        let diff = Reload::between(&old, &new);
        for id in &diff.removed {
            let _ending = self.remove(state, id).await;
        }
        for (id, why) in bad {
            if !state.specs.contains_key(&id) {
                self.show_broken(id, &why);
            }
        }
        for spec in diff.added {
            self.add(me, state, spec).await;
        }
        for spec in diff.changed {
            let handle = self.servers.load().get(&spec.id).cloned();
            state.specs.insert(spec.id.clone(), spec.clone());
            if let Some(handle) = handle {
                let _ = handle.tell(ServerMsg::Reconfigure(Box::new(spec)));
            }
        }
        self.forget_broken(state);
    }

    /// A server that was taken out a moment ago may still be ending: it is started when it has.
    async fn add(&self, me: &ActorRef<Letter<TreeMsg>>, state: &mut TreeState, spec: ServerSpec) {
        if !state.supervisors.values().any(|id| *id == spec.id) {
            return self.supervise(me, state, spec).await;
        }
        let show = match spec.autostart {
            true => ServerHandle::due,
            false => ServerHandle::new,
        };
        self.show(show(spec.id.clone(), ServerLog::new()));
        state.specs.insert(spec.id.clone(), spec);
    }

    async fn supervise(
        &self,
        me: &ActorRef<Letter<TreeMsg>>,
        state: &mut TreeState,
        spec: ServerSpec,
    ) {
        let id = spec.id.clone();
        let known = self.servers.load().get(&id).cloned();
        let handle = known.unwrap_or_else(|| ServerHandle::new(id.clone(), ServerLog::new()));
        let parts = self.parts.clone();
        let actor = ServerActor {
            handle: handle.clone(),
            catalog: parts.catalog,
            subscriptions: parts.subscriptions,
            directory: parts.directory,
            guard: parts.guard,
            connector: parts.connector,
            permissions: parts.permissions,
            pins: parts.pins,
            audit: parts.audit,
        };
        let autostart = spec.autostart;
        state.specs.insert(id.clone(), spec.clone());
        match Actor::spawn_linked(None, actor, spec, me.get_cell()).await {
            Ok((actor, _)) => {
                state.supervisors.insert(actor.get_id(), id.clone());
                self.show(handle.clone());
                if autostart {
                    let _ = handle.tell(ServerMsg::Start { by_operator: false });
                }
            }
            Err(error) => tracing::error!(server = %id, %error, "no supervisor for it"),
        }
    }

    /// Takes a server out; what is answered resolves when it has stopped.
    async fn remove(&self, state: &mut TreeState, id: &ServerId) -> Option<oneshot::Receiver<()>> {
        state.specs.remove(id);
        let handle = self.servers.load().get(id).cloned()?;
        self.servers.update(|servers| {
            let mut servers = servers.clone();
            servers.remove(id);
            servers
        });
        let (gone, told) = oneshot::channel();
        let (catalog, id) = (self.parts.catalog.clone(), id.clone());
        let (reply, stopped) = Reply::new();
        if let Ok(supervisor) = handle.supervisor() {
            let _ = supervisor.tell(ServerMsg::Stop(
                TransitionReason::ConfigurationChange,
                reply,
            ));
            tokio::spawn(async move {
                let _ = stopped.await;
                supervisor.stop(REMOVED);
                unlisted(&catalog, &id).await;
                let _ = gone.send(());
            });
        }
        Some(told)
    }

    async fn plant(
        &self,
        me: &ActorRef<Letter<TreeMsg>>,
        state: &mut TreeState,
        spec: ServerSpec,
    ) -> bool {
        if state.specs.contains_key(&spec.id) || state.stopping {
            return false;
        }
        state.registered.insert(spec.id.clone(), spec.clone());
        let all: Vec<_> = state.specs.values().chain([&spec]).cloned().collect();
        // Before it has a tool.
        if let Err(error) = self.access.set_defaults(defaults(state.policy, &all)).await {
            tracing::error!(%error, "a registered server is not started");
            return false;
        }
        self.add(me, state, spec).await;
        true
    }

    async fn uproot(&self, state: &mut TreeState, id: &ServerId) -> Option<oneshot::Receiver<()>> {
        state.registered.remove(id)?;
        self.remove(state, id).await
    }

    fn stop_servers(&self, state: &TreeState) -> Vec<tokio::sync::oneshot::Receiver<()>> {
        let servers = self.servers.load();
        let running = state.specs.keys().filter_map(|id| servers.get(id));
        running
            .filter_map(|handle| {
                let (reply, stopped) = Reply::new();
                let told = handle.tell(ServerMsg::Stop(TransitionReason::KernelShutdown, reply));
                told.is_ok().then_some(stopped)
            })
            .collect()
    }

    fn show(&self, handle: Arc<ServerHandle>) {
        self.servers.update(|servers| {
            let mut servers = servers.clone();
            servers.insert(handle.id.clone(), handle);
            servers
        });
    }

    /// A server that cannot be run as it is configured is shown with the reason.
    fn show_broken(&self, id: ServerId, why: &str) {
        self.show(ServerHandle::broken(id, ServerLog::new(), why));
    }

    /// Entries that were broken and are gone from the configuration are not shown any more.
    fn forget_broken(&self, state: &TreeState) {
        let configured = self.source.ids();
        self.servers.update(|servers| {
            let mut servers = servers.clone();
            let names = self.names.load();
            let stays = |id: &ServerId| {
                state.specs.contains_key(id) || configured.contains(id) || names.contains(id)
            };
            servers.retain(|id, _| stays(id));
            servers
        });
    }
}
