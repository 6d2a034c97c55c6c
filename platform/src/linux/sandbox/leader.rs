//! The process above a sandboxed server. It starts the server, in separate namespaces if the machine supports
//! them, and forwards signals. It ends like the server, after all processes of the server have ended. If the
//! kernel dies, it ends the server.
//!
//! In a PID namespace all processes end with the first. Without one the leader is a subreaper: orphans become
//! its children, and it kills children until none are left.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal, kill, killpg, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, getegid, geteuid, getppid};
use rustix::process::{PidfdFlags, pidfd_open};

use super::mount_view::{self, MountView};
use super::step::Step;
use super::{egress, privileges};
use crate::launch::{KERNEL_PID_VARIABLE, POLICY_VARIABLE, Policy};
use crate::linux::program::own_program;
use crate::linux::table;
use crate::process::{MARK_VARIABLE, Process, find_below};

/// How long leftover processes may take to end after SIGTERM.
const GRACE_TIME: Duration = Duration::from_millis(500);
/// How long they may take if the kernel is dead: less than the guard allows.
const ORPHAN_TIMEOUT: Duration = Duration::from_millis(300);
/// How often SIGKILL is repeated.
const KILL_INTERVAL: Duration = Duration::from_millis(10);
/// Rounds of SIGSTOP before SIGKILL: a stopped process starts no others. Each round finds what was started
/// before the last one took effect.
const STOP_ROUNDS: usize = 50;

/// The termination signals of the kernel, the guard and terminals.
const TERMINATION_SIGNALS: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

pub(super) fn run(policy: &Policy, command: &[OsString]) -> Result<u8, String> {
    let kernel = open_kernel_pidfd()?;
    let signals = open_signalfd().map_err(|e| format!("signals: {e}"))?;
    if geteuid().is_root() && policy.user.is_none() {
        return Err("a server started by root requires a user to switch to".into());
    }
    let null = File::options().read(true).write(true).open("/dev/null");
    let null = null.map_err(|e| format!("/dev/null: {e}"))?;
    let cwd = std::env::current_dir().map_err(|e| format!("the working folder: {e}"))?;
    let mut exe = own_program();
    let hold = if !policy.machine.namespaces {
        nix::sys::prctl::set_child_subreaper(true).map_err(|e| e.to_string())?;
        Containment::Subreaper
    } else {
        let egress = policy.egress_socket.as_deref().map(egress::connect);
        let egress = egress.transpose()?;
        enter_namespaces(policy)?;
        if let Some(kernel) = egress {
            egress::send_listener(&kernel)?;
        }
        MountView::from_policy(policy).build(&cwd)?;
        exe = mount_view::kernel_program();
        Containment::Namespace(start_init(&exe, &null)?)
    };
    let mut inside = Step::Inside.command(&exe);
    let server = inside.arg("--").args(command).spawn();
    let server = server.map_err(|e| format!("its process cannot be started: {e}"))?;
    let server = Pid::from_raw(server.id().cast_signed());
    let mut watch = ServerWatch {
        containment: hold,
        server,
        status: None,
        deadline: None,
        is_killing: false,
    };
    // A server that cannot be contained must not run: the processes below end with this one.
    release_pipes(&null)?;
    privileges::retain_kill_capability()?;
    let status = watch.wait_for_all(&kernel, &signals);
    Ok(exit_like(status))
}

/// A pidfd of the kernel's process, to detect its end.
fn open_kernel_pidfd() -> Result<OwnedFd, String> {
    let parent = getppid();
    let expected = std::env::var(KERNEL_PID_VARIABLE)
        .ok()
        .and_then(|pid| pid.parse().ok());
    let number = rustix::process::Pid::from_raw(parent.as_raw());
    let number = number.ok_or("the kernel is in another process namespace")?;
    let kernel = pidfd_open(number, PidfdFlags::empty());
    let kernel = kernel.map_err(|e| format!("the kernel's process: {e}"))?;
    // The pid was the kernel's as long as the kernel is the parent.
    let gone = expected.is_some_and(|expected: i32| getppid().as_raw() != expected);
    if gone || getppid() != parent {
        Err("the kernel has ended".into())
    } else {
        Ok(kernel)
    }
}

