//! A kernel in the background: this program again, until its kernel answers.

mod kernel_log;

use std::env;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::{KernelStatus, Stop};
use mgp_runtime::time::unix_ms;
use mgp_store::trouble::explained;
use nix::sys::statvfs::statvfs;
use serde_json::json;

use super::context::CliContext;
use super::observer::LATE;
use super::progress::ProgressLine;
use super::socket::ConnectRetries;
use crate::cli::failure::{Absence, Failure};
use crate::config;
use crate::kernel::process::{ProcessIdentity, ProcessState};
use crate::kernel::running::RunningKernel;
use crate::kernel::user_environment;
use crate::paths::private_folder;
use kernel_log::KernelLog;

/// How long a kernel may take to answer. Its servers start after that.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two looks.
const PACE: Duration = Duration::from_millis(30);

/// How long the servers of a new kernel are waited for.
const FIRST_SERVERS: Duration = Duration::from_secs(10);
/// How long after its start a kernel may take to open its socket.
const OPENING: Duration = Duration::from_secs(5);

/// Starts a kernel in the background and waits until it answers.
pub(in crate::cli) fn start(context: &CliContext) -> Result<KernelStatus, Failure> {
    let deadline = Instant::now() + PATIENCE;
    let kernel = config::load(&context.look_up, &|_| None, None).map(|loaded| loaded.kernel);
    let folder = context.data_dir(&kernel.unwrap_or_default())?;
    private_folder(&folder)?;
    let mut progress = ProgressLine::of("starting the kernel");
    let mut polling = Polling::until(deadline, &mut progress);
    // Two clients that start at once must not start two kernels.
    let _turn = start_lock(&folder, &mut polling)?;
    if let Some(status) = context.status()? {
        return Ok(status);
    }
    wait_for_release(context);
    if let Some(running) = context.running() {
        return wait_for_other(context, &running, &mut polling);
    }
    let mut log = KernelLog::open(&folder)
        .map_err(|e| Failure::Other(explained(&folder.join("kernel.log"), &e)))?;
    let mut child = spawn(context, &log)?;
    loop {
        if let Some(status) = context.status()? {
            // The kernel has no terminal, by which it would know this to be the user's environment.
            user_environment::store(&folder);
            return Ok(status);
        }
        if let Some(exit) = child.try_wait()? {
            // Somebody with another environment may have been first.
            return match context.running() {
                Some(running) => wait_for_other(context, &running, &mut polling),
                None => Err(did_not_start(exit, &mut log, &folder)),
            };
        }
        if !polling.pause() {
            return Err(timed_out(&mut child, &folder));
        }
    }
}

/// Has the running kernel end, and waits until it is gone.
pub(in crate::cli) fn stop(context: &CliContext, running: &KernelStatus) -> Result<(), Failure> {
    let process = ProcessIdentity::of(running.pid.cast_signed());
    context.with_kernel(async |client| client.request(Stop::METHOD, &json!({}), &mut ()).await)?;
    let mut progress = ProgressLine::of("stopping the kernel");
    let mut polling = Polling::until(Instant::now() + PATIENCE, &mut progress);
    // It stops answering before its servers have stopped; what counts is its end.
    while process.state() != ProcessState::Gone {
        if !polling.pause() {
            return Err(still_there(&process));
        }
    }
    Ok(())
}

fn still_there(process: &ProcessIdentity) -> Failure {
    let (pid, secs) = (process.pid(), PATIENCE.as_secs());
    Failure::Other(match process.state() {
        ProcessState::Stopped => {
            format!("the kernel (process {pid}) does not end; it is stopped: kill -CONT {pid}")
        }
        ProcessState::Runs | ProcessState::Gone => {
            format!("the kernel (process {pid}) is still there after {secs} s")
        }
    })
}

/// Waits until no server is in one of these states.
pub(in crate::cli) fn wait_while(context: &CliContext, states: &[&str]) {
    let mut progress = ProgressLine::of("waiting for the servers");
    let mut polling = Polling::until(Instant::now() + FIRST_SERVERS, &mut progress);
    let starting = |status: KernelStatus| {
        let mut servers = status.servers.iter();
        servers.any(|server| states.contains(&server.state.as_str()))
    };
    while context
        .status()
        .is_ok_and(|status| status.is_some_and(starting))
        && polling.pause()
    {}
}

/// The status of a kernel that somebody else has started, once it answers. One that listens elsewhere
/// than was named is not waited for.
fn wait_for_other(
    context: &CliContext,
    running: &RunningKernel,
    polling: &mut Polling<'_>,
) -> Result<KernelStatus, Failure> {
    let opening = || unix_ms() / 1000 <= running.since.saturating_add(OPENING.as_secs());
    while running.socket == context.socket() && opening() {
        if let Some(status) = context.status()? {
            return Ok(status);
        }
        polling.pause();
    }
    Err(Failure::NotRunning(Absence::At(context.socket())))
}

/// Waits a little for a kernel that dies: it takes no connections any more, and may still hold its
/// folder. Who holds it longer is told of by the one that is started.
fn wait_for_release(context: &CliContext) {
    let mut retries = ConnectRetries::new();
    while context.holder().is_some() && retries.again() {
        sleep(ConnectRetries::PACE);
    }
}

/// What the kernel wrote before it ended; where it wrote nothing, what can be said without it.
fn did_not_start(exit: ExitStatus, log: &mut KernelLog, folder: &Path) -> Failure {
    let said = log.tail().unwrap_or_default();
    let told = match (said.trim_end(), is_full(folder)) {
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

/// Whether the disk of a folder takes not even a block more.
fn is_full(folder: &Path) -> bool {
    statvfs(folder).is_ok_and(|disk| disk.blocks_available() == 0)
}

fn timed_out(child: &mut Child, folder: &Path) -> Failure {
    // It may be past saving; what matters is that it does not stay behind unseen.
    let _ = child.kill();
    let _ = child.wait();
    let log = folder.join("kernel.log");
    let secs = PATIENCE.as_secs();
    Failure::Other(format!(
        "the kernel gave no answer within {secs} s; see {}",
        log.display()
    ))
}

/// Short sleeps up to a deadline, with progress once it is late.
struct Polling<'p> {
    deadline: Instant,
    late: Option<Instant>,
    progress: &'p mut ProgressLine,
}

impl<'p> Polling<'p> {
    fn until(deadline: Instant, progress: &'p mut ProgressLine) -> Self {
        let late = Some(Instant::now() + LATE);
        Self {
            deadline,
            late,
            progress,
        }
    }

    /// False once the deadline has passed.
    fn pause(&mut self) -> bool {
        if self.late.is_some_and(|late| Instant::now() >= late) {
            self.late = None;
            self.progress.appear();
        }
        sleep(PACE);
        Instant::now() < self.deadline
    }
}

fn start_lock(folder: &Path, polling: &mut Polling<'_>) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(folder.join("start.lock"))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(e)) => return Err(e.into()),
            Err(TryLockError::WouldBlock) if polling.pause() => {}
            Err(TryLockError::WouldBlock) => {
                let message = "another `mgp` has been starting the kernel for too long";
                return Err(Failure::Other(message.into()));
            }
        }
    }
}

/// A session of its own keeps the terminal away from the kernel: its Ctrl-C, and its end.
fn spawn(context: &CliContext, log: &KernelLog) -> io::Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["up", "--own-session"]).stdin(Stdio::null());
    command.stdout(log.output()?).stderr(log.output()?);
    for (option, path) in context.named_paths() {
        command.arg(option).arg(path);
    }
    command.spawn()
}
