//! The first phase: state that every component reads.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use mgp_callers::Directory;
use mgp_engine::policy::access::GrantTable as AccessTable;
use mgp_engine::policy::grants::Operation;
use mgp_engine::tools::catalog::cursor::CursorKey;
use mgp_engine::tools::catalog::{Catalog, Paging};
use mgp_mcpl::McplAgents;
use mgp_policy::{AccessActor, AccessHandle, ApprovalsHandle, GrantStore};
use mgp_runtime::time::unix_ms;
use mgp_runtime::{Mailbox, randomness};
use mgp_servers::{Connector, ServerTable};
use mgp_store::audit::AuditHandle;
use mgp_sync::Snapshot;
use mgp_tools::{
    AuditEvents, EventsHandle, PublishedCatalog, SubscriptionsActor, SubscriptionsHandle,
};
use ractor::{Actor, SpawnErr};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::super::change_events::{access_change_sink, pending_change_sink};
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
    /// Marked as changed with the list of pending entries.
    pub(super) pending_changes: watch::Sender<()>,
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
        let pending_changes = watch::Sender::new(());
        Ok(Self {
            access: AccessHandle::new(access, access_table.clone(), kernel.access.reveal),
            approvals: ApprovalsHandle::new(pending_change_sink(&subscriptions, &pending_changes)),
            pending_changes,
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

/// The table in force until the configuration is applied.
fn initial_access_table(kernel: &KernelConfig, store: &GrantStore) -> Arc<Snapshot<AccessTable>> {
    let defaults = kernel.access.to_policies();
    let (grants, authority) = (store.grants(), store.authority());
    let table = AccessTable::build(grants, authority, defaults, unix_ms(), 1);
    let sets = Arc::new(kernel.sets.clone());
    Arc::new(Snapshot::new(table.with_sets(sets, 1)))
}

fn empty_catalog(kernel: &KernelConfig) -> PublishedCatalog {
    let size = kernel.lists.page_size.try_into();
    PublishedCatalog {
        catalog: Arc::new(Catalog::empty(Paging {
            size: size.unwrap_or(NonZeroUsize::MIN),
            key: CursorKey::new(randomness::random_bytes()),
        })),
        peers: BTreeMap::new(),
        fetched: BTreeMap::new(),
        replaced: CancellationToken::new(),
    }
}
