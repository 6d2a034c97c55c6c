//! `mgp up --detach`: this program again, in the background, until its kernel answers.

use std::env;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::{KernelStatus, Status, Stop};
use mgp_runtime::time::unix_ms;
use mgp_store::trouble::explained;
use nix::sys::statvfs::statvfs;
use serde_json::json;

use super::client::{LATE, Looks, Opening, read};
use super::context::Context;
use super::failure::{Absence, Failure};
use super::log::KernelLog;
use super::output::say;
use super::progress::Progress;
use super::words::plain;
use crate::config;
use crate::paths::private_folder;
use crate::process::{Process, Standing};
use crate::record::Record;

/// How long a kernel may take to answer. Its servers start after that.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two looks.
const PACE: Duration = Duration::from_millis(30);

/// Starts the kernel unless one runs.
pub(super) fn up(context: &Context) -> Result<(), Failure> {
    let status = match status(context)? {
        Some(status) => status,
        None => {
            context.tell_untrusted();
            start(context)?
        }
    };
    match context.json {
        true => say(serde_json::to_string(&status).expect("a status is always JSON")),
        false => {
            let pid = status.pid;
            say(format_args!(
                "the kernel is up (process {pid}; `mgp down` ends it)"
            ))
        }
    }
}

/// Ends the running kernel, and waits until it is gone.
pub(super) fn down(context: &Context) -> Result<(), Failure> {
    let Some(running) = status(context)? else {
        return Err(Failure::NotRunning(Absence::At(context.socket())));
    };
    let process = Process::of(running.pid.cast_signed());
    context.with_kernel(Opening::default(), async |client| {
        client.request(Stop::METHOD, &json!({}), &mut ()).await
    })?;
    let mut progress = Progress::of("stopping the kernel");
    let mut wait = Wait::until(Instant::now() + PATIENCE, &mut progress);
    // It stops answering before its servers have stopped; what counts is its end.
    while process.standing() != Standing::Gone {
        if !wait.a_little() {
            return Err(still_there(&process));
        }
    }
    match context.json {
        true => say(json!({ "stopped": running.pid })),
        false => say(format_args!(
            "the kernel (process {}) has stopped",
            running.pid
        )),
    }
}

fn still_there(process: &Process) -> Failure {
    let (pid, secs) = (process.pid(), PATIENCE.as_secs());
    Failure::Other(match process.standing() {
        Standing::Stopped => {
            format!("the kernel (process {pid}) does not end; it is stopped: kill -CONT {pid}")
        }
        Standing::Runs | Standing::Gone => {
            format!("the kernel (process {pid}) is still there after {secs} s")
        }
    })
}

/// How long the servers of a new kernel are waited for.
const FIRST_SERVERS: Duration = Duration::from_secs(10);

/// Waits until no server is in one of these states.
pub(super) fn wait_while(context: &Context, states: &[&str]) {
    let mut progress = Progress::of("waiting for the servers");
    let mut wait = Wait::until(Instant::now() + FIRST_SERVERS, &mut progress);
    let starting = |status: KernelStatus| {
        let mut servers = status.servers.iter();
        servers.any(|server| states.contains(&server.state.as_str()))
    };
    while status(context).is_ok_and(|status| status.is_some_and(starting)) && wait.a_little() {}
}

