//! Starts the components of a kernel in phases, then what answers requests.

mod from_config;
mod mcpl;
mod phases;
mod root_actors;
mod shared;

pub(super) use self::from_config::issuer_keys;
use self::from_config::{
    cluster_deps, confirmation_rules, new_broker, new_connector, new_stateless,
};
use self::mcpl::McplComponents;
use self::phases::{AgentComponents, ApprovalComponents, CatalogComponents};
use self::root_actors::start_guard;
use self::shared::SharedComponents;
use super::StoredState;
use super::options::KernelOptions;
use crate::cluster::{Cluster, FollowerTasks};
use crate::config::{HttpAuth, KernelConfig};
use crate::config_source::ConfigSource;
use crate::handover::HandoverSlot;
use crate::health::HealthMethods;
use crate::health::metrics::{KernelMetrics, call_metrics};
use crate::health::telemetry::{Telemetry, Tracing};
use crate::operator::Operator;
use crate::pending_notices;
use crate::routes::RoutingTable;
use crate::supervision_tree::{RootActor, ServerDeps, TreeActor, TreeHandle};
use mgp_callers::request::{AnswerFuture, Routes};
use mgp_calls::TruncatedResults;
use mgp_calls::name_sources::{NameSources, SignedInAgents};
use mgp_calls::{
    CallAffinity, CallStreams, CompiledSchemas, Context, ExposureSettings, FilteredLists,
    LinkLookups, Policies, Rates, ToolCounts, Validation,
};
use mgp_doors::{Broker, Console, EndpointContext, MessageBudgets, NodeEndpoint, Revocation};
use mgp_engine::calls::telemetry::families::MetricFamily;
use mgp_engine::calls::telemetry::otlp::TelemetryResource;
use mgp_protocol::ids::AgentId;
use mgp_runtime::ids;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::{monotonic_now, unix_ns};
use mgp_servers::{Connector, GuardHandle};
use mgp_store::StorageHealth;
use mgp_tools::server_events::forward_to;
use mgp_tools::{AuditEvents, OfferSources};
use mgp_transports::http::client::Client;
use ractor::SpawnErr;
use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;

/// A started kernel, as the listeners and the shutdown use it.
pub(super) struct StartedKernel {
    pub(super) tree: TreeHandle,
    pub(super) guard: GuardHandle,
    pub(super) endpoint_context: EndpointContext,
    pub(super) source: Arc<ConfigSource>,
    pub(super) revocation: Arc<Revocation>,
    pub(super) broker: Option<Arc<Broker>>,
    pub(super) console: Arc<Console>,
    pub(super) connector: Arc<Connector>,
    pub(super) cluster: Arc<Cluster>,
    /// Receives calls of other nodes.
    pub(super) node_endpoint: Arc<NodeEndpoint>,
    pub(super) followers: FollowerTasks,
    pub(super) metrics: Arc<KernelMetrics>,
    pub(super) telemetry: Telemetry,
    pub(super) handover: Arc<HandoverSlot>,
    /// Announce pending entries.
    pub(super) notices: Vec<SupervisedTask<()>>,
}

/// Starts all components, then the servers, then what answers requests.
///
/// # Errors
/// An actor that cannot be started.
pub(super) async fn start(
    options: &KernelOptions,
    stored: StoredState,
    closing: &CancellationToken,
) -> Result<StartedKernel, SpawnErr> {
    let seal = stored.seal.clone();
    let process_mark = stored.marks.current().to_owned();
    let kernel = &options.loaded.kernel;
    let connector = Arc::new(new_connector(options, process_mark.clone(), kernel.health));
    let parts = Components::start(options, stored, &connector).await?;
    let (guard, guard_root) = start_guard(&process_mark).await?;
    let source = Arc::new(ConfigSource::new(options.look_up.clone(), &options.loaded));
    let tree = TreeActor {
        deps: parts.server_deps(&guard, &connector),
        servers: parts.shared.servers.clone(),
        source: source.clone(),
        access: parts.shared.access.clone(),
        names: parts.approval.registered_names.clone(),
        mcpl_rules: parts.mcpl.config_sink(),
        shutdown: closing.clone(),
        root: parts
            .root_actors
            .iter()
            .cloned()
            .chain([guard_root])
            .collect(),
    };
    let tree = tree.start(&options.loaded).await?;
    let _ = parts.approval.registrar.tree.set(Arc::new(tree.clone()));
    parts.approval.registrar.restore().await;
    let operator = parts.new_operator(options, &tree, &source, &connector, closing);
    let handover = operator.handover.clone();
    let health = parts.new_health_methods(connector.clone(), closing);
    let calls = parts.new_context(kernel, &connector, closing);
    let message_budgets =
        MessageBudgets::new(kernel.http.max_bodies, kernel.limits.servers.max_frame);
    let metrics = Arc::new(KernelMetrics {
        calls: calls.clone(),
        resource_usage: connector.resource_usage.clone(),
        storage_health: parts.storage_health.clone(),
        cluster: parts.cluster.clone(),
        message_budgets: message_budgets.clone(),
        requests: Arc::default(),
        endpoints: Arc::default(),
        telemetry: Arc::default(),
        scrape_target: OnceLock::new(),
    });
    let (telemetry, tracing) = start_telemetry(kernel, &metrics);
    let notices = pending_notices::start(
        &kernel.notify,
        &Client::new(kernel.network.outbound()),
        &calls,
        &parts.shared.pending_changes,
        parts.cluster.name().to_string(),
    );
    let routes: Arc<dyn Routes> = Arc::new(RoutingTable {
        calls,
        operator,
        health,
        metrics: metrics.clone(),
        tracing,
    });
    let offer = parts.offer_sources();
    let endpoint_context = EndpointContext {
        agents: parts.agents.supervisor,
        message_budgets,
        stateless: new_stateless(seal, &parts.agents.revocation, routes.clone()),
        routes,
        registered_agents: parts.agents.registry.registered_agents,
        directory: parts.shared.directory,
    };
    let node_endpoint = NodeEndpoint::new(endpoint_context.clone());
    let call_sink = node_endpoint.call_sink();
    Ok(StartedKernel {
        followers: parts.cluster.spawn_followers(call_sink, &tree, offer),
        cluster: parts.cluster,
        node_endpoint,
        tree,
        guard,
        endpoint_context,
        source,
        revocation: parts.agents.revocation,
        broker: parts.broker,
        console: parts.console,
        connector,
        metrics,
        telemetry,
        handover,
        notices,
    })
}

