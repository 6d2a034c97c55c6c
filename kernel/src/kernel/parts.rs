//! The parts of a kernel, put together: first what stands for its whole life, then what answers.

mod configured;
mod mcpl;
mod roots;

use self::configured::{
    background, confirmation, connector, finder, needs, nothing, revocation, stateless, table,
    tasks,
};
use self::mcpl::McplParts;
use self::roots::{catalog, finder_root, guard, roster, supervisor};
use super::StoredState;
use super::changes::{access_changed, pending_changed, pins_decided};
use super::options::UpOptions;
use crate::cluster::{Cluster, Following};
use crate::config::{HttpAuth, KernelConfig};
use crate::health::HealthMethods;
use crate::health::metrics::{KernelMetrics, call_metrics};
use crate::health::telemetry::{Telemetry, Tracing};
use crate::operator::Operator;
use crate::routes::Routing;
use crate::source::ConfigSource;
use crate::tree::{RootActor, ServerParts, TreeActor, TreeHandle};
use mgp_callers::agent::supervisor::{Agents, AgentsActor};
use mgp_callers::directory::Directory;
use mgp_callers::request::{Answering, Routes};
use mgp_calls::CutResults;
use mgp_calls::known_names::NameSources;
use mgp_calls::{
    CallStreams, CallerHomes, CompiledSchemas, Context, Exposing, Policies, Rates, SiftedLists,
    ToolCounts, Validation,
};
use mgp_doors::agent_registry::AgentRegistryHandle;
use mgp_doors::bodies::Bodies;
use mgp_doors::console::Console;
use mgp_doors::node_door::NodeDoor;
use mgp_doors::reception::Reception;
use mgp_doors::revocation::Revocation;
use mgp_engine::calls::telemetry::families::MetricFamily;
use mgp_engine::calls::telemetry::otlp::TelemetrySource;
use mgp_mcpl::agents::McplAgents;
use mgp_policy::access::{AccessActor, AccessHandle};
use mgp_policy::approvals::ApprovalsHandle;
use mgp_policy::permissions::PermissionsHandle;
use mgp_policy::pins::PinsHandle;
use mgp_protocol::ids::AgentId;
use mgp_runtime::ids;
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::time::{moment, unix_ns};
use mgp_servers::guard::GuardHandle;
use mgp_servers::server::{Connector, ServerTable};
use mgp_store::audit::AuditHandle;
use mgp_store::trouble::Troubles;
use mgp_sync::Snapshot;
use mgp_tools::catalog::{CatalogHandle, Shown};
use mgp_tools::events::{EventsHandle, RecordedEvents};
use mgp_tools::offering::OfferSources;
use mgp_tools::registrar::{Names, Registrar, Waiting};
use mgp_tools::search::SearchHandle;
use mgp_tools::server_events::taken_by;
use mgp_tools::subscriptions::{SubscriptionsActor, SubscriptionsHandle};
use mgp_transports::http::client::Client;
use ractor::{Actor, ActorCell, SpawnErr};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// What a tree that has started gives to the rest of the kernel.
pub(super) struct StartedKernel {
    pub(super) tree: TreeHandle,
    pub(super) guard: GuardHandle,
    pub(super) reception: Reception,
    pub(super) source: Arc<ConfigSource>,
    pub(super) revocation: Arc<Revocation>,
    pub(super) console: Arc<Console>,
    pub(super) connector: Arc<Connector>,
    pub(super) cluster: Arc<Cluster>,
    /// Where calls of other nodes come in.
    pub(super) node_door: Arc<NodeDoor>,
    pub(super) following: Following,
    /// What is counted.
    pub(super) metrics: Arc<KernelMetrics>,
    /// What tells a collector.
    pub(super) telemetry: Telemetry,
}

