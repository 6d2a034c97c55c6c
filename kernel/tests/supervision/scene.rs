//! A kernel without doors: its tree, with real children, and who calls them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use mgp_callers::agent::supervisor::AgentsActor;
use mgp_callers::request::suspended_calls::SuspendedCalls;
use mgp_callers::tasks::Tasks;
use mgp_callers::{Directory, InFlightCall, RegisteredAgents, ReplyPath};
use mgp_cluster::links::LinkTable;
use mgp_cluster::{PeerTools, PublishedNames};
use mgp_discovery::ConfigLookup;
use mgp_doors::Revocation;
use mgp_doors::agent_registry::{AgentRegistryActor, AgentRegistryHandle};
use mgp_engine::callers::seal::SealKey;
use mgp_engine::doors::agent_registry::AgentRegistry;
use mgp_engine::node_key::NodeKey;
use mgp_engine::policy::access::{DefaultPolicies, GrantTable, Principal};
use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_engine::servers::spec::{ServerSpec, ServerTransport};
use mgp_engine::tools::catalog::cursor::CursorKey;
use mgp_engine::tools::catalog::{Catalog, CatalogView, Paging};
use mgp_engine::tools::index::{SearchFilter, Strategy};
use mgp_kernel::config::{ClusterConfig, LoadedConfig};
use mgp_kernel::{
    Cluster, ClusterDeps, ConfigSource, RootActor, ServerDeps, TreeActor, TreeHandle, config,
};
use mgp_policy::{
    AccessActor, AccessHandle, AccessMsg, ApprovalsHandle, GrantStore, PermissionsHandle,
    PinsHandle,
};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::access::DefaultPolicy;
use mgp_protocol::refusal::Refusal;
use mgp_runtime::{EventSink, Mailbox, Queued, Reply, TaskSupervisorHandle};
use mgp_servers::{
    Connector, GuardActor, GuardHandle, ResourceMonitor, ServerHandle, ServerTable, Status,
};
use mgp_store::Witnesses;
use mgp_store::audit::AuditHandle;
use mgp_sync::Snapshot;
use mgp_tools::registrar::Names;
use mgp_tools::search::{
    Embedding, EmbeddingOptions, Program, SearchHandle, SearchOptions,
    ServerStatusFilter as SearchStatus, ToolQuery, ToolSearchResult,
};
use mgp_tools::server_events::forward_to;
use mgp_tools::{
    AuditEvents, CatalogActor, CatalogHandle, EventsHandle, PublishedCatalog, SubscriptionsActor,
    SubscriptionsHandle,
};
use mgp_transports::http::{client::Client, tls::Tls};
use ractor::{Actor, ActorRef};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long anything may take before it counts as broken.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Resolves when it is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, waiting).await;
    assert!(waited.is_ok(), "not within {DEADLINE:?}: {what}");
}

pub(crate) fn alive() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

/// A demo server's. Kernels of this process share their mark, so that no two tests name one alike.
pub(crate) fn spec(id: &str) -> ServerSpec {
    let folder = TempDir::new().unwrap();
    let mut spec = loaded(&folder, &[id]).servers.remove(0).unwrap();
    if let ServerTransport::Stdio { cwd, .. } = &mut spec.transport {
        *cwd = None;
    }
    spec
}

fn loaded(folder: &TempDir, servers: &[&str]) -> LoadedConfig {
    let path = folder.path().join("mgp.toml");
    std::fs::write(&path, entries(servers)).unwrap();
    let look_up = ConfigLookup {
        explicit: Some(path),
        ..ConfigLookup::default()
    };
    let loaded = config::load(&look_up, &|_| None, None).unwrap();
    assert!(loaded.is_usable(), "{loaded:?}");
    loaded
}

/// What access control waits for when it next publishes, if anything.
type AccessHold = Arc<Mutex<Option<Receiver<()>>>>;

fn hold_on_change(until: &AccessHold) -> EventSink<()> {
    let until = until.clone();
    EventSink::new(move |()| {
        let held = until.lock().unwrap().take();
        if let Some(held) = held {
            assert!(held.recv().is_err(), "it is dropped");
        }
    })
}

