//! `mgp prompts …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ListArgs;

/// `mgp prompts …`.
#[derive(Debug, Subcommand)]
pub enum Prompts {
    /// List prompts and their arguments.
    List(ListArgs),
    /// Render a prompt with its arguments.
    Get(GetPrompt),
}

/// `mgp prompts get`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp prompts get demo__explain topic=tides
  mgp prompts get explain topic=tides --server demo")]
pub struct GetPrompt {
    /// The prompt, as listed.
    pub name: String,
    /// Its arguments; every value is text.
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) arguments: Vec<String>,
    /// The server whose own name it is.
    #[arg(long, value_name = "ID")]
    pub server: Option<String>,
    /// Where to save pictures and sounds.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) out: PathBuf,
}