/// Puts a kernel together.
///
/// # Errors
/// An actor that cannot be started.
pub(super) async fn start(
    options: &UpOptions,
    kept: StoredState,
    closing: &CancellationToken,
) -> Result<StartedKernel, SpawnErr> {
    let seal = kept.seal.clone();
    let mark = kept.marks.own().to_owned();
    let kernel = &options.loaded.kernel;
    let connector = Arc::new(connector(options, mark.clone(), kernel.health));
    let parts = Parts::start(options, kept, &connector).await?;
    let guard = guard(&mark).await?;
    let source = Arc::new(ConfigSource::new(options.look_up.clone(), &options.loaded));
    let tree = TreeActor {
        parts: parts.server_parts(&guard.0, &connector),
        servers: parts.servers.clone(),
        source: source.clone(),
        access: parts.access.clone(),
        names: parts.registered.clone(),
        mcpl: parts.mcpl.configured(),
        closing: closing.clone(),
        root: parts.root.iter().cloned().chain([guard.1]).collect(),
    };
    let tree = tree.start(&options.loaded).await?;
    let _ = parts.registrar.tree.set(Arc::new(tree.clone()));
    parts.registrar.revive().await;
    let operator = parts.operator(options, &tree, &source, &connector, closing);
    let health = parts.health(connector.clone(), closing);
    let calls = parts.calls(kernel, closing);
    let (cluster, offer) = (parts.cluster.clone(), parts.offer());
    let bodies = Bodies::new(kernel.http.max_bodies, kernel.limits.max_frame);
    let metrics = Arc::new(KernelMetrics {
        calls: calls.clone(),
        figures: connector.figures.clone(),
        troubles: parts.troubles.clone(),
        cluster: cluster.clone(),
        bodies: bodies.clone(),
        requests: Arc::default(),
        doors: Arc::default(),
        telemetry: Arc::default(),
        shown_at: OnceLock::new(),
    });
    let (telemetry, tracing) = telemetry(kernel, &metrics);
    let routes: Arc<dyn Routes> = Arc::new(Routing {
        calls,
        operator,
        health,
        metrics: metrics.clone(),
        tracing,
    });
    let reception = Reception {
        agents: parts.agents,
        bodies,
        stateless: stateless(seal, &parts.revocation, routes.clone()),
        routes,
        registered_agents: parts.roster.registered_agents,
        directory: parts.directory,
    };
    let node_door = NodeDoor::new(reception.clone());
    let following = cluster.follow(node_door.calls(), &tree, offer);
    Ok(StartedKernel {
        cluster,
        node_door,
        following,
        tree,
        guard: guard.0,
        reception,
        source,
        revocation: parts.revocation,
        console: parts.console,
        connector,
        metrics,
        telemetry,
    })
}

/// What is told to a collector, if one is named.
fn telemetry(kernel: &KernelConfig, metrics: &Arc<KernelMetrics>) -> (Telemetry, Tracing) {
    let uptime = u64::try_from(moment().since_start().as_nanos()).unwrap_or(0);
    let source = TelemetrySource {
        service: kernel.telemetry.service.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        instance: ids::new_id().to_string(),
        node: metrics.cluster.name().to_string(),
        start_ns: unix_ns().saturating_sub(uptime),
    };
    let (counts, read) = (metrics.telemetry.clone(), metrics.clone());
    let figures = move || -> Answering<Vec<MetricFamily>> {
        let read = read.clone();
        Box::pin(async move { read.families().await })
    };
    let client = Client::new(kernel.network.outbound());
    Telemetry::start(&kernel.telemetry, client, source, &counts, figures)
}

/// What stands for the kernel's whole life: one that falls ends it.
struct Parts {
    directory: Arc<Directory>,
    servers: Arc<ServerTable>,
    shown: Arc<Snapshot<Shown>>,
    subscriptions: SubscriptionsHandle,
    events: EventsHandle,
    catalog: CatalogHandle,
    agents: Agents,
    access: AccessHandle,
    approvals: ApprovalsHandle,
    permissions: PermissionsHandle,
    pins: PinsHandle,
    audit: AuditHandle,
    revocation: Arc<Revocation>,
    console: Arc<Console>,
    roster: AgentRegistryHandle,
    search: SearchHandle,
    registrar: Arc<Registrar>,
    mcpl: McplParts,
    registered: Arc<Names>,
    troubles: Troubles,
    cluster: Arc<Cluster>,
    root: Vec<RootActor>,
}

/// Starts the actor that keeps subscriptions to resources.
async fn following(
    directory: &Arc<Directory>,
    servers: &Arc<ServerTable>,
    shown: &Arc<Snapshot<Shown>>,
) -> Result<(SubscriptionsHandle, ActorCell), SpawnErr> {
    let subscriptions = SubscriptionsActor {
        directory: directory.clone(),
        servers: Arc::new(OnceLock::from(servers.clone())),
        shown: shown.clone(),
    };
    let (following, _) = Actor::spawn(None, subscriptions, ()).await?;
    let cell = following.get_cell();
    Ok((SubscriptionsHandle::new(Mailbox::new(following)), cell))
}

