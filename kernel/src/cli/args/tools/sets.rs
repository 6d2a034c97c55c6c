//! `mgp sets …`.

use clap::{Args, Subcommand};

/// `mgp sets …`.
#[derive(Debug, Subcommand)]
pub enum Sets {
    /// Show every set: what it has, and who is held to it.
    List,
    /// Show one set: its doors, and the tools there are of it now.
    Info(NamedSet),
}

/// `mgp sets info`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp sets info reading
  mgp sets info reading --json

A set is written in mgp.toml: [sets.reading] with `servers`, `tools` and `except`.")]
pub struct NamedSet {
    /// The set's name.
    pub name: String,
}