pub(crate) struct Kernel {
    pub(crate) servers: Arc<ServerTable>,
    pub(crate) tree: TreeHandle,
    pub(crate) closing: CancellationToken,
    pub(crate) root: Vec<RootActor>,
    pub(crate) access: Mailbox<AccessMsg>,
    access_hold: AccessHold,
    pub(crate) directory: Arc<Directory>,
    pub(crate) connector: Arc<Connector>,
    pub(crate) asked: Asked,
    _folder: TempDir,
}

impl Kernel {
    /// A tree with demo servers of these names.
    pub(crate) async fn grow(servers: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let loaded = loaded(&folder, servers);
        let table = Arc::new(ServerTable::new(BTreeMap::new()));
        let parts = parts(folder.path(), &table).await;
        let look_up = ConfigLookup {
            explicit: Some(folder.path().join("mgp.toml")),
            ..ConfigLookup::default()
        };
        let directory = parts.servers.directory.clone();
        let connector = parts.servers.connector.clone();
        let actor = TreeActor {
            deps: parts.servers,
            servers: table,
            source: Arc::new(ConfigSource::new(Some(look_up), &loaded)),
            access: parts.access,
            names: Arc::new(Names::new(BTreeSet::new())),
            mcpl_rules: EventSink::new(|_| ()),
            shutdown: CancellationToken::new(),
            root: parts.root.clone(),
        };
        Self {
            servers: actor.servers.clone(),
            closing: actor.shutdown.clone(),
            root: parts.root,
            access: parts.mailbox,
            access_hold: parts.access_hold,
            directory,
            connector,
            asked: parts.asked,
            _folder: folder,
            tree: actor.start(&loaded).await.unwrap(),
        }
    }

    /// Access control answers nobody until the other end of this is dropped.
    pub(crate) fn hold_access(&self, until: Receiver<()>) {
        *self.access_hold.lock().unwrap() = Some(until);
        let defaults = DefaultPolicies {
            kernel: DefaultPolicy::OptOut,
            servers: [(ServerId::new("elsewhere"), DefaultPolicy::OptIn)].into(),
            group: None,
        };
        let published = AccessMsg::SetDefaults(defaults, Reply::new().0);
        self.access.send(published).unwrap();
    }

    /// Waits until a tool of this server is found.
    pub(crate) async fn finds(&self, id: &str) {
        let finding = async {
            while self.search(id).await.unwrap().hits.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let found = tokio::time::timeout(DEADLINE, finding).await;
        assert!(found.is_ok(), "no tool of {id} is found");
    }

    /// Asks for a tool of a server.
    pub(crate) async fn search(&self, id: &str) -> Result<ToolSearchResult, Refusal> {
        let wanted = ToolQuery {
            query: "what time is it".into(),
            strategy: Strategy::Keyword,
            filter: SearchFilter::default(),
            status: SearchStatus::Connected,
            view: CatalogView::One(ServerId::new(id)),
            limit: 3,
        };
        let who = Principal::Operator("test".into());
        self.asked.search.search(&who, wanted).await
    }

    pub(crate) fn server(&self, id: &str) -> Arc<ServerHandle> {
        self.servers.load()[&ServerId::new(id)].clone()
    }
}

/// Calls that go on, one after the other.
pub(crate) struct Load {
    ended: CancellationToken,
    calls: JoinHandle<(usize, Vec<String>)>,
}

impl Load {
    pub(crate) fn begin(server: &Arc<ServerHandle>) -> Self {
        let (server, ended) = (server.clone(), CancellationToken::new());
        let told = ended.clone();
        let calls = tokio::spawn(async move {
            let (mut answered, mut failed) = (0, Vec::new());
            while !told.is_cancelled() {
                match tried(&server).await {
                    Ok(()) => answered += 1,
                    Err(why) if failed.last() == Some(&why) => tokio::task::yield_now().await,
                    Err(why) => failed.push(why),
                }
            }
            (answered, failed)
        });
        Self { ended, calls }
    }

    /// How many were answered, and why others were not.
    pub(crate) async fn end(self) -> (usize, Vec<String>) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.ended.cancel();
        self.calls.await.unwrap()
    }
}

