//! A server as a child process: started clean, stopped by the ladder of the MCP stdio transport,
//! never left behind.
//!
//! A child leads its own process group and carries a mark in its environment, so that whatever it
//! starts is found again, even what left the group. Its leader is not reaped before the group is
//! gone: until then its number cannot be given to a stranger.
//!
//! A child gets three descriptors and no other: std opens every descriptor with `O_CLOEXEC`, and
//! those the kernel was itself started with are marked at its start.

pub mod descendants;
mod exit;
mod program;
mod spec;
mod usage;

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgid};
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

pub use exit::{ChildExit, ExitCause};
pub use program::SpawnError;
pub use spec::{BASE_ENVIRONMENT, ChildSpec, Launcher, MARK_VARIABLE, SERVER_PREFIX};
pub use usage::{ProcessTree, ProcessUsage, measure_all, measure_self};

use crate::log::{self, ServerLog};
use descendants::{Descendant, ProcessSet};

/// Size asked for the pipes of a child, in bytes: a frame of 64 KiB then passes without waiting
/// for its reader. The system refuses it to users who have too many; the usual size works too.
const PIPE_SIZE: i32 = 256 << 10;

/// How long a killed process may take to go away. Only one that hangs in a system call needs it.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the last words on stderr may take, once everyone who could write them is gone.
const STDERR_DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// How often left-over processes are looked at while they end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A running server. Dropped before [`Child::stop`] has ended, it and all it started is killed.
#[derive(Debug)]
pub struct Child {
    leader: Pid,
    /// Signals the leader whatever group it is in; `None` where the system has no such descriptors.
    handle: Option<OwnedFd>,
    /// A launcher stays above the server and ends all of it when told to.
    supervised: bool,
    processes: ProcessSet,
    process: tokio::process::Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: JoinHandle<()>,
    /// Someone's child has ended, perhaps this one.
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

/// Bytes that were written into a pipe and that nobody has read: 0 where the system does not tell.
#[must_use]
pub fn unread_bytes(pipe: &impl AsFd) -> u64 {
    rustix::io::ioctl_fionread(pipe).unwrap_or_default()
}

/// Starts a server; what it writes to stderr goes to `log`. Needs a tokio runtime.
///
/// # Errors
/// [`SpawnError`] says what is missing and, where it can, how to get it (CMCP-072).
pub fn spawn(spec: &ChildSpec, log: &ServerLog) -> Result<Child, SpawnError> {
    let environment = spec.environment(std::env::vars_os());
    let path = environment.get(OsStr::new("PATH")).map(OsString::as_os_str);
    let program = program::find(&spec.command, path, spec.cwd.as_deref())?;
    let broken = |error| program::explain_failure(&program, error);
    let ends = signal(SignalKind::child()).map_err(broken)?;
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
    let process = command.spawn().map_err(broken)?;
    Ok(Child::new(spec, process, ends, log))
}

impl Child {
    fn new(
        spec: &ChildSpec,
        mut process: tokio::process::Child,
        ends: SignalStream,
        log: &ServerLog,
    ) -> Self {
        let id = process
            .id()
            .expect("a child that was not waited for has its id");
        let leader = Pid::from_raw(id.cast_signed());
        let stderr = process.stderr.take().expect("stderr is piped");
        let child = Self {
            leader,
            handle: rustix::process::Pid::from_raw(leader.as_raw())
                .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
            supervised: spec.launcher.is_some(),
            processes: ProcessSet::for_server(leader, &spec.kernel_mark, spec.id.as_str()),
            stdin: process.stdin.take(),
            stdout: process.stdout.take(),
            stderr: tokio::spawn(log::drain(stderr, log.clone())),
            process,
            child_exits: ends,
            exit: None,
        };
        child.stdin.iter().for_each(enlarge_pipe);
        child.stdout.iter().for_each(enlarge_pipe);
        child
    }

    /// The number of the process and of its group.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.leader.as_raw()
    }

