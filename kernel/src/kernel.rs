//! A whole kernel: one lock, two doors, one tree; from its start to its end.

mod announcement;
mod audit_log;
mod change_events;
mod components;
mod data_folder;
mod listeners;
pub(crate) mod lock;
mod machine;
mod options;
pub(crate) mod process;
mod process_marks;
pub(crate) mod running_kernel;
mod secrets;
mod socket_users;
pub(crate) mod user_environment;
pub(crate) mod witnessed_files;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use mgp_callers::tasks::TaskRecord;
use mgp_discovery::config::ConfigLookup;
use mgp_engine::callers::seal::SealKey;
use mgp_engine::doors::agent_registry::AgentRegistry;
use mgp_engine::node_key::NodeKey;
use mgp_engine::policy::grants::Operation;
use mgp_policy::access::GrantStore;
use mgp_runtime::randomness;
use mgp_runtime::task;
use mgp_store::audit::{self, AuditHandle, LogFolder};
use mgp_store::health::StorageHealth;
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

use crate::cluster::PendingCallsAtShutdown;
use crate::config::LogFormat;
use crate::config::named_secrets::NamedSecrets;
use crate::health::telemetry::logs::{ExportLayer, JsonLayer, sanitized_fields};
use crate::key_rotation::KeyRotation;
use crate::{cluster, config_source};
pub use options::{KernelOptions, OpenHttpListener, OpenListeners};

use announcement::RunningRecord;
use data_folder::StoredMcpl;
use listeners::BoundListeners;
use process_marks::ProcessMarks;
use witnessed_files::WitnessReport;

/// How long calls under way may take when their server is to stop.
const SERVER_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The same when the whole kernel is to end, and nobody said how long that may take: it ends within two
/// seconds, whatever hangs.
const SHUTDOWN_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the last answers may take to callers at other nodes once the servers have stopped: a way there and back.
const REMOTE_ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// The exit code of a server that could not be started in its sandbox.
const SANDBOX_START_FAILED: u8 = 126;
/// How long the end of the kernel may take in all.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs a kernel until it is told to stop.
///
/// # Errors
/// In words, why it could not start.
pub(crate) fn run(mut options: KernelOptions) -> Result<(), String> {
    // What our parent left open is none of our children's business.
    close_fds::set_fds_cloexec(3, &[]);
    machine::raise_file_limit();
    log_to_stderr(&options);
    machine::check_file_limit(machine::open_file_limit())?;
    machine::check_threads().map_err(|e| e.to_string())?;
    let announced = RunningRecord::acquire(&options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(machine::worker_threads())
        .enable_all()
        .build()
        .map_err(|e| format!("no runtime: {e}"))?;
    // Before anything of the folder is touched: a socket that is in use is that of a kernel that runs.
    let doors = runtime.block_on(listeners::bind_listeners(&mut options))?;
    data_folder::check_disk_space(&options.data_dir)?;
    let data_dir = &options.data_dir;
    let mut found = data_folder::missing_files(&options);
    let WitnessReport {
        witnesses,
        failures: faults,
        audit_notes: notes,
    } = witnessed_files::open_and_check(data_dir)?;
    found.extend(faults);
    KeyRotation::new(data_dir).apply_at_start(
        &data_folder::grants_file(data_dir),
        &cluster::logs_folder(data_dir),
        witnesses.witness(data_folder::GRANTS_JOURNAL),
    )?;
    let mark = secrets::to_hex(&randomness::random_bytes::<16>());
    let marks = ProcessMarks::load_and_sweep(&options.data_dir, mark);
    // First: what the others make is how the log's next start knows that there was one.
    let audit = audit_log::open(&options)?;
    let mut kept = StoredState {
        marks,
        mcpl: data_folder::load_mcpl(&options.data_dir, &witnesses, &audit)?,
        audit,
        seal: secrets::load_seal_key(&options.data_dir)?,
        tasks: data_folder::load_tasks(&options.data_dir)?,
        agents: data_folder::load_agents(&options.data_dir)?,
        replicas: data_folder::load_replicas(&options.data_dir, &witnesses)?,
        key: secrets::load_node_key(&options.data_dir)?,
        registrations: data_folder::load_registrations(&options.data_dir, &witnesses)?,
        unaudited_decisions: Vec::new(),
        missing_files: found,
        witnesses,
    };
    kept.report(&notes);
    if kept.audit.is_enabled() {
        let log = LogFolder::new(&options.data_dir);
        kept.unaudited_decisions = kept.replicas.find_unaudited(&log)?;
    }
    if let Some(shortened) = kept.replicas.shortened_error() {
        return Err(shortened.to_string());
    }
    let outcome = runtime.block_on(serve(options, kept, doors));
    runtime.shutdown_timeout(Duration::from_secs(1));
    drop(announced);
    outcome
}

/// The guard process: ends the kernel's children when the kernel dies.
#[must_use]
pub(crate) fn run_guard() -> ExitCode {
    mgp_transports::guard::run(std::io::stdin());
    ExitCode::SUCCESS
}

/// The launcher of a sandboxed server, or without a command the trial of what this machine can do.
/// Comes back when the server has ended, or was not started.
#[must_use]
pub(crate) fn run_sandbox_launcher(command: &[OsString]) -> ExitCode {
    if command.is_empty() {
        println!("{}", mgp_servers::sandbox::probe());
        return ExitCode::SUCCESS;
    }
    match mgp_servers::sandbox::launch(command) {
        Ok(code) => code.into(),
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "{why}");
            SANDBOX_START_FAILED.into()
        }
    }
}

