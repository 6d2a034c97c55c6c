//! A whole kernel: one lock, two doors, one tree; from its start to its end.

mod auditing;
mod doors;
mod hold;

use std::collections::HashMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mgp_actors::access::{AccessActor, AccessHandle, Books};
use mgp_actors::agents::{AgentsActor, Reception};
use mgp_actors::approvals::ApprovalsHandle;
use mgp_actors::audit::{AuditHandle, Folder};
use mgp_actors::belongings::Belongings;
use mgp_actors::catalog::{CatalogActor, CatalogHandle, Shown};
use mgp_actors::directory::Directory;
use mgp_actors::guard::{GuardActor, GuardHandle};
use mgp_actors::mailbox::Mailbox;
use mgp_actors::parked::ParkedCalls;
use mgp_actors::permissions::PermissionsHandle;
use mgp_actors::pins::PinsHandle;
use mgp_actors::relay::{Confirmation, Rates, Relay, SiftedLists};
use mgp_actors::request::Routes;
use mgp_actors::roster::{RosterActor, RosterHandle, Rostered};
use mgp_actors::server::{Connector, ServerTable};
use mgp_actors::stateless::Stateless;
use mgp_actors::subscriptions::{SubscriptionsActor, SubscriptionsHandle};
use mgp_actors::tasks::{Record, Tasks};
use mgp_actors::time::unix_ms;
use mgp_actors::validation::Validation;
use mgp_engine::access::{Defaults, Table as AccessTable};
use mgp_engine::catalog::{Catalog, Paging};
use mgp_engine::cursor::CursorKey;
use mgp_engine::grants::Operation;
use mgp_engine::health::HealthRules;
use mgp_engine::risk::Caution;
use mgp_engine::roster::Roster;
use mgp_engine::seal::SealKey;
use mgp_sync::Snapshot;
use mgp_transports::http::client::Client;
use mgp_transports::http::tls::Tls;
use ractor::{Actor, ActorCell};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::cli::{Doors, UpOptions};
use crate::config::KernelConfig;
use crate::operator::Operator;
use crate::pulse::Pulse;
use crate::routes::Table;
use crate::source::{self, Source};
use crate::tree::{ServerParts, TreeActor, TreeHandle};

/// How long calls under way may take when their server is to stop.
const DRAIN: Duration = Duration::from_secs(5);
/// How long the end of the kernel may take in all.
const FAREWELL: Duration = Duration::from_secs(20);

