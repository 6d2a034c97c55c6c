//! Publishes the offers of all servers as one catalog, and tells agents when it changed.
//! Supervisors and the kernel's tree send to it.
//!
//! After a failure it is restarted with the published catalog. Later offers may be lost, so servers are
//! asked to offer again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mgp_engine::timestamps::rfc3339_ms;
use mgp_engine::tools::catalog::{Catalog, CatalogView, ListKind, ServerOffer, changes};
use mgp_engine::tools::events::channels::{EventScope, KernelChannel, KernelEvent};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::events::Severity;
use mgp_sync::snapshot::Snapshot;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr};
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::events::EventsHandle;
use crate::search::SearchHandle;
pub use crate::shown::Shown;
use mgp_callers::directory::Directory;
use mgp_runtime::mailbox::{AskError, Mailbox, Queued, Reply};
use mgp_runtime::task::{self, TaskBroken};
use mgp_runtime::time::unix_ms;
use mgp_servers::link::Peer;
use mgp_servers::server::{Fetched, ServerMsg, ServerTable};

/// Changes are published together when they come this close: a kernel that starts 200 servers
/// rebuilds its lists some ten times, not 200 times. Far below the 0.8 s within which a
/// list_changed must arrive.
const COALESCE: Duration = Duration::from_millis(20);

/// With very many tools, waits so many times as long as the last merge took, so that a hundred servers that come one
/// after the other leave most of a core to others.
const COALESCE_MERGES: u32 = 3;

/// And no longer than this, which with the merge itself stays below the 0.8 s.
const COALESCE_MAX: Duration = Duration::from_millis(400);

/// Handle of the actor.
#[derive(Debug, Clone)]
pub struct CatalogHandle {
    mailbox: Mailbox<CatalogMsg>,
    shown: Arc<Snapshot<Shown>>,
}

impl CatalogHandle {
    /// The handle; the actor is started later.
    #[must_use]
    pub fn new(shown: Arc<Snapshot<Shown>>) -> Self {
        let mailbox = Mailbox::restarted();
        Self { mailbox, shown }
    }

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
            let _ = server.tell(ServerMsg::PinsDecided);
        }
        Ok(cell)
    }

    /// A server's new offer. `seen` is answered when agents see it.
    pub fn offer(&self, offer: ServerOffer, peer: Box<Peer>, fetched: Fetched, seen: Reply<()>) {
        self.say(CatalogMsg::Offered(Arc::new(offer), peer, fetched, seen));
    }

    /// What a server offered before; counts until its own offer comes.
    pub fn restore(&self, offer: ServerOffer) {
        self.say(CatalogMsg::Restored(Arc::new(offer)));
    }

    /// A server offers nothing any more.
    pub fn withdraw(&self, server: &ServerId) {
        self.say(CatalogMsg::Withdrawn(server.clone()));
    }

    /// Resolves when nothing of this server is published any more, or the actor is gone.
    pub async fn withdrawn(&self, server: ServerId) {
        let (reply, withdrawn) = Reply::new();
        self.say(CatalogMsg::Awaited(server, reply));
        let _: Result<(), oneshot::error::RecvError> = withdrawn.await;
    }

    /// The published catalog.
    #[must_use]
    pub fn shown(&self) -> Arc<Shown> {
        self.shown.load()
    }

    fn say(&self, message: CatalogMsg) {
        match self.mailbox.tell(message) {
            // The kernel is ending, or the actor is restarted and servers are asked to offer again.
            Ok(()) | Err(AskError::Stopped) => {}
            Err(error) => tracing::error!(%error, "the catalog was not told of a change"),
        }
    }
}

/// Messages to the actor.
#[derive(Debug)]
pub enum CatalogMsg {
    /// A server's offer. Answered when it is published.
    Offered(Arc<ServerOffer>, Box<Peer>, Fetched, Reply<()>),
    /// What a server offered before, until its own offer comes.
    Restored(Arc<ServerOffer>),
    /// A server offers nothing any more.
    Withdrawn(ServerId),
    /// Answered when nothing of this server is published; replaces an earlier such message.
    Awaited(ServerId, Reply<()>),
    /// Time to publish what changed.
    Publish,
}

/// Fixed at construction.
#[derive(Debug, Clone)]
pub struct CatalogActor {
    /// Where the catalog is published.
    pub shown: Arc<Snapshot<Shown>>,
    /// Tells agents that lists changed.
    pub directory: Arc<Directory>,
    /// The search, which indexes the catalog.
    pub search: SearchHandle,
    /// Tells those who follow events of it.
    pub events: EventsHandle,
}