fn log_to_stderr(options: &KernelOptions) {
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
        .fmt_fields(sanitized_fields())
        // It would panic on what it says of a stderr that cannot be written.
        .log_internal_errors(false);
    let (lines, json) = match options.loaded.kernel.log.format {
        LogFormat::Text => (Some(lines), None),
        LogFormat::Json => (None, Some(JsonLayer)),
    };
    let _ = tracing_subscriber::registry()
        .with(lines.with_filter(wanted.clone()))
        .with(json.with_filter(wanted.clone()))
        .with(ExportLayer.with_filter(wanted))
        .try_init();
}

/// What earlier lives left in the data folder.
struct StoredState {
    marks: ProcessMarks,
    seal: SealKey,
    tasks: Vec<TaskRecord>,
    agents: AgentRegistry,
    replicas: GrantStore,
    key: NodeKey,
    audit: AuditHandle,
    registrations: Registrations,
    mcpl: StoredMcpl,
    /// Decisions that are not in the audit log.
    unaudited_decisions: Vec<Operation>,
    /// What was there before, and is missing: in words.
    missing_files: Vec<String>,
    witnesses: Witnesses,
}

impl StoredState {
    /// Reports what is missing, and records what else was noted.
    fn report(&mut self, notes: &[String]) {
        let shortened = [self.registrations.loss(), self.mcpl.push.loss()];
        let shortened = shortened.into_iter().flatten().map(ToOwned::to_owned);
        self.missing_files.extend(shortened);
        for found in &self.missing_files {
            tracing::error!("{found}");
            self.audit.record(audit::state_damaged_event(found));
        }
        for note in notes {
            tracing::info!("{note}");
            self.audit.record(audit::state_accepted_event(note));
        }
    }

    fn storage_health(&self) -> StorageHealth {
        let books = [self.replicas.disk_health(), self.registrations.health()];
        let files = [vec![self.audit.health()], books.into()].concat();
        StorageHealth::new(files, self.missing_files.clone())
    }
}

