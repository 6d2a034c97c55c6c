//! The supervision tree: which actor supervises which, and what the failure of each means.
//!
//! ```text
//! tree ─┬─ …                [`ROOT_ACTORS`]: the kernel shuts down, or the actor is restarted
//!       ├─ agents
//!       │   ├─ connection…  fails: only that agent is disconnected
//!       │   ├─ session…     fails: only that session ends
//!       │   ├─ tool_cache…  fails: its session starts an empty one at the next use
//!       │   └─ listener…    fails: only that subscription ends
//!       └─ server…          fails: only that server is restarted
//! ```
//!
//! State that cannot be rebuilt is never lost silently: the failure of its actor shuts the kernel down
//! gracefully, and the service manager restarts it.

mod dump;
mod root;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use mgp_callers::Directory;
use mgp_callers::request::AnswerFuture;
use mgp_engine::servers::lifecycle::TransitionReason;
use mgp_engine::servers::spec::{ServerSpec, StartMode};
use mgp_engine::servers::tree_plan::{Configuration, LossPolicy, TreeEffect, TreeEvent, TreePlan};
use mgp_mcpl_engine::rules::McplRules;
use mgp_policy::{AccessHandle, PermissionsHandle, PinsHandle};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::kernel::ActorNode;
use mgp_runtime::time::monotonic_now;
use mgp_runtime::{AskError, EventSink, Mailbox, Queued, Reply, task};
use mgp_servers::{
    Connector, GuardHandle, ServerActor, ServerEvent, ServerHandle, ServerMsg, ServerTable,
};
use mgp_store::audit::AuditHandle;
use mgp_tools::CatalogHandle;
use mgp_tools::registrar::{Names, ServerTree};
use mgp_transports::log::ServerLog;
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

pub use self::root::{ROOT_ACTORS, RootActor};
use crate::config::{BrokenServer, LoadedConfig};
use crate::config_source::ConfigSource;

/// The stop reason of the supervisor of a removed server.
const REMOVED: &str = "removed";
/// Limit for waiting until agents no longer see a removed server: another one may get its name afterwards.
const UNLIST_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends requests to the tree.
#[derive(Debug, Clone)]
pub struct TreeHandle(Mailbox<TreeMsg>);