async fn tried(server: &ServerHandle) -> Result<(), String> {
    let link = server
        .connection(None, &InFlightCall::new(ReplyPath::Discard))
        .await;
    let link = link.map_err(|refusal| refusal.to_string())?;
    let params = r#"{"name":"time","arguments":{}}"#;
    let asked = link.request("tools/call", Some(params)).await;
    asked.map(drop).map_err(|refusal| refusal.to_string())
}

fn entries(servers: &[&str]) -> String {
    let program = env!("CARGO_BIN_EXE_mgp");
    let entry = |id: &&str| {
        format!("[[servers]]\nid = {id:?}\ncommand = {program:?}\nargs = [\"__demo-server\"]\n")
    };
    servers.iter().map(entry).collect()
}

fn no_meanings() -> EmbeddingOptions {
    EmbeddingOptions {
        embedding: Embedding::Off,
        program: Program {
            exe: PathBuf::new(),
            args: Vec::new(),
            timeout: Duration::ZERO,
        },
        idle: Duration::ZERO,
        outbound: Tls::system().into(),
    }
}

struct Parts {
    servers: ServerDeps,
    access: AccessHandle,
    mailbox: Mailbox<AccessMsg>,
    access_hold: AccessHold,
    asked: Asked,
    root: Vec<RootActor>,
}

/// Actors at the root that somebody waits for.
pub(crate) struct Asked {
    pub(crate) subscriptions: SubscriptionsHandle,
    pub(crate) events: EventsHandle,
    pub(crate) access: AccessHandle,
    pub(crate) agents: AgentRegistryHandle,
    pub(crate) permissions: PermissionsHandle,
    pub(crate) search: SearchHandle,
    pub(crate) cluster: Arc<Cluster>,
    /// The supervisors of tasks, by their names at the root.
    pub(crate) tasks: HashMap<&'static str, TaskSupervisorHandle>,
}

/// The process that ends what is left over.
async fn guard(mark: &str) -> ActorRef<<GuardActor as Actor>::Msg> {
    let guard = GuardActor {
        exe: env!("CARGO_BIN_EXE_mgp").into(),
        args: vec!["__guard".into()],
        mark: mark.to_owned(),
    };
    Actor::spawn(None, guard, ()).await.unwrap().0
}

/// What the index of tools is opened with.
fn finder(
    folder: &Path,
    shown: &Arc<Snapshot<PublishedCatalog>>,
    table: &Arc<Snapshot<GrantTable>>,
    servers: &Arc<ServerTable>,
) -> SearchOptions {
    SearchOptions {
        published: shown.clone(),
        table: table.clone(),
        servers: servers.clone(),
        embedding: no_meanings(),
        file: folder.join("vectors"),
        data_dir: folder.to_path_buf(),
    }
}

/// This node's part in no cluster.
async fn cluster(
    folder: &Path,
    connector: &Connector,
    servers: Arc<ServerTable>,
    access: &AccessHandle,
    root: &mut Vec<RootActor>,
) -> Arc<Cluster> {
    let needs = ClusterDeps {
        key: NodeKey::new(&[7; 32]),
        config: &ClusterConfig::default(),
        data_dir: folder.to_path_buf(),
        connector,
        names: Arc::new(Snapshot::new(PublishedNames::default())),
        servers,
        access: access.clone(),
        audit: AuditHandle::disabled(),
        pending_changed: EventSink::new(|()| {}),
        witnesses: Witnesses::open(folder).unwrap().witnesses,
    };
    Cluster::start(needs, root).await.unwrap()
}

