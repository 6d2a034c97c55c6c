//! What happens when an actor fails: a tree like that of `mgp up`, with real children.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mgp_callers::agent::supervisor::AgentsActor;
use mgp_callers::directory::Directory;
use mgp_callers::exchange::{Exchange, ReplyPath};
use mgp_discovery::config::LookUp;
use mgp_engine::node_key::NodeKey;
use mgp_engine::policy::access::{Defaults, GrantTable, Principal};
use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_engine::servers::spec::{Reach, ServerSpec};
use mgp_engine::servers::tree_plan::Loss;
use mgp_engine::tools::catalog::cursor::CursorKey;
use mgp_engine::tools::catalog::{Catalog, CatalogView, Paging};
use mgp_engine::tools::index::{Filter, Strategy};
use mgp_kernel::config::{self, LoadedConfig};
use mgp_kernel::source::ConfigSource;
use mgp_kernel::tree::{ROOT, RootActor, ServerParts, TreeActor, TreeHandle};
use mgp_policy::access::{AccessActor, AccessHandle, AccessMsg, Books, Look};
use mgp_policy::approvals::ApprovalsHandle;
use mgp_policy::permissions::PermissionsHandle;
use mgp_policy::pins::PinsHandle;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::access::DefaultPolicy;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::task_supervisor::TaskSupervisorHandle;
use mgp_servers::guard::{GuardActor, GuardHandle};
use mgp_servers::server::{Connector, ServerHandle, ServerMsg, ServerTable, Status};
use mgp_store::audit::AuditHandle;
use mgp_sync::Snapshot;
use mgp_tools::catalog::{CatalogActor, CatalogHandle, Shown};
use mgp_tools::registrar::{Names, ServerTree};
use mgp_tools::search::{
    Embedding, Meanings, Program, SearchHandle, SearchOptions, ServerStatusFilter as SearchStatus,
    ToolQuery,
};
use mgp_tools::server_events::taken_by;
use mgp_tools::subscriptions::{SubscriptionsActor, SubscriptionsHandle};
use mgp_transports::http::{client::Client, tls::Tls};
use ractor::{Actor, ActorStatus};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long anything may take before it counts as broken.
const DEADLINE: Duration = Duration::from_secs(30);

/// PRJ-002: a supervisor that panics takes its own server along and is started again with it; the
/// others go on, with the same process and the call they are working on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_supervisor_that_panics_takes_nobody_else_along() {
    let kernel = Kernel::grow(&["one", "other"]).await;
    let (one, other) = (kernel.server("one"), kernel.server("other"));
    let first = connected(&one, 0).await;
    let stays = connected(&other, 0).await;
    let job = tokio::spawn({
        let other = other.clone();
        async move { call(&other, "slow_job", r#"{"steps":10,"step_ms":100}"#).await }
    });

    let load = Load::begin(&one);
    let beside = Load::begin(&other);
    one.tell(ServerMsg::Panic).unwrap();
    let second = connected(&one, first).await;
    assert!(!Path::new(&format!("/proc/{}", first)).exists());
    assert!(call(&one, "time", "{}").await.contains("content"));

    let undisturbed = beside.end().await;
    assert!(undisturbed.0 > 0 && undisturbed.1.is_empty());
    let done = tokio::time::timeout(DEADLINE, job).await.unwrap().unwrap();
    assert!(done.contains("content"), "{done}");
    assert_eq!(pid(&other.status()), stays);
    let status = one.status();
    assert_eq!(
        (pid(&status), status.restarts),
        (second, 0),
        "nothing of the old life reaches into the new one"
    );
    let (answered, failed) = load.end().await;
    println!(
        "its callers: {answered} answered, {failed:?}; those of another server: {undisturbed:?}"
    );
    assert!(answered > 0);
    assert!(!kernel.closing.is_cancelled());
    kernel.tree.stop_servers().await;
}

/// Each actor at the root is lost while calls go on: the kernel ends in good order, or it is started again
/// and nobody notices. The calls never fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_actor_at_the_root_ends_the_kernel_or_is_started_again() {
    for (at, (name, loss)) in ROOT.into_iter().enumerate() {
        let (called, later) = (format!("called{at}"), format!("later{at}"));
        let kernel = Kernel::grow(&[&called]).await;
        let one = kernel.server(&called);
        connected(&one, 0).await;
        let load = Load::begin(&one);
        let Some(lost) = kernel.root.iter().find(|actor| actor.name == name) else {
            assert!(
                ["agent_registry", "registrar"].contains(&name),
                "{name} has a part here"
            );
            continue;
        };
        lost.cell.kill();
        match loss {
            Loss::EndsKernel => {
                let closing = kernel.closing.cancelled();
                tokio::time::timeout(DEADLINE, closing).await.unwrap();
            }
            Loss::Restarted => {
                let gone = || lost.cell.get_status() == ActorStatus::Stopped;
                until("it is gone", gone).await;
                assert!(kernel.tree.start_server(spec(&later)).await);
                connected(&kernel.server(&later), 0).await;
                kernel.finds(&later).await;
                assert!(!kernel.closing.is_cancelled());
            }
        }
        let (answered, failed) = load.end().await;
        println!("{name} lost: {answered} calls answered, failed: {failed:?}");
        assert!(answered > 0 && failed.is_empty());
        kernel.tree.stop_servers().await;
    }
}

