//! The life of a kernel: start, supervision tree, listeners and shutdown.

mod announcement;
mod audit_log;
mod change_events;
mod components;
mod data_folder;
pub(crate) mod handover;
mod listeners;
pub(crate) mod lock;
mod machine;
mod options;
mod process_marks;
pub(crate) mod running_kernel;
mod secrets;
mod socket_users;
pub(crate) mod user_environment;
pub(crate) mod witnessed_files;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use mgp_callers::tasks::TaskRecord;
use mgp_discovery::ConfigLookup;
use mgp_doors::NodeEndpoint;
use mgp_engine::callers::seal::SealKey;
use mgp_engine::doors::agent_registry::AgentRegistry;
use mgp_engine::node_key::NodeKey;
use mgp_engine::policy::grants::Operation;
use mgp_platform::processes;
use mgp_policy::GrantStore;
use mgp_protocol::mgp::audit::Outcome;
use mgp_runtime::randomness;
use mgp_runtime::{task, time};
use mgp_servers::{Connector, GuardHandle};
use mgp_store::audit::{AuditHandle, LogFolder};
use mgp_store::{StorageHealth, Witnesses, audit};
use mgp_tools::registrar::Registrations;
use nix::sys::signal::Signal;
use ractor::SpawnErr;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{self, SignalKind};
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::cluster::{Cluster, PendingCallsAtShutdown};
use crate::config::LogFormat;
use crate::config::named_secrets::NamedSecrets;
use crate::handover::HandoverOrder;
use crate::health::telemetry::Telemetry;
use crate::health::telemetry::logs::{ExportLayer, JsonLayer, sanitized_fields};
use crate::key_rotation::KeyRotation;
use crate::supervision_tree::TreeHandle;
use crate::{cluster, config_source};
pub(crate) use options::{KernelOptions, OpenHttpListener, OpenListeners};

use announcement::RunningRecord;
use data_folder::StoredMcpl;
use handover::{Handover, HandoverReport};
use listeners::BoundListeners;
use process_marks::ProcessMarks;
use witnessed_files::WitnessReport;