/// The state of the actor.
#[derive(Debug)]
pub struct CatalogState {
    me: Mailbox<CatalogMsg>,
    offers: BTreeMap<ServerId, Arc<ServerOffer>>,
    peers: BTreeMap<ServerId, Peer>,
    fetched: BTreeMap<ServerId, Fetched>,
    due: bool,
    /// How long the last merge took.
    merge: Duration,
    /// Who waits for the next publication; no more than the mailbox takes until then.
    waiting: Vec<Reply<()>>,
    /// Who waits until nothing of a server is published. Bounded by the servers.
    awaited: BTreeMap<ServerId, Reply<()>>,
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
        let shown = self.shown.load();
        let offers = shown.catalog.offers();
        let offers = offers.map(|offer| (offer.server().clone(), offer.clone()));
        Ok(CatalogState {
            me: Mailbox::new(myself),
            offers: offers.collect(),
            peers: shown.peers.clone(),
            fetched: shown.fetched.clone(),
            due: false,
            merge: Duration::ZERO,
            waiting: Vec::new(),
            awaited: BTreeMap::new(),
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut CatalogState,
    ) -> Result<(), ActorProcessingErr> {
        match queued.open() {
            CatalogMsg::Offered(offer, peer, fetched, reply) => {
                state.fetched.insert(offer.server().clone(), fetched);
                state.waiting.push(reply);
                state.peers.insert(offer.server().clone(), *peer);
                state.offers.insert(offer.server().clone(), offer);
                state.publish_soon();
            }
            CatalogMsg::Restored(offer) => {
                if !state.peers.contains_key(offer.server()) {
                    state.offers.insert(offer.server().clone(), offer);
                    state.publish_soon();
                }
            }
            CatalogMsg::Withdrawn(server) => {
                state.peers.remove(&server);
                state.fetched.remove(&server);
                if state.offers.remove(&server).is_some() {
                    state.publish_soon();
                }
            }
            CatalogMsg::Awaited(server, reply) => {
                state.awaited.insert(server, reply);
                self.tell_withdrawn(state);
            }
            CatalogMsg::Publish => self.publish(state).await?,
        }
        Ok(())
    }
}

impl CatalogState {
    fn publish_soon(&mut self) {
        if std::mem::replace(&mut self.due, true) {
            return;
        }
        let me = self.me.clone();
        let wait = (self.merge * COALESCE_MERGES).clamp(COALESCE, COALESCE_MAX);
        task::detached("catalog.publish_soon", async move {
            tokio::time::sleep(wait).await;
            let _ = me.tell(CatalogMsg::Publish);
        });
    }
}

impl CatalogActor {
    async fn publish(&self, state: &mut CatalogState) -> Result<(), TaskBroken> {
        state.due = false;
        let before = self.shown.load();
        let offers: Vec<_> = state.offers.values().cloned().collect();
        let Some(Merged {
            catalog,
            changed,
            took,
        }) = merge(before.catalog.clone(), offers).await?
        else {
            return Ok(());
        };
        state.merge = took;
        let replaced = self.shown.load().replaced.clone();
        self.shown.store(Arc::new(Shown {
            catalog,
            peers: state.peers.clone(),
            fetched: state.fetched.clone(),
            replaced: CancellationToken::new(),
        }));
        replaced.cancel();
        self.search.published();
        for (view, kind) in &changed {
            let of = |(changed, of_kind): &(CatalogView, ListKind)| match changed {
                CatalogView::One(server) if of_kind == kind => Some(server.clone()),
                CatalogView::One(_) | CatalogView::All | CatalogView::Set(_) => None,
            };
            let servers: Vec<_> = match view {
                CatalogView::One(server) => vec![server.clone()],
                CatalogView::All | CatalogView::Set(_) => changed.iter().filter_map(of).collect(),
            };
            self.directory.list_changed(view, *kind, &servers);
            if let CatalogView::One(server) = view {
                let changed = || list_changed(server, *kind);
                self.events.happened(KernelChannel::ListsChanged, changed);
            }
        }
        state.waiting.drain(..).for_each(|reply| reply.send(()));
        self.tell_withdrawn(state);
        Ok(())
    }

    fn tell_withdrawn(&self, state: &mut CatalogState) {
        let shown = self.shown.load();
        let gone = |server: &ServerId, _: &mut Reply<()>| shown.catalog.counts(server).is_none();
        let gone = state.awaited.extract_if(.., gone);
        gone.for_each(|(_, reply)| reply.send(()));
    }
}

/// A catalog made of offers.
#[derive(Debug)]
struct Merged {
    catalog: Arc<Catalog>,
    changed: Vec<(CatalogView, ListKind)>,
    took: Duration,
}

/// Takes milliseconds with thousands of tools, so it does not run on the threads that carry calls; messages wait in
/// the mailbox meanwhile. None when the kernel is ending, and nobody is shown anything any more.
async fn merge(
    before: Arc<Catalog>,
    offers: Vec<Arc<ServerOffer>>,
) -> Result<Option<Merged>, TaskBroken> {
    let merging = task::blocking("catalog.merge", move || {
        let begun = Instant::now();
        let catalog = Arc::new(before.next(&offers));
        Merged {
            changed: changes(&before, &catalog),
            catalog,
            took: begun.elapsed(),
        }
    });
    match merging.await {
        Ok(merged) => Ok(Some(merged)),
        Err(TaskBroken::Aborted) => Ok(None),
        Err(broken @ TaskBroken::Panicked { .. }) => Err(broken),
    }
}

/// What a server offers has changed.
fn list_changed(server: &ServerId, kind: ListKind) -> KernelEvent {
    let list = match kind {
        ListKind::Tools => "tools",
        ListKind::Prompts => "prompts",
        ListKind::Resources => "resources",
        ListKind::Templates => "resource_templates",
    };
    KernelEvent {
        channel: KernelChannel::ListsChanged,
        severity: Severity::Info,
        scope: EventScope::of_server(server.clone()),
        timestamp: rfc3339_ms(unix_ms()),
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

    /// A runtime that ends takes no more work for its threads.
    #[test]
    fn a_merge_at_the_end_of_the_kernel_is_no_failure() {
        let nothing = Catalog::empty(Paging {
            size: NonZeroUsize::MIN,
            key: CursorKey::new([7; 32]),
        });
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let handle = runtime.handle().clone();
        runtime.shutdown_background();
        let _entered = handle.enter();
        let merging = pin!(merge(Arc::new(nothing), Vec::new()));
        let merged = merging.poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(merged, Poll::Ready(Ok(None))));
    }
}
