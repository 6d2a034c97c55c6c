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
mod skills;
mod time_values;
mod tools;
mod trust;
mod up;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use access::{Explain, Grant, Grants, Groups, Membership, Revoke, RuleSubject};
pub(crate) use agents::{AddAgent, AgentToken, Agents};
pub(crate) use approvals::{Answer, Approve, Deny, Permissions, RemovePermission};
pub(crate) use audit::{Acknowledge, Audit, FindAudit, TailAudit};
pub(crate) use calls::{Calls, ShowCall};
pub(crate) use events::replay::Replay;
pub(crate) use events::trace::Trace;
pub(crate) use events::{Events, TailEvents};
pub(crate) use nodes::Cluster;
pub(crate) use nodes::{
    ApproveNode, Demote, Drain, Forget, Invite, Join, Lan, Leave, Nodes, Promote, Recover,
    RefuseNode, Rekey, Rename, RevokeNode, Share, Shares, Unshare,
};
pub(crate) use prompts::{GetPrompt, Prompts};
pub(crate) use resources::{ReadResource, Resources};
pub(crate) use servers::{
    Add, Connect, Export, Import, Login, Logins, Logout, Logs, NamedSecret, RegistryAddress,
    RestartServer, Search, Secrets, Servers, SetSecret, Update,
};
pub(crate) use skills::{OneSkill, ServeSkills, Skills};
pub(crate) use tools::mcpl::{FeatureSetSelection, FeatureSets, ForgetScopes, Mcpl};
pub(crate) use tools::sets::Sets;
pub(crate) use tools::state::{State, StateLog, StateRollback};
pub(crate) use tools::{Call, ConfirmTools, Find, ListTools, Tools};
pub(crate) use trust::{Trust, Untrust};
pub(crate) use up::{
    Accept, Backup, Check, Complete, CompletionShell, Completions, Doctor, LogLineFormat,
    OpenConsole, Restore, Service, ServiceInstall, ShowVersion, Stdio, Top, Up, Upgrade,
};

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no kernel is running, 4 the tool answered with an
error or something is damaged, 130 interrupted. Configuration: ./mgp.toml once it is trusted, then
~/.config/mgp/servers.toml; $MGP_CONFIG_PATH or --config FILE replaces both.";

/// What `mgp --help` shows: one screen, by what people do. `tests` compares it with the commands.
const TOP_HELP: &str = "\
{about}

{usage-heading} {usage}

Run a kernel
  demo                        Try a kernel with a built-in server
  up, down, status            Start, stop and show the kernel
  top, console                Watch it in this terminal or in a browser
  doctor                      Check what it needs, and suggest fixes
  check                       Check whether tools can be called now, for scripts
  service                     Run it as a service of your session
Servers and clients
  servers                     Manage servers
  connect                     Add this kernel to Claude, Cursor, VS Code and others
  import, export              Copy servers from and to these clients
  secrets, logins             Store secrets, and sign in to remote servers
  tools, resources, prompts   List and use what servers offer
  skills, sets, mcpl, state   Skills, named sets, MCPL feature sets, states of tools
Access
  agents, grants, explain     Manage agents, and who may call what
  groups                      Manage groups of agents
  pending                     List what waits for you
  approve, deny, answer       Decide about a pending entry
  permissions                 Manage what servers may do
  trust, untrust              Trust the mgp.toml of a folder
Observe
  audit, events, calls        What was done, what happens, what became of a call
  trace, replay, metrics      Record messages, replay them, print metrics
Several machines
  nodes, cluster              Manage the nodes of a cluster
  shares, lan                 Share servers, and find nodes on the local network
Maintain
  upgrade, version            Replace the running kernel, and look for a newer version
  backup, restore, accept     Back up, restore or repair the data folder
  stdio, completions          What clients start; completion for your shell

Options (for every command)
{options}{after-help}";

/// One kernel per machine: runs every MCP server and gives agents one endpoint.
#[derive(Debug, Parser)]
#[command(name = "mgp", version, help_template = TOP_HELP, after_help = EXIT_CODES, disable_help_subcommand = true, arg_required_else_help = true)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub(crate) options: Options,
    /// What to do.
    #[command(subcommand)]
    pub command: Invocation,
}

/// The purpose of this process.
#[derive(Debug, Subcommand)]
pub enum Invocation {
    /// Commands for users.
    #[command(flatten)]
    Command(Command),
    /// Processes that the program starts itself.
    #[command(flatten)]
    Internal(Internal),
}

