//! Starts a kernel in the background: runs this program again, and waits until it answers.

mod kernel_log;

use std::env;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mgp_platform::processes::{ProcessIdentity, ProcessState};
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::{KernelStatus, Stop};
use mgp_runtime::time::unix_ms;
use mgp_store::explain_io_error;
use rustix::fs::statvfs;
use serde_json::json;

use super::context::CliContext;
use super::observer::PROGRESS_DELAY;
use super::progress::ProgressLine;
use super::socket::ConnectRetries;
use crate::cli::failure::{Failure, KernelAbsence};
use crate::config;
use crate::kernel::running_kernel::RunningKernel;
use crate::kernel::user_environment;
use crate::paths::ensure_private_folder;
use kernel_log::KernelLog;

/// Limit for the kernel's first answer. Its servers start after that.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two attempts.
const POLL_INTERVAL: Duration = Duration::from_millis(30);

/// How long to wait for the servers of a new kernel.
const SERVERS_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit for a started kernel to open its socket.
const SOCKET_OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts a kernel in the background and waits until it answers.
pub(in crate::cli) fn start_kernel(context: &CliContext) -> Result<KernelStatus, Failure> {
    let deadline = Instant::now() + START_TIMEOUT;
    let kernel = config::load(&context.look_up, &|_| None, None).map(|loaded| loaded.kernel);
    let folder = context.data_dir(&kernel.unwrap_or_default())?;
    ensure_private_folder(&folder)?;
    let mut progress = ProgressLine::new("starting the kernel");
    let mut polling = Polling::with_deadline(deadline, &mut progress);
    // Two clients that start at once must not start two kernels.
    let _start_lock = acquire_start_lock(&folder, &mut polling)?;
    if let Some(status) = context.status()? {
        return Ok(status);
    }
    wait_for_release(context);
    if let Some(running) = context.find_running() {
        return wait_for_running(context, &running, &mut polling);
    }
    let mut log = KernelLog::open(&folder)
        .map_err(|e| Failure::Other(explain_io_error(&folder.join("kernel.log"), &e)))?;
    let mut child = spawn_kernel(context, &log)?;
    loop {
        if let Some(status) = context.status()? {
            // The kernel has no terminal, by which it would recognize this as the user's environment.
            user_environment::store(&folder);
            return Ok(status);
        }
        if let Some(exit) = child.try_wait()? {
            // A client with another environment may have been first.
            return match context.find_running() {
                Some(running) => wait_for_running(context, &running, &mut polling),
                None => Err(start_failure(exit, &mut log, &folder)),
            };
        }
        if !polling.wait() {
            return Err(start_timeout_failure(&mut child, &folder));
        }
    }
}

/// Shuts the running kernel down, and waits until it has ended.
pub(in crate::cli) fn stop_kernel(
    context: &CliContext,
    running: &KernelStatus,
) -> Result<(), Failure> {
    let process = ProcessIdentity::from_pid(running.pid.cast_signed());
    context.with_kernel(async |client| client.request(Stop::METHOD, &json!({}), &mut ()).await)?;
    let mut progress = ProgressLine::new("stopping the kernel");
    let mut polling = Polling::with_deadline(Instant::now() + START_TIMEOUT, &mut progress);
    // It stops answering before its servers have stopped: only the end of the process counts.
    while process.state() != ProcessState::Exited {
        if !polling.wait() {
            return Err(still_running_failure(&process));
        }
    }
    Ok(())
}

fn still_running_failure(process: &ProcessIdentity) -> Failure {
    let (pid, secs) = (process.pid(), START_TIMEOUT.as_secs());
    Failure::Other(match process.state() {
        ProcessState::Stopped => {
            format!("the kernel (process {pid}) does not end; it is stopped: kill -CONT {pid}")
        }
        ProcessState::Running | ProcessState::Exited => {
            format!("the kernel (process {pid}) is still there after {secs} s")
        }
    })
}

/// The status of the program that takes over from a kernel within `wait`, once it answers; `None` if it has ended.
pub(in crate::cli) fn wait_for_next_kernel(
    context: &CliContext,
    wait: Duration,
) -> Result<Option<KernelStatus>, Failure> {
    let deadline = Instant::now() + wait + START_TIMEOUT;
    let mut progress = ProgressLine::new("waiting for calls under way, and for the start");
    let mut polling = Polling::with_deadline(deadline, &mut progress);
    loop {
        match context.status() {
            // Connections wait at the socket, which passes on.
            Err(Failure::Other(_) | Failure::ConnectionClosed) if polling.wait() => {}
            answered => return answered,
        }
    }
}

