//! The actors at the root of the tree, each started with what it needs.

use super::super::data_folder;
use super::super::options::UpOptions;
use crate::tree::RootActor;
use mgp_callers::directory::Directory;
use mgp_callers::registered_agents::RegisteredAgents;
use mgp_doors::agent_registry::{AgentRegistryActor, AgentRegistryHandle};
use mgp_doors::revocation::Revocation;
use mgp_engine::doors::agent_registry::AgentRegistry;
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::task_supervisor::TaskSupervisorHandle;
use mgp_servers::guard::{GuardActor, GuardHandle};
use mgp_servers::server::ServerTable;
use mgp_store::audit::AuditHandle;
use mgp_sync::Snapshot;
use mgp_tools::catalog::{CatalogActor, CatalogHandle, Shown};
use mgp_tools::events::EventsHandle;
use mgp_tools::search::SearchHandle;
use ractor::{Actor, ActorCell, SpawnErr};
use std::sync::Arc;

/// What ends every child when the kernel dies, itself one of the parts.
pub(super) async fn guard(mark: &str) -> Result<(GuardHandle, RootActor), SpawnErr> {
    let guard = GuardActor {
        exe: "/proc/self/exe".into(),
        args: vec!["__guard".into()],
        mark: mark.to_owned(),
    };
    let (guard, _) = Actor::spawn(None, guard, ()).await?;
    let root = RootActor::lasting("guard", guard.get_cell());
    Ok((GuardHandle::new(Mailbox::new(guard)), root))
}

/// Whose tasks wait for a person, or follow a call, on behalf of a part of the kernel.
pub(super) async fn supervisor(
    name: &'static str,
    root: &mut Vec<RootActor>,
) -> Result<TaskSupervisorHandle, SpawnErr> {
    let (handle, cell) = TaskSupervisorHandle::start().await?;
    root.push(RootActor::lasting(name, cell));
    Ok(handle)
}

pub(super) fn finder_root(search: &SearchHandle, cell: ActorCell) -> RootActor {
    let search = search.clone();
    let restart = move || {
        let search = search.clone();
        async move { search.start().await }
    };
    RootActor::restarted("search", cell, restart)
}

/// What merges what servers offer. Started again, it asks them what they offer.
pub(super) async fn catalog(
    shown: &Arc<Snapshot<Shown>>,
    directory: &Arc<Directory>,
    search: &SearchHandle,
    servers: &Arc<ServerTable>,
    events: &EventsHandle,
) -> Result<(CatalogHandle, RootActor), SpawnErr> {
    let actor = CatalogActor {
        shown: shown.clone(),
        directory: directory.clone(),
        search: search.clone(),
        events: events.clone(),
    };
    let handle = CatalogHandle::new(shown.clone());
    let cell = handle.start(actor.clone()).await?;
    let (again, servers) = (handle.clone(), servers.clone());
    let restart = move || {
        let (catalog, actor, servers) = (again.clone(), actor.clone(), servers.clone());
        async move { catalog.restart(actor, &servers).await }
    };
    Ok((handle, RootActor::restarted("catalog", cell, restart)))
}

/// Who has a token, and who keeps it.
pub(super) async fn roster(
    options: &UpOptions,
    before: AgentRegistry,
    revocation: &Arc<Revocation>,
    audit: &AuditHandle,
) -> Result<(AgentRegistryHandle, ActorCell), SpawnErr> {
    let registered_agents = RegisteredAgents::new(before);
    let actor = AgentRegistryActor {
        file: data_folder::roster_file(&options.data_dir),
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
