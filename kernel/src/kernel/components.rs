//! The parts of a kernel, put together: first what stands for its whole life, then what answers.

mod from_config;
mod mcpl;
mod root_actors;

use self::from_config::{
    cluster_deps, confirmation_rules, empty_catalog, initial_access_table, new_connector,
    new_revocation, new_stateless, new_tasks, registration_background, search_options,
};
use self::mcpl::McplComponents;
use self::root_actors::{
    search_root_actor, start_agent_registry, start_catalog, start_guard, start_task_supervisor,
};
use super::StoredState;
use super::change_events::{access_change_sink, pending_change_sink, pin_decision_sink};
use super::options::KernelOptions;
use crate::cluster::{Cluster, FollowerTasks};
use crate::config::{HttpAuth, KernelConfig};
use crate::config_source::ConfigSource;
use crate::health::HealthMethods;
use crate::health::metrics::{KernelMetrics, call_metrics};
use crate::health::telemetry::{Telemetry, Tracing};
use crate::operator::Operator;
use crate::routes::RoutingTable;
use crate::tree::{RootActor, ServerDeps, TreeActor, TreeHandle};
use mgp_callers::agent::supervisor::{Agents, AgentsActor};
use mgp_callers::directory::Directory;
use mgp_callers::request::{AnswerFuture, Routes};
use mgp_calls::TruncatedResults;
use mgp_calls::name_sources::NameSources;
use mgp_calls::{
    CallAffinity, CallStreams, CompiledSchemas, Context, ExposureSettings, FilteredLists, Policies,
    Rates, ToolCounts, Validation,
};
use mgp_doors::agent_registry::AgentRegistryHandle;
use mgp_doors::console::Console;
use mgp_doors::endpoint_context::EndpointContext;
use mgp_doors::message_budgets::MessageBudgets;
use mgp_doors::node_endpoint::NodeEndpoint;
use mgp_doors::revocation::Revocation;
use mgp_engine::calls::telemetry::families::MetricFamily;
use mgp_engine::calls::telemetry::otlp::TelemetryResource;
use mgp_mcpl::agents::McplAgents;
use mgp_policy::access::{AccessActor, AccessHandle};
use mgp_policy::approvals::ApprovalsHandle;
use mgp_policy::permissions::PermissionsHandle;
use mgp_policy::pins::PinsHandle;
use mgp_protocol::ids::AgentId;
use mgp_runtime::ids;
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::time::{monotonic_now, unix_ns};
use mgp_servers::guard::GuardHandle;
use mgp_servers::server::{Connector, ServerTable};
use mgp_store::audit::AuditHandle;
use mgp_store::health::StorageHealth;
use mgp_sync::Snapshot;
use mgp_tools::catalog::{CatalogHandle, PublishedCatalog};
use mgp_tools::events::{AuditEvents, EventsHandle};
use mgp_tools::offering::OfferSources;
use mgp_tools::registrar::{Names, PendingApprovals, Registrar};
use mgp_tools::search::SearchHandle;
use mgp_tools::server_events::forward_to;
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
    pub(super) endpoint_context: EndpointContext,
    pub(super) source: Arc<ConfigSource>,
    pub(super) revocation: Arc<Revocation>,
    pub(super) console: Arc<Console>,
    pub(super) connector: Arc<Connector>,
    pub(super) cluster: Arc<Cluster>,
    /// Where calls of other nodes come in.
    pub(super) node_endpoint: Arc<NodeEndpoint>,
    pub(super) followers: FollowerTasks,
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
    options: &KernelOptions,
    kept: StoredState,
    closing: &CancellationToken,
) -> Result<StartedKernel, SpawnErr> {
    let seal = kept.seal.clone();
    let mark = kept.marks.current().to_owned();
    let kernel = &options.loaded.kernel;
    let connector = Arc::new(new_connector(options, mark.clone(), kernel.health));
    let parts = Components::start(options, kept, &connector).await?;
    let guard = start_guard(&mark).await?;
    let source = Arc::new(ConfigSource::new(options.look_up.clone(), &options.loaded));
    let tree = TreeActor {
        deps: parts.server_deps(&guard.0, &connector),
        servers: parts.servers.clone(),
        source: source.clone(),
        access: parts.access.clone(),
        names: parts.registered_names.clone(),
        mcpl_rules: parts.mcpl.config_sink(),
        shutdown: closing.clone(),
        root: parts.root_actors.iter().cloned().chain([guard.1]).collect(),
    };
    let tree = tree.start(&options.loaded).await?;
    let _ = parts.registrar.tree.set(Arc::new(tree.clone()));
    parts.registrar.restore().await;
    let operator = parts.new_operator(options, &tree, &source, &connector, closing);
    let health = parts.new_health_methods(connector.clone(), closing);
    let calls = parts.new_context(kernel, &connector, closing);
    let (cluster, offer) = (parts.cluster.clone(), parts.offer_sources());
    let bodies = MessageBudgets::new(kernel.http.max_bodies, kernel.limits.max_frame);
    let metrics = Arc::new(KernelMetrics {
        calls: calls.clone(),
        resource_usage: connector.resource_usage.clone(),
        storage_health: parts.storage_health.clone(),
        cluster: cluster.clone(),
        message_budgets: bodies.clone(),
        requests: Arc::default(),
        endpoints: Arc::default(),
        telemetry: Arc::default(),
        scrape_target: OnceLock::new(),
    });
    let (telemetry, tracing) = start_telemetry(kernel, &metrics);
    let routes: Arc<dyn Routes> = Arc::new(RoutingTable {
        calls,
        operator,
        health,
        metrics: metrics.clone(),
        tracing,
    });
    let reception = EndpointContext {
        agents: parts.agents,
        message_budgets: bodies,
        stateless: new_stateless(seal, &parts.revocation, routes.clone()),
        routes,
        registered_agents: parts.agent_registry.registered_agents,
        directory: parts.directory,
    };
    let node_door = NodeEndpoint::new(reception.clone());
    let following = cluster.spawn_followers(node_door.call_sink(), &tree, offer);
    Ok(StartedKernel {
        cluster,
        node_endpoint: node_door,
        followers: following,
        tree,
        guard: guard.0,
        endpoint_context: reception,
        source,
        revocation: parts.revocation,
        console: parts.console,
        connector,
        metrics,
        telemetry,
    })
}

