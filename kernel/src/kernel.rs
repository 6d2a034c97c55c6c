//! A whole kernel: one lock, two doors, one tree; from its start to its end.

mod announce;
mod auditing;
mod changes;
mod data_folder;
mod doors;
pub(crate) mod lock;
mod machine;
mod marks;
mod options;
mod parts;
pub(crate) mod process;
pub(crate) mod running;
mod secrets;
pub(crate) mod user_environment;
mod users;
pub(crate) mod witnessed;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use mgp_callers::tasks::TaskRecord;
use mgp_discovery::config::LookUp;
use mgp_engine::callers::seal::SealKey;
use mgp_engine::doors::agent_registry::AgentRegistry;
use mgp_engine::node_key::NodeKey;
use mgp_engine::policy::grants::Operation;
use mgp_policy::access::Books;
use mgp_runtime::randomness;
use mgp_runtime::task;
use mgp_store::audit::{self, AuditHandle, Folder};
use mgp_store::trouble::Troubles;
use mgp_store::witnesses::Witnesses;
use mgp_tools::registrar::Registrations;
use ractor::SpawnErr;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::cluster::CallsAtEnd;
use crate::config::LogFormat;
use crate::config::named_secrets::NamedSecrets;
use crate::health::telemetry::logs::{JsonLines, ToldLines, plain_fields};
use crate::renewed_key::RenewedKey;
use crate::{cluster, source};
pub use options::{OpenDoors, OpenHttpDoor, UpOptions};

use announce::Announced;
use data_folder::StoredMcpl;
use doors::Bound;
use marks::Marks;
use witnessed::FoundWitnesses;

/// How long calls under way may take when their server is to stop.
const DRAIN: Duration = Duration::from_secs(5);
/// The same when the whole kernel is to end, and nobody said how long that may take: it ends within two
/// seconds, whatever hangs.
const LAST_CALLS: Duration = Duration::from_secs(1);
/// How long the last answers may take to callers at other nodes once the servers have stopped: a way there and back.
const LAST_ANSWERS: Duration = Duration::from_millis(500);
/// The exit code of a server that could not be started in its sandbox.
const NOT_STARTED: u8 = 126;
/// How long the end of the kernel may take in all.
const FAREWELL: Duration = Duration::from_secs(20);

