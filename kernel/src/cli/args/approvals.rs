//! `mgp approve`, `mgp deny`, `mgp answer` and `mgp permissions …`.

use clap::{Args, Subcommand};

use super::time_values;

/// `mgp approve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp pending
  mgp approve tobami
  mgp approve tobami --for 1h --only network.outbound
  mgp approve bafog-tulik-zonub    # a node that asks to join, if it shows the same three words")]
pub struct Approve {
    /// The name of the entry, as `mgp pending` shows it.
    pub id: String,
    /// For how long: 90s, 30m, 1h or 7d; for good when not given. Only for permissions: what else is
    /// approved is one call or one definition.
    #[arg(long = "for", value_name = "TIME", value_parser = time_values::parse_millis)]
    pub(crate) during: Option<u64>,
    /// Only this part of the entry; may be given several times.
    #[arg(long, value_name = "PART")]
    pub(crate) only: Vec<String>,
}

/// `mgp answer`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp pending
  mgp answer tobami main
  mgp answer tobami \"the second of May\"")]
pub struct Answer {
    /// The name of the entry, as `mgp pending` shows it.
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
  mgp deny tobami --later    # it goes on without, and the entry stays
  mgp deny bafog-tulik-zonub    # a node that asks to join")]
pub struct Deny {
    /// The name of the entry, as `mgp pending` shows it.
    pub id: String,
    /// Only this part of the entry; may be given several times.
    #[arg(long, value_name = "PART")]
    pub(crate) only: Vec<String>,
    /// Not now: continue without it, and leave the entry open.
    #[arg(long)]
    pub(crate) later: bool,
}

/// `mgp permissions …`.
#[derive(Debug, Subcommand)]
pub enum Permissions {
    /// List the permissions of servers, and how each was decided.
    List(ListPermissions),
    /// Take a permission back from a server.
    Remove(RemovePermission),
}

/// `mgp permissions list`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp permissions list
  mgp permissions list files --json")]
pub struct ListPermissions {
    /// Only this server's.
    pub server: Option<String>,
}

/// `mgp permissions remove`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp permissions remove files network.outbound")]
pub struct RemovePermission {
    /// The server.
    pub server: String,
    /// The permission, as `mgp permissions list` shows it.
    pub(crate) permission: String,
}