impl Parts {
    async fn start(
        options: &UpOptions,
        kept: StoredState,
        connector: &Arc<Connector>,
    ) -> Result<Self, SpawnErr> {
        let kernel = &options.loaded.kernel;
        let troubles = kept.troubles();
        let table = table(kernel, &kept.books);
        let directory = Arc::new(Directory::new(table.clone()));
        let servers = Arc::new(ServerTable::new(BTreeMap::new()));
        let shown = Arc::new(Snapshot::new(nothing(kernel)));
        let (subscriptions, following) = following(&directory, &servers, &shown).await?;
        let recorded = recorded_events(&kept);
        let (events, hub) =
            EventsHandle::start(&directory, &servers, &recorded, &connector.figures).await?;
        // The agents that are hosts are known only when the servers' host is there.
        let hosts: Arc<OnceLock<Arc<McplAgents>>> = Arc::default();
        let access = AccessActor {
            table: table.clone(),
            directory: directory.clone(),
            changed: access_changed(&subscriptions, &events, &hosts),
            audit: kept.audit.clone(),
        };
        let (access, _) = Actor::spawn(None, access, (kept.books, kept.unaudited)).await?;
        let opening = finder(options, &shown, &table, &servers);
        let (search, finder_cell) = opening.open().await?;
        let (catalog, catalog_root) =
            catalog(&shown, &directory, &search, &servers, &events).await?;
        let (agents, _) = Actor::spawn(None, AgentsActor, ()).await?;
        let mut root = Vec::new();
        let following_tasks = supervisor("tasks", &mut root).await?;
        let tasks = tasks(options, &kept.seal, kept.tasks, &directory, following_tasks);
        let revocation = revocation(kernel, &directory, &tasks);
        let (roster, roster_cell) = roster(options, kept.roster, &revocation, &kept.audit).await?;
        root.extend([
            RootActor::lasting("subscriptions", following),
            RootActor::lasting("events", hub),
            catalog_root,
            RootActor::lasting("agents", agents.get_cell()),
            RootActor::lasting("access", access.get_cell()),
            RootActor::lasting("agent_registry", roster_cell),
            finder_root(&search, finder_cell),
        ]);
        let access = AccessHandle::new(Mailbox::new(access), table, kernel.access.reveal);
        let (key, witnesses) = (kept.key, kept.witnesses);
        let beside = (&access, &kept.audit);
        let needs = needs(options, key, witnesses, connector, &servers, beside);
        let cluster = Cluster::start(needs, &mut root).await?;
        search.look_at(cluster.remote_tools());
        let approvals = ApprovalsHandle::new(pending_changed(&subscriptions));
        let audit = kept.audit;
        let (told, of_servers) = ((&directory, &*hosts), (&servers, &events));
        let mcpl = McplParts::start(kernel, kept.mcpl, told, &approvals, of_servers, &audit);
        let pins = PinsHandle::new(
            options.data_dir.join("pins"),
            approvals.clone(),
            audit.clone(),
            pins_decided(&servers),
            supervisor("pins", &mut root).await?,
        );
        let waiting = supervisor("permissions", &mut root).await?;
        let (approving, granting) = (approvals.clone(), access.clone());
        let permissions = PermissionsHandle::new(approving, granting, audit.clone(), waiting);
        let registered = kept.registered.names();
        let registrar = Arc::new(Registrar {
            registration: kernel.discovery.registration.clone(),
            background: background(kernel),
            registrations: Mutex::new(kept.registered),
            servers: servers.clone(),
            connector: connector.clone(),
            access: access.clone(),
            approvals: approvals.clone(),
            audit: audit.clone(),
            pins: pins.clone(),
            waiting: Waiting::default(),
            supervisor: supervisor("registrar", &mut root).await?,
            tree: OnceLock::new(),
        });
        Ok(Self {
            mcpl,
            registrar,
            registered,
            troubles,
            permissions,
            pins,
            catalog,
            directory,
            servers,
            shown,
            subscriptions,
            events,
            agents,
            access,
            approvals,
            console: Console::new(audit.clone()),
            audit,
            revocation,
            roster,
            search,
            cluster,
            root,
        })
    }

    fn server_parts(&self, guard: &GuardHandle, connector: &Arc<Connector>) -> ServerParts {
        ServerParts {
            events: self.mcpl.taken_by(taken_by(
                self.catalog.clone(),
                self.subscriptions.clone(),
                self.events.clone(),
            )),
            catalog: self.catalog.clone(),
            directory: self.directory.clone(),
            guard: guard.clone(),
            connector: connector.clone(),
            permissions: self.permissions.clone(),
            pins: self.pins.clone(),
            audit: self.audit.clone(),
        }
    }

