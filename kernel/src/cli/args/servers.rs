//! `mgp servers …`.

mod export;
mod login;
mod registry;
mod stored_secrets;

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(crate) use export::Export;
pub(crate) use login::{Login, Logins, Logout};
pub(crate) use registry::{RegistryAddress, RegistryOptions, Search};
pub(crate) use stored_secrets::{NamedSecret, Secrets, SetSecret};

/// `mgp servers …`.
#[derive(Debug, Subcommand)]
pub enum Servers {
    /// List servers, with why one is down and when it is tried again.
    List,
    /// Search the MCP registry.
    Search(Search),
    /// Add a server to the configuration, and start it if a kernel runs.
    Add(Box<Add>),
    /// Remove a server from the configuration, or one that an agent registered.
    Remove(RemoveServer),
    /// Start a server and wait until it is connected or has failed.
    Start(ServerName),
    /// Stop a server after its calls have ended.
    Stop(ServerName),
    /// Stop a server and start it again.
    Restart(RestartServer),
    /// Update the package version in a server's entry, and restart it.
    Update(Update),
    /// List servers whose package has a newer version.
    Outdated,
    /// Show a server's state, process and offers.
    Show(ServerName),
    /// Show what a server wrote to stderr.
    Logs(Logs),
    /// List a server's pinned tools and skills, and which changed since they were approved.
    Pins(ServerName),
    /// Judge what a server tells models: its tools, prompts and instructions.
    Scan(ServerName),
}

/// A server by its id.
#[derive(Debug, Args)]
pub struct ServerName {
    /// The server's id.
    pub id: String,
}

/// `mgp servers restart`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp servers restart files
  mgp servers restart --rolling search     # two of them may run at once: no call waits or is lost")]
pub struct RestartServer {
    /// The server's id.
    pub id: String,
    /// Start a second instance first, which takes over; needs restart_mode = "rolling" in the entry.
    #[arg(long)]
    pub(crate) rolling: bool,
}

/// `mgp servers update`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp servers update files                 # npx -y @acme/files@1.2.3 becomes @acme/files@1.3.0
  mgp servers update files --dry-run
  mgp servers update files --to 1.2.3      # a version of your own, also an older one
  mgp servers update files --undo          # what the entry said before the last update

For servers that npx, npm exec, pnpm dlx, bunx, uvx, uv tool run or pipx run starts, with a version
(pkg@1.2.3, pkg==1.2.3). npm, pnpm, uv or pip is asked which version is the newest. The server is
started again; with restart_mode = \"rolling\" in its entry no call waits or is lost.")]
pub struct Update {
    /// The server's id.
    pub id: String,
    /// This version instead of the newest.
    #[arg(long, value_name = "VERSION")]
    pub to: Option<String>,
    /// Show what would be written, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Undo the last update.
    #[arg(long, conflicts_with = "to")]
    pub(crate) undo: bool,
}

/// `mgp servers remove`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp servers remove files
  mgp servers remove dynamic.csv_tools     # one that `mgp servers list` says an agent registered")]
pub struct RemoveServer {
    /// The server's id.
    pub id: String,
}

/// `mgp servers add`.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "Examples:
  mgp servers add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes
  mgp servers add search --env BRAVE_KEY --env LOG_LEVEL=debug -- npx -y brave-search
  mgp servers add search --env-file ./brave.env -- npx -y brave-search
  mgp servers add search --env BRAVE_KEY=file:/run/secrets/brave -- npx -y brave-search
  mgp servers add docs --url https://example.org/mcp --header Authorization
  mgp servers add docs --url https://example.org/mcp --header 'Authorization=Bearer ${DOCS_TOKEN}'
  mgp servers add shop --transport lite --url https://example.org/mcp-lite/v1/
  mgp servers add notes --connector cloto-connector.json -- python server.py
  mgp servers add io.github.acme/weather               # of the registry: shown, asked, written
  mgp servers add io.github.acme/weather --as rain --set UNITS=metric

