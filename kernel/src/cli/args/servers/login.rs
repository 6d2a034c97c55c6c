//! `mgp login` and `mgp logout`.

use clap::Args;

/// `mgp login`.
#[derive(Debug, Args)]
#[command(after_help = "\
A server that wants a login says so in `mgp servers list` and `mgp pending`, and takes no calls until
then. The address to sign in at is printed, and opened in a browser where this is a terminal; the
browser comes back to an address of this machine. Tokens are kept like secrets, and renewed by the
kernel until they are taken back.

Examples:
  mgp login docs
  mgp login https://example.org/mcp        # the same, by its address
  mgp login docs --agent claude            # where each agent has a login of its own
  mgp login docs --no-browser              # over ssh: open the address elsewhere, paste where it ends")]
pub struct Login {
    /// The server's id, or its address.
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// The agent that the login is for, where each has its own.
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Open no browser: the address at which the browser ends is pasted here.
    #[arg(long)]
    pub no_browser: bool,
}

/// `mgp logout`.
#[derive(Debug, Args)]
#[command(after_help = "\
Where the authorization server takes tokens back, it is asked to. They are removed here in any case.

Examples:
  mgp logout docs
  mgp logout docs --agent claude")]
pub struct Logout {
    /// The server's id, or its address.
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// The agent whose login it is, where each has its own.
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
}
