//! Publishes the offers of all servers as one catalog, and notifies agents of changes. Supervisors and the kernel's
//! tree send to it.
//!
//! A restart after a failure begins with the published catalog. Later offers may be lost, so servers offer again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_engine::tools::catalog::{Catalog, CatalogView, ListKind, ServerOffer, changed_lists};
use mgp_engine::tools::events::channels::{EventScope, KernelChannel, KernelEvent};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::events::Severity;
use mgp_sync::Snapshot;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr};
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::events::EventsHandle;
pub use crate::published_catalog::PublishedCatalog;
use crate::search::SearchHandle;
use mgp_callers::Directory;
use mgp_runtime::task::TaskError;
use mgp_runtime::time::unix_ms;
use mgp_runtime::{AskError, Mailbox, Queued, Reply, task};
use mgp_servers::link::Peer;
use mgp_servers::{FetchTimes, ServerMsg, ServerTable};

/// Changes within this time are published together: a kernel that starts 200 servers rebuilds its lists some ten
/// times, not 200 times. Far below the 0.8 s within which a list_changed must arrive.
const COALESCE: Duration = Duration::from_millis(20);

/// With very many tools, merges wait for a multiple of the last merge's duration, so that a hundred servers that
/// connect one after the other leave most of a core free.
const COALESCE_MERGES: u32 = 3;

/// The longest such wait; with the merge itself it stays below the 0.8 s.
const COALESCE_MAX: Duration = Duration::from_millis(400);

/// Handle of the actor.
#[derive(Debug, Clone)]
pub struct CatalogHandle {
    mailbox: Mailbox<CatalogMsg>,
}

impl Default for CatalogHandle {
    /// The handle; the actor is started later.
    fn default() -> Self {
        let mailbox = Mailbox::new_restartable();
        Self { mailbox }
    }
}

impl CatalogHandle {
    /// Starts the actor.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start(&self, actor: CatalogActor) -> Result<ActorCell, SpawnErr> {
        self.mailbox.start(actor, ()).await
    }

    /// Restarts the actor after a failure, and has servers offer again.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn restart(
        &self,
        actor: CatalogActor,
        servers: &ServerTable,
    ) -> Result<ActorCell, SpawnErr> {
        let cell = self.start(actor).await?;
        for server in servers.load().values() {
            let _ = server.send(ServerMsg::PinsDecided);
        }
        Ok(cell)
    }

    /// Sets a server's new offer. `published` is answered when agents see it.
    pub(crate) fn offer(
        &self,
        offer: ServerOffer,
        peer: Box<Peer>,
        fetched: FetchTimes,
        published: Reply<()>,
    ) {
        self.send(CatalogMsg::Offer(Arc::new(offer), peer, fetched, published));
    }

    /// Sets an offer from an earlier run; counts until the server's own offer arrives.
    pub(crate) fn restore(&self, offer: ServerOffer) {
        self.send(CatalogMsg::Restore(Arc::new(offer)));
    }

    /// Removes a server's offer.
    pub(crate) fn withdraw(&self, server: &ServerId) {
        self.send(CatalogMsg::Withdraw(server.clone()));
    }

    /// Resolves once nothing of this server is published, or the actor has ended.
    pub async fn wait_withdrawn(&self, server: ServerId) {
        let (reply, withdrawn) = Reply::new();
        self.send(CatalogMsg::AwaitWithdrawn(server, reply));
        let _: Result<(), oneshot::error::RecvError> = withdrawn.await;
    }

    fn send(&self, message: CatalogMsg) {
        match self.mailbox.send(message) {
            // The kernel is shutting down, or the actor is restarted and servers are asked to offer again.
            Ok(()) | Err(AskError::Stopped) => {}
            Err(error) => tracing::error!(%error, "the catalog missed a change"),
        }
    }
}