/// Waits until no server is in one of these states.
pub(in crate::cli) fn wait_until_no_server_in(context: &CliContext, states: &[&str]) {
    let mut progress = ProgressLine::new("waiting for the servers");
    let mut polling = Polling::with_deadline(Instant::now() + SERVERS_TIMEOUT, &mut progress);
    let starting = |status: KernelStatus| {
        let mut servers = status.servers.iter();
        servers.any(|server| !server.sleeping && states.contains(&server.state.as_str()))
    };
    while context
        .status()
        .is_ok_and(|status| status.is_some_and(starting))
        && polling.wait()
    {}
}

/// The status of a kernel that another process has started, once it answers. Does not wait for one that listens
/// elsewhere than named.
fn wait_for_running(
    context: &CliContext,
    running: &RunningKernel,
    polling: &mut Polling<'_>,
) -> Result<KernelStatus, Failure> {
    let opening =
        || unix_ms() / 1000 <= running.since.saturating_add(SOCKET_OPEN_TIMEOUT.as_secs());
    while running.socket == context.socket() && opening() {
        if let Some(status) = context.status()? {
            return Ok(status);
        }
        polling.wait();
    }
    Err(Failure::NotRunning(KernelAbsence::NotListening(
        context.socket(),
    )))
}

/// Waits a moment for a dying kernel, which accepts no connections but may still hold its folder. If it holds it
/// longer, the new kernel reports that.
fn wait_for_release(context: &CliContext) {
    let mut retries = ConnectRetries::new();
    while context.data_dir_holder().is_some() && retries.next_attempt() {
        sleep(ConnectRetries::RETRY_INTERVAL);
    }
}

/// The kernel's last output before it ended, or a description of the exit.
fn start_failure(exit: ExitStatus, log: &mut KernelLog, folder: &Path) -> Failure {
    let said = log.tail().unwrap_or_default();
    let told = match (said.trim_end(), is_disk_full(folder)) {
        ("", true) => format!(
            " and wrote nothing to {}: the disk is full; free some space there",
            folder.join("kernel.log").display()
        ),
        ("", false) => format!(
            " and wrote nothing to {}; `mgp up` without --detach shows what it says",
            folder.join("kernel.log").display()
        ),
        (said, _) => format!(":\n{said}"),
    };
    Failure::Other(format!("the kernel did not start ({exit}){told}"))
}

/// Whether the disk of a folder has no free block.
fn is_disk_full(folder: &Path) -> bool {
    statvfs(folder).is_ok_and(|disk| disk.f_bavail == 0)
}

fn start_timeout_failure(child: &mut Child, folder: &Path) -> Failure {
    // It may be stuck; it must not remain unnoticed.
    let _ = child.kill();
    let _ = child.wait();
    let log = folder.join("kernel.log");
    let secs = START_TIMEOUT.as_secs();
    Failure::Other(format!(
        "the kernel gave no answer within {secs} s; see {}",
        log.display()
    ))
}

/// Short sleeps until a deadline, with progress after the delay.
struct Polling<'p> {
    deadline: Instant,
    progress_at: Option<Instant>,
    progress: &'p mut ProgressLine,
}

impl<'p> Polling<'p> {
    fn with_deadline(deadline: Instant, progress: &'p mut ProgressLine) -> Self {
        let progress_at = Some(Instant::now() + PROGRESS_DELAY);
        Self {
            deadline,
            progress_at,
            progress,
        }
    }

    /// False once the deadline has passed.
    fn wait(&mut self) -> bool {
        if self.progress_at.is_some_and(|late| Instant::now() >= late) {
            self.progress_at = None;
            self.progress.show();
        }
        sleep(POLL_INTERVAL);
        Instant::now() < self.deadline
    }
}

fn acquire_start_lock(folder: &Path, polling: &mut Polling<'_>) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(folder.join("start.lock"))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(e)) => return Err(e.into()),
            Err(TryLockError::WouldBlock) if polling.wait() => {}
            Err(TryLockError::WouldBlock) => {
                let message = "another `mgp` has been starting the kernel for too long";
                return Err(Failure::Other(message.into()));
            }
        }
    }
}

/// Its own session separates the kernel from the terminal: from Ctrl-C, and from its end.
fn spawn_kernel(context: &CliContext, log: &KernelLog) -> io::Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["up", "--own-session"]).stdin(Stdio::null());
    command.stdout(log.output()?).stderr(log.output()?);
    for (option, path) in context.named_path_options() {
        command.arg(option).arg(path);
    }
    command.spawn()
}
