//! `mgp doctor`.

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
