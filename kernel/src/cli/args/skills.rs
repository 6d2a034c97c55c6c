//! `mgp skills …`.

use std::path::PathBuf;

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
    /// Add the skills of a folder as a server, and start it if a kernel runs.
    Serve(ServeSkills),
}

/// `mgp skills serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp skills serve ~/skills
  mgp skills serve ./skills --name team    # skill://team/… for agents

Each folder with a SKILL.md is a skill, with all files in it. One with a link in it, more than 512 files
or 16 MiB, or a name other than its folder's is left out; `mgp servers logs ID` says why. Files whose
names begin with a dot are not served. Changes are noticed; `mgp servers remove ID` ends it.")]
pub struct ServeSkills {
    /// The folder.
    pub(crate) folder: PathBuf,
    /// The server's id: letters, digits, '.', '_' and '-'.
    #[arg(long, value_name = "ID", default_value = "skills")]
    pub(crate) name: String,
    /// Write it into ./mgp.toml instead of your own file.
    #[arg(long)]
    pub(crate) project: bool,
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