/// What supervisors need, and the actors behind it.
async fn parts(folder: &Path, servers: &Arc<ServerTable>) -> Parts {
    let mark = format!("test-{}", std::process::id());
    let open = DefaultPolicies {
        kernel: DefaultPolicy::OptOut,
        servers: HashMap::new(),
        group: None,
    };
    let books = GrantStore::open(&folder.join("grants"), NodeKey::new(&[7; 32])).unwrap();
    let table = GrantTable::build(books.grants(), books.authority(), open, 0, 1);
    let table = Arc::new(Snapshot::new(table));
    let directory = Arc::new(Directory::new(table.clone()));
    let shown = nothing_shown();
    let guard = guard(&mark).await;
    let subscriptions = SubscriptionsActor {
        directory: directory.clone(),
        servers: Arc::new(OnceLock::new()),
        published: shown.clone(),
    };
    let (following, _) = Actor::spawn(None, subscriptions, ()).await.unwrap();
    let subscriptions = SubscriptionsHandle::new(Mailbox::new(following.clone()));
    let (audit, figures) = (AuditHandle::disabled(), ResourceMonitor::new());
    let recorded = AuditEvents {
        audit: audit.clone(),
        seal: SealKey::new([7; 32]),
    };
    let started = EventsHandle::start(&directory, servers, &recorded, &figures).await;
    let (events, hub) = started.unwrap();
    let (access, access_hold) = start_access(&table, &directory, books).await;
    let search = finder(folder, &shown, &table, servers);
    let (search, finding) = search.open().await.unwrap();
    let merging = CatalogActor {
        published: shown.clone(),
        directory: directory.clone(),
        search: search.clone(),
        events: events.clone(),
    };
    let catalog = CatalogHandle::default();
    let cell = catalog.start(merging.clone()).await.unwrap();
    let (agents, _) = Actor::spawn(None, AgentsActor, ()).await.unwrap();
    let cluster_servers = servers.clone();
    let (again, servers, searching) = (catalog.clone(), servers.clone(), search.clone());
    let catalog_again = move || {
        let (catalog, actor, servers) = (again.clone(), merging.clone(), servers.clone());
        async move { catalog.restart(actor, &servers).await }
    };
    let finder_again = move || {
        let search = searching.clone();
        async move { search.start().await }
    };
    let mut root = vec![
        RootActor::permanent("guard", guard.get_cell()),
        RootActor::permanent("subscriptions", following.get_cell()),
        RootActor::permanent("events", hub),
        RootActor::permanent("access", access.get_cell()),
        RootActor::restartable("catalog", cell, catalog_again),
        RootActor::restartable("search", finding, finder_again),
        RootActor::permanent("agents", agents.get_cell()),
    ];
    let mailbox = Mailbox::new(access);
    let access = AccessHandle::new(mailbox.clone(), table, false);
    let tasks = task_supervisors(&mut root).await;
    let (permissions, pins) = asking(folder, &access, &tasks);
    let agents = agent_registry(folder, &directory, &tasks["tasks"], &mut root).await;
    let connector = Arc::new(connector(mark));
    let cluster = cluster(folder, &connector, cluster_servers, &access, &mut root).await;
    let asked = Asked {
        cluster,
        subscriptions: subscriptions.clone(),
        events: events.clone(),
        access: access.clone(),
        agents,
        permissions: permissions.clone(),
        search,
        tasks,
    };
    let parts = ServerDeps {
        events: forward_to(catalog.clone(), subscriptions, events),
        catalog,
        permissions,
        pins,
        directory,
        guard: GuardHandle::new(Mailbox::new(guard)),
        audit: AuditHandle::disabled(),
        connector,
    };
    Parts {
        servers: parts,
        access,
        mailbox,
        access_hold,
        asked,
        root,
    }
}

async fn start_access(
    table: &Arc<Snapshot<GrantTable>>,
    directory: &Arc<Directory>,
    books: GrantStore,
) -> (ActorRef<Queued<AccessMsg>>, AccessHold) {
    let access_hold = AccessHold::default();
    let access = AccessActor {
        table: table.clone(),
        directory: directory.clone(),
        on_change: hold_on_change(&access_hold),
        audit: AuditHandle::disabled(),
    };
    let (access, _) = Actor::spawn(None, access, (books, Vec::new()))
        .await
        .unwrap();
    (access, access_hold)
}

fn connector(mark: String) -> Connector {
    Connector {
        client: Client::new(Tls::system()),
        logins: Arc::new(mgp_servers::Logins::new(mgp_servers::LoginBackend {
            store: None,
            outbound: Tls::system().into(),
        })),
        version: "test".into(),
        mark,
        folder: std::env::temp_dir(),
        drain_timeout: Duration::from_secs(5),
        shutdown_drain_timeout: std::sync::OnceLock::new(),
        health: mgp_engine::servers::health::HealthCheckConfig::default(),
        sandboxes: mgp_servers::sandbox::Sandboxes::default(),
        spawner: mgp_servers::ProcessSpawner::default(),
        resource_usage: ResourceMonitor::new(),
        links: Arc::new(Snapshot::new(LinkTable::default())),
        peer_tools: Arc::new(Snapshot::new(PeerTools::default())),
    }
}