A command line is read by every user of the machine, so what looks like a secret is not taken from it.
What is typed when asked, and what comes out of --env-file, is kept as a secret; the configuration names it.")]
pub struct Add {
    /// The server's id: letters, digits, '.', '_' and '-'; or its name in the registry, which has a slash.
    pub id: String,
    /// Reach it at this address instead of starting a program.
    #[arg(long, conflicts_with = "command")]
    pub url: Option<String>,
    /// The protocol: MCP, which is `http`, or MCP-lite over HTTP or over gRPC.
    #[arg(long, value_name = "TRANSPORT", requires = "url", conflicts_with = "command", value_parser = ["http", "lite", "grpc"])]
    pub(crate) transport: Option<String>,
    /// A variable for it. KEY alone is the kernel's own variable of that name; where yours is not set,
    /// its value is asked for. Or a value that is no secret, KEY=VALUE, or where it is: KEY=${NAME}, KEY=file:PATH.
    #[arg(long, value_name = "KEY[=VALUE]", conflicts_with = "url")]
    pub(crate) env: Vec<String>,
    /// A file of variables for it, one KEY=VALUE to a line; `-` is stdin.
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    pub(crate) env_file: Vec<PathBuf>,
    /// A header for each request. The value of NAME alone is asked for. Or where it is: NAME=${NAME},
    /// 'NAME=Bearer ${NAME}', NAME=file:PATH.
    #[arg(long, value_name = "NAME[=WHERE]", conflicts_with = "command")]
    pub(crate) header: Vec<String>,
    /// Write it into ./mgp.toml instead of your own file.
    #[arg(long)]
    pub(crate) project: bool,
    /// Its working folder; by default that of the configuration file.
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub(crate) cwd: Option<String>,
    /// Start it only on request.
    #[arg(long)]
    pub(crate) no_autostart: bool,
    /// Start it once for its tools, then when it is called.
    #[arg(long, conflicts_with = "no_autostart")]
    pub(crate) on_demand: bool,
    /// Its trust level.
    #[arg(long, value_name = "LEVEL", value_parser = ["sandboxed", "standard", "trusted"])]
    pub(crate) trust: Option<String>,
    /// Its restart policy.
    #[arg(long, value_name = "POLICY", value_parser = ["never", "on_failure", "always"])]
    pub restart: Option<String>,
    /// Its connector manifest (cloto-connector.json): its variables, its seal and, if its source names a version, its
    /// command. It gets no trust by that.
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    pub(crate) connector: Option<PathBuf>,
    /// The program and its arguments, after `--`.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Options for a server of the registry.
    #[command(flatten)]
    pub from: RegistryOptions,
}

/// `mgp import`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp import                               # what Claude, Cursor, VS Code and others have
  mgp import cursor vscode                 # theirs only
  mgp import .mcp.json                     # a file of a project, such as .cursor/mcp.json, too
  mgp import --only files --only github --yes

Shown first, then asked, then written. Servers whose command, arguments, variables, address, headers and
folder are the same in several clients become one. Secrets in clear text are kept apart, and the entry
names them. Tools that a client keeps back stay back. The clients' own files stay as they are.")]
pub struct Import {
    /// A client: claude-desktop, claude-code, cursor, vscode, windsurf, zed, codex, gemini, opencode,
    /// goose, lmstudio, cline, copilot, antigravity, roo, continue; or a file. All clients when not given.
    #[arg(value_name = "CLIENT|FILE")]
    pub from: Vec<String>,
    /// Add it without asking.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Show what would be added, and change nothing.
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    /// Only this server, by its displayed id.
    #[arg(long, value_name = "ID")]
    pub(crate) only: Vec<String>,
    /// Stop all of them when they are idle, also those that may lose a state: a browser, a session.
    #[arg(long)]
    pub(crate) idle_stop: bool,
}

/// `mgp connect`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp connect cursor                       # shows, asks, writes; keeps a copy of the old file
  mgp connect --all --yes
  mgp connect cursor --take-out            # and takes out what the kernel has now, too
  mgp connect vscode --http                # with a token of its own, at the kernel's door
  mgp connect cursor --undo
  mgp connect --set reading cursor         # it sees the tools of this set
  mgp connect --print zed                  # only shows what to write

Comments and the order of the client's file stay.")]
pub struct Connect {
    /// The clients: claude-desktop, claude-code, cursor, vscode, windsurf, zed, codex, gemini,
    /// opencode, goose, lmstudio, cline, copilot, antigravity, roo, continue.
    #[arg(value_name = "CLIENT", required_unless_present = "all")]
    pub(crate) clients: Vec<String>,
    /// Every client whose files are here.
    #[arg(long, conflicts_with = "clients")]
    pub all: bool,
    /// The agent the client is: one of `mgp agents list`. Without this agent.local; with --http one named
    /// like the client, which is made.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Restrict the client to this set, one of `mgp sets list`.
    #[arg(long, value_name = "NAME", conflicts_with = "undo")]
    pub(crate) set: Option<String>,
    /// Connect over HTTP with a token, instead of starting `mgp stdio`.
    #[arg(long)]
    pub(crate) http: bool,
    /// Also remove the client's servers that this kernel has.
    #[arg(long, conflicts_with = "undo")]
    pub(crate) take_out: bool,
    /// Remove the entry.
    #[arg(long)]
    pub(crate) undo: bool,
    /// Only show what to write.
    #[arg(long, conflicts_with_all = ["undo", "yes"])]
    pub(crate) print: bool,
    /// Show what would change, and change nothing.
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    /// Write it without asking.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// `mgp servers logs`.
#[derive(Debug, Args)]
pub struct Logs {
    /// The server's id.
    pub id: String,
    /// Follow new lines.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Number of lines.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub(crate) lines: usize,
}