/// Runs a kernel until it is told to stop.
///
/// # Errors
/// In words, why it could not start.
pub fn run(mut options: UpOptions) -> Result<(), String> {
    // What our parent left open is none of our children's business.
    close_fds::set_fds_cloexec(3, &[]);
    machine::raise_file_limit();
    log_to_stderr(&options);
    machine::has_files(machine::open_files())?;
    machine::has_threads().map_err(|e| e.to_string())?;
    let announced = Announced::hold(&options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(machine::threads())
        .enable_all()
        .build()
        .map_err(|e| format!("no runtime: {e}"))?;
    // Before anything of the folder is touched: a socket that is in use is that of a kernel that runs.
    let doors = runtime.block_on(doors::bind(&mut options))?;
    data_folder::has_room(&options.data_dir)?;
    let data_dir = &options.data_dir;
    let mut found = data_folder::missing(&options);
    let FoundWitnesses {
        witnesses,
        faults,
        notes,
    } = witnessed::open(data_dir)?;
    found.extend(faults);
    RenewedKey::of(data_dir).take(
        &data_folder::grants_file(data_dir),
        &cluster::logs_folder(data_dir),
        witnesses.witness(data_folder::GRANTS),
    )?;
    let mark = secrets::hex(&randomness::bytes::<16>());
    let marks = Marks::take(&options.data_dir, mark);
    // First: what the others make is how the log's next start knows that there was one.
    let audit = auditing::open(&options)?;
    let mut kept = StoredState {
        marks,
        mcpl: data_folder::mcpl(&options.data_dir, &witnesses, &audit)?,
        audit,
        seal: secrets::seal_key(&options.data_dir)?,
        tasks: data_folder::tasks(&options.data_dir)?,
        roster: data_folder::roster(&options.data_dir)?,
        books: data_folder::books(&options.data_dir, &witnesses)?,
        key: secrets::node_key(&options.data_dir)?,
        registered: data_folder::registered(&options.data_dir, &witnesses)?,
        unaudited: Vec::new(),
        found,
        witnesses,
    };
    kept.report(&notes);
    if kept.audit.is_on() {
        let log = Folder::of(&options.data_dir);
        kept.unaudited = kept.books.unaudited(&log)?;
    }
    if let Some(shortened) = kept.books.shortened() {
        return Err(shortened.to_string());
    }
    let outcome = runtime.block_on(live(options, kept, doors));
    runtime.shutdown_timeout(Duration::from_secs(1));
    drop(announced);
    outcome
}

/// The guard process: ends the kernel's children when the kernel dies.
#[must_use]
pub fn guard() -> ExitCode {
    mgp_transports::guard::run(std::io::stdin());
    ExitCode::SUCCESS
}

/// The launcher of a sandboxed server, or without a command the trial of what this machine can do.
/// Comes back when the server has ended, or was not started.
#[must_use]
pub fn sandbox(command: &[OsString]) -> ExitCode {
    if command.is_empty() {
        println!("{}", mgp_servers::sandbox::probe());
        return ExitCode::SUCCESS;
    }
    match mgp_servers::sandbox::launch(command) {
        Ok(code) => code.into(),
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "{why}");
            NOT_STARTED.into()
        }
    }
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
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_target(false)
        .fmt_fields(plain_fields())
        // It would panic on what it says of a stderr that cannot be written.
        .log_internal_errors(false);
    let (lines, json) = match options.loaded.kernel.log.format {
        LogFormat::Text => (Some(lines), None),
        LogFormat::Json => (None, Some(JsonLines)),
    };
    let _ = tracing_subscriber::registry()
        .with(lines.with_filter(wanted.clone()))
        .with(json.with_filter(wanted.clone()))
        .with(ToldLines.with_filter(wanted))
        .try_init();
}

/// What earlier lives left in the data folder.
struct StoredState {
    marks: Marks,
    seal: SealKey,
    tasks: Vec<TaskRecord>,
    roster: AgentRegistry,
    books: Books,
    key: NodeKey,
    audit: AuditHandle,
    registered: Registrations,
    mcpl: StoredMcpl,
    /// Decisions that are not in the audit log.
    unaudited: Vec<Operation>,
    /// What was there before, and is missing: in words.
    found: Vec<String>,
    witnesses: Witnesses,
}

impl StoredState {
    /// Reports what is missing, and records what else was noted.
    fn report(&mut self, notes: &[String]) {
        let shortened = [self.registered.shortened(), self.mcpl.push.shortened()];
        let shortened = shortened.into_iter().flatten().map(ToOwned::to_owned);
        self.found.extend(shortened);
        for found in &self.found {
            tracing::error!("{found}");
            self.audit.tell(audit::state_damaged(found));
        }
        for note in notes {
            tracing::info!("{note}");
            self.audit.tell(audit::state_accepted(note));
        }
    }

    fn troubles(&self) -> Troubles {
        let books = [self.books.trouble(), self.registered.trouble()];
        let files = [vec![self.audit.trouble()], books.into()].concat();
        Troubles::new(files, self.found.clone())
    }
}

