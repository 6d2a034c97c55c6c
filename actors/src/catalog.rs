//! Publishes what all servers offer together, and tells agents when it changed.
//! Asked by: server supervisors.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::callers::tasks::{Maker, TaskRef};
use mgp_engine::clock::MonotonicTime;
use mgp_engine::policy::approvals::{ApprovalQuestion, NotTaken};
use mgp_engine::tools::catalog::{Catalog, CatalogView, ListKind, ServerOffer, changes};
use mgp_protocol::dialect::Era;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp;
use mgp_protocol::mgp::audit::{Replay, Replayed};
use mgp_protocol::mgp::permission::{Ask, Decision};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::member;
use mgp_sync::snapshot::Snapshot;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;

use crate::agent::Agent;
use crate::audit::AuditHandle;
use crate::directory::Directory;
use crate::finder::FinderHandle;
use crate::link::{Link, List, Peer, Upward};
use crate::mailbox::{AskError, Letter, Mailbox, Reply};
use crate::permissions::PermissionsHandle;
use crate::request::Answering;
use crate::server::{ServerHandle, ServerMsg};
use crate::subscriptions::SubscriptionsHandle;

/// Changes are published together when they come this close: a kernel that starts 200 servers
/// rebuilds its lists some ten times, not 200 times. Far below the 0.8 s within which a
/// list_changed must arrive.
const COALESCE: Duration = Duration::from_millis(20);

/// What is offered right now, and by whom.
#[derive(Debug)]
pub struct Shown {
    /// The merged lists and the way to each entry's server.
    pub catalog: Arc<Catalog>,
    /// What the connected servers said of themselves.
    pub peers: BTreeMap<ServerId, Peer>,
    /// When their lists were fetched.
    pub fetched: BTreeMap<ServerId, Fetched>,
}

/// When the lists of a server were fetched, in the order of [`mgp_engine::tools::catalog::ListKind`].
pub type Fetched = [MonotonicTime; 4];

/// The way in for everyone else.
#[derive(Debug, Clone)]
pub struct CatalogHandle {
    mailbox: Mailbox<CatalogMsg>,
    shown: Arc<Snapshot<Shown>>,
    directory: Arc<Directory>,
}

impl CatalogHandle {
    /// The handle of a running actor.
    #[must_use]
    pub fn new(
        mailbox: Mailbox<CatalogMsg>,
        shown: Arc<Snapshot<Shown>>,
        directory: Arc<Directory>,
    ) -> Self {
        Self {
            mailbox,
            shown,
            directory,
        }
    }

    /// A server offers this from now on. The receiver resolves when agents see it.
    pub fn offer(
        &self,
        offer: ServerOffer,
        fetched: Fetched,
        link: &Link,
    ) -> oneshot::Receiver<()> {
        let (reply, seen) = Reply::new();
        if let Some(peer) = link.peer().cloned() {
            let (offer, peer) = (Arc::new(offer), Box::new(peer));
            self.say(CatalogMsg::Offered(offer, peer, fetched, reply));
        }
        seen
    }

    /// A server offers nothing any more.
    pub fn withdraw(&self, server: &ServerId) {
        self.say(CatalogMsg::Withdrawn(server.clone()));
    }

    /// What is offered right now.
    #[must_use]
    pub fn shown(&self) -> Arc<Shown> {
        self.shown.load()
    }

    /// How a link hands on what its server says unasked.
    #[must_use]
    pub fn upward(
        &self,
        handle: Arc<ServerHandle>,
        supervisor: Mailbox<ServerMsg>,
        subscriptions: SubscriptionsHandle,
        permissions: PermissionsHandle,
        audit: AuditHandle,
    ) -> impl Upward + use<> {
        Up {
            permissions,
            handle,
            supervisor,
            subscriptions,
            directory: self.directory.clone(),
            audit,
        }
    }

    fn say(&self, message: CatalogMsg) {
        match self.mailbox.tell(message) {
            // The kernel is ending.
            Ok(()) | Err(AskError::Stopped) => {}
            Err(error) => tracing::error!(%error, "the catalog was not told of a change"),
        }
    }
}

/// What the actor is told.
#[derive(Debug)]
pub enum CatalogMsg {
    /// A server offers this. Answered when it is published.
    Offered(Arc<ServerOffer>, Box<Peer>, Fetched, Reply<()>),
    /// A server offers nothing any more.
    Withdrawn(ServerId),
    /// Time to publish what changed.
    Publish,
}

/// What never changes.
#[derive(Debug)]
pub struct CatalogActor {
    /// Where it is published.
    pub shown: Arc<Snapshot<Shown>>,
    /// Who is told.
    pub directory: Arc<Directory>,
    /// Who makes it searchable.
    pub finder: FinderHandle,
}

/// What does.
#[derive(Debug)]
pub struct CatalogState {
    me: Mailbox<CatalogMsg>,
    offers: BTreeMap<ServerId, Arc<ServerOffer>>,
    peers: BTreeMap<ServerId, Peer>,
    fetched: BTreeMap<ServerId, Fetched>,
    due: bool,
    /// Who waits for the next publication; no more than the mailbox takes until then.
    waiting: Vec<Reply<()>>,
}