fn open_signalfd() -> nix::Result<SignalFd> {
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGCHLD);
    blocked.add(Signal::SIGQUIT);
    TERMINATION_SIGNALS
        .iter()
        .for_each(|signal| blocked.add(*signal));
    blocked.thread_block()?;
    SignalFd::with_flags(&blocked, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

/// Enters the namespaces. Without root this needs a user namespace, in which this user is mapped to itself only.
fn enter_namespaces(policy: &Policy) -> Result<(), String> {
    let failed = |what: &str, e: &dyn std::fmt::Display| format!("{what}: {e}");
    let (user, group) = (geteuid(), getegid());
    let mut clone_flags =
        CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC;
    clone_flags.set(CloneFlags::CLONE_NEWUSER, policy.user.is_none());
    let is_open = (policy.outbound || policy.listen) && policy.egress_socket.is_none();
    clone_flags.set(CloneFlags::CLONE_NEWNET, !is_open);
    unshare(clone_flags).map_err(|e| failed("namespaces", &e))?;
    if policy.user.is_some() {
        return Ok(());
    }
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{user} {user} 1")),
        ("gid_map", format!("{group} {group} 1")),
    ] {
        let file = format!("/proc/self/{file}");
        fs::write(&file, text).map_err(|e| failed(&file, &e))?;
    }
    privileges::inherit_capabilities()
}

/// Starts the first process of the namespace, which the others cannot outlive.
fn start_init(exe: &Path, null: &File) -> Result<Child, String> {
    let mut init = Step::Init.command(exe);
    // Without a command it would probe the machine.
    init.args(["--", "init"]);
    let others = std::env::vars_os().map(|(name, _)| name);
    for name in others.filter(|name| name != POLICY_VARIABLE && name != MARK_VARIABLE) {
        init.env_remove(name);
    }
    let nowhere = null.try_clone().map_err(|e| e.to_string())?;
    init.stdin(Stdio::piped()).stdout(nowhere);
    init.spawn().map_err(|e| format!("its first process: {e}"))
}

/// Releases the pipes to the server alone, so that the kernel sees their end.
fn release_pipes(null: &File) -> Result<(), String> {
    let closed = dup2_stdin(null)
        .and_then(|()| dup2_stdout(null))
        .and_then(|()| dup2_stderr(null));
    closed.map_err(|e| e.to_string())
}

/// How the server's processes are prevented from escaping.
enum Containment {
    /// The first process of a PID namespace.
    Namespace(Child),
    /// This process, as subreaper.
    Subreaper,
}

struct ServerWatch {
    containment: Containment,
    server: Pid,
    status: Option<ExitStatus>,
    /// When SIGTERM is followed by SIGKILL.
    deadline: Option<Instant>,
    is_killing: bool,
}

impl ServerWatch {
    fn wait_for_all(&mut self, kernel: &OwnedFd, signals: &SignalFd) -> ExitStatus {
        let mut orphaned = false;
        while !self.reap() {
            if self.status.is_some() && self.deadline.is_none() {
                self.terminate_rest();
                self.set_deadline(GRACE_TIME);
            }
            if self
                .deadline
                .is_some_and(|deadline| deadline <= Instant::now())
            {
                self.is_killing = true;
            }
            if self.is_killing {
                self.kill_all();
            }
            self.wait_for_event(kernel, signals, orphaned);
            while let Ok(Some(info)) = signals.read_signal() {
                self.handle_signal(Signal::try_from(info.ssi_signo.cast_signed()));
            }
            if !orphaned && has_ended(kernel) {
                orphaned = true;
                self.terminate_server();
                self.set_deadline(ORPHAN_TIMEOUT);
            }
        }
        self.status
            .unwrap_or(ExitStatus::from_raw(Signal::SIGKILL as i32))
    }