/// Messages to the actor.
#[derive(Debug)]
pub enum CatalogMsg {
    /// A server's offer. Answered when it is published.
    Offer(Arc<ServerOffer>, Box<Peer>, FetchTimes, Reply<()>),
    /// An offer from an earlier run, until the server's own offer arrives.
    Restore(Arc<ServerOffer>),
    /// A server no longer offers anything.
    Withdraw(ServerId),
    /// Answered once nothing of this server is published; replaces an earlier such message.
    AwaitWithdrawn(ServerId, Reply<()>),
    /// Publishes the collected changes.
    Publish,
}

/// The actor; its fields are fixed at construction.
#[derive(Debug, Clone)]
pub struct CatalogActor {
    /// Receives each new catalog.
    pub published: Arc<Snapshot<PublishedCatalog>>,
    /// Notifies agents of changed lists.
    pub directory: Arc<Directory>,
    /// Indexes the catalog.
    pub search: SearchHandle,
    /// Notifies subscribers of changed lists.
    pub events: EventsHandle,
}

/// The state of the actor.
#[derive(Debug)]
pub struct CatalogState {
    mailbox: Mailbox<CatalogMsg>,
    offers: BTreeMap<ServerId, Arc<ServerOffer>>,
    peers: BTreeMap<ServerId, Peer>,
    fetched: BTreeMap<ServerId, FetchTimes>,
    is_publish_due: bool,
    last_merge: Duration,
    /// Waiters for the next publication; bounded by the mailbox.
    publish_waiters: Vec<Reply<()>>,
    /// Waiters until nothing of a server is published; bounded by the number of servers.
    withdraw_waiters: BTreeMap<ServerId, Reply<()>>,
}