/// What is told to a collector, if one is named.
fn start_telemetry(kernel: &KernelConfig, metrics: &Arc<KernelMetrics>) -> (Telemetry, Tracing) {
    let uptime = u64::try_from(monotonic_now().since_start().as_nanos()).unwrap_or(0);
    let source = TelemetryResource {
        service: kernel.telemetry.service.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        instance: ids::new_session_id().to_string(),
        node: metrics.cluster.name().to_string(),
        start_ns: unix_ns().saturating_sub(uptime),
    };
    let (counts, read) = (metrics.telemetry.clone(), metrics.clone());
    let figures = move || -> AnswerFuture<Vec<MetricFamily>> {
        let read = read.clone();
        Box::pin(async move { read.families().await })
    };
    let client = Client::new(kernel.network.outbound());
    Telemetry::start(&kernel.telemetry, client, source, &counts, figures)
}

/// What stands for the kernel's whole life: one that falls ends it.
struct Components {
    directory: Arc<Directory>,
    servers: Arc<ServerTable>,
    catalog_snapshot: Arc<Snapshot<PublishedCatalog>>,
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
    agent_registry: AgentRegistryHandle,
    search: SearchHandle,
    registrar: Arc<Registrar>,
    mcpl: McplComponents,
    registered_names: Arc<Names>,
    storage_health: StorageHealth,
    cluster: Arc<Cluster>,
    root_actors: Vec<RootActor>,
}

/// Starts the actor that keeps subscriptions to resources.
async fn start_subscriptions(
    directory: &Arc<Directory>,
    servers: &Arc<ServerTable>,
    shown: &Arc<Snapshot<PublishedCatalog>>,
) -> Result<(SubscriptionsHandle, ActorCell), SpawnErr> {
    let subscriptions = SubscriptionsActor {
        directory: directory.clone(),
        servers: Arc::new(OnceLock::from(servers.clone())),
        published: shown.clone(),
    };
    let (following, _) = Actor::spawn(None, subscriptions, ()).await?;
    let cell = following.get_cell();
    Ok((SubscriptionsHandle::new(Mailbox::new(following)), cell))
}

