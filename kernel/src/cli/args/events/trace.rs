//! `mgp trace`.

use std::path::PathBuf;

use clap::Args;

use super::super::time_values;

/// `mgp trace`.
#[derive(Debug, Args)]
#[command(after_help = "\
One line for each message: when, from whom, what it is, its method and tool, the id of its request, its length, \
and of an answer how long after its request it came. What passes before the command runs is not shown. Secrets \
are masked as [redacted] before they leave the kernel; headers are never shown.

Ends with Ctrl-C, or by itself after --for or --count. docs/recorder.md describes the file of --save.

Examples:
  mgp trace github
  mgp trace github --full --tool create_issue
  mgp trace --agent claude --errors
  mgp trace github --save github.jsonl --for 30s
  mgp trace github --json --count 10 | jq .method")]
pub struct Trace {
    /// The server's id.
    #[arg(value_name = "SERVER", required_unless_present = "agent")]
    pub server: Option<String>,
    /// Messages of this agent, at every endpoint.
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    pub(crate) agent: Option<String>,
    /// Show the contents of messages, too.
    #[arg(long)]
    pub(crate) full: bool,
    /// Only this method, and what answers it; may be given more than once.
    #[arg(long = "method", value_name = "METHOD")]
    pub(crate) methods: Vec<String>,
    /// Only calls of this tool, by its server's name for it; may be given more than once.
    #[arg(long = "tool", value_name = "NAME")]
    pub(crate) tools: Vec<String>,
    /// Only errors.
    #[arg(long, conflicts_with = "save")]
    pub(crate) errors: bool,
    /// Save the messages to this file, readable only by you.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Replace an existing file.
    #[arg(long, requires = "save")]
    pub(crate) force: bool,
    /// End after this time.
    #[arg(long = "for", value_name = "TIME", value_parser = time_values::parse_millis)]
    pub(crate) during_ms: Option<u64>,
    /// End after so many messages.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}