/// Time for in-flight calls of a server that is stopped.
const SERVER_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The same when the kernel shuts down and no time is configured: it ends within two seconds, whatever hangs.
const SHUTDOWN_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for the last answers to callers at other nodes after the servers have stopped: one round trip.
const REMOTE_ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// Exit code of the launcher when a server cannot be started in its sandbox.
const SANDBOX_START_FAILED: u8 = 126;
/// Limit of the whole shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs a kernel until it is shut down.
///
/// # Errors
/// Describes why it could not start.
pub(crate) fn run(mut options: KernelOptions) -> Result<(), String> {
    // Children must not inherit descriptors that the parent left open.
    close_fds::set_fds_cloexec(3, &[]);
    machine::raise_file_limit();
    log_to_stderr(&options);
    machine::check_file_limit(machine::open_file_limit())?;
    machine::check_threads().map_err(|e| e.to_string())?;
    let handover = options.inherited.report.take();
    let announced = RunningRecord::acquire(&mut options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(machine::worker_threads())
        .enable_all()
        .build()
        .map_err(|e| format!("no runtime: {e}"))?;
    // Before anything in the folder is touched: a socket in use belongs to a running kernel.
    let listeners = runtime.block_on(listeners::bind_listeners(&mut options))?;
    data_folder::check_disk_space(&options.data_dir)?;
    let data_dir = &options.data_dir;
    let mut missing_files = data_folder::missing_files(&options);
    let WitnessReport {
        witnesses,
        has_accepted_grants,
        failures: missing_witnessed,
        audit_notes: notes,
    } = witnessed_files::open_and_check(data_dir)?;
    missing_files.extend(missing_witnessed);
    KeyRotation::new(data_dir).apply_at_start(
        &data_folder::grants_file(data_dir),
        &cluster::logs_folder(data_dir),
        witnesses.witness(data_folder::GRANTS_JOURNAL),
    )?;
    let process_mark = secrets::to_hex(&randomness::random_bytes::<16>());
    let marks = ProcessMarks::load_and_sweep(&options.data_dir, process_mark);
    // First: the files that the others create tell the next start that a log existed.
    let audit = audit_log::open(&options)?;
    let mut stored = StoredState {
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
        missing_files,
        handover,
        witnesses,
    };
    stored.report(&notes);
    if has_accepted_grants {
        stored.audit.record(stored.replicas.accepted_event());
    } else if stored.audit.is_enabled() {
        let log = LogFolder::new(&options.data_dir);
        stored.unaudited_decisions = stored.replicas.find_unaudited(&log)?;
    }
    if let Some(shortened) = stored.replicas.shortened_error() {
        return Err(shortened.to_string());
    }
    let outcome = runtime.block_on(serve(options, stored, listeners));
    runtime.shutdown_timeout(Duration::from_secs(1));
    match outcome {
        // The lock and the records pass on with the process.
        Ok(Some(handover)) => Err(handover.execute(announced.lock())),
        Ok(None) => Ok(()),
        Err(why) => Err(why),
    }
}

/// Checks what the listeners read, without opening them.
///
/// # Errors
/// A certificate or key that cannot be used.
pub(crate) fn check_listeners(options: &KernelOptions) -> Result<(), String> {
    listeners::open_tls(&options.loaded.kernel).map(drop)
}

/// Checks whether the data folder of a running kernel can be written, as at the start.
///
/// # Errors
/// It cannot be.
pub(crate) fn check_data_folder(data_dir: &Path) -> Result<(), String> {
    data_folder::check_disk_space(data_dir)
}

/// Runs the guard process, which ends the kernel's children when the kernel dies.
#[must_use]
pub(crate) fn run_guard() -> ExitCode {
    mgp_transports::guard::run(std::io::stdin());
    ExitCode::SUCCESS
}

/// Launches a sandboxed server; without a command, probes what this machine supports.
/// Returns when the server has ended or could not be started.
#[must_use]
pub(crate) fn run_sandbox_launcher(command: &[OsString]) -> ExitCode {
    if command.is_empty() {
        println!("{}", mgp_servers::sandbox::probe());
        return ExitCode::SUCCESS;
    }
    match mgp_platform::sandbox::launch(command) {
        Ok(code) => code.into(),
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "{why}");
            SANDBOX_START_FAILED.into()
        }
    }
}

fn log_to_stderr(options: &KernelOptions) {
    let level = options.loaded.kernel.log.level;
    // A second kernel in one process, as in a test, uses the first one's log.
    let wanted = Targets::new()
        .with_default(level)
        // Its spans would precede each line.
        .with_target("ractor", LevelFilter::OFF);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_target(false)
        .fmt_fields(sanitized_fields())
        // With a stderr that cannot be written, reporting the error would panic.
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

/// The state that earlier runs left in the data folder.
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
    /// Descriptions of files that existed before and are missing.
    missing_files: Vec<String>,
    /// How this program took over from the one before it, or begins again.
    handover: Option<HandoverReport>,
    witnesses: Witnesses,
}

