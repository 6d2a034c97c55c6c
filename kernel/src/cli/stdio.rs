//! `mgp stdio`: passes lines between stdin, stdout and the kernel unchanged, and reconnects to the next kernel. Only
//! protocol messages reach stdout (MCP-069).

mod bridge;
mod connection;
mod conversation;
mod handshake;
mod line_reader;
mod resume;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use mgp_protocol::mgp::door::Open;
use nix::unistd::User;

use super::args::Stdio;
use super::client::{CliContext, background};
use super::failure::{Failure, KernelAbsence};
use super::print::print_error;
use super::text_format::sanitize_line;
use crate::kernel::running_kernel::RunningKernel;
use bridge::{Reconnect, ReconnectWait};

/// How long a request waits for a restarted kernel: a restart with its servers takes a few seconds, and clients wait a
/// minute for most answers.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the bridge waits for a kernel while no request is pending, as during an upgrade.
const IDLE_RECONNECT_TIMEOUT: Duration = Duration::from_secs(600);
/// Time for a service manager to restart a crashed kernel before it is started here.
const RESTART_GRACE: Duration = Duration::from_secs(2);
/// Time between two attempts.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(super) fn run_stdio(context: &CliContext, stdio: Stdio) -> Result<(), Failure> {
    let of = stdio.of.as_deref().map(resolve_uid).transpose()?;
    context.warn_untrusted();
    let asked = Open {
        server: stdio.server,
        set: stdio.set,
        agent: stdio.agent,
        // The operator of another user's kernel must not learn the client's folder.
        folder: of.is_none().then(|| context.current_folder()).flatten(),
    };
    let mut kernels = KernelConnector {
        context: context.clone(),
        owner_uid: of,
        open_params: asked,
        last_kernel: None,
    };
    let socket = match kernels.connect() {
        Err(Failure::NotRunning(_)) if of.is_none() => {
            kernels.start()?;
            kernels.connect()?
        }
        connected => connected?,
    };
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    bridge::run(socket, input, output, kernels)
}

/// Connects the client to one kernel after the other.
struct KernelConnector {
    context: CliContext,
    owner_uid: Option<u32>,
    open_params: Open,
    /// The last kernel.
    last_kernel: Option<RunningKernel>,
}

impl KernelConnector {
    fn connect(&mut self) -> Result<UnixStream, Failure> {
        let socket = connection::open(&self.context, self.owner_uid, &self.open_params)?;
        let here = self.context.socket();
        self.last_kernel = self.context.find_running().filter(|it| it.socket == here);
        Ok(socket)
    }

    /// Starts a kernel, reports its address, and waits for its servers.
    fn start(&self) -> Result<(), Failure> {
        let status = background::start_kernel(&self.context)?;
        let files = match status.config_files.as_slice() {
            [] => "without a configuration".to_owned(),
            files => format!("with {}", files.join(" and ")),
        };
        print_error(sanitize_line(&format!(
            "mgp: a kernel was started (process {}) {files}; its data is in {}",
            status.pid, status.data_dir
        )));
        Ok(())
    }
}

impl Reconnect for KernelConnector {
    /// Waits for a kernel that another process starts. A crashed one is started here, like the first one; one that was
    /// stopped is not.
    fn reconnect(&mut self, waiting: &ReconnectWait<'_>) -> Result<UnixStream, Failure> {
        let begun = Instant::now();
        let mut may_start = self.owner_uid.is_none();
        loop {
            match self.connect() {
                Ok(socket) => return Ok(socket),
                Err(Failure::NotRunning(_) | Failure::ConnectionClosed) => {}
                Err(failure) => return Err(failure),
            }
            let asked_for = waiting
                .waiting_since()
                .is_some_and(|since| since.elapsed() > RECONNECT_TIMEOUT);
            if waiting.client_left() || asked_for || begun.elapsed() > IDLE_RECONNECT_TIMEOUT {
                return Err(Failure::NotRunning(KernelAbsence::Stopped(
                    self.context.socket(),
                )));
            }
            let fallen = || {
                self.last_kernel
                    .as_ref()
                    .is_some_and(RunningKernel::has_crashed)
            };
            if may_start && begun.elapsed() > RESTART_GRACE && fallen() {
                may_start = false;
                self.start()?;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

fn resolve_uid(name: &str) -> Result<u32, Failure> {
    let found = User::from_name(name).map_err(io::Error::from)?;
    let uid = found.map(|user| user.uid.as_raw());
    uid.or_else(|| name.parse().ok())
        .ok_or_else(|| Failure::Other(format!("this machine has no user {name}")))
}
