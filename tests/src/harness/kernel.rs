//! A real `mgp up` in a folder of its own.

pub mod network;
pub mod nodes;
pub mod trace;

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::process::Process;
use super::process::usage::below;
use super::{Agent, DEADLINE, Program, wait_until};

/// The door of every test: a free port of the loopback, open to anybody on it.
const OPEN_DOOR: &str = "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n";

/// A running kernel. Dropping it ends it; when the test fails, its stderr is printed.
#[derive(Debug)]
pub struct Kernel {
    process: Process,
    url: String,
    folder: TempDir,
    /// What stands before each of its programs.
    behind: Vec<String>,
}

impl Kernel {
    /// Starts a kernel with these servers behind an open door on a free port.
    ///
    /// # Panics
    /// When it does not answer by the deadline.
    pub async fn start(servers: &str) -> Self {
        Self::with_config(&format!("{OPEN_DOOR}{servers}")).await
    }

    /// Starts a kernel with this `mgp.toml`, which must open a door on a loopback port.
    ///
    /// # Panics
    /// When it does not answer by the deadline.
    pub async fn with_config(config: &str) -> Self {
        Self::with_environment(config, &[]).await
    }

    /// Starts a kernel with this `mgp.toml` and more variables in its own environment.
    ///
    /// # Panics
    /// When it does not answer by the deadline.
    pub async fn with_environment(config: &str, variables: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        Self::in_folder(folder, config, variables).await
    }

    /// Starts a kernel behind another program, which is given `mgp` and its arguments, in a folder that
    /// is already prepared: as another user, say, to whom folder and program are open.
    ///
    /// # Panics
    /// When it does not answer by the deadline.
    pub async fn behind(
        behind: &[&str],
        folder: TempDir,
        config: &str,
        variables: &[(&str, &str)],
    ) -> Self {
        let behind = behind.iter().map(ToString::to_string).collect();
        Self::started(behind, folder, config, variables, |up| up).await
    }

    /// Starts a kernel on the data of one that has ended, with the same config.
    ///
    /// # Panics
    /// When it does not answer by the deadline.
    pub async fn again(folder: TempDir) -> Self {
        let config = std::fs::read_to_string(folder.path().join("mgp.toml"));
        Self::in_folder(
            folder,
            &config.expect("the config of the kernel before"),
            &[],
        )
        .await
    }

    /// Starts a kernel whose data folder is a disk of its own of this size, in words of `tmpfs`. The disk is
    /// gone with it; from outside it is at [`Kernel::disk`].
    ///
    /// # Errors
    /// Why this machine does not let us.
    ///
    /// # Panics
    /// When it does not answer by the deadline.
    pub async fn on_a_disk(config: &str, size: &str) -> Result<Self, String> {
        let folder = TempDir::new().expect("a temporary folder");
        let trial = on_a_disk(&Program::new("true", [""; 0]), size);
        let trial = trial.env(
            "MGP_DATA_DIR",
            folder.path().join("data").display().to_string(),
        );
        let tried = trial.output(DEADLINE).await;
        if !tried.status.success() {
            return Err(String::from_utf8_lossy(&tried.stderr).into_owned());
        }
        let config = format!("{OPEN_DOOR}{config}");
        let wrap = |up: Program| on_a_disk(&up, size);
        Ok(Self::started(Vec::new(), folder, &config, &[], wrap).await)
    }

    /// The data folder as the kernel sees it.
    #[must_use]
    pub fn disk(&self) -> PathBuf {
        let data = self.folder.path().join("data");
        let data = data.strip_prefix("/").expect("it is absolute");
        PathBuf::from(format!("/proc/{}/root", self.pid())).join(data)
    }

    async fn in_folder(folder: TempDir, config: &str, variables: &[(&str, &str)]) -> Self {
        Self::started(Vec::new(), folder, config, variables, |up| up).await
    }

