//! `mgp sets …`.

use clap::{Args, Subcommand};

/// `mgp sets …`.
#[derive(Debug, Subcommand)]
pub enum Sets {
    /// List sets, with what each contains and who is limited to it.
    List,
    /// Show one set: its endpoints and its current tools.
    Show(NamedSet),
}

/// `mgp sets show`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp sets show reading
  mgp sets show reading --json

A set is written in mgp.toml: [sets.reading] with `servers`, `tools` and `except`.")]
pub struct NamedSet {
    /// The set's name.
    pub name: String,
}
