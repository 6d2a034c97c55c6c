//! `mgp skills …`.

use clap::{Args, Subcommand};

use super::ListArgs;

/// `mgp skills …`.
#[derive(Debug, Subcommand)]
pub enum Skills {
    /// List the skills of all servers.
    List(ListArgs),
    /// Show the entry of a skill: its frontmatter, its files and their digests.
    Show(OneSkill),
    /// Read all files of a skill and verify their digests.
    Verify(OneSkill),
}

/// `mgp skills show|verify`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp skills show skill://docs/git-workflow/SKILL.md
  mgp skills verify skill://git-workflow/SKILL.md --server docs")]
pub struct OneSkill {
    /// The URI of its SKILL.md, as listed.
    pub(crate) uri: String,
    /// The server whose own URI it is.
    #[arg(long, value_name = "ID")]
    pub server: Option<String>,
}
