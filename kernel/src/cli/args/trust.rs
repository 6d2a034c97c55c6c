//! `mgp trust` and `mgp untrust`.

use std::path::PathBuf;

use clap::Args;

/// `mgp trust`.
#[derive(Debug, Args)]
#[command(after_help = "\
A ./mgp.toml comes with whatever was cloned or unpacked into its folder, and can start any program. \
It counts once you have seen what it would start, and again after each change. Until then \
`mgp status` names it. A file that is named with --config is trusted.

Examples:
  mgp trust                # that of this folder
  mgp trust ~/src/website
  mgp trust --yes .        # where nobody can be asked
  mgp trust --yes --reads GITHUB_TOKEN .
  mgp trust --list")]
pub struct Trust {
    /// The folder; by default the current one.
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
    /// Trust it without asking.
    #[arg(long)]
    pub(crate) yes: bool,
    /// With --yes: allow reading this file outside the folder, or this variable that may be secret.
    #[arg(long, value_name = "FILE|VARIABLE", requires = "yes")]
    pub(crate) reads: Vec<String>,
    /// List trusted folders, and whether their files have changed.
    #[arg(long, conflicts_with_all = ["folder", "yes", "reads"])]
    pub(crate) list: bool,
}

/// `mgp untrust`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp untrust
  mgp untrust ~/src/website")]
pub struct Untrust {
    /// The folder; by default the current one.
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
}
