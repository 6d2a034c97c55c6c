//! `mgp approve`, `mgp deny` and `mgp answer`.

use clap::Args;

use super::times;

/// `mgp approve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp pending
  mgp approve tobami
  mgp approve tobami --for 1h --only network.outbound")]
pub struct Approve {
    /// The name of the question, as `mgp pending` shows it.
    pub id: String,
    /// For how long: 90s, 30m, 1h or 7d; for good when not given. Only for permissions: what else is
    /// approved is one call or one definition.
    #[arg(long = "for", value_name = "TIME", value_parser = times::millis)]
    pub during: Option<u64>,
    /// Only this part of the question; may be given several times.
    #[arg(long, value_name = "PART")]
    pub only: Vec<String>,
}

/// `mgp answer`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp pending
  mgp answer tobami main
  mgp answer tobami \"the second of May\"")]
pub struct Answer {
    /// The name of the question, as `mgp pending` shows it.
    pub id: String,
    /// One of the options it shows, or any text where it shows none.
    #[arg(required = true)]
    pub value: Vec<String>,
}

/// `mgp deny`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp deny tobami
  mgp deny tobami --only shell.execute
  mgp deny tobami --later    # it goes on without, and the question stays
  mgp deny files network.outbound    # takes back what server files has")]
pub struct Deny {
    /// The name of the question, as `mgp pending` shows it; or a server.
    pub id: String,
    /// The permission to take back from the server.
    #[arg(conflicts_with_all = ["only", "later"])]
    pub permission: Option<String>,
    /// Only this part of the question; may be given several times.
    #[arg(long, value_name = "PART")]
    pub only: Vec<String>,
    /// Not now: it goes on without, and the question stays open.
    #[arg(long)]
    pub later: bool,
}
