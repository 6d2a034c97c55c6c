//! `mgp mcpl …`.

use clap::{Args, Subcommand};

/// `mgp mcpl …`.
#[derive(Debug, Subcommand)]
pub enum Mcpl {
    /// Manage which feature sets of servers are enabled.
    #[command(subcommand)]
    Sets(FeatureSets),
    /// Revoke approved scopes.
    Forget(ForgetScopes),
}

/// `mgp mcpl sets …`.
#[derive(Debug, Subcommand)]
pub enum FeatureSets {
    /// Show the feature sets of every server that speaks MCPL, and who enabled or disabled them.
    List,
    /// Enable feature sets of a server, for good.
    #[command(after_help = "Examples:
  mgp mcpl sets enable memory memory.retrieval
  mgp mcpl sets enable memory 'memory.*'
  mgp mcpl sets enable later 'memory.*' --yet-unknown    # before there is such a server

The most exact word counts; of two that are as exact, that of the command line before [mcpl] of mgp.toml.")]
    Enable(FeatureSetSelection),
    /// Disable feature sets of a server, for good.
    #[command(after_help = "Examples:
  mgp mcpl sets disable memory memory.consolidation
  mgp mcpl sets disable memory '*'")]
    Disable(FeatureSetSelection),
    /// Reset feature sets of a server to [mcpl] of mgp.toml.
    #[command(after_help = "Examples:
  mgp mcpl sets reset memory 'memory.*'")]
    Reset(FeatureSetSelection),
}

/// Sets of a server.
#[derive(Debug, Args)]
pub struct FeatureSetSelection {
    /// The server.
    pub server: String,
    /// Its sets: a name, or several at once like 'memory.*' and '*'.
    #[arg(required = true, value_name = "SET")]
    pub(crate) sets: Vec<String>,
    /// Accept names of servers or sets that do not exist yet.
    #[arg(long)]
    pub(crate) yet_unknown: bool,
}

/// `mgp mcpl forget`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp mcpl forget files
  mgp mcpl forget files files.edit")]
pub struct ForgetScopes {
    /// The server.
    pub server: String,
    /// One of its sets; all by default.
    pub(crate) set: Option<String>,
}
