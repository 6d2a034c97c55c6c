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
use mgp_discovery::config::{ConfigFile, ConfigKind};
use mgp_engine::node_key::NodeKey;
use mgp_engine::policy::access::{Defaults, GrantTable};
use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_engine::servers::spec::{Reach, ServerSpec};
use mgp_engine::tools::catalog::cursor::CursorKey;
use mgp_engine::tools::catalog::{Catalog, Paging};
use mgp_kernel::config::{self, Loaded};
use mgp_kernel::source::Source;
use mgp_kernel::tree::{ServerParts, TreeActor, TreeHandle};
use mgp_policy::access::{AccessActor, AccessHandle, Books};
use mgp_policy::approvals::ApprovalsHandle;
use mgp_policy::permissions::PermissionsHandle;
use mgp_policy::pins::PinsHandle;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::access::DefaultPolicy;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::mailbox::Mailbox;
use mgp_servers::guard::{GuardActor, GuardHandle};
use mgp_servers::server::{Connector, ServerHandle, ServerMsg, ServerTable, Status};
use mgp_store::audit::AuditHandle;
use mgp_sync::Snapshot;
use mgp_tools::catalog::{CatalogActor, CatalogHandle, Shown};
use mgp_tools::finder::{Embedding, Meanings, Opening, Program};
use mgp_tools::registrar::{Ground, Names};
use mgp_tools::server_events::taken_by;
use mgp_tools::subscriptions::{SubscriptionsActor, SubscriptionsHandle};
use mgp_transports::http::{client::Client, tls::Tls};
use ractor::{Actor, ActorCell};
use tempfile::TempDir;
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

    one.tell(ServerMsg::Panic).unwrap();
    let second = connected(&one, first).await;
    assert!(!Path::new(&format!("/proc/{}", first)).exists());
    assert!(call(&one, "time", "{}").await.contains("content"));

    let done = tokio::time::timeout(DEADLINE, job).await.unwrap().unwrap();
    assert!(done.contains("content"), "{done}");
    assert_eq!(pid(&other.status()), stays);
    let status = one.status();
    assert_eq!(
        (pid(&status), status.restarts),
        (second, 0),
        "nothing of the old life reaches into the new one"
    );
    assert!(!kernel.closing.is_cancelled());
    kernel.tree.stop_servers().await;
}

/// What everybody leans on cannot be replaced: when it falls the kernel ends in good order.
#[tokio::test]
async fn a_pillar_that_falls_ends_the_kernel() {
    for fallen in 0..5 {
        let kernel = Kernel::grow(&[]).await;
        kernel.pillars[fallen].stop(Some("told to".into()));
        let closing = kernel.closing.cancelled();
        tokio::time::timeout(DEADLINE, closing).await.unwrap();
    }
}

/// What the lives of a server held is gone with them, and with the server all that is known of it: its
/// connections, its face, and every task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_taken_out_leaves_nothing() {
    let kernel = Kernel::grow(&[]).await;
    let before = alive();
    assert!(kernel.tree.plant(spec("taken")).await);
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
    let stopped = kernel.tree.uproot(ServerId::new("taken")).await.unwrap();
    stopped.await.unwrap();
    until("its last connection is gone", || last.strong_count() == 0).await;
    until("its face is gone", || face.strong_count() == 0).await;
    until("its tasks have ended", || alive() <= before).await;
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
    assert!(kernel.tree.plant(spec).await);
    let one = kernel.server("failing");
    let mut status = one.follow();
    let waits = status.wait_for(|status| status.next_try.is_some());
    tokio::time::timeout(DEADLINE, waits)
        .await
        .unwrap()
        .unwrap();
    let face = Arc::downgrade(&one);
    drop((one, status));
    let stopped = kernel.tree.uproot(ServerId::new("failing")).await.unwrap();
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

fn loaded(folder: &TempDir, servers: &[&str]) -> Loaded {
    let path = folder.path().join("mgp.toml");
    std::fs::write(&path, entries(servers)).unwrap();
    let file = ConfigFile {
        path,
        kind: ConfigKind::Override,
        present: true,
    };
    let loaded = config::read(vec![file], &|_| None);
    assert!(loaded.is_usable(), "{loaded:?}");
    loaded
}

struct Kernel {
    servers: Arc<ServerTable>,
    tree: TreeHandle,
    closing: CancellationToken,
    pillars: Vec<ActorCell>,
    _folder: TempDir,
}

impl Kernel {
    /// A tree with demo servers of these names.
    async fn grow(servers: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let loaded = loaded(&folder, servers);
        let (parts, access, pillars) = parts(folder.path()).await;
        let actor = TreeActor {
            parts,
            servers: Arc::new(ServerTable::new(BTreeMap::new())),
            source: Arc::new(Source::new(None, &loaded)),
            access,
            names: Arc::new(Names::new(BTreeSet::new())),
            closing: CancellationToken::new(),
            pillars: pillars.clone(),
        };
        Self {
            servers: actor.servers.clone(),
            closing: actor.closing.clone(),
            pillars,
            _folder: folder,
            tree: actor.grow(&loaded).await.unwrap(),
        }
    }

    fn server(&self, id: &str) -> Arc<ServerHandle> {
        self.servers.load()[&ServerId::new(id)].clone()
    }
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

/// What supervisors need, and the actors behind it.
async fn parts(folder: &Path) -> (ServerParts, AccessHandle, Vec<ActorCell>) {
    let mark = format!("test-{}", std::process::id());
    let open = Defaults {
        kernel: DefaultPolicy::OptOut,
        servers: HashMap::new(),
    };
    let books = Books::open(&folder.join("grants"), NodeKey::new(&[7; 32])).unwrap();
    let table = GrantTable::build(books.grants(), books.authority(), open, 0, 1);
    let table = Arc::new(Snapshot::new(table));
    let directory = Arc::new(Directory::new(table.clone()));
    let shown = Arc::new(Snapshot::new(Shown {
        catalog: Arc::new(Catalog::empty(Paging {
            size: NonZeroUsize::MIN,
            key: CursorKey::new([7; 32]),
        })),
        peers: BTreeMap::new(),
        fetched: BTreeMap::new(),
        replaced: CancellationToken::new(),
    }));
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
    let finder = Opening {
        shown: shown.clone(),
        table: table.clone(),
        servers: Arc::new(ServerTable::new(BTreeMap::new())),
        meanings: no_meanings(),
        file: folder.join("vectors"),
        data_dir: folder.to_path_buf(),
    };
    let (finder, finding) = finder.open().await.unwrap();
    let catalog = CatalogActor {
        shown: shown.clone(),
        directory: directory.clone(),
        finder,
    };
    let (catalog, _) = Actor::spawn(None, catalog, ()).await.unwrap();
    let (agents, _) = Actor::spawn(None, AgentsActor, ()).await.unwrap();
    let pillars = vec![
        guard.get_cell(),
        following.get_cell(),
        catalog.get_cell(),
        agents.get_cell(),
        access.get_cell(),
        finding,
    ];
    let access = AccessHandle::new(Mailbox::new(access), table, false);
    let approvals = ApprovalsHandle::new(EventSink::new(|()| ()));
    let audit = AuditHandle::off();
    let permissions = PermissionsHandle::new(approvals.clone(), access.clone(), audit.clone());
    let pins = PinsHandle::new(
        folder.join("pins"),
        approvals,
        audit,
        EventSink::new(|_| ()),
    );
    let catalog = CatalogHandle::new(Mailbox::new(catalog), shown);
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
    (parts, access, pillars)
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