async fn serve(
    options: KernelOptions,
    kept: StoredState,
    mut doors: BoundListeners,
) -> Result<(), String> {
    let closing = CancellationToken::new();
    doors.issue_tokens(&options)?;
    let (audit, marks) = (kept.audit.clone(), kept.marks.clone());
    let witnesses = kept.witnesses.clone();
    let settle = {
        let data_dir = options.data_dir.clone();
        move || witnessed_files::record_all(&data_dir, &witnesses)
    };
    let started = Box::pin(components::start(&options, kept, &closing))
        .await
        .map_err(describe_spawn_error)?;
    let open = doors.open(&options, &started, &closing);
    started.source.set_endpoints(describe_listeners(&open));
    let files = options.loaded.files.iter().map(|f| f.path.clone());
    let trust = options.look_up.as_ref().and_then(ConfigLookup::trust_file);
    let look_up = options.look_up.as_ref();
    let secrets = look_up.and_then(|look_up| NamedSecrets::for_look_up(look_up).file());
    let files = files.chain(trust).chain(secrets).collect();
    let tree = started.tree.clone();
    let reload = move || {
        let tree = tree.clone();
        async move { tree.reload().await }
    };
    let watching = [
        task::spawn_supervised("source.files", config_source::watch_files(files, reload)),
        task::spawn_supervised(
            "source.certificates",
            config_source::watch_certificates(doors.tls()),
        ),
        task::spawn_supervised("marks.sweep", marks.clone().resweep()),
    ];
    settle();
    let ends_with_stdin = options.stop_on_stdin_close;
    (options.on_ready)(&open);
    wait_for_shutdown(&closing, ends_with_stdin).await;
    tracing::info!("stopping");
    started
        .connector
        .set_shutdown_drain_timeout(SHUTDOWN_DRAIN_TIMEOUT);
    drop((watching, started.followers));
    started.node_endpoint.close();
    let end = async {
        // Others hear that this node says nothing more while its servers stop.
        tokio::join!(
            started.cluster.announce_shutdown(),
            doors.stop_accepting(started.tree.stop_servers())
        );
        let answered =
            tokio::time::timeout(REMOTE_ANSWER_TIMEOUT, started.node_endpoint.drain()).await;
        let calls = match answered {
            Ok(true) => PendingCallsAtShutdown::AllAnswered,
            Ok(false) | Err(_) => PendingCallsAtShutdown::SomeUnanswered,
        };
        started.cluster.shutdown(calls).await;
        doors.disconnect_all().await;
        started.telemetry.flush().await;
        started.guard.dismiss();
        settle();
        audit.close().await;
    };
    tokio::select! {
        ended = tokio::time::timeout(SHUTDOWN_TIMEOUT, end) => {
            // Who did not end in time is looked for at the next start.
            if ended.is_ok() {
                marks.remove_file();
            }
            Ok(())
        }
        () = wait_for_second_signal() => Err("stopped at once, as told a second time".into()),
    }
}

/// The words of what failed, without those of who started it.
fn describe_spawn_error(error: SpawnErr) -> String {
    if let SpawnErr::StartupFailed(why) = error {
        return why.to_string();
    }
    error.to_string()
}

fn describe_listeners(doors: &OpenListeners) -> Vec<String> {
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
async fn wait_for_shutdown(closing: &CancellationToken, ends_with_stdin: bool) {
    tokio::select! {
        () = wait_for_signal() => closing.cancel(),
        () = wait_for_hangup() => closing.cancel(),
        () = wait_for_stdin_end(), if ends_with_stdin => closing.cancel(),
        () = closing.cancelled() => {}
    }
}

/// A terminal that closes says so more than once, so only a person's word is a second one.
async fn wait_for_second_signal() {
    wait_for_signal().await;
}

async fn wait_for_signal() {
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
async fn wait_for_hangup() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if ignores_signal(&status, nix::libc::SIGHUP) {
        return std::future::pending().await;
    }
    match signal(SignalKind::hangup()) {
        Ok(mut hangup) => drop(hangup.recv().await),
        Err(_) => std::future::pending().await,
    }
}

/// Resolves when the other end of stdin is closed, or when there is none: nobody would end this kernel then.
async fn wait_for_stdin_end() {
    let pipe = std::io::stdin().as_fd().try_clone_to_owned();
    let Ok(mut pipe) = pipe.and_then(pipe::Receiver::from_owned_fd) else {
        return;
    };
    let mut said = [0; 64];
    // What may be said there is not for a kernel.
    while matches!(pipe.read(&mut said).await, Ok(1..)) {}
}

/// Whether a process with this `/proc/PID/status` ignores a signal.
fn ignores_signal(status: &str, signal: i32) -> bool {
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
        assert!(ignores_signal(status, 1) && ignores_signal(status, 13));
        assert!(!ignores_signal(status, 15) && !ignores_signal("", 1));
    }
}
