//! `mgp resources …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ListArgs;

/// `mgp resources …`.
#[derive(Debug, Subcommand)]
pub enum Resources {
    /// List resources and resource templates.
    List(ListArgs),
    /// Read a resource.
    Read(ReadResource),
}

/// `mgp resources read`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp resources read demo://readme
  mgp resources read demo://greeting/Anna --server demo
  mgp resources read file:///srv/logo.png --out pictures")]
pub struct ReadResource {
    /// Its URI, as listed or expanded from a template.
    pub(crate) uri: String,
    /// The server whose own URI it is.
    #[arg(long, value_name = "ID")]
    pub server: Option<String>,
    /// Where to save binary contents.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) out: PathBuf,
}