    fn wait_for_event(&self, kernel: &OwnedFd, signals: &SignalFd, orphaned: bool) {
        let left = self
            .deadline
            .map(|at| at.saturating_duration_since(Instant::now()));
        let left = if self.is_killing {
            Some(KILL_INTERVAL)
        } else {
            left
        };
        // At least a millisecond, to avoid a busy loop.
        let most = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        let mut sources = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        if !orphaned {
            sources.push(PollFd::new(kernel.as_fd(), PollFlags::POLLIN));
        }
        let _ = poll(&mut sources, most);
    }

    fn handle_signal(&mut self, signal: nix::Result<Signal>) {
        match signal {
            Ok(Signal::SIGQUIT) => self.is_killing = true,
            Ok(signal) if TERMINATION_SIGNALS.contains(&signal) => self.terminate_server(),
            Ok(_) | Err(_) => {}
        }
    }

    /// Sends SIGTERM to the server's process group, and to the server in case it has left the group.
    fn terminate_server(&self) {
        if self.status.is_none() {
            let _ = killpg(self.server, Signal::SIGTERM);
            let group = nix::unistd::getpgid(Some(self.server));
            if group != Ok(self.server) {
                let _ = kill(self.server, Signal::SIGTERM);
            }
        }
    }

    fn terminate_rest(&mut self) {
        match &mut self.containment {
            Containment::Namespace(init) => {
                let _ = init.stdin.as_mut().map(|line| line.write_all(b"e"));
            }
            Containment::Subreaper => find_descendants()
                .iter()
                .for_each(|p| p.signal(Signal::SIGTERM)),
        }
    }

    fn set_deadline(&mut self, grace: Duration) {
        let due = Instant::now() + grace;
        self.deadline = Some(self.deadline.map_or(due, |at| at.min(due)));
    }

    fn kill_all(&self) {
        match &self.containment {
            Containment::Namespace(init) => {
                let init = Pid::from_raw(init.id().cast_signed());
                let _ = kill(init, Signal::SIGKILL);
            }
            Containment::Subreaper => {
                let mut stopped = Vec::new();
                for _ in 0..STOP_ROUNDS {
                    let mut found = find_descendants();
                    found.retain(|process| !stopped.contains(process));
                    if found.is_empty() {
                        break;
                    }
                    found.iter().for_each(|p| p.signal(Signal::SIGSTOP));
                    stopped.extend(found);
                }
                stopped.iter().for_each(|p| p.signal(Signal::SIGKILL));
            }
        }
    }

    /// Reaps ended processes; true if none is left.
    fn reap(&mut self) -> bool {
        loop {
            let (pid, status) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, code << 8),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, signal as i32),
                Ok(WaitStatus::StillAlive) => return false,
                Err(Errno::ECHILD) => return true,
                Ok(_) | Err(_) => continue,
            };
            if pid == self.server {
                self.status = Some(ExitStatus::from_raw(status));
            }
        }
    }
}

/// The descendants of this process, whatever group or session they are in: children of an ended one are its own.
fn find_descendants() -> Vec<Process> {
    let all = table::read_all().map(|row| row.process);
    find_below(vec![Pid::this()], all.collect())
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut ended = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    poll(&mut ended, PollTimeout::ZERO).is_ok_and(|count| count > 0)
}

/// Exits with the server's code, or dies of the same signal. A signal this program cannot die of is reported as
/// shells do: 128 plus its number.
fn exit_like(status: ExitStatus) -> u8 {
    let Some(number) = status.signal() else {
        return status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(u8::MAX);
    };
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    if let Ok(signal) = Signal::try_from(number) {
        let _ = SigSet::all().thread_unblock();
        // If a handler was in place, the first signal only removes it.
        let _ = raise(signal).and_then(|()| raise(signal));
    }
    u8::try_from(number).map_or(u8::MAX, |number| number.saturating_add(128))
}
