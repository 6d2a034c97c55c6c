//! The first process of a server's PID namespace. When it ends, the system kills all others in the namespace. It
//! only reaps orphans.

use std::io::{self, Read};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, dup2_stderr, setsid};

use super::privileges;
use crate::launch::Policy;

/// All processes in the namespace except this one.
const ALL_PROCESSES: Pid = Pid::from_raw(-1);

/// Runs as long as the leader, whose pipe is its stdin. A byte from the pipe means: send SIGTERM to all
/// processes, and exit with the last one.
pub(super) fn run(policy: &Policy) -> Result<u8, String> {
    let describe_error = |e: Errno| e.to_string();
    let all = SigSet::all();
    all.thread_block().map_err(describe_error)?;
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let signals = SignalFd::with_flags(&all, flags).map_err(describe_error)?;
    setsid().map_err(describe_error)?;
    privileges::drop_privileges(policy.user)?;
    nix::sys::prctl::set_dumpable(false).map_err(describe_error)?;
    // Needed in addition to the pipe, in case this process is stopped.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(describe_error)?;
    // Nobody reads its output any more.
    dup2_stderr(io::stdout()).map_err(describe_error)?;
    let stdin = io::stdin();
    let mut terminating = false;
    loop {
        let mut sources = [
            PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        let _ = poll(&mut sources, PollTimeout::NONE);
        let has_byte = sources[0].any().unwrap_or(true);
        while let Ok(Some(_)) = signals.read_signal() {}
        if has_byte {
            match stdin.lock().read(&mut [0]) {
                Ok(1) => terminating = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => return Ok(0),
            }
            let _ = kill(ALL_PROCESSES, Signal::SIGTERM);
        }
        if reap() == IsLastProcess::Yes && terminating {
            return Ok(0);
        }
    }
}

#[derive(PartialEq, Eq)]
enum IsLastProcess {
    Yes,
    No,
}

fn reap() -> IsLastProcess {
    loop {
        match waitpid(ALL_PROCESSES, Some(WaitPidFlag::WNOHANG)) {
            Ok(nix::sys::wait::WaitStatus::StillAlive) => return IsLastProcess::No,
            Err(Errno::ECHILD) => return IsLastProcess::Yes,
            Ok(_) | Err(_) => {}
        }
    }
}
