//! A server as a child process: started with a clean environment, and stopped by the shutdown sequence of the MCP stdio
//! transport with all of its descendants.
//!
//! A child leads its own process group and has a mark in its environment, so that all its descendants are found, even
//! those that left the group. Its leader is not reaped before the group is gone: until then its number cannot be reused.
//!
//! A child gets exactly three descriptors: std opens every descriptor with `O_CLOEXEC`, and those that the kernel
//! inherited are marked at its start.

mod exit;
mod program;
mod spec;

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use mgp_platform::pipes;
use mgp_platform::processes::{Process, ProcessHandle, ProcessSet, is_any_alive};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpgid};
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

pub use exit::{ChildExit, ExitCause};
pub use program::SpawnError;
#[cfg(test)]
pub(crate) use spec::BASE_ENVIRONMENT;
pub use spec::{ChildSpec, Launcher};

use crate::log::{self, ServerLog};

/// How long a killed process may take to end. Only one that hangs in a system call needs it.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the rest of stderr may take, once all its writers are gone.
const STDERR_DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// How often remaining processes are checked while they end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A running server. If it is dropped before [`Child::stop`] has finished, it and all descendants are killed.
#[derive(Debug)]
pub struct Child {
    leader: Pid,
    /// Signals the leader whatever group it is in.
    handle: ProcessHandle,
    /// A launcher stays above the server and ends all of its processes on a signal.
    supervised: bool,
    processes: ProcessSet,
    process: tokio::process::Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: JoinHandle<()>,
    /// SIGCHLD: some child has ended, perhaps this one.
    child_exits: SignalStream,
    exit: Option<ChildExit>,
}

/// The program that [`spawn`] would start, and the folders of the server's `PATH`.
///
/// # Errors
/// As of [`spawn`].
pub fn find_program(spec: &ChildSpec) -> Result<(PathBuf, Vec<PathBuf>), SpawnError> {
    let environment = spec.environment(std::env::vars_os());
    let path = environment.get(OsStr::new("PATH")).map(OsString::as_os_str);
    let program = program::find(&spec.command, path, spec.cwd.as_deref())?;
    let folders = std::env::split_paths(path.unwrap_or_default());
    Ok((program, folders.filter(|f| f.is_absolute()).collect()))
}

/// Unread bytes in a pipe; 0 if the system does not report them.
#[must_use]
pub fn unread_bytes(pipe: &impl AsFd) -> u64 {
    rustix::io::ioctl_fionread(pipe).unwrap_or_default()
}

/// Starts a server; its stderr goes to `log`. Needs a tokio runtime.
///
/// # Errors
/// [`SpawnError`] names what is missing and, if possible, how to install it (CMCP-072).
pub fn spawn(spec: &ChildSpec, log: &ServerLog) -> Result<Child, SpawnError> {
    let environment = spec.environment(std::env::vars_os());
    let path = environment.get(OsStr::new("PATH")).map(OsString::as_os_str);
    let program = program::find(&spec.command, path, spec.cwd.as_deref())?;
    let failed = |error| program::explain_failure(&program, error);
    let exits = signal(SignalKind::child()).map_err(failed)?;
    let mut command = match &spec.launcher {
        None => {
            let mut command = Command::new(&program);
            command.arg0(&spec.command).env_clear().envs(&environment);
            command
        }
        Some(launcher) => {
            let mut command = Command::new(&launcher.exe);
            command
                .args(&launcher.args)
                .arg(&program)
                .arg(&spec.command);
            command
                .env_clear()
                .envs(spec.launcher_environment(launcher, &environment));
            command
        }
    };
    command.args(&spec.args).process_group(0);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(cwd) = &spec.cwd {
        command.current_dir(cwd);
    }
    let process = command.spawn().map_err(failed)?;
    Ok(Child::new(spec, process, exits, log))
}

impl Child {
    fn new(
        spec: &ChildSpec,
        mut process: tokio::process::Child,
        exits: SignalStream,
        log: &ServerLog,
    ) -> Self {
        let id = process
            .id()
            .expect("a child that was not waited for has its id");
        let leader = Pid::from_raw(id.cast_signed());
        let stderr = process.stderr.take().expect("stderr is piped");
        let child = Self {
            leader,
            handle: ProcessHandle::open(leader),
            supervised: spec.launcher.as_ref().is_some_and(|it| it.stays),
            processes: ProcessSet::for_server(leader, &spec.kernel_mark, spec.id.as_str()),
            stdin: process.stdin.take(),
            stdout: process.stdout.take(),
            stderr: tokio::spawn(log::drain(stderr, log.clone())),
            process,
            child_exits: exits,
            exit: None,
        };
        child.stdin.iter().for_each(pipes::enlarge);
        child.stdout.iter().for_each(pipes::enlarge);
        child
    }

