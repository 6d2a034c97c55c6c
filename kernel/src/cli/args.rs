//! Everything that can be typed.

mod access;
mod agents;
mod approvals;
mod audit;
mod calls;
mod events;
mod nodes;
mod prompts;
mod resources;
mod servers;
mod times;
mod tools;
mod trust;
mod up;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use access::{About, Explain, Grant, Grants, Revoke};
pub use agents::{AddAgent, AgentToken, Agents, NamedAgent};
pub use approvals::{Answer, Approve, Deny};
pub use audit::{Acknowledge, Audit, FindAudit, TailAudit};
pub use calls::{Calls, ShowCall};
pub use events::replay::Replay;
pub use events::trace::Trace;
pub use events::{Events, TailEvents};
pub use nodes::{
    Audience, Cluster, Demote, Drain, Forget, Invite, Join, Lan, Leave, LetIn, Nodes, Promote,
    Recover, Rekey, Rename, RevokeNode, Share, TurnAway, Unshare, Withdraw,
};
pub use prompts::{GetPrompt, Prompts};
pub use resources::{ReadResource, Resources};
pub use servers::{
    Add, Connect, Export, FromRegistry, Import, Login, Logout, Logs, Named, NamedSecret,
    RegistryAddress, Removed, Restarted, Search, Secrets, Servers, SetSecret, Update,
};
pub use tools::mcpl::{FeatureSets, ForgetScopes, Mcpl, SwitchedSets};
pub use tools::sets::{NamedSet, Sets};
pub use tools::state::{State, StateLog, StateRollback};
pub use tools::{Call, Find, ListTools, Tools};
pub use trust::{Trust, Untrust};
pub use up::{
    Accept, Backup, Complete, CompletionShell, Completions, Doctor, LogLineFormat, OpenConsole,
    Restore, Service, ServiceInstall, Stdio, Top, Up,
};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  it failed; the message says what to do
  2  the command line or the arguments of a tool are wrong
  3  no kernel is running
  4  the tool answered, and its answer is an error; or the audit log is damaged; or `mgp doctor` found
     something broken
  130  interrupted

Files:
  ./mgp.toml, ~/.config/mgp/servers.toml   read in this order, the first wins for each server;
                                           ./mgp.toml only once `mgp trust` has shown it to you
  $MGP_CONFIG_PATH or --config FILE        then only this file is read";

/// One kernel per machine: runs and watches every MCP server, and gives agents one door.
#[derive(Debug, Parser)]
#[command(name = "mgp", version, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub options: Options,
    /// What to do.
    #[command(subcommand)]
    pub command: Invocation,
}

/// What this process is for.
#[derive(Debug, Subcommand)]
pub enum Invocation {
    /// What somebody typed.
    #[command(flatten)]
    Command(Command),
    /// What the program starts of itself.
    #[command(flatten)]
    Internal(Internal),
}