impl Components {
    async fn start(
        options: &KernelOptions,
        kept: StoredState,
        connector: &Arc<Connector>,
    ) -> Result<Self, SpawnErr> {
        let (kernel, troubles) = (&options.loaded.kernel, kept.storage_health());
        let table = initial_access_table(kernel, &kept.replicas);
        let directory = Arc::new(Directory::new(table.clone()));
        let servers = Arc::new(ServerTable::new(BTreeMap::new()));
        let shown = Arc::new(Snapshot::new(empty_catalog(kernel)));
        let (subscriptions, following) = start_subscriptions(&directory, &servers, &shown).await?;
        let recorded = audit_event_source(&kept);
        let (events, hub) =
            EventsHandle::start(&directory, &servers, &recorded, &connector.resource_usage).await?;
        // The agents that are hosts are known only when the servers' host is there.
        let hosts: Arc<OnceLock<Arc<McplAgents>>> = Arc::default();
        let access = AccessActor {
            table: table.clone(),
            directory: directory.clone(),
            on_change: access_change_sink(&subscriptions, &events, &hosts),
            audit: kept.audit.clone(),
        };
        let (access, _) =
            Actor::spawn(None, access, (kept.replicas, kept.unaudited_decisions)).await?;
        let opening = search_options(options, &shown, &table, &servers);
        let (search, finder_cell) = opening.open().await?;
        let (catalog, catalog_root) =
            start_catalog(&shown, &directory, &search, &servers, &events).await?;
        let (agents, _) = Actor::spawn(None, AgentsActor, ()).await?;
        let mut root = Vec::new();
        let following_tasks = start_task_supervisor("tasks", &mut root).await?;
        let tasks = new_tasks(options, &kept.seal, kept.tasks, &directory, following_tasks);
        let revocation = new_revocation(kernel, &directory, &tasks);
        let (roster, roster_cell) =
            start_agent_registry(options, kept.agents, &revocation, &kept.audit).await?;
        root.extend([
            RootActor::permanent("subscriptions", following),
            RootActor::permanent("events", hub),
            catalog_root,
            RootActor::permanent("agents", agents.get_cell()),
            RootActor::permanent("access", access.get_cell()),
            RootActor::permanent("agent_registry", roster_cell),
            search_root_actor(&search, finder_cell),
        ]);
        let access = AccessHandle::new(Mailbox::new(access), table, kernel.access.reveal);
        let (key, witnesses) = (kept.key, kept.witnesses);
        let pending_changed = pending_change_sink(&subscriptions);
        let beside = (&access, &kept.audit, &pending_changed);
        let needs = cluster_deps(options, key, witnesses, connector, &servers, beside);
        let cluster = Cluster::start(needs, &mut root).await?;
        search.set_remote(cluster.remote_tools());
        let approvals = ApprovalsHandle::new(pending_changed);
        let audit = kept.audit;
        let (told, of_servers) = ((&directory, &*hosts), (&servers, &events));
        let mcpl = McplComponents::start(kernel, kept.mcpl, told, &approvals, of_servers, &audit);
        let pins = PinsHandle::new(
            options.data_dir.join("pins"),
            approvals.clone(),
            audit.clone(),
            pin_decision_sink(&servers),
            start_task_supervisor("pins", &mut root).await?,
        );
        let waiting = start_task_supervisor("permissions", &mut root).await?;
        let (approving, granting) = (approvals.clone(), access.clone());
        let permissions = PermissionsHandle::new(approving, granting, audit.clone(), waiting);
        let registered = kept.registrations.names();
        let registrar = Arc::new(Registrar {
            registration: kernel.discovery.registration.clone(),
            defaults: registration_background(kernel),
            registrations: Mutex::new(kept.registrations),
            servers: servers.clone(),
            connector: connector.clone(),
            access: access.clone(),
            approvals: approvals.clone(),
            audit: audit.clone(),
            pins: pins.clone(),
            pending_approvals: PendingApprovals::default(),
            supervisor: start_task_supervisor("registrar", &mut root).await?,
            tree: OnceLock::new(),
        });
        Ok(Self {
            mcpl,
            registrar,
            registered_names: registered,
            storage_health: troubles,
            permissions,
            pins,
            catalog,
            directory,
            servers,
            catalog_snapshot: shown,
            subscriptions,
            events,
            agents,
            access,
            approvals,
            console: Console::new(audit.clone()),
            audit,
            revocation,
            agent_registry: roster,
            search,
            cluster,
            root_actors: root,
        })
    }

