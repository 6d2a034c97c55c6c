//! `mgp events …`.

pub(super) mod replay;
pub(super) mod trace;

use clap::{Args, Subcommand, ValueEnum};
use mgp_protocol::mgp::events::Severity;

/// `mgp events …`.
#[derive(Debug, Subcommand)]
pub enum Events {
    /// Follow events.
    Tail(TailEvents),
    /// List channels.
    #[command(after_help = "\
The kernel's own, and those that servers said they have to somebody who subscribed. Events of channels that \
are in the audit log can be read later, too: `mgp events tail --since`.

Examples:
  mgp events list
  mgp events list --json")]
    List,
}

/// `mgp events tail`.
#[derive(Debug, Args)]
#[command(after_help = "\
CHANNEL is a name, or a pattern that ends in `*`; every channel when none is given. Each event that is in the \
audit log has a cursor, which --json shows as \"_mgp.cursor\"; --since goes on after it, also when the kernel \
was started again meanwhile. Runs until it is interrupted.

Examples:
  mgp events tail
  mgp events tail 'tool.*' security.access_denied
  mgp events tail 'security.*' --min-severity warning
  mgp events tail --since 0 --json | jq .channel")]
pub struct TailEvents {
    /// Channels, or patterns that end in `*`.
    #[arg(value_name = "CHANNEL")]
    pub(crate) channels: Vec<String>,
    /// Replay recorded events after this cursor first; 0 for all.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) since: Option<String>,
    /// Only events of at least this severity.
    #[arg(long, value_name = "SEVERITY", value_enum)]
    pub(crate) min_severity: Option<SeverityArg>,
}

/// A severity as it is typed.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SeverityArg {
    /// For debugging.
    Debug,
    /// Normal operation.
    Info,
    /// An unexpected condition.
    Warning,
    /// A failure.
    Error,
    /// A complete failure.
    Critical,
}

impl From<SeverityArg> for Severity {
    fn from(typed: SeverityArg) -> Self {
        match typed {
            SeverityArg::Debug => Self::Debug,
            SeverityArg::Info => Self::Info,
            SeverityArg::Warning => Self::Warning,
            SeverityArg::Error => Self::Error,
            SeverityArg::Critical => Self::Critical,
        }
    }
}