    /// The way in. Who takes it closes it before [`Child::stop`], which else loses a grace.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// The way out. EOF comes when everyone who inherited it has gone; see also [`Child::wait`].
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.stdout.take()
    }

    /// Waits until the process has ended, of itself or not. May be dropped and called again.
    /// [`Child::stop`] then tells how it ended, and ends what it left behind.
    pub async fn wait(&mut self) {
        while self.exit.is_none() && self.is_running() {
            // `None` would mean that the runtime goes down, and this task with it.
            self.child_exits.recv().await;
        }
    }

    /// Ends the server and all it started, and reaps it (MCP-020 to MCP-023, CMCP-073): stdin is
    /// closed, after `grace` the group gets SIGTERM, after another SIGKILL, as do the descendants
    /// that left it. What outlives the leader gets SIGTERM and, after `grace`, SIGKILL.
    ///
    /// Takes at most three times `grace` and a few seconds. A second call answers the same.
    pub async fn stop(&mut self, grace: Duration) -> ChildExit {
        if let Some(exit) = &self.exit {
            return exit.clone();
        }
        let how = self.end_leader(grace).await;
        let gone = self.end_leftovers(how, grace).await;
        let status = timeout(KILL_TIMEOUT, self.process.wait()).await;
        let status = status.ok().and_then(Result::ok);
        let exit = ChildExit {
            code: status.and_then(|s| s.code()),
            signal: status.and_then(|s| s.signal()),
            cause: how,
            has_leftovers: !gone || status.is_none(),
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

    /// Signals the group, and the leader itself where it left it.
    fn signal_leader(&self, signal: Signal) {
        self.processes.signal_groups(signal);
        let number = rustix::process::Signal::from_named_raw(signal as i32);
        if let (Some(handle), Some(number)) = (&self.handle, number)
            && getpgid(Some(self.leader)) != Ok(self.leader)
        {
            let _ = pidfd_send_signal(handle, number);
        }
    }

    /// Whether nobody is left.
    async fn end_leftovers(&self, how: ExitCause, grace: Duration) -> bool {
        let gently =
            how != ExitCause::Killed && self.signal_until_gone(Signal::SIGTERM, grace).await;
        gently || self.signal_until_gone(Signal::SIGKILL, KILL_TIMEOUT).await
    }

    /// Signals what is left until nothing is, and answers whether that came in time.
    async fn signal_until_gone(&self, signal: Signal, patience: Duration) -> bool {
        // However many others look first: without one look nobody is signalled.
        let mut living = self.find_live().await;
        let ending = async {
            while !living.is_empty() {
                self.processes.signal(&living, signal);
                while living.iter().any(Descendant::is_alive) {
                    sleep(POLL_INTERVAL).await;
                }
                living = self.find_live().await;
            }
        };
        timeout(patience, ending).await.is_ok()
    }

    /// Looks through the process table, which takes some milliseconds: off the runtime's threads,
    /// and one look at a time, so that many servers that end together do not take every core.
    async fn find_live(&self) -> Vec<Descendant> {
        static LOOKS: Semaphore = Semaphore::const_new(1);
        let _look = LOOKS.acquire().await;
        let kin = self.processes.clone();
        let looking = tokio::task::spawn_blocking(move || kin.find_live());
        looking.await.unwrap_or_default()
    }

    /// False once the leader has ended; it is left for [`Child::stop`] to reap.
    fn is_running(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.leader), flags) {
            Ok(status) => status == WaitStatus::StillAlive,
            Err(errno) => errno == Errno::EINTR,
        }
    }
}

impl Drop for Child {
    /// Only a child that was not stopped has still to be ended; its zombie is reaped by tokio.
    fn drop(&mut self) {
        self.stderr.abort();
        if self.exit.is_some() {
            return;
        }
        match self.supervised {
            // Killed, it could end nobody; should it hang, the guard is there when the kernel ends.
            true => self.signal_leader(Signal::SIGQUIT),
            false => {
                self.signal_leader(Signal::SIGKILL);
                self.processes.kill();
            }
        }
    }
}

fn enlarge_pipe(pipe: &impl AsFd) {
    let _ = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(PIPE_SIZE));
}

#[cfg(test)]
mod tests;