    /// The number of the process and of its group.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.leader.as_raw()
    }

    /// The child's stdin. Close it before [`Child::stop`], which otherwise waits one `grace` in vain.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// The child's stdout. EOF arrives once everyone who inherited it has gone; see also [`Child::wait`].
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.stdout.take()
    }

    /// Waits until the process has ended. Cancel safe. [`Child::stop`] then returns how it ended, and ends remaining
    /// descendants.
    pub async fn wait(&mut self) {
        while self.exit.is_none() && self.is_running() {
            // `None` would mean that the runtime shuts down, and this task with it.
            self.child_exits.recv().await;
        }
    }

    /// Ends the server and all its descendants, and reaps it (MCP-020 to MCP-023, CMCP-073): stdin is closed; after `grace`
    /// the group gets SIGTERM; after another `grace` the group and the descendants that left it get SIGKILL. Processes that
    /// outlive the leader get SIGTERM and, after `grace`, SIGKILL.
    ///
    /// Takes at most three times `grace` and a few seconds. A second call returns the same result.
    pub async fn stop(&mut self, grace: Duration) -> ChildExit {
        if let Some(exit) = &self.exit {
            return exit.clone();
        }
        let cause = self.end_leader(grace).await;
        let is_gone = self.end_leftovers(cause, grace).await;
        let status = timeout(KILL_TIMEOUT, self.process.wait()).await;
        let status = status.ok().and_then(Result::ok);
        let exit = ChildExit {
            code: status.and_then(|s| s.code()),
            signal: status.and_then(|s| s.signal()),
            cause,
            has_leftovers: !is_gone || status.is_none(),
        };
        self.exit = Some(exit.clone());
        if timeout(STDERR_DRAIN_TIMEOUT, &mut self.stderr)
            .await
            .is_err()
        {
            self.stderr.abort();
        }
        exit
    }

    async fn end_leader(&mut self, grace: Duration) -> ExitCause {
        if !self.is_running() {
            return ExitCause::ByItself;
        }
        self.stdin = None;
        if timeout(grace, self.wait()).await.is_ok() {
            return ExitCause::StdinClosed;
        }
        self.signal_leader(Signal::SIGTERM);
        if timeout(grace, self.wait()).await.is_ok() {
            return ExitCause::Terminated;
        }
        if self.supervised {
            self.signal_leader(Signal::SIGQUIT);
            if timeout(KILL_TIMEOUT, self.wait()).await.is_ok() {
                return ExitCause::Killed;
            }
        }
        self.signal_leader(Signal::SIGKILL);
        let _ = timeout(KILL_TIMEOUT, self.wait()).await;
        ExitCause::Killed
    }

    /// Signals the group, and the leader itself if it left the group.
    fn signal_leader(&self, signal: Signal) {
        self.processes.signal_groups(signal);
        if getpgid(Some(self.leader)) != Ok(self.leader) {
            self.handle.signal(signal);
        }
    }

    /// Ends remaining processes; true if none is left.
    async fn end_leftovers(&self, cause: ExitCause, grace: Duration) -> bool {
        let gently =
            cause != ExitCause::Killed && self.signal_until_gone(Signal::SIGTERM, grace).await;
        gently || self.signal_until_gone(Signal::SIGKILL, KILL_TIMEOUT).await
    }

    /// Signals the remaining processes until none is left; false on timeout.
    async fn signal_until_gone(&self, signal: Signal, limit: Duration) -> bool {
        // Checked first, whatever the load: without a list nobody is signalled.
        let mut living = self.find_live().await;
        let ending = async {
            while !living.is_empty() {
                self.processes.signal(&living, signal);
                while is_any_left(&living).await {
                    sleep(POLL_INTERVAL).await;
                }
                living = self.find_live().await;
            }
        };
        timeout(limit, ending).await.is_ok()
    }

    /// Reads the whole process table, which takes some milliseconds: one read at a time, so that many servers that end
    /// together do not use every core.
    async fn find_live(&self) -> Vec<Process> {
        static READS: Semaphore = Semaphore::const_new(1);
        let _permit = READS.acquire().await;
        let processes = self.processes.clone();
        read_table(move || processes.find_live()).await
    }

    /// False once the leader has ended; [`Child::stop`] reaps it.
    fn is_running(&self) -> bool {
        let Some(leader) = rustix::process::Pid::from_raw(self.leader.as_raw()) else {
            return false;
        };
        let flags = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(leader), flags) {
            Ok(status) => status.is_none(),
            Err(errno) => errno == Errno::INTR,
        }
    }
}

async fn is_any_left(processes: &[Process]) -> bool {
    let processes = processes.to_vec();
    read_table(move || is_any_alive(&processes)).await
}

/// Reads the process table off the runtime's threads.
async fn read_table<T: Default + Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> T {
    let reading = tokio::task::spawn_blocking(read);
    reading.await.unwrap_or_default()
}

impl Drop for Child {
    /// Ends a child that was not stopped; tokio reaps its zombie.
    fn drop(&mut self) {
        self.stderr.abort();
        if self.exit.is_some() {
            return;
        }
        match self.supervised {
            // Killed, it could end nobody; if it hangs, the guard acts when the kernel ends.
            true => self.signal_leader(Signal::SIGQUIT),
            false => {
                self.signal_leader(Signal::SIGKILL);
                self.processes.kill();
            }
        }
    }
}

#[cfg(test)]
mod tests;