/// A panic in the catalog or in the search index takes nobody along: servers are found as before, and those
/// that come later, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_what_can_be_made_again_ends_nothing() {
    let kernel = Kernel::grow(&["stays"]).await;
    let one = kernel.server("stays");
    connected(&one, 0).await;
    kernel.finds("stays").await;
    let load = Load::begin(&one);
    let panics: [&dyn Fn(); 2] = [&|| kernel.search.panic(), &|| kernel.catalog.panic()];
    for (panic, later) in panics.iter().zip(["second", "third"]) {
        panic();
        assert!(kernel.tree.start_server(spec(later)).await);
        connected(&kernel.server(later), 0).await;
        kernel.finds(later).await;
        kernel.finds("stays").await;
    }
    let (answered, failed) = load.end().await;
    println!("{answered} calls answered meanwhile, failed: {failed:?}");
    assert!(answered > 0 && failed.is_empty() && !kernel.closing.is_cancelled());
    kernel.tree.stop_servers().await;
}

/// What the lives of a server held is gone with them, and with the server all that is known of it: its
/// connections, its face, and every task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_taken_out_leaves_nothing() {
    let kernel = Kernel::grow(&[]).await;
    let before = alive();
    assert!(kernel.tree.start_server(spec("taken")).await);
    let one = kernel.server("taken");
    let mut process = connected(&one, 0).await;
    let mut links = Vec::new();
    for _ in 0..3 {
        assert!(call(&one, "time", "{}").await.contains("content"));
        links.push(Arc::downgrade(&one.link().unwrap()));
        one.tell(ServerMsg::Restart).unwrap();
        process = connected(&one, process).await;
    }
    let held = || links.iter().filter(|link| link.strong_count() > 0).count();
    until("the connections of earlier lives are gone", || held() == 0).await;
    let last = Arc::downgrade(&one.link().unwrap());
    let face = Arc::downgrade(&one);
    drop(one);
    let stopped = kernel
        .tree
        .stop_server(ServerId::new("taken"))
        .await
        .unwrap();
    stopped.await.unwrap();
    until("its last connection is gone", || last.strong_count() == 0).await;
    until("its face is gone", || face.strong_count() == 0).await;
    until("its tasks have ended", || alive() <= before).await;
}

/// A registered server whose start fails half-way leaves nothing behind: it is not shown, and no reload
/// starts it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registered_server_that_could_not_be_started_leaves_nothing() {
    let kernel = Kernel::grow(&["beside"]).await;
    let (release, held) = std::sync::mpsc::channel::<()>();
    let look = |look: Look| kernel.access.tell(AccessMsg::Look(look));
    look(Box::new(move |_| assert!(held.recv().is_err()))).unwrap();
    while look(Box::new(|_| ())).is_ok() {}
    assert!(!kernel.tree.start_server(spec("half")).await);
    drop(release);
    let heard = || look(Box::new(|_| ())).is_ok();
    until("access control answers again", heard).await;
    let half = ServerId::new("half");
    assert!(!kernel.servers.load().contains_key(&half));
    kernel.tree.reload().await.unwrap();
    assert!(!kernel.servers.load().contains_key(&half));
    assert!(
        kernel.tree.start_server(spec("half")).await,
        "its name is free"
    );
    kernel.tree.stop_servers().await;
}

