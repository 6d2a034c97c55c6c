//! `mgp secrets`.

use std::ffi::OsString;

use clap::{Args, Subcommand};

/// `mgp secrets`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A secret is kept in the keyring of the desktop where there is one and it is unlocked, else in a file \
that is encrypted with a key of this machine. An entry of mgp.toml has it by its name:

  [servers.env]
  GITHUB_TOKEN = \"secret:github\"
  [servers.headers]
  Authorization = \"Bearer ${secret:github}\"

`secret:agent:github` in either is the secret github of the agent that calls, which has an instance of its own.

Examples:
  mgp secrets set github             # asks for it; what is typed is not shown
  mgp secrets set github --agent alice
  pass show github | mgp secrets set github
  mgp secrets list
  mgp secrets remove github")]
pub enum Secrets {
    /// Set a secret, replacing one of the same name.
    Set(SetSecret),
    /// List secrets and what uses them, without their values.
    List,
    /// Remove a secret.
    Remove(NamedSecret),
}

/// `mgp secrets set`.
#[derive(Debug, Args)]
#[command(after_help = "\
The value is asked for at the terminal, or read from stdin where that is no terminal; the last line \
end is taken off. It is never taken from the command line, which every user of the machine can read.

Examples:
  mgp secrets set github
  pass show github | mgp secrets set github
  mgp secrets set github --agent alice    # for `secret:agent:github`")]
pub struct SetSecret {
    /// Its name: letters, digits, '_', '-', '.', '/' and '@'.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Set it for this agent alone.
    #[arg(long, value_name = "AGENT")]
    pub(crate) agent: Option<String>,
    /// Catches a value typed here by mistake: it is rejected without being repeated.
    #[arg(hide = true)]
    pub value: Vec<OsString>,
}

/// One secret.
#[derive(Debug, Args)]
pub struct NamedSecret {
    /// Its name, as `mgp secrets list` shows it.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The secret of this agent.
    #[arg(long, value_name = "AGENT")]
    pub(crate) agent: Option<String>,
}
