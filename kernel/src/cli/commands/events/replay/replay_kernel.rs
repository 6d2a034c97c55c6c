//! A temporary kernel with one server: it starts the server like every kernel, in its sandbox, and leaves nothing
//! behind. It ends with the process that started it.

mod process;

use std::env;
use std::fs;
use std::time::Duration;

use mgp_runtime::task::run_blocking;
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, value};

use self::process::KernelProcess;
use crate::cli::args::Options;
use crate::cli::client::{CliContext, background};
use crate::cli::commands::up;
use crate::cli::failure::Failure;
use crate::cli::print::print_line;
use crate::cli::text_format::sanitize_line;
use crate::kernel;
use crate::paths::{SOCKET_NAME, temporary_folder};

/// The id of its server.
pub(super) const SERVER: &str = "replayed";
/// Limit for its start, and for its shutdown.
const KERNEL_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of polling.
const POLL_INTERVAL: Duration = Duration::from_millis(30);

/// A running kernel. It is ended when this is dropped.
pub(super) struct ReplayKernel {
    /// The context to reach it.
    pub(super) context: CliContext,
    process: KernelProcess,
}

impl ReplayKernel {
    /// Starts it with this server, and waits until the server is connected, or for Ctrl-C.
    pub(super) fn start(context: &CliContext, command: &[String]) -> Result<Self, Failure> {
        let (at, command) = (context.clone(), command.to_vec());
        context.block_on(async {
            let starting =
                run_blocking("replay.kernel", move || Self::start_process(&at, &command));
            tokio::select! {
                started = starting => started.map_err(|e| Failure::Other(e.to_string()))?,
                // The kernel ends with this process.
                _ = tokio::signal::ctrl_c() => Err(Failure::Interrupted),
            }
        })
    }

    fn start_process(context: &CliContext, command: &[String]) -> Result<Self, Failure> {
        let (process, socket) = KernelProcess::start(command)?;
        let mut kernel = Self {
            context: context.with_socket(socket),
            process,
        };
        background::wait_until_no_server_in(&kernel.context, &["registered", "connecting"]);
        kernel.wait_until_connected()?;
        Ok(kernel)
    }

    fn wait_until_connected(&mut self) -> Result<(), Failure> {
        let Some(status) = self.context.status()? else {
            return Err(self.process.start_failure());
        };
        match status.servers.into_iter().next() {
            Some(server) if server.state == "connected" => Ok(()),
            Some(server) => Err(Failure::Other(sanitize_line(&format!(
                "the server did not start: it is {}: {}",
                server.state,
                server.reason.unwrap_or_default()
            )))),
            None => Err(Failure::Other("the server did not start".into())),
        }
    }
}

/// Runs such a kernel until its stdin ends, as it does when the parent ends. Prints the path of its socket, and removes
/// its folder at the end.
pub(in crate::cli) fn run_replay_kernel(command: &[String]) -> Result<(), Failure> {
    let folder = temporary_folder("mgp-replay-")?;
    let at = |name: &str| folder.path().join(name);
    fs::write(at("mgp.toml"), render_config(command)?)?;
    let context = CliContext::new(Options {
        json: false,
        no_pager: true,
        config: Some(at("mgp.toml")),
        socket: Some(at(SOCKET_NAME)),
        data_dir: Some(at("data")),
    })?;
    let mut options = up::up_options(&context, None)?;
    options.stop_on_stdin_close = true;
    options.on_ready = Box::new(|doors| {
        // If nobody reads it, stdin has ended, too.
        let _ = print_line(doors.socket.display());
    });
    let ran = kernel::run(options).map_err(Failure::Other);
    folder.close()?;
    ran
}

/// Its mgp.toml: the server in this folder, only the socket, no log.
fn render_config(command: &[String]) -> Result<String, Failure> {
    let [program, args @ ..] = command else {
        return Err(Failure::Usage("a program is named after `--`".into()));
    };
    let mut server = Table::new();
    server["id"] = value(SERVER);
    server["command"] = value(program);
    server["args"] = value(args.iter().map(String::as_str).collect::<Array>());
    server["cwd"] = value(env::current_dir()?.display().to_string());
    let mut servers = ArrayOfTables::new();
    servers.push(server);
    let off = |key: &str, off: Item| {
        let mut table = Table::new();
        table[key] = off;
        Item::Table(table)
    };
    let mut whole = DocumentMut::new();
    whole["http"] = off("enabled", value(false));
    whole["audit"] = off("enabled", value(false));
    whole["discovery"] = off("embedding", value("off"));
    whole["servers"] = Item::ArrayOfTables(servers);
    Ok(whole.to_string())
}