/// A server that keeps failing waits for its next try; taken out meanwhile it leaves no clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_failed_leaves_no_clock() {
    let kernel = Kernel::grow(&[]).await;
    let before = alive();
    let mut spec = spec("failing");
    spec.reach = Reach::Stdio {
        command: "/bin/false".into(),
        args: Vec::new(),
        env: BTreeMap::new(),
        inherit_env: Vec::new(),
        cwd: None,
    };
    spec.restart.backoff_base = Duration::from_secs(3600);
    spec.restart.backoff_max = Duration::from_secs(3600);
    assert!(kernel.tree.start_server(spec).await);
    let one = kernel.server("failing");
    let mut status = one.follow();
    let waits = status.wait_for(|status| status.next_try.is_some());
    tokio::time::timeout(DEADLINE, waits)
        .await
        .unwrap()
        .unwrap();
    let face = Arc::downgrade(&one);
    drop((one, status));
    let stopped = kernel
        .tree
        .stop_server(ServerId::new("failing"))
        .await
        .unwrap();
    stopped.await.unwrap();
    until("its face is gone", || face.strong_count() == 0).await;
    until("its clock has ended", || alive() <= before).await;
}

/// Resolves when it is so.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, waiting).await;
    assert!(waited.is_ok(), "not within {DEADLINE:?}: {what}");
}

fn alive() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

/// A demo server's. Kernels of this process share their mark, so that no two tests name one alike.
fn spec(id: &str) -> ServerSpec {
    let folder = TempDir::new().unwrap();
    let mut spec = loaded(&folder, &[id]).servers.remove(0).unwrap();
    if let Reach::Stdio { cwd, .. } = &mut spec.reach {
        *cwd = None;
    }
    spec
}

fn loaded(folder: &TempDir, servers: &[&str]) -> LoadedConfig {
    let path = folder.path().join("mgp.toml");
    std::fs::write(&path, entries(servers)).unwrap();
    let look_up = LookUp {
        explicit: Some(path),
        ..LookUp::default()
    };
    let loaded = config::load(&look_up, &|_| None, None).unwrap();
    assert!(loaded.is_usable(), "{loaded:?}");
    loaded
}

struct Kernel {
    servers: Arc<ServerTable>,
    tree: TreeHandle,
    closing: CancellationToken,
    root: Vec<RootActor>,
    access: Mailbox<AccessMsg>,
    catalog: CatalogHandle,
    search: SearchHandle,
    _folder: TempDir,
}

impl Kernel {
    /// A tree with demo servers of these names.
    async fn grow(servers: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let loaded = loaded(&folder, servers);
        let table = Arc::new(ServerTable::new(BTreeMap::new()));
        let parts = parts(folder.path(), &table).await;
        let catalog = parts.servers.catalog.clone();
        let look_up = LookUp {
            explicit: Some(folder.path().join("mgp.toml")),
            ..LookUp::default()
        };
        let actor = TreeActor {
            parts: parts.servers,
            servers: table,
            source: Arc::new(ConfigSource::new(Some(look_up), &loaded)),
            access: parts.access,
            names: Arc::new(Names::new(BTreeSet::new())),
            closing: CancellationToken::new(),
            root: parts.root.clone(),
        };
        Self {
            servers: actor.servers.clone(),
            closing: actor.closing.clone(),
            root: parts.root,
            access: parts.mailbox,
            catalog,
            search: parts.search,
            _folder: folder,
            tree: actor.start(&loaded).await.unwrap(),
        }
    }