impl TreeHandle {
    /// Reads the configuration again and returns its problems.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn reload(&self) -> Result<Vec<String>, AskError> {
        self.0.ask(TreeMsg::Reload).await
    }

    /// The running actors.
    ///
    /// # Errors
    /// [`AskError`].
    pub(crate) async fn describe(&self) -> Result<ActorNode, AskError> {
        self.0.ask(TreeMsg::Describe).await
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

impl ServerTree for TreeHandle {
    fn start_server(&self, spec: ServerSpec) -> AnswerFuture<bool> {
        let tree = self.0.clone();
        let ask = async move {
            tree.ask(|reply| TreeMsg::StartServer(Box::new(spec), reply))
                .await
        };
        Box::pin(async move { ask.await.unwrap_or(false) })
    }

    fn stop_server(&self, id: ServerId) -> AnswerFuture<Option<oneshot::Receiver<()>>> {
        let tree = self.0.clone();
        let ask = async move { tree.ask(|reply| TreeMsg::StopServer(id, reply)).await };
        Box::pin(async move { ask.await.ok().flatten() })
    }

    fn release_name(&self, id: ServerId) -> AnswerFuture<()> {
        let tree = self.0.clone();
        let ask = async move { tree.ask(|reply| TreeMsg::NameFreed(id, reply)).await };
        Box::pin(async move { ask.await.unwrap_or_default() })
    }
}

#[derive(Debug)]
/// Messages of the tree.
pub enum TreeMsg {
    /// Read the configuration again; returns its problems.
    Reload(Reply<Vec<String>>),
    /// Start a registered server; false if the name is taken or the server cannot be started.
    StartServer(Box<ServerSpec>, Reply<bool>),
    /// Remove a registered server; the receiver resolves when it has stopped.
    StopServer(ServerId, Reply<Option<oneshot::Receiver<()>>>),
    /// A name that a configured server may wait for is free.
    NameFreed(ServerId, Reply<()>),
    /// List the running actors.
    Describe(Reply<ActorNode>),
    /// Stop all servers: the kernel shuts down.
    StopServers(Reply<Vec<oneshot::Receiver<()>>>),
}

/// Dependencies of each server's supervisor.
#[derive(Debug, Clone)]
pub struct ServerDeps {
    /// Receives events and notifications of servers.
    pub events: EventSink<ServerEvent>,
    /// The published catalog.
    pub catalog: CatalogHandle,
    /// Which client wants which log messages.
    pub directory: Arc<Directory>,
    /// Ends server processes when the kernel dies.
    pub guard: GuardHandle,
    /// Connects to servers.
    pub connector: Arc<Connector>,
    /// Permissions of servers.
    pub permissions: PermissionsHandle,
    /// Pinned definitions of tools.
    pub pins: PinsHandle,
    /// Records starts and stops.
    pub audit: AuditHandle,
}

/// The tree's dependencies.
#[derive(Debug)]
pub struct TreeActor {
    /// Dependencies of each server's supervisor.
    pub deps: ServerDeps,
    /// All servers, published.
    pub servers: Arc<ServerTable>,
    /// The source of the configuration.
    pub source: Arc<ConfigSource>,
    /// Receives changes of default policies.
    pub access: AccessHandle,
    /// The names of registered servers.
    pub names: Arc<Names>,
    /// Receives changes of the MCPL rules.
    pub mcpl_rules: EventSink<McplRules>,
    /// Shuts the kernel down.
    pub shutdown: CancellationToken,
    /// The other actors at the root.
    pub root: Vec<RootActor>,
}

/// The mutable state of the tree.
#[derive(Debug)]
pub struct TreeState {
    plan: TreePlan,
    supervisors: HashMap<ActorId, (ActorCell, ServerId)>,
    root: Vec<RootActor>,
}

impl TreeActor {
    /// Starts the tree with the servers of `loaded`.
    ///
    /// # Errors
    /// When the actor cannot be started.
    pub async fn start(self, loaded: &LoadedConfig) -> Result<TreeHandle, SpawnErr> {
        let first = runnable_configuration(loaded);
        let (actor, _) = Actor::spawn(None, self, first).await?;
        Ok(TreeHandle(Mailbox::new(actor)))
    }
}

/// The valid servers, the invalid ones with their problems, and the kernel's default policy.
fn runnable_configuration(loaded: &LoadedConfig) -> Configuration {
    let valid = loaded
        .servers
        .iter()
        .filter_map(|s| s.as_ref().ok().cloned());
    let broken = loaded.servers.iter().filter_map(|s| s.as_ref().err());
    let invalid = broken.filter_map(|broken: &BrokenServer| {
        let id = broken.id.clone()?;
        Some((id, broken.problem.render(false)))
    });
    Configuration {
        servers: valid.collect(),
        invalid: invalid.collect(),
        policy: loaded.kernel.access.to_policies(),
    }
}

impl Actor for TreeActor {
    type Msg = Queued<TreeMsg>;
    type State = TreeState;
    type Arguments = Configuration;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        first: Configuration,
    ) -> Result<TreeState, ActorProcessingErr> {
        for actor in &self.root {
            actor.cell.link(myself.get_cell());
        }
        let mut state = TreeState {
            plan: TreePlan::new(),
            supervisors: HashMap::new(),
            root: self.root.clone(),
        };
        self.apply_configuration(&myself, &mut state, first).await;
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut TreeState,
    ) -> Result<(), ActorProcessingErr> {
        match queued.into_message() {
            TreeMsg::Reload(reply) => reply.send(self.reload(&myself, state).await),
            TreeMsg::StartServer(spec, reply) => {
                reply.send(self.start_server(&myself, state, *spec).await);
            }
            TreeMsg::StopServer(id, reply) => {
                let event = TreeEvent::Deregistered(id);
                reply.send(self.apply_event(&myself, state, event).await.pop());
            }
            TreeMsg::NameFreed(id, reply) => {
                if self.source.server_ids().contains(&id) {
                    self.reload(&myself, state).await;
                }
                reply.send(());
            }
            TreeMsg::Describe(reply) => {
                reply.send(dump::actor_tree(&state.root, &state.supervisors));
            }
            TreeMsg::StopServers(reply) => {
                self.apply_event(&myself, state, TreeEvent::Stopping).await;
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
        // Failure and termination are handled alike.
        let (actor, why) = match event {
            SupervisionEvent::ActorFailed(actor, why) => (actor, why.to_string()),
            SupervisionEvent::ActorTerminated(actor, _, why) => {
                (actor, why.unwrap_or_else(|| "ended".into()))
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {
                return Ok(());
            }
        };
        match state.supervisors.remove(&actor.get_id()) {
            Some((_, id)) => self.on_server_failure(&myself, state, id, &why).await,
            None => self.on_root_failure(&myself, state, &actor, &why).await,
        }
        Ok(())
    }
}

type TreeRef = ActorRef<Queued<TreeMsg>>;

impl TreeActor {
    async fn on_server_failure(
        &self,
        myself: &TreeRef,
        state: &mut TreeState,
        id: ServerId,
        why: &str,
    ) {
        let event = TreeEvent::Ended(id.clone());
        let is_desired = state.plan.desired().any(|desired| *desired == id);
        if is_desired && !state.plan.is_stopping() && why != REMOVED {
            tracing::error!(server = %id, why, "the supervisor failed and is restarted");
        }
        self.apply_event(myself, state, event).await;
    }

    async fn on_root_failure(
        &self,
        myself: &TreeRef,
        state: &mut TreeState,
        actor: &ActorCell,
        why: &str,
    ) {
        let lost = state
            .root
            .iter()
            .find(|root| root.cell.get_id() == actor.get_id());
        let (name, loss) = lost.map_or(("unknown", LossPolicy::StopKernel), |actor| {
            (actor.name, actor.on_loss())
        });
        if !self.shutdown.is_cancelled() {
            tracing::error!(actor = name, why, "a root actor was lost");
            let event = TreeEvent::RootLost(name, loss, monotonic_now());
            self.apply_event(myself, state, event).await;
        }
    }

    /// Feeds the event to the plan and carries out its effects. Returns a receiver for each server that is stopped.
    async fn apply_event(
        &self,
        myself: &TreeRef,
        state: &mut TreeState,
        event: TreeEvent,
    ) -> Vec<oneshot::Receiver<()>> {
        let mut stopping = Vec::new();
        let mut effects = VecDeque::from(state.plan.handle(event));
        while let Some(effect) = effects.pop_front() {
            let event = match effect {
                TreeEffect::SetDefaults(defaults) => {
                    match self.access.set_defaults(defaults).await {
                        Ok(()) => TreeEvent::DefaultsSet,
                        Err(error) => {
                            tracing::error!(%error, "changed default policies were not applied");
                            TreeEvent::DefaultsRejected
                        }
                    }
                }
                TreeEffect::Start(spec) => match self.spawn_supervisor(myself, state, spec).await {
                    Ok(()) => continue,
                    Err(failed) => failed,
                },
                TreeEffect::RestartRoot(name) => match self.restart_root(myself, state, name).await
                {
                    Ok(()) => continue,
                    Err(failed) => failed,
                },
                TreeEffect::Stop(id) => {
                    stopping.extend(self.stop_server(&id));
                    continue;
                }
                TreeEffect::ListPending(spec) => {
                    self.add_server(spec);
                    continue;
                }
                TreeEffect::Reconfigure(spec) => {
                    self.update_spec(spec);
                    continue;
                }
                TreeEffect::ListInvalid(id, why) => {
                    self.publish_server(ServerHandle::new_misconfigured(
                        id,
                        self.new_server_log(),
                        &why,
                    ));
                    continue;
                }
                TreeEffect::Unlist(id) => {
                    self.unpublish_server(&id);
                    continue;
                }
                TreeEffect::StopKernel => {
                    tracing::error!("the kernel cannot continue without this actor");
                    self.shutdown.cancel();
                    continue;
                }
            };
            effects.extend(state.plan.handle(event));
        }
        stopping
    }

    async fn reload(&self, myself: &TreeRef, state: &mut TreeState) -> Vec<String> {
        // Reading the disk, the keyring or a secret command may take long.
        let source = self.source.clone();
        let loaded = task::run_blocking("source.read", move || source.reload()).await;
        let Some(loaded) = loaded.ok().flatten() else {
            return Vec::new();
        };
        let mut problems = self.source.apply(&loaded);
        if loaded.is_usable() && !state.plan.is_stopping() {
            // Before a server is started with these secrets.
            self.deps.audit.redact(loaded.secrets());
            self.apply_tool_sets(&loaded).await;
            self.mcpl_rules.send(loaded.kernel.mcpl.clone());
            for why in self
                .apply_configuration(myself, state, runnable_configuration(&loaded))
                .await
            {
                if !problems.contains(&why) {
                    problems.push(why);
                }
            }
        }
        problems
    }

    /// Puts the tool sets into force before a server that they leave out becomes visible.
    async fn apply_tool_sets(&self, loaded: &LoadedConfig) {
        let sets = Arc::new(loaded.kernel.sets.clone());
        if let Err(error) = self.access.set_tool_sets(sets).await {
            tracing::error!(%error, "the tool sets were not changed");
        }
    }

    /// Applies a configuration to the running servers; returns the problems of the others.
    async fn apply_configuration(
        &self,
        myself: &TreeRef,
        state: &mut TreeState,
        configuration: Configuration,
    ) -> Vec<String> {
        let names = self.names.load();
        let broken = configuration.invalid.len();
        let accepted = state.plan.without_registered(configuration, &names);
        for (_, why) in &accepted.invalid[broken..] {
            tracing::warn!("{why}");
        }
        let problems = accepted
            .invalid
            .iter()
            .map(|(_, why)| why.clone())
            .collect();
        let event = TreeEvent::Configured(accepted, (*names).clone());
        let _stopping = self.apply_event(myself, state, event).await;
        problems
    }

    async fn start_server(
        &self,
        myself: &TreeRef,
        state: &mut TreeState,
        spec: ServerSpec,
    ) -> bool {
        let id = spec.id.clone();
        if state.plan.desired().any(|desired| *desired == id) {
            return false;
        }
        let event = TreeEvent::Registered(Box::new(spec));
        self.apply_event(myself, state, event).await;
        state.plan.has_registered(&id)
    }

    async fn spawn_supervisor(
        &self,
        myself: &TreeRef,
        state: &mut TreeState,
        spec: ServerSpec,
    ) -> Result<(), TreeEvent> {
        let id = spec.id.clone();
        let existing = self.servers.load().get(&id).cloned();
        let handle =
            existing.unwrap_or_else(|| ServerHandle::new(id.clone(), self.new_server_log()));
        let deps = self.deps.clone();
        let actor = ServerActor {
            handle: handle.clone(),
            events: deps.events,
            directory: deps.directory,
            servers: self.servers.clone(),
            guard: deps.guard,
            connector: deps.connector,
            permissions: deps.permissions,
            pins: deps.pins,
            audit: deps.audit,
        };
        let starts = spec.start != StartMode::Manual;
        let started = Actor::spawn_linked(None, actor, spec, myself.get_cell()).await;
        let (actor, _) = started.map_err(|error| {
            tracing::error!(server = %id, %error, "the supervisor could not be started");
            TreeEvent::StartFailed(id.clone(), format!("it has no supervisor: {error}"))
        })?;
        let cell = actor.get_cell();
        state.supervisors.insert(cell.get_id(), (cell, id));
        self.publish_server(handle.clone());
        if starts {
            let _ = handle.send(ServerMsg::Start { by_operator: false });
        }
        Ok(())
    }

    async fn restart_root(
        &self,
        myself: &TreeRef,
        state: &mut TreeState,
        name: &'static str,
    ) -> Result<(), TreeEvent> {
        let failed = TreeEvent::RootLost(name, LossPolicy::StopKernel, monotonic_now());
        let actor = state.root.iter_mut().find(|actor| actor.name == name);
        let Some((actor, restart)) =
            actor.and_then(|a| a.restart.clone().map(|restart| (a, restart)))
        else {
            return Err(failed);
        };
        actor.cell = restart().await.map_err(|error| {
            tracing::error!(actor = name, %error, "a root actor could not be restarted");
            failed
        })?;
        actor.cell.link(myself.get_cell());
        tracing::warn!(actor = name, "a root actor was restarted");
        Ok(())
    }

    /// Removes a server; the receiver resolves when it has stopped.
    fn stop_server(&self, id: &ServerId) -> Option<oneshot::Receiver<()>> {
        let handle = self.servers.load().get(id).cloned()?;
        self.unpublish_server(id);
        let (report_removed, removed) = oneshot::channel();
        let (catalog, id) = (self.deps.catalog.clone(), id.clone());
        let (reply, stopped) = Reply::new();
        if let Ok(supervisor) = handle.supervisor() {
            let _ = supervisor.send(ServerMsg::Stop(
                TransitionReason::ConfigurationChange,
                reply,
            ));
            let events = self.deps.events.clone();
            task::spawn_detached("tree.stop_server", async move {
                let _ = stopped.await;
                // Before a server of the same name may start.
                events.send(ServerEvent::Removed(id.clone()));
                supervisor.stop(REMOVED);
                let _ = tokio::time::timeout(UNLIST_TIMEOUT, catalog.wait_withdrawn(id)).await;
                let _ = report_removed.send(());
            });
        }
        Some(removed)
    }

    /// The log of a server, with the secrets masked that the kernel gives to any server.
    fn new_server_log(&self) -> ServerLog {
        let audit = self.deps.audit.clone();
        ServerLog::with_mask(move |line| audit.masks().mask_text(line).into_owned())
    }

    fn add_server(&self, spec: ServerSpec) {
        let new_handle = match spec.start {
            StartMode::Kernel | StartMode::OnDemand(_) => ServerHandle::new_due,
            StartMode::Manual => ServerHandle::new,
        };
        self.publish_server(new_handle(spec.id, self.new_server_log()));
    }

    fn update_spec(&self, spec: ServerSpec) {
        if let Some(handle) = self.servers.load().get(&spec.id) {
            let _ = handle.send(ServerMsg::Reconfigure(Box::new(spec)));
        }
    }

    fn stop_servers(&self, state: &TreeState) -> Vec<oneshot::Receiver<()>> {
        let servers = self.servers.load();
        let running = state.plan.desired().filter_map(|id| servers.get(id));
        running
            .filter_map(|handle| {
                let (reply, stopped) = Reply::new();
                let sent = handle.send(ServerMsg::Stop(TransitionReason::KernelShutdown, reply));
                sent.is_ok().then_some(stopped)
            })
            .collect()
    }

    fn publish_server(&self, handle: Arc<ServerHandle>) {
        self.servers.update(|servers| {
            let mut servers = servers.clone();
            servers.insert(handle.id.clone(), handle);
            servers
        });
    }

    fn unpublish_server(&self, id: &ServerId) {
        self.servers.update(|servers| {
            let mut servers = servers.clone();
            servers.remove(id);
            servers
        });
    }
}
