//! The agents' side of a kernel, for tests that check whether objects are freed.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use mgp_engine::callers::seal::SealKey;
use mgp_engine::doors::agent_registry::AgentRegistry;
use mgp_engine::node_key::NodeKey;
use mgp_engine::policy::access::{DefaultPolicies, GrantTable, Principal};
use mgp_engine::tools::catalog::cursor::CursorKey;
use mgp_engine::tools::catalog::{Catalog, CatalogTool, CatalogView, Paging};
use mgp_protocol::ids::AgentId;
use mgp_protocol::mgp::access::DefaultPolicy;
use mgp_protocol::refusal::Refusal;
use mgp_sync::Snapshot;
use ractor::{Actor, ActorCell};
use tempfile::TempDir;

use crate::endpoint_context::EndpointContext;
use crate::message_budgets::MessageBudgets;
use crate::stateless::Stateless;
use mgp_callers::agent::Agent;
use mgp_callers::agent::supervisor::AgentsActor;
use mgp_callers::request::suspended_calls::SuspendedCalls;
use mgp_callers::request::{AnswerFuture, Caller, Request, Routes};
use mgp_callers::tasks::Tasks;
use mgp_callers::{Directory, RegisteredAgents};
use mgp_policy::GrantStore;
use mgp_runtime::{Mailbox, TaskSupervisorHandle};
use mgp_servers::{ResourceMonitor, ServerTable};
use mgp_store::audit::AuditHandle;
use mgp_tools::{
    AuditEvents, EventsHandle, PublishedCatalog, SubscriptionsActor, SubscriptionsHandle,
};
use tokio_util::sync::CancellationToken;

/// The delay before a request that panics later.
pub(crate) const LATER: Duration = Duration::from_millis(50);

/// The agents' side of a kernel.
pub(crate) struct Scene {
    pub(crate) context: EndpointContext,
    pub(crate) routes: Arc<Slow>,
    pub(crate) subscriptions: SubscriptionsHandle,
    /// The supervisor of task followers.
    pub(crate) following: ActorCell,
    pub(crate) events: EventsHandle,
    _folder: TempDir,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let routes = Arc::new(Slow::default());
        let directory = Arc::new(Directory::new(open_to_all(&folder)));
        let subscriptions = SubscriptionsActor {
            directory: directory.clone(),
            servers: Arc::new(OnceLock::new()),
            published: Arc::new(Snapshot::new(nothing())),
        };
        let (subscriptions, _) = Actor::spawn(None, subscriptions, ()).await.unwrap();
        let servers = Arc::new(ServerTable::new(BTreeMap::new()));
        let started = EventsHandle::start(
            &directory,
            &servers,
            &AuditEvents {
                audit: AuditHandle::disabled(),
                seal: SealKey::new([7; 32]),
            },
            &ResourceMonitor::new(),
        )
        .await;
        let (events, _) = started.unwrap();
        let (agents, _) = Actor::spawn(None, AgentsActor, ()).await.unwrap();
        let (seal, boot, patience) = (SealKey::new([7; 32]), 1, Duration::from_secs(600));
        let at = folder.path().join("tasks");
        std::fs::create_dir(&at).unwrap();
        let known = directory.clone();
        let (below, following) = TaskSupervisorHandle::start().await.unwrap();
        let tasks = Tasks::new(seal.clone(), boot, patience, at, Vec::new(), known, below);
        let stateless = Stateless {
            routes: routes.clone(),
            suspended: SuspendedCalls::new(patience),
            tasks,
            seal,
            boot,
        };
        Self {
            context: EndpointContext {
                agents,
                routes: routes.clone(),
                message_budgets: MessageBudgets::new(128 << 20, 8 << 20),
                stateless: Arc::new(stateless),
                registered_agents: RegisteredAgents::new(AgentRegistry::default()),
                directory,
            },
            routes,
            subscriptions: SubscriptionsHandle::new(Mailbox::new(subscriptions)),
            following,
            events,
            _folder: folder,
        }
    }
}

fn open_to_all(folder: &TempDir) -> Arc<Snapshot<GrantTable>> {
    let open = DefaultPolicies {
        kernel: DefaultPolicy::OptOut,
        servers: HashMap::new(),
        group: None,
    };
    let books = GrantStore::open(&folder.path().join("grants"), NodeKey::new(&[7; 32])).unwrap();
    let table = GrantTable::build(books.grants(), books.authority(), open, 0, 1);
    Arc::new(Snapshot::new(table))
}

fn nothing() -> PublishedCatalog {
    PublishedCatalog {
        catalog: Arc::new(Catalog::empty(Paging {
            size: NonZeroUsize::MIN,
            key: CursorKey::new([7; 32]),
        })),
        peers: BTreeMap::new(),
        fetched: BTreeMap::new(),
        replaced: CancellationToken::new(),
    }
}

/// Answers every request but `ping` only when it is cancelled, like a slow server. A request with "panics"
/// in its params panics: "at once", or "later"; so does the disconnect handler of `agent.broken`. Records
/// callers without holding them.
#[derive(Default)]
pub(crate) struct Slow {
    pub(crate) came: Mutex<Vec<(Weak<Caller>, Weak<Agent>)>>,
}

impl Slow {
    fn record_caller(&self, caller: &Arc<Caller>) {
        let agent = caller.live_connection();
        let agent = agent.map_or_else(Weak::new, |agent| Arc::downgrade(&agent));
        self.came
            .lock()
            .unwrap()
            .push((Arc::downgrade(caller), agent));
    }
}

impl fmt::Debug for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slow")
    }
}

impl Routes for Slow {
    fn answer(&self, request: Request) -> AnswerFuture {
        if request.method == "ping" {
            return Box::pin(std::future::ready(Ok(Bytes::from_static(b"{}"))));
        }
        self.record_caller(&request.caller);
        let says = |words: &str| request.params.as_deref().is_some_and(|p| p.contains(words));
        assert!(!says("panics at once"), "as it was told to");
        let later = says("panics later");
        Box::pin(async move {
            if later {
                tokio::time::sleep(LATER).await;
                panic!("as it was told to");
            }
            request.call.wait_until_cancelled().await;
            Err(Refusal::Cancelled)
        })
    }

    fn handle_notification(&self, _caller: &Arc<Caller>, method: &str, _params: Option<&str>) {
        assert_ne!(method, "notifications/panics", "as it was told to");
    }

    fn find_tool(
        &self,
        _view: &CatalogView,
        _name: &str,
        _who: &Principal,
    ) -> Option<Arc<CatalogTool>> {
        None
    }

    fn all_tools(&self, _caller: Arc<Caller>) -> AnswerFuture<Result<Vec<Bytes>, Refusal>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn initialize(&self, caller: Arc<Caller>) -> AnswerFuture {
        self.record_caller(&caller);
        Box::pin(std::future::ready(Ok(Bytes::from_static(b"{}"))))
    }

    fn is_view_known(&self, _view: &CatalogView, _who: &Principal) -> bool {
        true
    }

    fn recheck(&self, _caller: &Caller, _method: &str, _params: &str) -> Result<(), Refusal> {
        Ok(())
    }

    fn handle_disconnect(&self, agent: &Agent) {
        let broken = AgentId::new("agent.broken");
        assert_ne!(*agent.id(), broken, "as it was told to");
    }
}
