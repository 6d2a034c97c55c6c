//! A kernel in a folder of its own with one server, for as long as it is asked: it starts the server as every kernel
//! does, in its sandbox, and nothing of it is left.

use std::env;
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::Stop;
use serde_json::json;
use tempfile::TempDir;
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, value};

use crate::cli::client::{CliContext, background};
use crate::cli::failure::Failure;
use crate::cli::words::plain;

/// The id of its server.
pub(super) const SERVER: &str = "replayed";
/// How long it may take to answer, and to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two looks.
const PACE: Duration = Duration::from_millis(30);
/// Bytes of its log that are shown when it does not start.
const TOLD: usize = 4 << 10;

/// A running kernel. It ends when this is dropped.
pub(super) struct OwnKernel {
    /// How it is reached.
    pub(super) context: CliContext,
    child: Child,
    folder: TempDir,
}

impl OwnKernel {
    /// Starts it with this server, and waits until the server is connected.
    pub(super) fn start(context: &CliContext, command: &[String]) -> Result<Self, Failure> {
        // Short, for it holds a socket.
        let folder = tempfile::Builder::new()
            .prefix("mgp-replay-")
            .tempdir_in("/tmp")?;
        let at = |name: &str| folder.path().join(name);
        fs::write(at("mgp.toml"), configuration(command)?)?;
        let log = File::create(at("log"))?;
        let child = Command::new(env::current_exe()?)
            .arg("up")
            .args(["--config".into(), at("mgp.toml")])
            .args(["--socket".into(), at("mgp.sock")])
            .args(["--data-dir".into(), at("data")])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut kernel = Self {
            context: context.at(at("mgp.sock")),
            child,
            folder,
        };
        kernel.answers()?;
        background::wait_while(&kernel.context, &["registered", "connecting"]);
        kernel.connected()?;
        Ok(kernel)
    }

    fn answers(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        while self.context.status()?.is_none() {
            if self.child.try_wait()?.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                let end = log.floor_char_boundary(log.len().saturating_sub(TOLD));
                return Err(Failure::Other(plain(&format!(
                    "the kernel for the replay did not start:\n{}",
                    log[end..].trim_end()
                ))));
            }
            sleep(PACE);
        }
        Ok(())
    }

    fn connected(&self) -> Result<(), Failure> {
        let servers = self.context.status()?.map(|status| status.servers);
        let server = servers.and_then(|servers| servers.into_iter().next());
        match server {
            Some(server) if server.state == "connected" => Ok(()),
            Some(server) => Err(Failure::Other(plain(&format!(
                "the server did not start: it is {}: {}",
                server.state,
                server.reason.unwrap_or_default()
            )))),
            None => Err(Failure::Other("the server did not start".into())),
        }
    }
}

impl Drop for OwnKernel {
    fn drop(&mut self) {
        let stop = json!({});
        let _ = self
            .context
            .with_kernel(async |client| client.request(Stop::METHOD, &stop, &mut ()).await);
        let deadline = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            sleep(PACE);
        }
        // What did not end in order is ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Its mgp.toml: the server in this folder, no door but the socket, no log.
fn configuration(command: &[String]) -> Result<String, Failure> {
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
