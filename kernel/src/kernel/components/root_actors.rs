//! Starts actors at the root of the tree.

use super::super::data_folder;
use super::super::options::KernelOptions;
use super::shared::SharedComponents;
use crate::supervision_tree::RootActor;
use mgp_callers::RegisteredAgents;
use mgp_doors::Revocation;
use mgp_doors::agent_registry::{AgentRegistryActor, AgentRegistryHandle};
use mgp_engine::doors::agent_registry::AgentRegistry;
use mgp_platform::processes;
use mgp_runtime::{Mailbox, TaskSupervisorHandle};
use mgp_servers::{GuardActor, GuardHandle};
use mgp_store::audit::AuditHandle;
use mgp_tools::search::SearchHandle;
use mgp_tools::{CatalogActor, CatalogHandle};
use ractor::{Actor, ActorCell, SpawnErr};
use std::sync::Arc;

/// Starts the guard, which ends all children when the kernel dies.
pub(super) async fn start_guard(mark: &str) -> Result<(GuardHandle, RootActor), SpawnErr> {
    let guard = GuardActor {
        exe: processes::own_program(),
        args: vec!["__guard".into()],
        mark: mark.to_owned(),
    };
    let (guard, _) = Actor::spawn(None, guard, ()).await?;
    let root = RootActor::permanent("guard", guard.get_cell());
    Ok((GuardHandle::new(Mailbox::new(guard)), root))
}

/// Starts a supervisor for the tasks of a component that wait for a person or follow a call.
pub(super) async fn start_task_supervisor(
    name: &'static str,
    root: &mut Vec<RootActor>,
) -> Result<TaskSupervisorHandle, SpawnErr> {
    let (handle, cell) = TaskSupervisorHandle::start().await?;
    root.push(RootActor::permanent(name, cell));
    Ok(handle)
}

pub(super) fn search_root_actor(search: &SearchHandle, cell: ActorCell) -> RootActor {
    let search = search.clone();
    let restart = move || {
        let search = search.clone();
        async move { search.start().await }
    };
    RootActor::restartable("search", cell, restart)
}

/// After a restart the catalog asks all servers what they offer.
pub(super) async fn start_catalog(
    shared: &SharedComponents,
    search: &SearchHandle,
) -> Result<(CatalogHandle, RootActor), SpawnErr> {
    let actor = CatalogActor {
        published: shared.catalog_snapshot.clone(),
        directory: shared.directory.clone(),
        search: search.clone(),
        events: shared.events.clone(),
    };
    let handle = CatalogHandle::default();
    let cell = handle.start(actor.clone()).await?;
    let (catalog, servers) = (handle.clone(), shared.servers.clone());
    let restart = move || {
        let (catalog, actor, servers) = (catalog.clone(), actor.clone(), servers.clone());
        async move { catalog.restart(actor, &servers).await }
    };
    Ok((handle, RootActor::restartable("catalog", cell, restart)))
}

pub(super) async fn start_agent_registry(
    options: &KernelOptions,
    stored: AgentRegistry,
    revocation: &Arc<Revocation>,
    audit: &AuditHandle,
) -> Result<(AgentRegistryHandle, ActorCell), SpawnErr> {
    let registered_agents = RegisteredAgents::new(stored);
    let actor = AgentRegistryActor {
        file: data_folder::agents_file(&options.data_dir),
        registered_agents: registered_agents.clone(),
        revocation: revocation.clone(),
        audit: audit.clone(),
    };
    let (actor, _) = Actor::spawn(None, actor, ()).await?;
    let cell = actor.get_cell();
    Ok((
        AgentRegistryHandle::new(Mailbox::new(actor), registered_agents),
        cell,
    ))
}