async fn live(options: UpOptions, kept: StoredState, mut doors: Bound) -> Result<(), String> {
    let closing = CancellationToken::new();
    doors.issue_tokens(&options)?;
    let (audit, marks) = (kept.audit.clone(), kept.marks.clone());
    let witnesses = kept.witnesses.clone();
    let settle = {
        let data_dir = options.data_dir.clone();
        move || witnessed::settle(&data_dir, &witnesses)
    };
    let started = Box::pin(parts::start(&options, kept, &closing))
        .await
        .map_err(not_started)?;
    let open = doors.open(&options, &started, &closing);
    started.source.set_doors(describe(&open));
    let files = options.loaded.files.iter().map(|f| f.path.clone());
    let trust = options.look_up.as_ref().and_then(LookUp::trust_file);
    let look_up = options.look_up.as_ref();
    let secrets = look_up.and_then(|look_up| NamedSecrets::of(look_up).file());
    let files = files.chain(trust).chain(secrets).collect();
    let tree = started.tree.clone();
    let reload = move || {
        let tree = tree.clone();
        async move { tree.reload().await }
    };
    let watching = [
        task::supervised("source.files", source::watch(files, reload)),
        task::supervised(
            "source.certificates",
            source::watch_certificates(doors.tls()),
        ),
        task::supervised("marks.sweep", marks.clone().look_again()),
    ];
    settle();
    let ends_with_stdin = options.ends_with_stdin;
    (options.opened)(&open);
    stopped(&closing, ends_with_stdin).await;
    tracing::info!("stopping");
    started.connector.ends_within(LAST_CALLS);
    drop((watching, started.following));
    started.node_door.close();
    let end = async {
        // Others hear that this node says nothing more while its servers stop.
        tokio::join!(
            started.cluster.retire(),
            doors.close(started.tree.stop_servers())
        );
        let answered = tokio::time::timeout(LAST_ANSWERS, started.node_door.drain()).await;
        let calls = match answered {
            Ok(true) => CallsAtEnd::Answered,
            Ok(false) | Err(_) => CallsAtEnd::Open,
        };
        started.cluster.end(calls).await;
        doors.clear().await;
        started.telemetry.end().await;
        started.guard.bye();
        settle();
        audit.close().await;
    };
    tokio::select! {
        ended = tokio::time::timeout(FAREWELL, end) => {
            // Who did not end in time is looked for at the next start.
            if ended.is_ok() {
                marks.forget();
            }
            Ok(())
        }
        () = told_again() => Err("stopped at once, as told a second time".into()),
    }
}

/// The words of what failed, without those of who started it.
fn not_started(error: SpawnErr) -> String {
    if let SpawnErr::StartupFailed(why) = error {
        return why.to_string();
    }
    error.to_string()
}

fn describe(doors: &OpenDoors) -> Vec<String> {
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

/// Resolves when the kernel is to end: a signal, the operator, who started it, or a pillar that fell.
async fn stopped(closing: &CancellationToken, ends_with_stdin: bool) {
    tokio::select! {
        () = signalled() => closing.cancel(),
        () = hung_up() => closing.cancel(),
        () = stdin_ended(), if ends_with_stdin => closing.cancel(),
        () = closing.cancelled() => {}
    }
}

/// A terminal that closes says so more than once, so only a person's word is a second one.
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

/// Resolves when the terminal is closed, for a kernel that was not started to outlive it (`nohup`).
async fn hung_up() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if ignores(&status, nix::libc::SIGHUP) {
        return std::future::pending().await;
    }
    match signal(SignalKind::hangup()) {
        Ok(mut hangup) => drop(hangup.recv().await),
        Err(_) => std::future::pending().await,
    }
}

/// Resolves when the other end of stdin is closed, or when there is none: nobody would end this kernel then.
async fn stdin_ended() {
    let pipe = std::io::stdin().as_fd().try_clone_to_owned();
    let Ok(mut pipe) = pipe.and_then(pipe::Receiver::from_owned_fd) else {
        return;
    };
    let mut said = [0; 64];
    // What may be said there is not for a kernel.
    while matches!(pipe.read(&mut said).await, Ok(1..)) {}
}

/// Whether a process with this `/proc/PID/status` ignores a signal.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or_default() & (1 << (signal - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_off_the_mask() {
        let status = "Name:\tmgp\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n";
        assert!(ignores(status, 1) && ignores(status, 13));
        assert!(!ignores(status, 15) && !ignores("", 1));
    }
}