/// Starts the export of telemetry, if a collector is configured.
fn start_telemetry(kernel: &KernelConfig, metrics: &Arc<KernelMetrics>) -> (Telemetry, Tracing) {
    let uptime = u64::try_from(monotonic_now().since_start().as_nanos()).unwrap_or(0);
    let resource = TelemetryResource {
        service: kernel.telemetry.service.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        instance: ids::new_session_id().to_string(),
        node: metrics.cluster.name().to_string(),
        start_ns: unix_ns().saturating_sub(uptime),
    };
    let (counts, metrics) = (metrics.telemetry.clone(), metrics.clone());
    let families = move || -> AnswerFuture<Vec<MetricFamily>> {
        let metrics = metrics.clone();
        Box::pin(async move { metrics.families().await })
    };
    let client = Client::new(kernel.network.outbound());
    Telemetry::start(&kernel.telemetry, client, resource, &counts, families)
}

/// All components, in the order of their start: each phase uses only earlier ones.
struct Components {
    shared: SharedComponents,
    catalog: CatalogComponents,
    agents: AgentComponents,
    cluster: Arc<Cluster>,
    mcpl: McplComponents,
    approval: ApprovalComponents,
    console: Arc<Console>,
    broker: Option<Arc<Broker>>,
    storage_health: StorageHealth,
    failed_upgrade: Option<String>,
    root_actors: Vec<RootActor>,
}

impl Components {
    async fn start(
        options: &KernelOptions,
        stored: StoredState,
        connector: &Arc<Connector>,
    ) -> Result<Self, SpawnErr> {
        let kernel = &options.loaded.kernel;
        let storage_health = stored.storage_health();
        let failed_upgrade = stored.handover.and_then(|it| it.failure);
        let mut root = Vec::new();
        let audit_events = AuditEvents {
            audit: stored.audit,
            seal: stored.seal.clone(),
        };
        let grants = (stored.replicas, stored.unaudited_decisions);
        let shared =
            SharedComponents::start(kernel, grants, &audit_events, connector, &mut root).await?;
        let catalog = CatalogComponents::start(options, &shared, &mut root).await?;
        let tasks = (&stored.seal, stored.tasks);
        let agents =
            AgentComponents::start(options, tasks, stored.agents, &shared, &mut root).await?;
        let broker = new_broker(options, &stored.seal, &shared.audit);
        let deps = cluster_deps(options, stored.key, stored.witnesses, connector, &shared);
        let cluster = Cluster::start(deps, &mut root).await?;
        catalog.search.set_remote(cluster.remote_tools());
        let mcpl = McplComponents::start(kernel, stored.mcpl, &shared);
        let approval =
            ApprovalComponents::start(options, stored.registrations, &shared, connector, &mut root)
                .await?;
        Ok(Self {
            console: Console::new(shared.audit.clone()),
            broker,
            shared,
            catalog,
            agents,
            cluster,
            mcpl,
            approval,
            storage_health,
            failed_upgrade,
            root_actors: root,
        })
    }

