//! `mgp resources …` and `mgp prompts …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `mgp resources …`.
#[derive(Debug, Subcommand)]
pub enum Resources {
    /// Show every resource and every template of one.
    List(List),
    /// Read a resource.
    Read(Read),
}

/// `mgp prompts …`.
#[derive(Debug, Subcommand)]
pub enum Prompts {
    /// Show every prompt and what it asks for.
    List(List),
    /// Fill a prompt in and show its messages.
    Get(Get),
}

/// What is listed.
#[derive(Debug, Args)]
pub struct List {
    /// Only this server's, under its own names.
    #[arg(long, value_name = "ID")]
    pub server: Option<String>,
}

/// `mgp resources read`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp resources read demo://readme
  mgp resources read demo://greeting/Anna --server demo
  mgp resources read file:///srv/logo.png --out pictures")]
pub struct Read {
    /// Its URI, as listed or made from a template.
    pub uri: String,
    /// The server whose own URI it is.
    #[arg(long, value_name = "ID")]
    pub server: Option<String>,
    /// Where to save what is no text.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
}

/// `mgp prompts get`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp prompts get demo__explain topic=tides
  mgp prompts get explain topic=tides --server demo")]
pub struct Get {
    /// The prompt, as listed.
    pub name: String,
    /// What it asks for; every value is text.
    #[arg(value_name = "KEY=VALUE")]
    pub arguments: Vec<String>,
    /// The server whose own name it is.
    #[arg(long, value_name = "ID")]
    pub server: Option<String>,
    /// Where to save pictures and sounds.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
}