impl Actor for CatalogActor {
    type Msg = Letter<CatalogMsg>;
    type State = CatalogState;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<CatalogState, ActorProcessingErr> {
        Ok(CatalogState {
            me: Mailbox::new(myself),
            offers: BTreeMap::new(),
            peers: BTreeMap::new(),
            fetched: BTreeMap::new(),
            due: false,
            waiting: Vec::new(),
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        letter: Self::Msg,
        state: &mut CatalogState,
    ) -> Result<(), ActorProcessingErr> {
        match letter.message {
            CatalogMsg::Offered(offer, peer, fetched, reply) => {
                state.fetched.insert(offer.server().clone(), fetched);
                state.waiting.push(reply);
                state.peers.insert(offer.server().clone(), *peer);
                state.offers.insert(offer.server().clone(), offer);
                state.publish_soon();
            }
            CatalogMsg::Withdrawn(server) => {
                state.peers.remove(&server);
                state.fetched.remove(&server);
                if state.offers.remove(&server).is_some() {
                    state.publish_soon();
                }
            }
            CatalogMsg::Publish => self.publish(state).await,
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
        tokio::spawn(async move {
            tokio::time::sleep(COALESCE).await;
            let _ = me.tell(CatalogMsg::Publish);
        });
    }
}

impl CatalogActor {
    async fn publish(&self, state: &mut CatalogState) {
        state.due = false;
        let before = self.shown.load();
        let offers: Vec<_> = state.offers.values().cloned().collect();
        // With thousands of tools this takes milliseconds, so it is no work for the threads that carry
        // calls; what comes meanwhile waits in the mailbox.
        let merging = tokio::task::spawn_blocking(move || {
            let catalog = Arc::new(before.catalog.next(&offers));
            let changed = changes(&before.catalog, &catalog);
            (catalog, changed)
        });
        let (catalog, changed) = merging.await.expect("merging offers does not panic");
        self.shown.store(Arc::new(Shown {
            catalog,
            peers: state.peers.clone(),
            fetched: state.fetched.clone(),
        }));
        self.finder.published();
        for (view, kind) in &changed {
            let of = |(changed, of_kind): &(CatalogView, ListKind)| match changed {
                CatalogView::One(server) if of_kind == kind => Some(server.clone()),
                CatalogView::One(_) | CatalogView::All => None,
            };
            let servers: Vec<_> = match view {
                CatalogView::One(server) => vec![server.clone()],
                CatalogView::All => changed.iter().filter_map(of).collect(),
            };
            self.directory.list_changed(view, *kind, &servers);
        }
        state.waiting.drain(..).for_each(|reply| reply.send(()));
    }
}

/// Hands on what one server says unasked.
#[derive(Debug)]
struct Up {
    handle: Arc<ServerHandle>,
    supervisor: Mailbox<ServerMsg>,
    subscriptions: SubscriptionsHandle,
    directory: Arc<Directory>,
    permissions: PermissionsHandle,
    audit: AuditHandle,
}

impl Upward for Up {
    fn reported(&self, server: &ServerId, params: Option<&str>) {
        self.audit.heard(server, params);
    }

    fn list_changed(&self, _server: &ServerId, what: List) {
        let _ = self.supervisor.tell(ServerMsg::ListChanged(what));
    }

    fn updated(&self, _server: &ServerId, uri: &str, params: &str) {
        self.subscriptions.updated(self.handle.key(), uri, params);
    }

    fn task_changed(&self, server: &ServerId, era: Era, params: &str) {
        let Some(task) = member(params, "taskId").and_then(|own| serde_json::from_str(own).ok())
        else {
            return;
        };
        let refer = |maker| TaskRef {
            server: server.clone(),
            maker,
        };
        match era {
            Era::Modern => {
                let task_ref = refer(Maker::Modern { task });
                let whose = self.handle.agent();
                self.directory.task_changed(&task_ref, params, whose);
            }
            Era::Legacy => {
                let task_ref = refer(Maker::Legacy { task });
                let whose = self.handle.agent();
                self.directory.task_status(&task_ref, params, whose);
            }
        }
    }

    fn stepped(&self, link: u64, params: &str) {
        if let Ok(step) = mcp::read(Some(params)) {
            let _ = self.supervisor.tell(ServerMsg::Said(link, step));
        }
    }

    fn logged(&self, server: &ServerId, params: &str) {
        self.directory.logged(server, params, self.handle.agent());
    }

    fn only_rooted(&self, server: &ServerId) -> Option<Arc<Agent>> {
        let mut rooted = self.directory.rooted(server, 2, self.handle.agent());
        rooted.pop().filter(|_| rooted.is_empty())
    }

    fn permission_asked(&self, server: &ServerId, ask: Ask) -> Answering<Decision> {
        let (permissions, server) = (self.permissions.clone(), server.clone());
        Box::pin(async move { permissions.asked(&server, &ask).await })
    }

    fn consented(&self, question: ApprovalQuestion) -> Answering<Result<Option<bool>, NotTaken>> {
        let approvals = self.permissions.approvals().clone();
        Box::pin(async move { approvals.yes_or_no(question).await })
    }

    fn replayed(&self, asked: Replay) -> Answering<Result<Replayed, Refusal>> {
        let (audit, may) = (self.audit.clone(), self.handle.may_audit());
        Box::pin(async move {
            match may {
                true => audit.replay(&asked).await,
                false => Err(Refusal::Forbidden(
                    "a sandboxed server does not read the audit log".into(),
                )),
            }
        })
    }

    fn unusable(&self, link: u64) {
        self.handle.retire(link);
    }

    fn broken(&self, _server: &ServerId, link: u64, why: String) {
        self.handle.retire(link);
        let _ = self.supervisor.tell(ServerMsg::Broken(link, why));
    }
}
