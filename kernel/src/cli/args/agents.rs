//! `mgp agents …`.

use clap::{Args, Subcommand};

use super::time_values;

/// `mgp agents …`.
#[derive(Debug, Subcommand)]
pub enum Agents {
    /// Add an agent, and print its token once, with the entries for its client.
    Add(AddAgent),
    /// List agents with a token.
    List,
    /// Remove an agent and its token; its requests end.
    Remove(NamedAgent),
    /// Show the age of an agent's token, or rotate it.
    Token(AgentToken),
}

/// `mgp agents add`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp agents add alice
  mgp agents add ci --expires 30d

Prints what goes into the configuration of a client: for one that starts programs
(`mgp stdio --agent alice`, without a token), and for one that speaks HTTP, with the token.
The token is printed once and kept as a hash. It stands alone on stdout; the entries go to stderr.")]
pub struct AddAgent {
    /// The agent's name: letters, digits, '.', '_' and '-'.
    pub name: String,
    /// Lifetime of the token: 90s, 45m, 12h, 30d; unlimited by default.
    #[arg(long, value_name = "TIME", value_parser = time_values::parse_seconds)]
    pub(crate) expires: Option<u64>,
}

/// An agent by its name.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  mgp agents remove alice")]
pub struct NamedAgent {
    /// The agent's name, with or without `agent.`.
    pub name: String,
}

/// `mgp agents token`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp agents token alice                        # when it was made, and until when it is good
  mgp agents token alice --rotate --expires 7d  # a new one; the old one ends at once")]
pub struct AgentToken {
    /// The agent's name, with or without `agent.`.
    pub name: String,
    /// Replace the token, and print the new one once.
    #[arg(long)]
    pub(crate) rotate: bool,
    /// Lifetime of the new token: 90s, 45m, 12h, 30d; unlimited by default.
    #[arg(long, value_name = "TIME", value_parser = time_values::parse_seconds, requires = "rotate")]
    pub(crate) expires: Option<u64>,
}