    async fn started(
        behind: Vec<String>,
        folder: TempDir,
        config: &str,
        variables: &[(&str, &str)],
        wrap: impl FnOnce(Program) -> Program,
    ) -> Self {
        assert!(
            config.contains("listen ="),
            "the default port is not a test's: {config}"
        );
        let file = folder.path().join("mgp.toml");
        // The model takes 130 MiB and its time, and most tests look for a tool in the list: what is the
        // default otherwise have only those tests that bring a table of their own.
        let finding = if config.contains("[discovery]") {
            ""
        } else {
            "\n[discovery]\nembedding = \"off\"\nexposure = \"all\"\n"
        };
        let config = format!("{config}{finding}");
        std::fs::write(&file, config).expect("the config is written");
        let up = ours(&behind, &["up", "--config"]).arg(file.display().to_string());
        let up = environment(folder.path()).fold(up, |up, (name, value)| up.env(name, value));
        let up = variables
            .iter()
            .fold(up, |up, (name, value)| up.env(name, *value));
        let mut process = Process::start("mgp up", &wrap(up));
        let url = process.says("its address", DEADLINE, door).await;
        Self {
            process,
            url,
            folder,
            behind,
        }
    }

    /// The endpoint that shows every server.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The endpoint of one server, under its own names.
    #[must_use]
    pub fn server_url(&self, id: &str) -> String {
        format!("{}/{id}", self.url)
    }

    /// The owner-only socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("mgp.sock")
    }

    /// The folder that holds everything of this kernel.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The kernel's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The process id of the one server that runs this executable.
    ///
    /// # Panics
    /// When none or several do.
    #[must_use]
    pub fn child(&self, executable: &str) -> u32 {
        let children = self.children(executable);
        assert_eq!(
            children.len(),
            1,
            "one {executable} runs below the kernel: {children:?}"
        );
        children[0]
    }

    /// The process ids of the servers that run this executable.
    #[must_use]
    pub fn children(&self, executable: &str) -> Vec<u32> {
        let mut children = below(self.pid());
        children.retain(|pid| runs(*pid, executable));
        children
    }

    /// The kernel's process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// `mgp` with these arguments, at this kernel.
    #[must_use]
    pub fn program(&self, args: &[&str]) -> Program {
        let program = ours(&self.behind, args);
        environment(self.folder.path()).fold(program, |p, (name, value)| p.env(name, value))
    }

    /// Runs `mgp` with these arguments at this kernel.
    ///
    /// # Panics
    /// When it does not end by the deadline.
    pub async fn mgp(&self, args: &[&str]) -> Output {
        self.program(args).output(DEADLINE).await
    }

    /// What `mgp` with these arguments and `--json` prints.
    ///
    /// # Panics
    /// When it fails or prints no JSON.
    pub async fn mgp_json(&self, args: &[&str]) -> Value {
        let output = self.mgp(&[args, &["--json"]].concat()).await;
        let (out, err) = (
            output.stdout.as_slice(),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "mgp {args:?}: {err}");
        serde_json::from_slice(out)
            .unwrap_or_else(|e| panic!("mgp {args:?}: {e}: {}", String::from_utf8_lossy(out)))
    }

    /// Waits until every server in `ids` is connected.
    ///
    /// # Panics
    /// When one is not by the deadline; its state is told.
    pub async fn connected(&self, ids: &[&str]) {
        for id in ids {
            let mut status = Value::Null;
            wait_until(&format!("{id} is connected"), DEADLINE, async || {
                status = self.mgp_json(&["status"]).await;
                assert_ne!(state(&status, id), Some("error"), "{status:#}");
                state(&status, id) == Some("connected")
            })
            .await;
        }
    }

    /// An agent at `mgp stdio`: at all servers, or at one under its own names.
    #[must_use]
    pub fn stdio_agent(&self, server: Option<&str>) -> Agent {
        let one = server.map_or_else(Vec::new, |id| vec!["--server", id]);
        Agent::over_stdio(&self.program(&[&["stdio"], one.as_slice()].concat()))
    }

    /// An agent at the HTTP door: at all servers, or at one under its own names.
    #[must_use]
    pub fn http_agent(&self, server: Option<&str>) -> Agent {
        let one = server.map(|id| self.server_url(id));
        Agent::over_http(one.as_deref().unwrap_or(&self.url))
    }

    /// Changes `mgp.toml` while the kernel runs, in one step as an editor would. The door stays.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn rewrite(&self, servers: &str) {
        let (new, file) = (
            self.folder.path().join("new"),
            self.folder.path().join("mgp.toml"),
        );
        std::fs::write(&new, format!("{OPEN_DOOR}{servers}")).expect("the config is written");
        std::fs::rename(new, file).expect("the config is put in its place");
    }

    /// Ends the kernel with a signal and waits for its end; what it left is given back.
    ///
    /// # Panics
    /// When it does not end by the deadline.
    pub async fn end(mut self, signal: Signal, deadline: Duration) -> TempDir {
        self.process.signal(signal);
        self.process.end(deadline).await;
        self.folder
    }
}