impl StoredState {
    /// Reports what is missing, and records the other notes.
    fn report(&mut self, notes: &[String]) {
        let shortened = [self.registrations.loss(), self.mcpl.push.loss()];
        let shortened = shortened.into_iter().flatten().map(ToOwned::to_owned);
        self.missing_files.extend(shortened);
        for missing in &self.missing_files {
            tracing::error!("{missing}");
            self.audit.record(audit::state_damaged_event(missing));
        }
        if let Some(report) = &self.handover {
            let result = match report.failure {
                Some(_) => Outcome::Failure,
                None => Outcome::Success,
            };
            let mut details = json!({
                "from": report.from,
                "version": env!("CARGO_PKG_VERSION"),
                "program": report.program,
            });
            if let Some(why) = &report.failure {
                details["reason"] = json!(why);
            }
            self.audit
                .record(audit::kernel_upgraded_event(result, details));
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

/// Serves until the kernel ends; returns the handover if another program continues.
async fn serve(
    options: KernelOptions,
    stored: StoredState,
    mut listeners: BoundListeners,
) -> Result<Option<Handover>, String> {
    let closing = CancellationToken::new();
    listeners.issue_tokens(&options)?;
    let (audit, marks) = (stored.audit.clone(), stored.marks.clone());
    let witnesses = stored.witnesses.clone();
    let settle = {
        let data_dir = options.data_dir.clone();
        move || witnessed_files::record_all(&data_dir, &witnesses)
    };
    let started = Box::pin(components::start(&options, stored, &closing))
        .await
        .map_err(describe_spawn_error)?;
    let open = listeners.open(&options, &started, &closing).await;
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
            config_source::watch_certificates(listeners.tls()),
        ),
        task::spawn_supervised("marks.sweep", marks.clone().resweep()),
        task::spawn_supervised("timers.near", time::keep_timer_near()),
        task::spawn_supervised("memory.return", machine::return_freed_memory()),
    ];
    settle();
    let ends_with_stdin = options.stop_on_stdin_close;
    let mut signals = EndSignals::listen();
    (options.on_ready)(&open);
    signals.wait_for_shutdown(&closing, ends_with_stdin).await;
    drop((watching, started.followers, started.notices));
    let settled = async move {
        settle();
        audit.close().await;
    };
    let ending = Ending {
        tree: started.tree,
        guard: started.guard,
        connector: started.connector,
        cluster: started.cluster,
        node_endpoint: started.node_endpoint,
        telemetry: started.telemetry,
        ends_instead: CancellationToken::new(),
    };
    let order = started.handover.get();
    let time = SHUTDOWN_TIMEOUT + order.map_or(Duration::ZERO, |order| order.wait);
    tokio::select! {
        ended = tokio::time::timeout(time, ending.end(order, listeners, &options.data_dir, settled)) => {
            // After a timeout the next start looks for remaining processes.
            if ended.is_ok() {
                marks.remove_file();
            }
            let handover = ended.ok().flatten();
            handover.filter(|_| !ending.ends_instead.is_cancelled()).transpose()
        }
        () = ending.wait_for_last_signal(&mut signals, order.is_some()) => {
            Err("stopped at once, as told a second time".into())
        }
    }
}

/// What ends a kernel, once it serves no more.
struct Ending {
    tree: TreeHandle,
    guard: GuardHandle,
    connector: Arc<Connector>,
    cluster: Arc<Cluster>,
    node_endpoint: Arc<NodeEndpoint>,
    telemetry: Telemetry,
    /// A signal came while another program was to continue.
    ends_instead: CancellationToken,
}

impl Ending {
    /// Resolves at the signal that ends the kernel at once. During a handover the first one only takes the order back.
    async fn wait_for_last_signal(&self, signals: &mut EndSignals, is_handover: bool) {
        if is_handover {
            signals.wait_for_any().await;
            self.ends_instead.cancel();
        }
        // A terminal that closes may send SIGHUP more than once, so it does not count as a second signal.
        signals.wait_for_order().await;
    }