/// Options of all commands.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Do not page long output.
    #[arg(long, global = true)]
    pub(crate) no_pager: bool,
    /// Read only this configuration file.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The kernel's socket.
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "MGP_SOCKET",
        hide_env_values = true
    )]
    pub(crate) socket: Option<PathBuf>,
    /// The kernel's data folder.
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "MGP_DATA_DIR",
        hide_env_values = true
    )]
    pub(crate) data_dir: Option<PathBuf>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the kernel here until it is stopped.
    Up(Up),
    /// Stop the running kernel and its servers.
    Down,
    /// Let this version take over from the running kernel.
    Upgrade(Upgrade),
    /// Print the version, and whether there is a newer one.
    Version(ShowVersion),
    /// Try a kernel with a built-in server, in a temporary folder.
    Demo,
    /// Connect stdin and stdout to the running kernel; MCP clients start this.
    Stdio(Stdio),
    /// Show the kernel, its endpoints, servers and clients.
    Status(Status),
    /// Print metrics in Prometheus format.
    Metrics(Metrics),
    /// Watch servers, calls, latency, memory and pending entries in this terminal.
    Top(Top),
    /// Open the console in your browser.
    Console(OpenConsole),
    /// Manage the kernel as a service of your session.
    #[command(subcommand)]
    Service(Service),
    /// Check what a kernel needs, and suggest fixes.
    Doctor(Doctor),
    /// Check whether servers and tools can be used now, with an exit code for scripts.
    Check(Check),
    /// Accept a missing or shortened file of the data folder as it is, while no kernel runs.
    Accept(Accept),
    /// Back up the data folder and configuration to one file, also while the kernel runs.
    Backup(Backup),
    /// Restore a data folder from a backup.
    Restore(Restore),
    /// Manage servers.
    #[command(subcommand)]
    Servers(Servers),
    /// Import servers from the configuration of Claude, Cursor, VS Code and others.
    Import(Import),
    /// Export the servers of this kernel to Claude, Cursor, VS Code and others.
    Export(Export),
    /// Add this kernel to the configuration of Claude, Cursor, VS Code and others.
    Connect(Connect),
    /// Manage secrets that servers need.
    #[command(subcommand)]
    Secrets(Secrets),
    /// Manage logins at servers that are reached over HTTP.
    #[command(subcommand)]
    Logins(Logins),
    /// Trust the mgp.toml of a folder after reviewing what it starts.
    Trust(Trust),
    /// Stop trusting the mgp.toml of a folder.
    Untrust(Untrust),
    /// Manage agents and their tokens.
    #[command(subcommand)]
    Agents(Agents),
    /// List and call tools.
    #[command(subcommand)]
    Tools(Tools),
    /// Manage the feature sets and scopes of servers that speak MCPL.
    #[command(subcommand)]
    Mcpl(Mcpl),
    /// List and show named sets of servers and tools.
    #[command(subcommand)]
    Sets(Sets),
    /// Show and roll back the states of stateful tools.
    #[command(subcommand)]
    State(State),
    /// List and read resources.
    #[command(subcommand)]
    Resources(Resources),
    /// List and render prompts.
    #[command(subcommand)]
    Prompts(Prompts),
    /// List, show, verify and serve skills.
    #[command(subcommand)]
    Skills(Skills),
    /// Show the outcome of a call.
    #[command(subcommand)]
    Calls(Calls),
    /// Query and verify the audit log.
    #[command(subcommand)]
    Audit(Audit),
    /// Follow events.
    #[command(subcommand)]
    Events(Events),
    /// Record every message of a server or an agent.
    Trace(Trace),
    /// Replay a recording against a server, and compare the answers.
    Replay(Replay),
    /// List pending entries: what waits for your approval or answer.
    Pending,
    /// Approve a pending entry.
    Approve(Approve),
    /// Answer a pending entry with a value.
    Answer(Answer),
    /// Deny a pending entry.
    Deny(Deny),
    /// Manage the permissions of servers.
    #[command(subcommand)]
    Permissions(Permissions),
    /// Manage which agents may use which servers and tools.
    #[command(subcommand)]
    Grants(Grants),
    /// Manage groups of agents, which grants name in place of one.
    #[command(subcommand)]
    Groups(Groups),
    /// Explain whether an agent may use a server or a tool, and by which rule.
    Explain(Explain),
    /// Manage the nodes of the cluster.
    #[command(subcommand)]
    Nodes(Nodes),
    /// Show or recover the cluster.
    #[command(subcommand)]
    Cluster(Cluster),
    /// Manage what this node shares with other nodes.
    #[command(subcommand)]
    Shares(Shares),
    /// Switch discovery on the local network on or off.
    #[command(subcommand)]
    Lan(Lan),
    /// Print the completion script of a shell.
    Completions(Completions),
}

/// Processes that the program starts itself.
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
    /// Writes the manual pages into a folder, for packages.
    #[command(name = "__manual-pages", hide = true)]
    ManualPages {
        /// The folder.
        folder: PathBuf,
    },
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
    /// A server of `mgp skills serve`.
    #[command(name = "__skills", hide = true)]
    SkillFolder {
        /// The folder with the skills.
        folder: PathBuf,
    },
}

/// `mgp status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Show its running actors and tasks instead.
    #[arg(long)]
    pub(crate) tree: bool,
}

/// `mgp metrics`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp metrics
  mgp metrics | grep mgp_calls_total
  mgp metrics --scrape-config")]
pub struct Metrics {
    /// Use the OpenMetrics format.
    #[arg(long)]
    pub(crate) openmetrics: bool,
    /// Show the Prometheus configuration for the HTTP endpoint instead.
    #[arg(long, conflicts_with = "openmetrics")]
    pub(crate) scrape_config: bool,
}

/// What is listed.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only those of this server, under its own names.
    #[arg(long, value_name = "ID")]
    pub server: Option<String>,
}

/// `mgp __demo-server`.
#[derive(Debug, Args)]
pub struct DemoServer {
    /// The folder that may be searched.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,
}

#[cfg(test)]
mod tests;
