//! The phases of the start. Each needs only what an earlier one has started.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use mgp_callers::agent::supervisor::{Agents, AgentsActor};
use mgp_callers::directory::Directory;
use mgp_callers::tasks::TaskRecord;
use mgp_doors::agent_registry::AgentRegistryHandle;
use mgp_doors::revocation::Revocation;
use mgp_engine::callers::seal::SealKey;
use mgp_engine::doors::agent_registry::AgentRegistry;
use mgp_engine::policy::access::GrantTable as AccessTable;
use mgp_engine::policy::grants::Operation;
use mgp_mcpl::agents::McplAgents;
use mgp_policy::access::{AccessActor, AccessHandle, GrantStore};
use mgp_policy::approvals::ApprovalsHandle;
use mgp_policy::permissions::PermissionsHandle;
use mgp_policy::pins::PinsHandle;
use mgp_runtime::mailbox::Mailbox;
use mgp_servers::server::{Connector, ServerTable};
use mgp_store::audit::AuditHandle;
use mgp_sync::Snapshot;
use mgp_tools::catalog::{CatalogHandle, PublishedCatalog};
use mgp_tools::events::{AuditEvents, EventsHandle};
use mgp_tools::registrar::{Names, PendingApprovals, Registrar, Registrations};
use mgp_tools::search::SearchHandle;
use mgp_tools::subscriptions::{SubscriptionsActor, SubscriptionsHandle};
use ractor::{Actor, SpawnErr};
use tokio::sync::Mutex;

use super::super::change_events::{access_change_sink, pending_change_sink, pin_decision_sink};
use super::super::options::KernelOptions;
use super::from_config::{
    empty_catalog, initial_access_table, new_revocation, new_tasks, registration_defaults,
    search_options,
};
use super::root_actors::{
    search_root_actor, start_agent_registry, start_catalog, start_task_supervisor,
};
use crate::config::KernelConfig;
use crate::supervision_tree::RootActor;

/// State that every component reads, the stored grants, and the observers of their changes.
pub(super) struct SharedComponents {
    pub(super) directory: Arc<Directory>,
    pub(super) servers: Arc<ServerTable>,
    pub(super) catalog_snapshot: Arc<Snapshot<PublishedCatalog>>,
    pub(super) access_table: Arc<Snapshot<AccessTable>>,
    pub(super) subscriptions: SubscriptionsHandle,
    pub(super) events: EventsHandle,
    pub(super) access: AccessHandle,
    pub(super) approvals: ApprovalsHandle,
    pub(super) audit: AuditHandle,
    /// The agents that are MCPL hosts, set by the MCPL phase: access needs them earlier.
    pub(super) mcpl_agents: Arc<OnceLock<Arc<McplAgents>>>,
}

impl SharedComponents {
    pub(super) async fn start(
        kernel: &KernelConfig,
        (grants, unaudited): (GrantStore, Vec<Operation>),
        audit_events: &AuditEvents,
        connector: &Connector,
        root: &mut Vec<RootActor>,
    ) -> Result<Self, SpawnErr> {
        let access_table = initial_access_table(kernel, &grants);
        let directory = Arc::new(Directory::new(access_table.clone()));
        let servers = Arc::new(ServerTable::new(BTreeMap::new()));
        let catalog_snapshot = Arc::new(Snapshot::new(empty_catalog(kernel)));
        let subscriptions = SubscriptionsActor {
            directory: directory.clone(),
            servers: Arc::new(OnceLock::from(servers.clone())),
            published: catalog_snapshot.clone(),
        };
        let (subscriptions, _) = Actor::spawn(None, subscriptions, ()).await?;
        root.push(RootActor::permanent(
            "subscriptions",
            subscriptions.get_cell(),
        ));
        let subscriptions = SubscriptionsHandle::new(Mailbox::new(subscriptions));
        let usage = &connector.resource_usage;
        let (events, cell) = EventsHandle::start(&directory, &servers, audit_events, usage).await?;
        root.push(RootActor::permanent("events", cell));
        let mcpl_agents = Arc::default();
        let audit = audit_events.audit.clone();
        let access = AccessActor {
            table: access_table.clone(),
            directory: directory.clone(),
            on_change: access_change_sink(&subscriptions, &events, &mcpl_agents),
            audit: audit.clone(),
        };
        let (access, _) = Actor::spawn(None, access, (grants, unaudited)).await?;
        root.push(RootActor::permanent("access", access.get_cell()));
        let access = Mailbox::new(access);
        Ok(Self {
            access: AccessHandle::new(access, access_table.clone(), kernel.access.reveal),
            approvals: ApprovalsHandle::new(pending_change_sink(&subscriptions)),
            directory,
            servers,
            catalog_snapshot,
            access_table,
            subscriptions,
            events,
            audit,
            mcpl_agents,
        })
    }
}