fn nothing_shown() -> Arc<Snapshot<PublishedCatalog>> {
    Arc::new(Snapshot::new(PublishedCatalog {
        catalog: Arc::new(Catalog::empty(Paging {
            size: NonZeroUsize::MIN,
            key: CursorKey::new([7; 32]),
        })),
        peers: BTreeMap::new(),
        fetched: BTreeMap::new(),
        replaced: CancellationToken::new(),
    }))
}

/// The actors whose tasks belong to a part of the kernel.
async fn task_supervisors(
    root: &mut Vec<RootActor>,
) -> HashMap<&'static str, TaskSupervisorHandle> {
    let mut handles = HashMap::new();
    for name in ["permissions", "pins", "registrar", "tasks"] {
        let (handle, cell) = TaskSupervisorHandle::start().await.unwrap();
        root.push(RootActor::permanent(name, cell));
        handles.insert(name, handle);
    }
    handles
}

/// What asks the operator.
fn asking(
    folder: &Path,
    access: &AccessHandle,
    tasks: &HashMap<&'static str, TaskSupervisorHandle>,
) -> (PermissionsHandle, PinsHandle) {
    let approvals = ApprovalsHandle::new(EventSink::new(|()| ()));
    let (audit, folder) = (AuditHandle::disabled(), folder.join("pins"));
    let (decided, waiting) = (EventSink::new(|_| ()), tasks["pins"].clone());
    let pins = PinsHandle::new(folder, approvals.clone(), audit.clone(), decided, waiting);
    let waiting = tasks["permissions"].clone();
    let permissions = PermissionsHandle::new(approvals, access.clone(), audit, waiting);
    (permissions, pins)
}

/// Who has a token.
async fn agent_registry(
    folder: &Path,
    directory: &Arc<Directory>,
    following: &TaskSupervisorHandle,
    root: &mut Vec<RootActor>,
) -> AgentRegistryHandle {
    let (seal, at) = (SealKey::new([7; 32]), folder.join("tasks"));
    let (below, known) = (following.clone(), directory.clone());
    let tasks = Tasks::new(seal, 1, DEADLINE, at, Vec::new(), known, below);
    let revocation = Revocation {
        directory: directory.clone(),
        suspended: SuspendedCalls::new(DEADLINE),
        tasks,
        sessions: OnceLock::new(),
    };
    let registered_agents = RegisteredAgents::new(AgentRegistry::default());
    let actor = AgentRegistryActor {
        file: folder.join("agents"),
        registered_agents: registered_agents.clone(),
        revocation: Arc::new(revocation),
        audit: AuditHandle::disabled(),
    };
    let (actor, _) = Actor::spawn(None, actor, ()).await.unwrap();
    root.push(RootActor::permanent("agent_registry", actor.get_cell()));
    AgentRegistryHandle::new(Mailbox::new(actor), registered_agents)
}

/// Waits until a server is connected in another process than `before`; gives its number.
pub(crate) async fn connected(server: &ServerHandle, before: i32) -> i32 {
    let mut status = server.watch_status();
    let there =
        |status: &Status| status.state == LifecycleState::Connected && pid(status) != before;
    let waiting = status.wait_for(there);
    let waited = tokio::time::timeout(DEADLINE, waiting).await;
    let status = waited.unwrap_or_else(|_| panic!("not connected: {:?}", server.status()));
    pid(&status.unwrap())
}

pub(crate) fn pid(status: &Status) -> i32 {
    let pid = status.pid.as_ref();
    pid.map_or(0, |pid| pid.load(Ordering::Relaxed))
}

/// Calls a tool of a server; gives the result as text.
pub(crate) async fn call(server: &ServerHandle, tool: &str, arguments: &str) -> String {
    let link = server
        .connection(None, &InFlightCall::new(ReplyPath::Discard))
        .await
        .unwrap();
    let params = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
    let result = link.request("tools/call", Some(&params)).await.unwrap();
    String::from_utf8(result.to_vec()).unwrap()
}