    fn server_deps(&self, guard: &GuardHandle, connector: &Arc<Connector>) -> ServerDeps {
        ServerDeps {
            events: self.mcpl.intercept_events(forward_to(
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

    fn new_operator(
        &self,
        options: &KernelOptions,
        tree: &TreeHandle,
        source: &Arc<ConfigSource>,
        connector: &Connector,
        closing: &CancellationToken,
    ) -> Arc<Operator> {
        Arc::new(Operator {
            resource_usage: connector.resource_usage.clone(),
            logins: connector.logins.clone(),
            servers: self.servers.clone(),
            catalog: self.catalog_snapshot.clone(),
            directory: self.directory.clone(),
            audit: self.audit.clone(),
            audit_views: OnceLock::new(),
            storage_health: self.storage_health.clone(),
            approvals: self.approvals.clone(),
            mcpl: self.mcpl.host.clone(),
            pins: self.pins.clone(),
            permissions: self.permissions.clone(),
            search: self.search.clone(),
            registrar: self.registrar.clone(),
            tree: tree.clone(),
            data_dir: options.data_dir.clone(),
            source: source.clone(),
            agents: self.agent_registry.clone(),
            console: self.console.clone(),
            name_sources: self.name_sources(&options.loaded.kernel),
            cluster: self.cluster.clone(),
            shutdown: closing.clone(),
        })
    }

    /// What this node has to share.
    fn offer_sources(&self) -> OfferSources {
        OfferSources {
            servers: self.servers.clone(),
            published: self.catalog_snapshot.clone(),
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
            registered_agents: self.agent_registry.registered_agents.clone(),
            directory: self.directory.clone(),
            access: self.access.clone(),
            configured: configured.chain([AgentId::new(AgentId::LOCAL)]).collect(),
            nodes: self.cluster.node_naming(),
        }
    }

    fn new_health_methods(
        &self,
        connector: Arc<Connector>,
        closing: &CancellationToken,
    ) -> Arc<HealthMethods> {
        Arc::new(HealthMethods {
            servers: self.servers.clone(),
            directory: self.directory.clone(),
            storage_health: self.storage_health.clone(),
            connector,
            shutdown: closing.clone(),
        })
    }

    fn new_context(
        &self,
        kernel: &KernelConfig,
        connector: &Connector,
        closing: &CancellationToken,
    ) -> Arc<Context> {
        Arc::new(Context {
            catalog: self.catalog_snapshot.clone(),
            servers: self.servers.clone(),
            name_sources: self.name_sources(kernel),
            filtered_lists: FilteredLists::default(),
            subscriptions: self.subscriptions.clone(),
            events: self.events.clone(),
            directory: self.directory.clone(),
            agents: self.agents.clone(),
            tasks: self.revocation.tasks.clone(),
            answering_agents: kernel.answering.clone(),
            audit: self.audit.clone(),
            metrics: call_metrics(kernel.metrics.tools_max),
            streams: CallStreams::default(),
            shutdown: closing.clone(),
            search: self.search.clone(),
            registrar: self.registrar.clone(),
            replication: self.cluster.replication.clone(),
            pairing: self.cluster.pairing.clone(),
            logins: connector.logins.clone(),
            exposure: ExposureSettings {
                general: kernel.discovery.general.clone(),
                agents: kernel.discovery.agents.clone(),
                views: kernel.discovery.doors.clone(),
                budget: kernel.discovery.budget,
                counts: ToolCounts::default(),
            },
            mcpl: self.mcpl.host.clone(),
            mcpl_agents: self.mcpl.agents.clone(),
            states: self.mcpl.states.clone(),
            channels: self.mcpl.channels.clone(),
            hooks: self.mcpl.hooks.clone(),
            affinity: CallAffinity::default(),
            truncated_results: TruncatedResults::default(),
            policies: Policies {
                access: self.access.clone(),
                permissions: self.permissions.clone(),
                pins: self.pins.clone(),
                approvals: self.approvals.clone(),
                rates: Rates::new(kernel.rates),
                schemas: CompiledSchemas::default(),
                validation: Validation::default(),
                confirmation: confirmation_rules(kernel),
            },
        })
    }
}

/// The audit log as events are made of it.
fn audit_event_source(kept: &StoredState) -> AuditEvents {
    AuditEvents {
        audit: kept.audit.clone(),
        seal: kept.seal.clone(),
    }
}
