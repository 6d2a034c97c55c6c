//! `mgp tools …`, and the sets they are in.

pub(super) mod mcpl;
pub(super) mod sets;
pub(super) mod state;

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `mgp tools …`.
#[derive(Debug, Subcommand)]
pub enum Tools {
    /// List all tools by the names that commands print and accept, or those that one agent sees.
    List(ListTools),
    /// Call a tool and show its answer.
    Call(Call),
    /// Find tools by what they do.
    Find(Find),
    /// Confirm which tools of a server only read, or destroy nothing, as its annotations say.
    Confirm(ConfirmTools),
}

/// `mgp tools confirm`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp tools confirm files                       # shows what its tools say of themselves, and asks
  mgp tools confirm files --only read_file --yes
  mgp tools confirm files --only read_file --remove

Agents call confirmed tools with mgp_tools_call_read and mgp_tools_call_write, so that you can let
a host allow all reads. Whatever is not confirmed may destroy; a changed definition needs a new yes.")]
pub struct ConfirmTools {
    /// The server, one of `mgp servers list`.
    #[arg(value_name = "ID")]
    pub server: String,
    /// Only this tool, by the server's own name; more than once for several.
    #[arg(long, value_name = "TOOL")]
    pub(crate) only: Vec<String>,
    /// Take confirmations back.
    #[arg(long)]
    pub(crate) remove: bool,
    /// Do not ask.
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// `mgp tools list`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp tools list
  mgp tools list --server files
  mgp tools list --agent claude    # just what it is shown: nothing it may not call")]
pub struct ListTools {
    /// Only those of this server, under its own names.
    #[arg(long, value_name = "ID")]
    pub server: Option<String>,
    /// List what this agent sees, one of `mgp agents list`; agent.local is an unnamed client.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
}

/// `mgp tools find`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp tools find 'look for a text in all files of a folder'
  mgp tools find read_fiel --strategy keyword --max 3
  mgp tools find time --agent research.bot")]
pub struct Find {
    /// What the tool should do, in your own words.
    pub(crate) query: String,
    /// By words, by meaning, by category, or by words and meaning.
    #[arg(long, value_name = "HOW", value_parser = ["keyword", "semantic", "category", "hybrid"], default_value = "hybrid")]
    pub(crate) strategy: String,
    /// Maximum number of results.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub max: usize,
    /// Only tools of this category or of one below it; more than once for several.
    #[arg(long, value_name = "CATEGORY")]
    pub(crate) category: Vec<String>,
    /// Only tools that this agent may call.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
}

/// `mgp tools call`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp tools call demo:time
  mgp tools call demo:search_text folder=src pattern='fn main'
  mgp tools call demo:slow_job '{\"steps\": 5}'
  mgp tools call demo:search_text @arguments.json
  mgp tools call docs:read page=1 --all        # the rest of a result that was cut, too
  mgp tools call demo:time zone=UTC --curl     # the request to copy, for what has no MCP library

A command line is read by every user of the machine: an argument that is a secret goes into a @FILE,
or through a pipe into @/dev/stdin.
Values are read as the tool's schema says: numbers, true and false, and JSON for lists and objects.
Pictures and sounds are saved as files. Questions of the tool are asked here when this is a terminal;
so are arguments that it needs and that are missing, unless all come as one object or with --json.")]
pub struct Call {
    /// The tool: as listed, SERVER:TOOL; also SERVER/TOOL, what agents are shown, SERVER__TOOL, or its
    /// bare name when only one server has it.
    pub name: String,
    /// KEY=VALUE; or all arguments as a JSON object, or as @FILE with one.
    #[arg(value_name = "KEY=VALUE|JSON|@FILE")]
    pub(crate) arguments: Vec<String>,
    /// All arguments as a JSON object.
    #[arg(long, value_name = "JSON", conflicts_with = "arguments")]
    pub(crate) json_args: Option<String>,
    /// Fetch all pages of a result that the kernel truncated (`max_result_bytes`).
    #[arg(long)]
    pub all: bool,
    /// Print the HTTP request instead of sending it.
    #[arg(long, conflicts_with = "all")]
    pub(crate) curl: bool,
    /// Where to save pictures and sounds.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) out: PathBuf,
}
