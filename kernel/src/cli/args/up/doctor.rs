//! `mgp doctor` and `mgp check`.

use std::path::PathBuf;

use clap::Args;

/// `mgp doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints one line for each check, failed ones first, with the command that fixes it where there is one. It \
works whether or not a kernel runs.

Exit codes: 0 nothing is broken (there may be warnings), 4 something is broken, 1 it could not look.

Examples:
  mgp doctor
  mgp doctor --fix                 # closes files that others can read, and says which
  mgp doctor --report report.txt   # a file to attach to a report of a bug; no secret is in it
  mgp doctor --json | jq '.findings[] | select(.condition == \"broken\")'")]
pub struct Doctor {
    /// Apply fixes that remove nothing, and report them.
    #[arg(long)]
    pub(crate) fix: bool,
    /// Write all of it into a file, with the versions, the shape of the configuration and the end of the
    /// kernel's log, and without secrets.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

/// `mgp check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints one line for each check, the worst first, with the command that shows or changes it. Starts nothing: a server \
that sleeps is ready, as a call starts it.

Exit codes: 0 ready, 75 transient (try again later), 77 blocked (a person has to decide or sign in), 78 misconfigured \
(a wrong name, a wrong configuration, or a server that does not start), 3 no kernel is running.

Examples:
  mgp check
  mgp check --agent nightly --tool git:git_log --tool files:read_file
  mgp check --agent nightly --json")]
pub struct Check {
    /// Whether this agent may use them, too.
    #[arg(long, value_name = "AGENT")]
    pub(crate) agent: Option<String>,
    /// A tool as SERVER:TOOL, or a server; may be repeated. Without it, all servers, or those that the agent may use.
    #[arg(long = "tool", value_name = "SERVER[:TOOL]")]
    pub(crate) tools: Vec<String>,
}
