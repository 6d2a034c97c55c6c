//! `mgp audit …`.

use clap::{Args, Subcommand};

/// `mgp audit …`.
#[derive(Debug, Subcommand)]
pub enum Audit {
    /// Show the last events.
    Tail(TailAudit),
    /// Look at every record of the log, with or without a running kernel.
    #[command(after_help = "\
Names each record that was changed, removed, moved or put in, and what is missing beside the log. A
kernel that runs on the data folder is asked for its last record.
Exits with 0 when the log is whole or the operator has acknowledged what is wrong, with 4 otherwise.

Examples:
  mgp audit verify
  mgp audit verify --data-dir /backup/mgp --json")]
    Verify,
    /// Take note of what is wrong with the log: `verify` does not fail for it any more.
    #[command(after_help = "\
Looks at the whole log, shows what is wrong, and writes down that the operator knows of it. The files stay as
they are. The kernel must be running.

Examples:
  mgp audit acknowledge
  mgp audit acknowledge --reason 'moved to a new disk'")]
    Acknowledge(Acknowledge),
}

/// `mgp audit acknowledge`.
#[derive(Debug, Args)]
pub struct Acknowledge {
    /// Why it may stay so: it is written down with it.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// `mgp audit tail`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp audit tail
  mgp audit tail -f --json | jq 'select(.result != \"SUCCESS\")'")]
pub struct TailAudit {
    /// Go on with new events as they come.
    #[arg(short, long)]
    pub follow: bool,
    /// How many of the last events.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub lines: u64,
}