/// The published catalog and its search index.
pub(super) struct CatalogComponents {
    pub(super) handle: CatalogHandle,
    pub(super) search: SearchHandle,
}

impl CatalogComponents {
    pub(super) async fn start(
        options: &KernelOptions,
        shared: &SharedComponents,
        root: &mut Vec<RootActor>,
    ) -> Result<Self, SpawnErr> {
        let (search, cell) = search_options(options, shared).open().await?;
        root.push(search_root_actor(&search, cell));
        let (handle, catalog_root) = start_catalog(shared, &search).await?;
        root.push(catalog_root);
        Ok(Self { handle, search })
    }
}

/// The connections, tasks and tokens of agents.
pub(super) struct AgentComponents {
    pub(super) supervisor: Agents,
    pub(super) revocation: Arc<Revocation>,
    pub(super) registry: AgentRegistryHandle,
}

impl AgentComponents {
    pub(super) async fn start(
        options: &KernelOptions,
        (seal, tasks): (&SealKey, Vec<TaskRecord>),
        registered: AgentRegistry,
        shared: &SharedComponents,
        root: &mut Vec<RootActor>,
    ) -> Result<Self, SpawnErr> {
        let (supervisor, _) = Actor::spawn(None, AgentsActor, ()).await?;
        root.push(RootActor::permanent("agents", supervisor.get_cell()));
        let task_supervisor = start_task_supervisor("tasks", root).await?;
        let tasks = new_tasks(options, seal, tasks, &shared.directory, task_supervisor);
        let revocation = new_revocation(&options.loaded.kernel, &shared.directory, &tasks);
        let (registry, cell) =
            start_agent_registry(options, registered, &revocation, &shared.audit).await?;
        root.push(RootActor::permanent("agent_registry", cell));
        Ok(Self {
            supervisor,
            revocation,
            registry,
        })
    }
}

/// What the operator approves: definitions of tools, permissions, and registered servers.
pub(super) struct ApprovalComponents {
    pub(super) pins: PinsHandle,
    pub(super) permissions: PermissionsHandle,
    pub(super) registrar: Arc<Registrar>,
    pub(super) registered_names: Arc<Names>,
}

impl ApprovalComponents {
    pub(super) async fn start(
        options: &KernelOptions,
        registrations: Registrations,
        shared: &SharedComponents,
        connector: &Arc<Connector>,
        root: &mut Vec<RootActor>,
    ) -> Result<Self, SpawnErr> {
        let kernel = &options.loaded.kernel;
        let (approvals, access, audit) = (&shared.approvals, &shared.access, &shared.audit);
        let pins = PinsHandle::new(
            options.data_dir.join("pins"),
            approvals.clone(),
            audit.clone(),
            pin_decision_sink(&shared.servers),
            start_task_supervisor("pins", root).await?,
        );
        let permissions = PermissionsHandle::new(
            approvals.clone(),
            access.clone(),
            audit.clone(),
            start_task_supervisor("permissions", root).await?,
        );
        let registered_names = registrations.names();
        let registrar = Registrar {
            registration: kernel.discovery.registration.clone(),
            defaults: registration_defaults(kernel),
            registrations: Mutex::new(registrations),
            servers: shared.servers.clone(),
            connector: connector.clone(),
            access: access.clone(),
            approvals: approvals.clone(),
            audit: audit.clone(),
            pins: pins.clone(),
            pending_approvals: PendingApprovals::default(),
            supervisor: start_task_supervisor("registrar", root).await?,
            tree: OnceLock::new(),
        };
        Ok(Self {
            pins,
            permissions,
            registrar: Arc::new(registrar),
            registered_names,
        })
    }
}
