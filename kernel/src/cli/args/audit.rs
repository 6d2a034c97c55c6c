//! `mgp audit …`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use mgp_protocol::mgp::audit::Outcome;

use super::time_values;

/// `mgp audit …`.
#[derive(Debug, Subcommand)]
pub enum Audit {
    /// Show the last events.
    Tail(TailAudit),
    /// Find events by agent, server, tool and time, the newest first.
    Find(FindAudit),
    /// Verify every record of the log, with or without a running kernel.
    #[command(after_help = "\
Names each record that was changed, removed, moved or put in, and what is missing beside the log. A \
kernel that runs on the data folder is asked for its last record.
Exits with 0 when the log is whole or the operator has acknowledged what is wrong, with 4 otherwise.

Examples:
  mgp audit verify
  mgp audit verify --data-dir /backup/mgp --json")]
    Verify,
    /// Acknowledge damage of the log, so that `verify` passes again.
    #[command(after_help = "\
Looks at the whole log, shows what is wrong, and writes down that the operator knows of it. The files stay as \
they are. The kernel must be running.

Examples:
  mgp audit acknowledge
  mgp audit acknowledge --reason 'moved to a new disk'")]
    Acknowledge(Acknowledge),
}

/// `mgp audit acknowledge`.
#[derive(Debug, Args)]
pub struct Acknowledge {
    /// The reason, recorded with it.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

/// `mgp audit tail`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp audit tail
  mgp audit tail -f --json | jq 'select(.result != \"SUCCESS\")'")]
pub struct TailAudit {
    /// Follow new events.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Show below each call of a millisecond or more where its time went, at other nodes too.
    #[arg(long)]
    pub parts: bool,
    /// Number of events.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub(crate) lines: u64,
}

/// `mgp audit find`.
#[derive(Debug, Args)]
#[command(after_help = "\
An event has to be all of what is asked. Names are read as everywhere; one that does not exist now is looked \
for all the same, because the log is about what was. With --server, --tool is that server's own name.

The kernel finds events without reading the whole log. Where it is still building what it needs for that, what \
is found may not be all, which is said.

Examples:
  mgp audit find --agent claude --since 2h
  mgp audit find --result denied --since 7d
  mgp audit find --tool files:write_file --since 2026-03-01T00:00:00Z --until 7d
  mgp audit find --trace 550e8400-e29b-41d4-a716-446655440000
  mgp audit find --server nas/files --parts
  mgp audit find --server files --limit 1000 --json | jq 'select(.result != \"SUCCESS\")'")]
pub struct FindAudit {
    /// Done by this agent, or about it.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Done to this server, or reported by it.
    #[arg(long, value_name = "ID")]
    pub server: Option<String>,
    /// Done with this tool.
    #[arg(long, value_name = "TOOL")]
    pub tool: Option<String>,
    /// Of this trace; `trace_id` in `mgp audit tail --json`.
    #[arg(long, value_name = "ID")]
    pub(crate) trace: Option<String>,
    /// With this result.
    #[arg(long, value_name = "RESULT", ignore_case = true, value_parser = outcome_parser())]
    pub(crate) result: Option<Outcome>,
    /// Not longer ago, like 2h, or not before a moment, like 2026-03-01T00:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = time_values::parse_start)]
    pub(crate) since: Option<u64>,
    /// Longer ago, or before a moment.
    #[arg(long, value_name = "TIME", value_parser = time_values::parse_start)]
    pub(crate) until: Option<u64>,
    /// Show below each call of a millisecond or more where its time went, at other nodes too.
    #[arg(long)]
    pub parts: bool,
    /// At most this many events, up to 1000.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) limit: u64,
}

/// The results of events.
fn outcome_parser() -> impl TypedValueParser<Value = Outcome> {
    PossibleValuesParser::new(Outcome::ALL.map(Outcome::label)).map(|word| {
        let is_it = |result: &Outcome| result.label().eq_ignore_ascii_case(&word);
        let found = Outcome::ALL.into_iter().find(is_it);
        found.expect("the word is one of them")
    })
}
