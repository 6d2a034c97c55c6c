//! `mgp up` and `mgp stdio`.

mod completions;
mod console;
mod doctor;
mod service;
mod top;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

pub(crate) use completions::{Complete, CompletionShell, Completions};
pub(crate) use console::OpenConsole;
pub(crate) use doctor::{Check, Doctor};
pub(crate) use service::{Service, ServiceInstall};
pub(crate) use top::Top;

/// `mgp up`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp up
  mgp up --config ./mgp.toml
  mgp up --log-format json
  mgp up --detach          # comes back when the kernel answers; writes to <data>/kernel.log")]
pub struct Up {
    /// Run in the background.
    #[arg(long)]
    pub(crate) detach: bool,
    /// The format of the log, overriding `[log]`.
    #[arg(long, value_name = "FORMAT", conflicts_with = "detach")]
    pub(crate) log_format: Option<LogLineFormat>,
    /// Leave the terminal: how `--detach` starts the kernel.
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub(crate) own_session: bool,
}

/// `mgp upgrade`.
#[derive(Debug, Args)]
#[command(after_help = "\
Install the new version, then run its `mgp upgrade`: the running kernel finishes the calls under way and becomes this \
program. It keeps its process id, the lock on its data folder, its listeners and plain HTTP sessions. Servers are \
started again, and clients of `mgp stdio` go on by themselves.

Examples:
  mgp upgrade
  mgp upgrade --wait 600            # for calls that take long
  mgp upgrade /opt/mgp/bin/mgp")]
pub struct Upgrade {
    /// The program that takes over, in place of this one.
    #[arg(value_name = "PROGRAM", value_hint = clap::ValueHint::FilePath)]
    pub(crate) program: Option<PathBuf>,
    /// How long calls under way may take; after that they end.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=600))]
    pub(crate) wait: u64,
}

/// `mgp version`.
#[derive(Debug, Args)]
#[command(after_help = "\
`--check` asks the address of `url` in [updates]; nothing else ever does.

Examples:
  mgp version
  mgp version --check")]
pub struct ShowVersion {
    /// Ask for the newest version.
    #[arg(long)]
    pub(crate) check: bool,
}

/// `--log-format`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogLineFormat {
    /// For people.
    Text,
    /// A JSON object on each line.
    Json,
}

/// `mgp accept`.
#[derive(Debug, Args)]
#[command(after_help = "\
A file that is missing or shorter than it was is reported at the start of the kernel, and what it decided stays \
closed. Put a copy of the file back if there is one. This command is for when there is none: the kernel takes the \
file as it is from its next start on, and records that in the audit log.

Examples:
  mgp down
  mgp accept shares.json
  mgp accept cluster/logs/logs")]
pub struct Accept {
    /// The file, by its name in the data folder.
    #[arg(value_name = "FILE")]
    pub file: String,
}

/// `mgp backup`.
#[derive(Debug, Args)]
#[command(after_help = "\
Copies the data folder: keys, grants, the logs of the cluster, the audit log, what is shared and registered. \
mgp.toml is copied, too. Left out is what is made again (views, the index of tools), the folders of sandboxed \
servers, and named secrets.
The file has the node's key in it: whoever reads it can be this node.

Examples:
  mgp backup /backup/nas.tar
  mgp restore /backup/nas.tar --data-dir /srv/mgp")]
pub struct Backup {
    /// The new file; only its owner can read it.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    pub(crate) force: bool,
}

/// `mgp restore`.
#[derive(Debug, Args)]
#[command(after_help = "\
The data folder is the usual one, or that of --data-dir. It must be empty, or not be there yet. \
The node that was backed up must not run any more: two of them are one key in two places, and are cut off. \
In a cluster, agents of other nodes may do nothing here until every other node has confirmed this one's log.

Examples:
  mgp restore /backup/nas.tar
  mgp restore /backup/nas.tar --data-dir /srv/mgp")]
pub struct Restore {
    /// The file of `mgp backup`.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `mgp stdio`.
#[derive(Debug, Args)]
#[command(after_help = "\
Finds the running kernel of this user whatever the environment, and starts one when none runs. \
It stays when the kernel is restarted. Everything on stdout is JSON-RPC; messages go to stderr.

Example, in a client's configuration:
  \"mcpServers\": { \"mgp\": { \"command\": \"mgp\", \"args\": [\"stdio\"] } }")]
pub struct Stdio {
    /// The agent to speak as: one of `mgp agents list`, with its access and no more. Without this
    /// agent.local; at another user's kernel, whom that one's configuration says you are.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// The user who runs the kernel at `--socket`, when it is neither you nor root.
    #[arg(long, value_name = "USER", conflicts_with = "agent")]
    pub of: Option<String>,
    /// Show only this server, under its own names.
    #[arg(long, value_name = "ID")]
    pub server: Option<String>,
    /// Show only this set, one of `mgp sets list`.
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    pub(crate) set: Option<String>,
}
