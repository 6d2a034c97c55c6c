//! `mgp logins …`.

use clap::{Args, Subcommand};

/// `mgp logins …`.
#[derive(Debug, Subcommand)]
pub enum Logins {
    /// List stored logins, and those that servers want.
    List,
    /// Sign in to a server that is reached over HTTP.
    Add(Login),
    /// Revoke and delete the tokens of a login.
    Remove(Logout),
}

/// `mgp logins add`.
#[derive(Debug, Args)]
#[command(after_help = "\
A server that wants a login says so in `mgp servers list` and `mgp pending`, and takes no calls until \
then. The address to sign in at is printed, and opened in a browser where this is a terminal; the \
browser comes back to an address of this machine. Tokens are kept like secrets, and renewed by the \
kernel until they are taken back.

Examples:
  mgp logins add docs
  mgp logins add https://example.org/mcp        # the same, by its address
  mgp logins add docs --agent claude            # where each agent has a login of its own
  mgp logins add docs --no-browser              # over ssh: sign in elsewhere, then paste its URL")]
pub struct Login {
    /// The server's id, or its address.
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// The agent that the login is for, where each has its own.
    #[arg(long, value_name = "AGENT")]
    pub(crate) agent: Option<String>,
    /// Open no browser: the address at which the browser ends is pasted here.
    #[arg(long)]
    pub(crate) no_browser: bool,
}

/// `mgp logins remove`.
#[derive(Debug, Args)]
#[command(after_help = "\
Where the authorization server takes tokens back, it is asked to. They are removed here in any case.

Examples:
  mgp logins remove docs
  mgp logins remove docs --agent claude")]
pub struct Logout {
    /// The server's id, or its address.
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// The agent whose login it is, where each has its own.
    #[arg(long, value_name = "AGENT")]
    pub(crate) agent: Option<String>,
}