/// `mgp`, behind a program that knows where it is or by itself.
fn ours(behind: &[String], args: &[&str]) -> Program {
    match behind {
        [] => Program::ours("mgp", args.iter().copied()),
        [first, rest @ ..] => Program::new(first, rest).args(args),
    }
}

/// The same program in a mount namespace in which `MGP_DATA_DIR` is a disk of its own. A file beyond a limit of
/// its size is an error there and no signal.
#[must_use]
pub fn on_a_disk(program: &Program, size: &str) -> Program {
    let script = format!(
        "mkdir -p \"$MGP_DATA_DIR\" && mount -t tmpfs -o size={size},mode=0700 mgp \"$MGP_DATA_DIR\" && trap '' XFSZ && exec \"$@\""
    );
    let args = ["-Urm", "sh", "-c", &script, "sh", &program.command];
    let mut wrapped = Program::new("unshare", args);
    wrapped.args.extend(program.args.iter().cloned());
    wrapped.env.clone_from(&program.env);
    wrapped
}

fn runs(pid: u32, executable: &str) -> bool {
    let path = std::fs::read_link(format!("/proc/{pid}/exe"));
    path.is_ok_and(|path| path.ends_with(executable))
}

/// What keeps a kernel to its own folder, whoever runs the test.
fn environment(folder: &Path) -> impl Iterator<Item = (&'static str, String)> {
    let at = |name: &str| folder.join(name).display().to_string();
    [
        ("MGP_SOCKET", at("mgp.sock")),
        ("MGP_DATA_DIR", at("data")),
        ("MGP_CONFIG_PATH", at("mgp.toml")),
        ("XDG_RUNTIME_DIR", folder.display().to_string()),
    ]
    .into_iter()
}

/// The address of the HTTP door in what the kernel says at its start.
fn door(said: &str) -> Option<String> {
    let at = said.find("://127.0.0.1:")?;
    let scheme = if said[..at].ends_with("https") {
        "https"
    } else {
        "http"
    };
    let (_, rest) = said.split_once("://127.0.0.1:")?;
    let (port, _) = rest.split_once("/mcp")?;
    let port: u16 = port.parse().ok()?;
    Some(format!("{scheme}://127.0.0.1:{port}/mcp"))
}

/// The state of a server in what `mgp status --json` prints.
fn state<'a>(status: &'a Value, id: &str) -> Option<&'a str> {
    let servers = status["servers"].as_array()?;
    let server = servers.iter().find(|server| server["id"] == id)?;
    server["state"].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_door_is_found_only_once_it_is_told_whole() {
        assert_eq!(door("listening on http://127.0.0.1:73"), None);
        let told = door("\u{1b}[1mhttp://127.0.0.1:7332/mcp\u{1b}[0m everything");
        assert_eq!(told.as_deref(), Some("http://127.0.0.1:7332/mcp"));
        let told = door("up, https://127.0.0.1:7332/mcp");
        assert_eq!(told.as_deref(), Some("https://127.0.0.1:7332/mcp"));
    }
}