    fn operator(
        &self,
        options: &UpOptions,
        tree: &TreeHandle,
        source: &Arc<ConfigSource>,
        connector: &Connector,
        closing: &CancellationToken,
    ) -> Arc<Operator> {
        Arc::new(Operator {
            figures: connector.figures.clone(),
            logins: connector.logins.clone(),
            servers: self.servers.clone(),
            shown: self.shown.clone(),
            directory: self.directory.clone(),
            audit: self.audit.clone(),
            views: OnceLock::new(),
            troubles: self.troubles.clone(),
            approvals: self.approvals.clone(),
            mcpl: self.mcpl.host.clone(),
            pins: self.pins.clone(),
            permissions: self.permissions.clone(),
            search: self.search.clone(),
            registrar: self.registrar.clone(),
            tree: tree.clone(),
            data_dir: options.data_dir.clone(),
            source: source.clone(),
            roster: self.roster.clone(),
            console: self.console.clone(),
            name_sources: self.name_sources(&options.loaded.kernel),
            cluster: self.cluster.clone(),
            closing: closing.clone(),
        })
    }

    /// What this node has to share.
    fn offer(&self) -> OfferSources {
        OfferSources {
            servers: self.servers.clone(),
            shown: self.shown.clone(),
            search: self.search.clone(),
        }
    }

    /// Who and what there is, by name: of the kernel's own agents, those that can come in.
    fn name_sources(&self, kernel: &KernelConfig) -> NameSources {
        let open = kernel.http.enabled && kernel.http.auth == HttpAuth::None;
        let anonymous = open.then(|| AgentId::new(AgentId::ANONYMOUS));
        let configured = kernel.socket.users.values().cloned().chain(anonymous);
        NameSources {
            servers: self.servers.clone(),
            registered_agents: self.roster.registered_agents.clone(),
            directory: self.directory.clone(),
            access: self.access.clone(),
            configured: configured.chain([AgentId::new(AgentId::LOCAL)]).collect(),
            nodes: self.cluster.naming(),
        }
    }

    fn health(&self, connector: Arc<Connector>, closing: &CancellationToken) -> Arc<HealthMethods> {
        Arc::new(HealthMethods {
            servers: self.servers.clone(),
            directory: self.directory.clone(),
            troubles: self.troubles.clone(),
            connector,
            closing: closing.clone(),
        })
    }

    fn calls(&self, kernel: &KernelConfig, closing: &CancellationToken) -> Arc<Context> {
        Arc::new(Context {
            shown: self.shown.clone(),
            servers: self.servers.clone(),
            name_sources: self.name_sources(kernel),
            sifted: SiftedLists::default(),
            subscriptions: self.subscriptions.clone(),
            events: self.events.clone(),
            directory: self.directory.clone(),
            agents: self.agents.clone(),
            tasks: self.revocation.tasks.clone(),
            answering: kernel.answering.clone(),
            audit: self.audit.clone(),
            metrics: call_metrics(kernel.metrics.tools_max),
            streams: CallStreams::default(),
            closing: closing.clone(),
            search: self.search.clone(),
            registrar: self.registrar.clone(),
            replication: self.cluster.replication.clone(),
            exposing: Exposing {
                general: kernel.discovery.general.clone(),
                agents: kernel.discovery.agents.clone(),
                doors: kernel.discovery.doors.clone(),
                budget: kernel.discovery.budget,
                counted: ToolCounts::default(),
            },
            mcpl: self.mcpl.host.clone(),
            mcpl_agents: self.mcpl.agents.clone(),
            states: self.mcpl.states.clone(),
            channels: self.mcpl.channels.clone(),
            hooks: self.mcpl.hooks.clone(),
            homes: CallerHomes::default(),
            cut_results: CutResults::default(),
            policies: Policies {
                access: self.access.clone(),
                permissions: self.permissions.clone(),
                pins: self.pins.clone(),
                approvals: self.approvals.clone(),
                rates: Rates::new(kernel.rates),
                schemas: CompiledSchemas::default(),
                validation: Validation::default(),
                confirmation: confirmation(kernel),
            },
        })
    }
}

/// The audit log as events are made of it.
fn recorded_events(kept: &StoredState) -> RecordedEvents {
    RecordedEvents {
        audit: kept.audit.clone(),
        seal: kept.seal.clone(),
    }
}
