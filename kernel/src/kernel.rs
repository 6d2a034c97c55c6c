//! A whole kernel: one lock, two doors, one tree; from its start to its end.

mod auditing;
mod doors;
mod grown;
mod hold;
mod users;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use mgp_actors::access::Books;
use mgp_actors::audit::{AuditHandle, Folder};
use mgp_actors::registrar::Book;
use mgp_actors::tasks::Record;
use mgp_engine::grants::Operation;
use mgp_engine::roster::Roster;
use mgp_engine::seal::SealKey;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::cli::{Doors, UpOptions};
use crate::source;

/// How long calls under way may take when their server is to stop.
const DRAIN: Duration = Duration::from_secs(5);
/// The exit code of a server that could not be started in its sandbox.
const NOT_STARTED: u8 = 126;
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
        registered: hold::registered(&options.data_dir)?,
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

/// The launcher of a sandboxed server, or without a command the trial of what this machine can do.
/// Comes back when the server was not started.
#[must_use]
pub fn sandbox(command: &[OsString]) -> ExitCode {
    if command.is_empty() {
        println!("{}", mgp_actors::sandbox::probe());
        return ExitCode::SUCCESS;
    }
    eprintln!("{}", mgp_actors::sandbox::launch(command));
    NOT_STARTED.into()
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
    registered: Book,
    /// Decisions that are not in the audit log.
    unaudited: Vec<Operation>,
}

async fn live(options: UpOptions, kept: Kept) -> Result<(), String> {
    let closing = CancellationToken::new();
    let mut doors = doors::bind(&options).await?;
    let audit = kept.audit.clone();
    let grown = grown::grow(&options, kept, &closing)
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