    /// Waits until a tool of this server is found.
    async fn finds(&self, id: &str) {
        let finding = async {
            loop {
                let wanted = ToolQuery {
                    query: "what time is it".into(),
                    strategy: Strategy::Keyword,
                    filter: Filter::default(),
                    status: SearchStatus::Connected,
                    view: CatalogView::One(ServerId::new(id)),
                    most: 3,
                };
                let who = Principal::Operator("test".into());
                if !self
                    .search
                    .search(&who, wanted)
                    .await
                    .unwrap()
                    .hits
                    .is_empty()
                {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        let found = tokio::time::timeout(DEADLINE, finding).await;
        assert!(found.is_ok(), "no tool of {id} is found");
    }

    fn server(&self, id: &str) -> Arc<ServerHandle> {
        self.servers.load()[&ServerId::new(id)].clone()
    }
}

/// Calls that go on, one after the other.
struct Load {
    ended: CancellationToken,
    calls: JoinHandle<(usize, Vec<String>)>,
}

impl Load {
    fn begin(server: &Arc<ServerHandle>) -> Self {
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
    async fn end(self) -> (usize, Vec<String>) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.ended.cancel();
        self.calls.await.unwrap()
    }
}

async fn tried(server: &ServerHandle) -> Result<(), String> {
    let link = server.connection(&Exchange::new(ReplyPath::Nowhere)).await;
    let link = link.map_err(|refusal| refusal.to_string())?;
    let params = r#"{"name":"time","arguments":{}}"#;
    let asked = link.ask("tools/call", Some(params)).await;
    asked.map(drop).map_err(|refusal| refusal.to_string())
}

fn entries(servers: &[&str]) -> String {
    let program = env!("CARGO_BIN_EXE_mgp");
    let entry = |id: &&str| {
        format!("[[servers]]\nid = {id:?}\ncommand = {program:?}\nargs = [\"__demo-server\"]\n")
    };
    servers.iter().map(entry).collect()
}

fn no_meanings() -> Meanings {
    Meanings {
        embedding: Embedding::Off,
        program: Program {
            exe: PathBuf::new(),
            args: Vec::new(),
            patience: Duration::ZERO,
        },
        idle: Duration::ZERO,
    }
}

struct Parts {
    servers: ServerParts,
    access: AccessHandle,
    mailbox: Mailbox<AccessMsg>,
    search: SearchHandle,
    root: Vec<RootActor>,
}

/// What supervisors need, and the actors behind it.
async fn parts(folder: &Path, servers: &Arc<ServerTable>) -> Parts {
    let mark = format!("test-{}", std::process::id());
    let open = Defaults {
        kernel: DefaultPolicy::OptOut,
        servers: HashMap::new(),
    };
    let books = Books::open(&folder.join("grants"), NodeKey::new(&[7; 32])).unwrap();
    let table = GrantTable::build(books.grants(), books.authority(), open, 0, 1);
    let table = Arc::new(Snapshot::new(table));
    let directory = Arc::new(Directory::new(table.clone()));
    let shown = nothing_shown();
    let guard = GuardActor {
        exe: env!("CARGO_BIN_EXE_mgp").into(),
        args: vec!["__guard".into()],
        mark: mark.clone(),
    };
    let (guard, _) = Actor::spawn(None, guard, ()).await.unwrap();
    let subscriptions = SubscriptionsActor {
        directory: directory.clone(),
        servers: Arc::new(OnceLock::new()),
        shown: shown.clone(),
    };
    let (following, _) = Actor::spawn(None, subscriptions, ()).await.unwrap();
    let subscriptions = SubscriptionsHandle::new(Mailbox::new(following.clone()));
    let access = AccessActor {
        table: table.clone(),
        directory: directory.clone(),
        changed: EventSink::new(|()| ()),
        audit: AuditHandle::off(),
    };
    let (access, _) = Actor::spawn(None, access, (books, Vec::new()))
        .await
        .unwrap();
    let search = SearchOptions {
        shown: shown.clone(),
        table: table.clone(),
        servers: servers.clone(),
        meanings: no_meanings(),
        file: folder.join("vectors"),
        data_dir: folder.to_path_buf(),
    };
    let (search, finding) = search.open().await.unwrap();
    let merging = CatalogActor {
        shown: shown.clone(),
        directory: directory.clone(),
        search: search.clone(),
    };
    let catalog = CatalogHandle::new(shown);
    let cell = catalog.start(merging.clone()).await.unwrap();
    let (agents, _) = Actor::spawn(None, AgentsActor, ()).await.unwrap();
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
        RootActor::lasting("guard", guard.get_cell()),
        RootActor::lasting("subscriptions", following.get_cell()),
        RootActor::lasting("access", access.get_cell()),
        RootActor::restarted("catalog", cell, catalog_again),
        RootActor::restarted("search", finding, finder_again),
        RootActor::lasting("agents", agents.get_cell()),
    ];
    let mailbox = Mailbox::new(access);
    let access = AccessHandle::new(mailbox.clone(), table, false);
    let (permissions, pins) = asking(folder, &access, &mut root).await;
    let parts = ServerParts {
        events: taken_by(catalog.clone(), subscriptions),
        catalog,
        permissions,
        pins,
        directory,
        guard: GuardHandle::new(Mailbox::new(guard)),
        audit: AuditHandle::off(),
        connector: Arc::new(Connector {
            client: Client::new(Tls::system()),
            version: "test".into(),
            mark,
            folder: std::env::temp_dir(),
            drain: Duration::from_secs(5),
            hurry: std::sync::OnceLock::new(),
            health: mgp_engine::servers::health::HealthRules::default(),
            sandboxes: mgp_servers::sandbox::Sandboxes::default(),
            starts: mgp_servers::server::Starts::default(),
        }),
    };
    Parts {
        servers: parts,
        access,
        mailbox,
        search,
        root,
    }
}

fn nothing_shown() -> Arc<Snapshot<Shown>> {
    Arc::new(Snapshot::new(Shown {
        catalog: Arc::new(Catalog::empty(Paging {
            size: NonZeroUsize::MIN,
            key: CursorKey::new([7; 32]),
        })),
        peers: BTreeMap::new(),
        fetched: BTreeMap::new(),
        replaced: CancellationToken::new(),
    }))
}

/// What asks the operator, and the actors behind it.
async fn asking(
    folder: &Path,
    access: &AccessHandle,
    root: &mut Vec<RootActor>,
) -> (PermissionsHandle, PinsHandle) {
    let (for_permissions, permissions_cell) = TaskSupervisorHandle::start().await.unwrap();
    let (for_pins, pins_cell) = TaskSupervisorHandle::start().await.unwrap();
    root.push(RootActor::lasting("permissions", permissions_cell));
    root.push(RootActor::lasting("pins", pins_cell));
    let approvals = ApprovalsHandle::new(EventSink::new(|()| ()));
    let (audit, folder) = (AuditHandle::off(), folder.join("pins"));
    let decided = EventSink::new(|_| ());
    let pins = PinsHandle::new(folder, approvals.clone(), audit.clone(), decided, for_pins);
    let permissions = PermissionsHandle::new(approvals, access.clone(), audit, for_permissions);
    (permissions, pins)
}

/// Waits until a server is connected in another process than `before`; gives its number.
async fn connected(server: &ServerHandle, before: i32) -> i32 {
    let mut status = server.follow();
    let there =
        |status: &Status| status.state == LifecycleState::Connected && pid(status) != before;
    let waiting = status.wait_for(there);
    let waited = tokio::time::timeout(DEADLINE, waiting).await;
    let status = waited.unwrap_or_else(|_| panic!("not connected: {:?}", server.status()));
    pid(&status.unwrap())
}

fn pid(status: &Status) -> i32 {
    let pid = status.pid.as_ref();
    pid.map_or(0, |pid| pid.load(Ordering::Relaxed))
}

/// Calls a tool of a server; gives the result as text.
async fn call(server: &ServerHandle, tool: &str, arguments: &str) -> String {
    let link = server
        .connection(&Exchange::new(ReplyPath::Nowhere))
        .await
        .unwrap();
    let params = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
    let result = link.ask("tools/call", Some(&params)).await.unwrap();
    String::from_utf8(result.to_vec()).unwrap()
}