/// What holds for every command.
#[derive(Debug, Args)]
pub struct Options {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub json: bool,
    /// Show long output all at once, on a terminal, too.
    #[arg(long, global = true)]
    pub no_pager: bool,
    /// Read only this configuration file.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The kernel's socket, when it is not in its usual place.
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "MGP_SOCKET",
        hide_env_values = true
    )]
    pub socket: Option<PathBuf>,
    /// Where the kernel keeps what lasts, when it is not the usual place.
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "MGP_DATA_DIR",
        hide_env_values = true
    )]
    pub data_dir: Option<PathBuf>,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the kernel here until it is stopped.
    Up(Up),
    /// End the running kernel and its servers.
    Down,
    /// Try it out: a kernel with a built-in server, in a folder of its own that is removed at the end.
    Demo,
    /// Join stdin and stdout to the running kernel; this is what an MCP client starts.
    Stdio(Stdio),
    /// Show the kernel, its doors, its servers and who is connected.
    Status(Status),
    /// Show figures of calls, servers and the kernel, as Prometheus reads them.
    Metrics(Metrics),
    /// Watch servers, calls, latency, memory and what waits for you, in this terminal.
    Top(Top),
    /// Open the console in your browser.
    Console(OpenConsole),
    /// Run the kernel as a service of your session.
    #[command(subcommand)]
    Service(Service),
    /// Look at everything a kernel needs, and say what to do.
    Doctor(Doctor),
    /// Accept a missing or shortened file of the data folder as it is, while no kernel runs.
    Accept(Accept),
    /// Back up the data folder and configuration to one file, also while the kernel runs.
    Backup(Backup),
    /// Restore a data folder from a backup.
    Restore(Restore),
    /// Look after the servers.
    #[command(subcommand)]
    Servers(Servers),
    /// Take over the servers that Claude, Cursor, VS Code and others have written down.
    Import(Import),
    /// Write the servers of this kernel down for Claude, Cursor, VS Code and others.
    Export(Export),
    /// Write this kernel into the configuration of Claude, Cursor, VS Code and others.
    Connect(Connect),
    /// Keep tokens and passwords that servers need, by name.
    #[command(subcommand)]
    Secrets(Secrets),
    /// Sign in at a server that is reached over HTTP.
    Login(Login),
    /// Take the tokens of a login back, and forget them.
    Logout(Logout),
    /// Let the mgp.toml of a folder hold, after a look at what it would start.
    Trust(Trust),
    /// Leave the mgp.toml of a folder out again.
    Untrust(Untrust),
    /// Give agents names and tokens.
    #[command(subcommand)]
    Agents(Agents),
    /// List and call tools.
    #[command(subcommand)]
    Tools(Tools),
    /// Say what servers that speak MCPL may do beside being called.
    #[command(subcommand)]
    Mcpl(Mcpl),
    /// Show the named sets of servers and tools.
    #[command(subcommand)]
    Sets(Sets),
    /// Show the states of stateful tools, and go back.
    #[command(subcommand)]
    State(State),
    /// List and read resources.
    #[command(subcommand)]
    Resources(Resources),
    /// List prompts, and fill one in.
    #[command(subcommand)]
    Prompts(Prompts),
    /// Ask what became of a call.
    #[command(subcommand)]
    Calls(Calls),
    /// Show what was done, and whether the log of it is whole.
    #[command(subcommand)]
    Audit(Audit),
    /// Show what happens while it happens.
    #[command(subcommand)]
    Events(Events),
    /// Show every message of a server or an agent, and keep them in a file.
    Trace(Trace),
    /// Ask a server again what a file of `mgp trace` has, and compare the answers.
    Replay(Replay),
    /// Show what waits for your answer.
    Pending,
    /// Say yes to what waits.
    Approve(Approve),
    /// Answer what waits for more than yes or no.
    Answer(Answer),
    /// Say no to what waits, or take a permission back from a server.
    Deny(Deny),
    /// Let an agent use a server or a tool, or deny it.
    Grant(Grant),
    /// Take a grant or a denial back.
    Revoke(Revoke),
    /// Show what is granted and denied.
    Grants(Grants),
    /// Say whether an agent may use a server or a tool, and by which rule.
    Explain(Explain),
    /// Look after this node and the others of its cluster.
    #[command(subcommand)]
    Node(Nodes),
    /// Show the cluster.
    #[command(subcommand)]
    Cluster(Cluster),
    /// Show a server of this node to other nodes.
    Share(Share),
    /// Take that back.
    Unshare(Unshare),
    /// Show what is shared.
    Shares,
    /// Be seen on the local network, or not.
    #[command(subcommand)]
    Lan(Lan),
    /// Print what makes your shell complete commands and names.
    Completions(Completions),
}

/// The processes that the program starts of itself.
#[derive(Debug, Subcommand)]
pub enum Internal {
    /// Watches over the kernel's children.
    #[command(name = "__guard", hide = true)]
    Guard,
    /// Becomes a server in its sandbox.
    #[command(name = "__sandbox", hide = true)]
    Sandbox {
        /// Its program, its name and its arguments; without any, the machine is tried out.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Runs the model that gives texts their meaning.
    #[command(name = "__embed", hide = true)]
    Embed,
    /// Says what may stand at the cursor of a shell.
    #[command(name = "__complete", hide = true)]
    Complete(Complete),
    /// The kernel of `mgp replay -- COMMAND`; it ends with its stdin.
    #[command(name = "__replay-kernel", hide = true)]
    ReplayKernel {
        /// The program of its server, and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// The server behind `mgp demo`.
    #[command(name = "__demo-server", hide = true)]
    DemoServer(DemoServer),
}

/// `mgp status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Show the actors and tasks that run in it instead.
    #[arg(long)]
    pub tree: bool,
}

/// `mgp metrics`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp metrics
  mgp metrics | grep mgp_calls_total
  mgp metrics --scrape-config")]
pub struct Metrics {
    /// In the form of OpenMetrics.
    #[arg(long)]
    pub openmetrics: bool,
    /// Show what Prometheus needs to read them at the HTTP door instead.
    #[arg(long, conflicts_with = "openmetrics")]
    pub scrape_config: bool,
}

/// What is listed.
#[derive(Debug, Args)]
pub struct Listing {
    /// Only this server's, under its own names.
    #[arg(long, value_name = "ID")]
    pub server: Option<String>,
}

/// `mgp __demo-server`.
#[derive(Debug, Args)]
pub struct DemoServer {
    /// The folder that may be searched.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub root: PathBuf,
}

#[cfg(test)]
mod tests;