/// Runs a kernel until it is told to stop.
///
/// # Errors
/// In words, why it could not start.
pub fn run(options: UpOptions) -> Result<(), String> {
    // What our parent left open is none of our children's business.
    close_fds::set_fds_cloexec(3, &[]);
    hold::raise_file_limit();
    log_to_stderr(&options);
    let lock = hold::lock(&options.data_dir)?;
    let mut kept = Kept {
        seal: hold::seal_key(&options.data_dir)?,
        tasks: hold::tasks(&options.data_dir)?,
        roster: hold::roster(&options.data_dir)?,
        books: hold::books(&options.data_dir)?,
        audit: auditing::open(&options)?,
        unaudited: Vec::new(),
    };
    if kept.audit.is_on() {
        let log = Folder::of(&options.data_dir);
        kept.unaudited = kept.books.unaudited(&log)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(hold::threads())
        .enable_all()
        .build()
        .map_err(|e| format!("no runtime: {e}"))?;
    let outcome = runtime.block_on(live(options, kept));
    runtime.shutdown_timeout(Duration::from_secs(1));
    drop(lock);
    outcome
}

/// The guard process: ends the kernel's children when the kernel dies.
#[must_use]
pub fn guard() -> ExitCode {
    mgp_transports::guard::run(std::io::stdin());
    ExitCode::SUCCESS
}

fn log_to_stderr(options: &UpOptions) {
    let level = options.loaded.kernel.log.level;
    // A second kernel in one process, as in a test, keeps the first one's log.
    let wanted = Targets::new()
        .with_default(level)
        // Its spans would stand before each line.
        .with_target("ractor", LevelFilter::OFF);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    let _ = tracing_subscriber::registry()
        .with(lines.with_filter(wanted))
        .try_init();
}

/// What earlier lives left in the data folder.
struct Kept {
    seal: SealKey,
    tasks: Vec<Record>,
    roster: Roster,
    books: Books,
    audit: AuditHandle,
    /// Decisions that are not in the audit log.
    unaudited: Vec<Operation>,
}

async fn live(options: UpOptions, kept: Kept) -> Result<(), String> {
    let closing = CancellationToken::new();
    let mut doors = doors::bind(&options).await?;
    let audit = kept.audit.clone();
    let grown = grow(&options, kept, &closing)
        .await
        .map_err(|e| e.to_string())?;
    let open = doors.open(&options, &grown.reception, &grown.belongings, &closing);
    grown.source.set_doors(describe(&open));
    let files = options
        .loaded
        .files
        .iter()
        .map(|f| f.path.clone())
        .collect();
    let watching = [
        tokio::spawn(source::watch(files, grown.tree.clone())),
        tokio::spawn(source::watch_papers(doors.tls())),
    ];
    (options.opened)(&open);
    stopped(&closing).await;
    tracing::info!("stopping");
    watching.iter().for_each(tokio::task::JoinHandle::abort);
    let end = async {
        tokio::join!(doors.close(), grown.tree.stop_servers());
        doors.clear().await;
        grown.guard.bye();
        audit.close().await;
    };
    tokio::select! {
        _ = tokio::time::timeout(FAREWELL, end) => Ok(()),
        () = told_again() => Err("stopped at once, as told a second time".into()),
    }
}

fn describe(doors: &Doors) -> Vec<String> {
    let mut out = vec![format!("socket {}", doors.socket.display())];
    out.extend(doors.http.as_ref().map(|http| {
        let token = http
            .token_file
            .as_ref()
            .map(|file| format!(", token in {}", file.display()))
            .unwrap_or_default();
        format!("{}{token}", http.url())
    }));
    out
}

/// What a tree that has grown gives to the rest of the kernel.
struct Grown {
    tree: TreeHandle,
    guard: GuardHandle,
    reception: Reception,
    source: Arc<Source>,
    belongings: Arc<Belongings>,
}

async fn grow(
    options: &UpOptions,
    kept: Kept,
    closing: &CancellationToken,
) -> Result<Grown, ractor::SpawnErr> {
    let kernel = &options.loaded.kernel;
    let table = table(kernel, &kept.books);
    let directory = Arc::new(Directory::new(table.clone()));
    let servers = Arc::new(ServerTable::new(std::collections::BTreeMap::new()));
    let shown = Arc::new(Snapshot::new(nothing(kernel)));
    let mark = hex(&hold::random::<16>());
    let (guard, _) = Actor::spawn(None, guarding(&mark), ()).await?;
    let subscriptions = SubscriptionsActor {
        directory: directory.clone(),
        servers: Arc::new(OnceLock::from(servers.clone())),
        shown: shown.clone(),
    };
    let (subscriptions, subscriptions_cell) = {
        let (actor, _) = Actor::spawn(None, subscriptions, ()).await?;
        let cell = actor.get_cell();
        (SubscriptionsHandle::new(Mailbox::new(actor)), cell)
    };
    let access = AccessActor {
        table: table.clone(),
        directory: directory.clone(),
        subscriptions: subscriptions.clone(),
        audit: kept.audit.clone(),
    };
    let (access, _) = Actor::spawn(None, access, (kept.books, kept.unaudited)).await?;
    let (catalog, _) = Actor::spawn(None, showing(&shown, &directory), ()).await?;
    let (agents, _) = Actor::spawn(None, AgentsActor, ()).await?;
    let tasks = tasks(options, &kept.seal, kept.tasks, &directory);
    let belongings = belongings(kernel, &directory, &tasks);
    let (roster, roster_cell) = roster(options, kept.roster, &belongings).await?;
    let pillars: Vec<ActorCell> = vec![
        guard.get_cell(),
        subscriptions_cell,
        catalog.get_cell(),
        agents.get_cell(),
        access.get_cell(),
        roster_cell,
    ];
    let access = AccessHandle::new(Mailbox::new(access), table, kernel.access.reveal);
    let guard = GuardHandle::new(Mailbox::new(guard));
    let approvals = ApprovalsHandle::new(subscriptions.clone());
    let permissions = PermissionsHandle::new(approvals.clone(), access.clone(), kept.audit.clone());
    let pins = PinsHandle::new(
        options.data_dir.join("pins"),
        approvals.clone(),
        kept.audit.clone(),
        servers.clone(),
    );
    let connector = Arc::new(connector(mark, kernel.health));
    let parts = ServerParts {
        catalog: CatalogHandle::new(Mailbox::new(catalog), shown.clone(), directory.clone()),
        subscriptions: subscriptions.clone(),
        directory: directory.clone(),
        guard: guard.clone(),
        connector: connector.clone(),
        permissions: permissions.clone(),
        pins: pins.clone(),
        audit: kept.audit.clone(),
    };
    let source = Arc::new(Source::new(options.look_up.clone(), &options.loaded));
    let tree = TreeActor {
        parts,
        servers: servers.clone(),
        source: source.clone(),
        access: access.clone(),
        closing: closing.clone(),
        pillars,
    };
    let tree = tree.grow(&options.loaded).await?;
    let operator = Arc::new(Operator {
        servers: servers.clone(),
        shown: shown.clone(),
        directory: directory.clone(),
        audit: kept.audit.clone(),
        approvals: approvals.clone(),
        permissions: permissions.clone(),
        tree: tree.clone(),
        data_dir: options.data_dir.clone(),
        source: source.clone(),
        roster: roster.clone(),
        closing: closing.clone(),
    });
    let pulse = pulse(&servers, &directory, connector, closing);
    let relay = Arc::new(Relay {
        shown,
        servers,
        access,
        sifted: SiftedLists::default(),
        approvals,
        permissions: permissions.clone(),
        pins,
        subscriptions,
        directory: directory.clone(),
        agents: agents.clone(),
        tasks: tasks.clone(),
        rates: Rates::new(options.loaded.kernel.rates),
        validation: Validation::default(),
        confirmation: confirmation(kernel),
        audit: kept.audit.clone(),
        closing: closing.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
    });
    let routes: Arc<dyn Routes> = Arc::new(Table::new(relay, operator, pulse));
    let reception = Reception {
        agents,
        stateless: stateless(kept.seal, &belongings, routes.clone()),
        routes,
        rostered: roster.rostered,
        directory,
    };
    Ok(Grown {
        tree,
        guard,
        reception,
        source,
        belongings,
    })
}

fn pulse(
    servers: &Arc<ServerTable>,
    directory: &Arc<Directory>,
    connector: Arc<Connector>,
    closing: &CancellationToken,
) -> Arc<Pulse> {
    Arc::new(Pulse {
        servers: servers.clone(),
        directory: directory.clone(),
        connector,
        closing: closing.clone(),
    })
}

/// What calls are decided by before the configuration is in force.
fn table(kernel: &KernelConfig, books: &Books) -> Arc<Snapshot<AccessTable>> {
    let defaults = Defaults {
        kernel: kernel.access.default_policy,
        servers: HashMap::new(),
    };
    let (grants, authority) = (books.grants(), books.authority());
    let table = AccessTable::build(grants, authority, defaults, unix_ms(), 1);
    Arc::new(Snapshot::new(table))
}

/// How a person's yes is had.
fn confirmation(kernel: &KernelConfig) -> Confirmation {
    let asked = &kernel.confirmation;
    Confirmation {
        caution: Caution {
            confirm_moderate: asked.moderate,
        },
        patience: asked.timeout,
        operator_queue: asked.operator_queue,
    }
}

/// What is offered before any server is connected.
fn nothing(kernel: &KernelConfig) -> Shown {
    let size = kernel.lists.page_size.try_into();
    Shown {
        catalog: Arc::new(Catalog::empty(Paging {
            size: size.unwrap_or(std::num::NonZeroUsize::MIN),
            key: CursorKey::new(hold::random()),
        })),
        peers: std::collections::BTreeMap::new(),
        fetched: std::collections::BTreeMap::new(),
    }
}

fn connector(mark: String, health: HealthRules) -> Connector {
    Connector {
        client: Client::new(Tls::system()),
        version: env!("CARGO_PKG_VERSION").into(),
        mark,
        folder: hold::folder(),
        drain: DRAIN,
        hurry: OnceLock::new(),
        health,
    }
}

/// What merges what servers offer.
fn showing(shown: &Arc<Snapshot<Shown>>, directory: &Arc<Directory>) -> CatalogActor {
    CatalogActor {
        shown: shown.clone(),
        directory: directory.clone(),
    }
}

/// What ends every child when the kernel dies.
fn guarding(mark: &str) -> GuardActor {
    GuardActor {
        exe: "/proc/self/exe".into(),
        args: vec!["__guard".into()],
        mark: mark.to_owned(),
    }
}

/// Where agents have things under way.
fn belongings(
    kernel: &KernelConfig,
    directory: &Arc<Directory>,
    tasks: &Arc<Tasks>,
) -> Arc<Belongings> {
    Arc::new(Belongings {
        directory: directory.clone(),
        parked: ParkedCalls::new(kernel.questions.answer_timeout),
        tasks: tasks.clone(),
        sessions: OnceLock::new(),
    })
}

/// Who has a token, and who keeps it.
async fn roster(
    options: &UpOptions,
    before: Roster,
    belongings: &Arc<Belongings>,
) -> Result<(RosterHandle, ActorCell), ractor::SpawnErr> {
    let rostered = Rostered::new(before);
    let actor = RosterActor {
        file: hold::roster_file(&options.data_dir),
        rostered: rostered.clone(),
        belongings: belongings.clone(),
    };
    let (actor, _) = Actor::spawn(None, actor, ()).await?;
    let cell = actor.get_cell();
    Ok((RosterHandle::new(Mailbox::new(actor), rostered), cell))
}

fn tasks(
    options: &UpOptions,
    seal: &SealKey,
    before: Vec<Record>,
    directory: &Arc<Directory>,
) -> Arc<Tasks> {
    let folder = hold::tasks_folder(&options.data_dir);
    let boot = u64::from_le_bytes(hold::random());
    let patience = options.loaded.kernel.questions.answer_timeout;
    Tasks::new(
        seal.clone(),
        boot,
        patience,
        folder,
        before,
        directory.clone(),
    )
}

fn stateless(seal: SealKey, belongings: &Belongings, routes: Arc<dyn Routes>) -> Arc<Stateless> {
    let tasks = belongings.tasks.clone();
    Arc::new(Stateless {
        routes,
        parked: belongings.parked.clone(),
        seal,
        boot: tasks.boot(),
        tasks,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Resolves when the kernel is to end: a signal, the operator, or a pillar that fell.
async fn stopped(closing: &CancellationToken) {
    tokio::select! {
        () = signalled() => closing.cancel(),
        () = closing.cancelled() => {}
    }
}

async fn told_again() {
    signalled().await;
}

async fn signalled() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