    fn server_deps(&self, guard: &GuardHandle, connector: &Arc<Connector>) -> ServerDeps {
        ServerDeps {
            events: self.mcpl.intercept_events(forward_to(
                self.catalog.handle.clone(),
                self.shared.subscriptions.clone(),
                self.shared.events.clone(),
            )),
            catalog: self.catalog.handle.clone(),
            directory: self.shared.directory.clone(),
            guard: guard.clone(),
            connector: connector.clone(),
            permissions: self.approval.permissions.clone(),
            pins: self.approval.pins.clone(),
            audit: self.shared.audit.clone(),
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
            servers: self.shared.servers.clone(),
            catalog: self.shared.catalog_snapshot.clone(),
            directory: self.shared.directory.clone(),
            audit: self.shared.audit.clone(),
            audit_views: OnceLock::new(),
            storage_health: self.storage_health.clone(),
            approvals: self.shared.approvals.clone(),
            mcpl: self.mcpl.host.clone(),
            pins: self.approval.pins.clone(),
            permissions: self.approval.permissions.clone(),
            search: self.catalog.search.clone(),
            registrar: self.approval.registrar.clone(),
            tree: tree.clone(),
            data_dir: options.data_dir.clone(),
            source: source.clone(),
            agents: self.agents.registry.clone(),
            console: self.console.clone(),
            broker: self.broker.clone(),
            revocation: self.agents.revocation.clone(),
            name_sources: self.name_sources(&options.loaded.kernel),
            cluster: self.cluster.clone(),
            shutdown: closing.clone(),
            handover: Arc::new(HandoverSlot::new(
                options.look_up.is_some(),
                options.http_address(),
                self.failed_upgrade.clone(),
            )),
        })
    }

    fn offer_sources(&self) -> OfferSources {
        OfferSources {
            servers: self.shared.servers.clone(),
            published: self.shared.catalog_snapshot.clone(),
            search: self.catalog.search.clone(),
        }
    }

    /// The names that users may type. Of the kernel's own agents only those that can connect.
    fn name_sources(&self, kernel: &KernelConfig) -> NameSources {
        let open = kernel.http.enabled && kernel.http.auth == HttpAuth::None;
        let anonymous = open.then(|| AgentId::new(AgentId::ANONYMOUS));
        let configured = kernel.socket.users.values().cloned().chain(anonymous);
        let broker = self.broker.clone();
        let signed_in = move || {
            let grants = broker.as_ref().map(|broker| broker.grants());
            grants
                .into_iter()
                .flatten()
                .map(|grant| grant.agent)
                .collect()
        };
        NameSources {
            servers: self.shared.servers.clone(),
            registered_agents: self.agents.registry.registered_agents.clone(),
            signed_in: SignedInAgents::new(signed_in),
            directory: self.shared.directory.clone(),
            access: self.shared.access.clone(),
            configured: configured.chain([AgentId::new(AgentId::LOCAL)]).collect(),
            configured_groups: kernel.named_groups(),
            skills: self.approval.skills.clone(),
            nodes: self.cluster.node_naming(),
        }
    }

    fn new_health_methods(
        &self,
        connector: Arc<Connector>,
        closing: &CancellationToken,
    ) -> Arc<HealthMethods> {
        Arc::new(HealthMethods {
            servers: self.shared.servers.clone(),
            directory: self.shared.directory.clone(),
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
            catalog: self.shared.catalog_snapshot.clone(),
            servers: self.shared.servers.clone(),
            name_sources: self.name_sources(kernel),
            filtered_lists: FilteredLists::default(),
            subscriptions: self.shared.subscriptions.clone(),
            events: self.shared.events.clone(),
            directory: self.shared.directory.clone(),
            agents: self.agents.supervisor.clone(),
            tasks: self.agents.revocation.tasks.clone(),
            answering_agents: kernel.answering.clone(),
            audit: self.shared.audit.clone(),
            metrics: call_metrics(kernel.metrics.tools_max),
            streams: CallStreams::default(),
            shutdown: closing.clone(),
            search: self.catalog.search.clone(),
            registrar: self.approval.registrar.clone(),
            replication: self.cluster.replication.clone(),
            pairing: self.cluster.pairing.clone(),
            logins: connector.logins.clone(),
            exposure: ExposureSettings {
                general: kernel.discovery.general.clone(),
                agents: kernel.discovery.agents.clone(),
                views: kernel.discovery.doors.clone(),
                brief_answers: kernel.discovery.brief_answers,
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
            skills: self.approval.skills.clone(),
            policies: Policies {
                access: self.shared.access.clone(),
                permissions: self.approval.permissions.clone(),
                pins: self.approval.pins.clone(),
                approvals: self.shared.approvals.clone(),
                rates: call_rates(kernel),
                schemas: CompiledSchemas::default(),
                validation: Validation::default(),
                links: LinkLookups::default(),
                confirmation: confirmation_rules(kernel),
            },
        })
    }
}

/// The limits of agents and of groups.
fn call_rates(kernel: &KernelConfig) -> Rates {
    let groups = kernel.groups.iter();
    let groups = groups.map(|(group, limits)| (group.id(), *limits));
    Rates::new(kernel.limits.rates, groups)
}