impl Actor for CatalogActor {
    type Msg = Queued<CatalogMsg>;
    type State = CatalogState;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<CatalogState, ActorProcessingErr> {
        let published = self.published.load();
        let offers = published.catalog.offers();
        let offers = offers.map(|offer| (offer.server().clone(), offer.clone()));
        Ok(CatalogState {
            mailbox: Mailbox::new(myself),
            offers: offers.collect(),
            peers: published.peers.clone(),
            fetched: published.fetched.clone(),
            is_publish_due: false,
            last_merge: Duration::ZERO,
            publish_waiters: Vec::new(),
            withdraw_waiters: BTreeMap::new(),
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut CatalogState,
    ) -> Result<(), ActorProcessingErr> {
        match queued.into_message() {
            CatalogMsg::Offer(offer, peer, fetched, reply) => {
                state.fetched.insert(offer.server().clone(), fetched);
                state.publish_waiters.push(reply);
                state.peers.insert(offer.server().clone(), *peer);
                state.offers.insert(offer.server().clone(), offer);
                state.schedule_publish();
            }
            CatalogMsg::Restore(offer) => {
                if !state.peers.contains_key(offer.server()) {
                    state.offers.insert(offer.server().clone(), offer);
                    state.schedule_publish();
                }
            }
            CatalogMsg::Withdraw(server) => {
                state.peers.remove(&server);
                state.fetched.remove(&server);
                if state.offers.remove(&server).is_some() {
                    state.schedule_publish();
                }
            }
            CatalogMsg::AwaitWithdrawn(server, reply) => {
                state.withdraw_waiters.insert(server, reply);
                self.notify_withdrawn(state);
            }
            CatalogMsg::Publish => self.publish(state).await?,
        }
        Ok(())
    }
}

impl CatalogState {
    fn schedule_publish(&mut self) {
        if std::mem::replace(&mut self.is_publish_due, true) {
            return;
        }
        let mailbox = self.mailbox.clone();
        let wait = (self.last_merge * COALESCE_MERGES).clamp(COALESCE, COALESCE_MAX);
        task::spawn_detached("catalog.publish_soon", async move {
            tokio::time::sleep(wait).await;
            let _ = mailbox.send(CatalogMsg::Publish);
        });
    }
}

impl CatalogActor {
    async fn publish(&self, state: &mut CatalogState) -> Result<(), TaskError> {
        state.is_publish_due = false;
        let before = self.published.load();
        let offers: Vec<_> = state.offers.values().cloned().collect();
        let Some(Merged {
            catalog,
            changed,
            duration,
        }) = merge(before.catalog.clone(), offers).await?
        else {
            return Ok(());
        };
        state.last_merge = duration;
        let replaced = self.published.load().replaced.clone();
        self.published.store(Arc::new(PublishedCatalog {
            catalog,
            peers: state.peers.clone(),
            fetched: state.fetched.clone(),
            replaced: CancellationToken::new(),
        }));
        replaced.cancel();
        self.search.notify_published();
        for (view, kind) in &changed {
            let changed_server = |(changed, changed_kind): &(CatalogView, ListKind)| match changed {
                CatalogView::One(server) if changed_kind == kind => Some(server.clone()),
                CatalogView::One(_) | CatalogView::All | CatalogView::Set(_) => None,
            };
            let servers: Vec<_> = match view {
                CatalogView::One(server) => vec![server.clone()],
                CatalogView::All | CatalogView::Set(_) => {
                    changed.iter().filter_map(changed_server).collect()
                }
            };
            self.directory.notify_list_changed(view, *kind, &servers);
            if let CatalogView::One(server) = view {
                let changed = || list_changed_event(server, *kind);
                self.events
                    .publish_kernel_event(KernelChannel::ListsChanged, changed);
            }
        }
        state
            .publish_waiters
            .drain(..)
            .for_each(|reply| reply.send(()));
        self.notify_withdrawn(state);
        Ok(())
    }

    fn notify_withdrawn(&self, state: &mut CatalogState) {
        let published = self.published.load();
        let is_withdrawn =
            |server: &ServerId, _: &mut Reply<()>| published.catalog.counts(server).is_none();
        let withdrawn = state.withdraw_waiters.extract_if(.., is_withdrawn);
        withdrawn.for_each(|(_, reply)| reply.send(()));
    }
}

/// A merged catalog and its differences.
#[derive(Debug)]
struct Merged {
    catalog: Arc<Catalog>,
    changed: Vec<(CatalogView, ListKind)>,
    duration: Duration,
}

/// Takes milliseconds with thousands of tools, so it runs off the threads that carry calls; messages wait in the
/// mailbox meanwhile. `None` when the kernel is shutting down.
async fn merge(
    before: Arc<Catalog>,
    offers: Vec<Arc<ServerOffer>>,
) -> Result<Option<Merged>, TaskError> {
    let merging = task::run_blocking("catalog.merge", move || {
        let started = Instant::now();
        let catalog = Arc::new(before.with_offers(&offers));
        Merged {
            changed: changed_lists(&before, &catalog),
            catalog,
            duration: started.elapsed(),
        }
    });
    match merging.await {
        Ok(merged) => Ok(Some(merged)),
        Err(TaskError::Aborted) => Ok(None),
        Err(panicked @ TaskError::Panicked { .. }) => Err(panicked),
    }
}

/// The event of a changed list of a server.
fn list_changed_event(server: &ServerId, kind: ListKind) -> KernelEvent {
    let list = match kind {
        ListKind::Tools => "tools",
        ListKind::Prompts => "prompts",
        ListKind::Resources => "resources",
        ListKind::Templates => "resource_templates",
    };
    KernelEvent {
        channel: KernelChannel::ListsChanged,
        severity: Severity::Info,
        scope: EventScope::for_server(server.clone()),
        timestamp: render_rfc3339_ms(unix_ms()),
        data: json!({"server_id": server.as_str(), "list": list}),
        for_agents: None,
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use mgp_engine::tools::catalog::Paging;
    use mgp_engine::tools::catalog::cursor::CursorKey;

    use super::*;

    /// A runtime that shuts down accepts no blocking work.
    #[test]
    fn merge_during_shutdown_is_no_failure() {
        let empty = Catalog::empty(Paging {
            size: NonZeroUsize::MIN,
            key: CursorKey::new([7; 32]),
        });
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let handle = runtime.handle().clone();
        runtime.shutdown_background();
        let _entered = handle.enter();
        let merging = pin!(merge(Arc::new(empty), Vec::new()));
        let merged = merging.poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(merged, Poll::Ready(Ok(None))));
    }
}