    /// Ends everything in order; returns the handover if another program continues.
    async fn end(
        &self,
        order: Option<&HandoverOrder>,
        mut listeners: BoundListeners,
        data_dir: &Path,
        settled: impl Future<Output = ()>,
    ) -> Option<Result<Handover, String>> {
        if let Some(order) = order {
            let program = order.program.path().display();
            tracing::info!(%program, "stopping, and handing over");
        } else {
            tracing::info!("stopping");
        }
        self.node_endpoint.close();
        let mut handover = None;
        if let Some(order) = order {
            // Servers go on while the doors close.
            let answered = listeners.drain();
            let drained = async { tokio::join!(answered, self.node_endpoint.drain()) };
            tokio::select! {
                drained = tokio::time::timeout(order.wait, drained) => {
                    if drained.is_err() {
                        tracing::warn!("some calls have not ended within the time: they end now");
                    }
                    handover = Some(listeners.prepare_handover(order, data_dir));
                }
                () = self.ends_instead.cancelled() => {
                    tracing::info!("stopping, without handing over");
                }
            }
        }
        let connector = &self.connector;
        connector.set_shutdown_drain_timeout(SHUTDOWN_DRAIN_TIMEOUT);
        // Peers learn that this node is leaving while its servers stop.
        tokio::join!(
            self.cluster.announce_shutdown(),
            listeners.stop_accepting(self.tree.stop_servers())
        );
        let answered =
            tokio::time::timeout(REMOTE_ANSWER_TIMEOUT, self.node_endpoint.drain()).await;
        let calls = match answered {
            Ok(true) => PendingCallsAtShutdown::AllAnswered,
            Ok(false) | Err(_) => PendingCallsAtShutdown::SomeUnanswered,
        };
        self.cluster.shutdown(calls).await;
        listeners.disconnect_all().await;
        self.telemetry.flush().await;
        self.guard.dismiss();
        settled.await;
        handover
    }
}

/// The error of the actor, without the text that ractor adds.
fn describe_spawn_error(error: SpawnErr) -> String {
    if let SpawnErr::StartupFailed(why) = error {
        return why.to_string();
    }
    error.to_string()
}

fn describe_listeners(listeners: &OpenListeners) -> Vec<String> {
    let mut out = vec![format!("socket {}", listeners.socket.display())];
    out.extend(listeners.http.as_ref().map(|http| {
        let token = http
            .token_file
            .as_ref()
            .map(|file| format!(", token in {}", file.display()))
            .unwrap_or_default();
        format!("{}{token}", http.url())
    }));
    out
}

/// The signals that end a kernel. None is lost between two waits: whatever has come is noticed by the next one.
struct EndSignals {
    interrupt: Option<unix::Signal>,
    terminate: Option<unix::Signal>,
    /// The terminal closes; `None` if the kernel was started to outlive it (`nohup`).
    hangup: Option<unix::Signal>,
}

impl EndSignals {
    fn listen() -> Self {
        let outlives_terminal = processes::ignores_signal(Signal::SIGHUP);
        let hangup = (!outlives_terminal).then(|| unix::signal(SignalKind::hangup()).ok());
        Self {
            interrupt: unix::signal(SignalKind::interrupt()).ok(),
            terminate: unix::signal(SignalKind::terminate()).ok(),
            hangup: hangup.flatten(),
        }
    }

    /// Resolves when the kernel must shut down: a signal, the operator, the parent, or the loss of a root actor.
    async fn wait_for_shutdown(&mut self, closing: &CancellationToken, ends_with_stdin: bool) {
        tokio::select! {
            () = self.wait_for_any() => closing.cancel(),
            () = wait_for_stdin_end(), if ends_with_stdin => closing.cancel(),
            () = closing.cancelled() => {}
        }
    }

    async fn wait_for_any(&mut self) {
        tokio::select! {
            () = wait_for(&mut self.interrupt) => {}
            () = wait_for(&mut self.terminate) => {}
            () = wait_for(&mut self.hangup) => {}
        }
    }

    /// SIGINT or SIGTERM.
    async fn wait_for_order(&mut self) {
        tokio::select! {
            () = wait_for(&mut self.interrupt) => {}
            () = wait_for(&mut self.terminate) => {}
        }
    }
}

async fn wait_for(signal: &mut Option<unix::Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Resolves when stdin is closed, or at once without stdin: nobody could end this kernel then.
async fn wait_for_stdin_end() {
    let pipe = std::io::stdin().as_fd().try_clone_to_owned();
    let Ok(mut pipe) = pipe.and_then(pipe::Receiver::from_owned_fd) else {
        return;
    };
    let mut ignored = [0; 64];
    // Input is ignored.
    while matches!(pipe.read(&mut ignored).await, Ok(1..)) {}
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::raise;

    use super::*;

    /// PRJ-042: also while nobody waits, as between the first signal and what ends then.
    #[tokio::test]
    async fn signal_between_two_waits_is_noticed() {
        let mut signals = EndSignals::listen();
        raise(Signal::SIGINT).unwrap();
        signals.wait_for_order().await;
        raise(Signal::SIGTERM).unwrap();
        let noticed = tokio::time::timeout(Duration::from_secs(30), signals.wait_for_any());
        assert!(noticed.await.is_ok());
    }
}