/// The running kernel's status; `None` when none runs.
pub(super) fn status(context: &Context) -> Result<Option<KernelStatus>, Failure> {
    let asked = context.with_kernel(Opening::default(), async |client| {
        read(&client.request(Status::METHOD, &json!({}), &mut ()).await?)
    });
    match asked {
        Ok(status) => Ok(Some(status)),
        Err(Failure::NotRunning(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Starts a kernel in the background and waits until it answers.
pub(super) fn start(context: &Context) -> Result<KernelStatus, Failure> {
    let deadline = Instant::now() + PATIENCE;
    let kernel = config::load(&context.look_up, &|_| None, None).map(|loaded| loaded.kernel);
    let folder = context.data_dir(&kernel.unwrap_or_default())?;
    private_folder(&folder)?;
    let mut progress = Progress::of("starting the kernel");
    let mut wait = Wait::until(deadline, &mut progress);
    // Two clients that start at once must not start two kernels.
    let _turn = take_turn(&folder, &mut wait)?;
    if let Some(status) = status(context)? {
        return Ok(status);
    }
    released(context);
    if let Some(running) = context.running() {
        return awaited(context, &running, &mut wait);
    }
    let mut log = KernelLog::open(&folder)
        .map_err(|e| Failure::Other(explained(&folder.join("kernel.log"), &e)))?;
    let mut child = spawn(context, &log)?;
    loop {
        if let Some(status) = status(context)? {
            return Ok(status);
        }
        if let Some(exit) = child.try_wait()? {
            // Somebody with another environment may have been first.
            return match context.running() {
                Some(running) => awaited(context, &running, &mut wait),
                None => Err(did_not_start(exit, &mut log, &folder)),
            };
        }
        if !wait.a_little() {
            return Err(given_up(&mut child, &folder));
        }
    }
}

/// How long after its start a kernel may take to open its socket.
const OPENING: Duration = Duration::from_secs(5);

/// The status of a kernel that somebody else has started, once it answers. One that listens elsewhere
/// than was named is not waited for.
fn awaited(
    context: &Context,
    running: &Record,
    wait: &mut Wait<'_>,
) -> Result<KernelStatus, Failure> {
    let opening = || unix_ms() / 1000 <= running.since.saturating_add(OPENING.as_secs());
    while running.socket == context.socket() && opening() {
        if let Some(status) = status(context)? {
            return Ok(status);
        }
        wait.a_little();
    }
    Err(Failure::NotRunning(Absence::At(context.socket())))
}

/// Waits a little for a kernel that dies: it takes no connections any more, and may still hold its
/// folder. Who holds it longer is told of by the one that is started.
fn released(context: &Context) {
    let mut looks = Looks::new();
    while context.holder().is_some() && looks.again() {
        sleep(Looks::PACE);
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
    Failure::Other(plain(&format!("the kernel did not start ({exit}){told}")))
}

/// Whether the disk of a folder takes not even a block more.
fn is_full(folder: &Path) -> bool {
    statvfs(folder).is_ok_and(|disk| disk.blocks_available() == 0)
}

fn given_up(child: &mut Child, folder: &Path) -> Failure {
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
struct Wait<'p> {
    deadline: Instant,
    late: Option<Instant>,
    progress: &'p mut Progress,
}

impl<'p> Wait<'p> {
    fn until(deadline: Instant, progress: &'p mut Progress) -> Self {
        let late = Some(Instant::now() + LATE);
        Self {
            deadline,
            late,
            progress,
        }
    }

    /// False once the deadline has passed.
    fn a_little(&mut self) -> bool {
        if self.late.is_some_and(|late| Instant::now() >= late) {
            self.late = None;
            self.progress.appear();
        }
        sleep(PACE);
        Instant::now() < self.deadline
    }
}

fn take_turn(folder: &Path, wait: &mut Wait<'_>) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(folder.join("start.lock"))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(e)) => return Err(e.into()),
            Err(TryLockError::WouldBlock) if wait.a_little() => {}
            Err(TryLockError::WouldBlock) => {
                let message = "another `mgp` has been starting the kernel for too long";
                return Err(Failure::Other(message.into()));
            }
        }
    }
}

/// A session of its own keeps the terminal away from the kernel: its Ctrl-C, and its end.
fn spawn(context: &Context, log: &KernelLog) -> io::Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["up", "--own-session"]).stdin(Stdio::null());
    command.stdout(log.output()?).stderr(log.output()?);
    let mut option = |name: &str, path: Option<&Path>| {
        if let Some(path) = path {
            command.arg(name).arg(path);
        }
    };
    option("--config", context.look_up.explicit.as_deref());
    option("--socket", context.named_socket.as_deref());
    option("--data-dir", context.named_data_dir.as_deref());
    command.spawn()
}
