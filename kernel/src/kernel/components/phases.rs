//! The phases of the start after [`SharedComponents`]. Each uses only what an earlier one has started.

use std::sync::{Arc, OnceLock};

use mgp_callers::agent::supervisor::{Agents, AgentsActor};
use mgp_callers::tasks::TaskRecord;
use mgp_calls::SkillTable;
use mgp_doors::Revocation;
use mgp_doors::agent_registry::AgentRegistryHandle;
use mgp_engine::callers::seal::SealKey;
use mgp_engine::doors::agent_registry::AgentRegistry;
use mgp_policy::{PermissionsHandle, PinsHandle};
use mgp_runtime::EventSink;
use mgp_servers::Connector;
use mgp_tools::CatalogHandle;
use mgp_tools::registrar::{Names, PendingApprovals, Registrar, Registrations};
use mgp_tools::search::SearchHandle;
use ractor::{Actor, SpawnErr};
use tokio::sync::Mutex;

use super::super::change_events::pin_decision_sink;
use super::super::options::KernelOptions;
use super::from_config::{new_revocation, new_tasks, registration_defaults, search_options};
use super::root_actors::{
    search_root_actor, start_agent_registry, start_catalog, start_task_supervisor,
};
use super::shared::SharedComponents;
use crate::supervision_tree::RootActor;

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
    pub(super) skills: Arc<SkillTable>,
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
        let pin_tasks = start_task_supervisor("pins", root).await?;
        let pins = PinsHandle::new(
            options.data_dir.join("pins"),
            approvals.clone(),
            audit.clone(),
            pin_decision_sink(&shared.servers),
            pin_tasks.clone(),
        );
        // What is decided about a skill holds from its next use.
        let skill_pins = PinsHandle::new(
            options.data_dir.join("skills/pins"),
            approvals.clone(),
            audit.clone(),
            EventSink::new(|_| ()),
            pin_tasks,
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
            skill_pins: skill_pins.clone(),
            pending_approvals: PendingApprovals::default(),
            supervisor: start_task_supervisor("registrar", root).await?,
            tree: OnceLock::new(),
        };
        Ok(Self {
            pins,
            skills: Arc::new(SkillTable::new(skill_pins)),
            permissions,
            registrar: Arc::new(registrar),
            registered_names,
        })
    }
}
