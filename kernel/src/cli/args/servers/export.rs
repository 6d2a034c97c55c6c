//! `mgp export`.

use clap::Args;

/// `mgp export`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp export                               # prints it, as most clients write it
  mgp export --to cursor                   # shows, asks, writes; keeps a copy of the old file
  mgp export --to .mcp.json --only files
  mgp export --to vscode --dry-run

Secrets are never written: VS Code is told to ask for them, others are given the name of a variable to
set, and where a client has neither, what is missing is named.")]
pub struct Export {
    /// A client: claude-desktop, claude-code, cursor, vscode, windsurf, zed, codex, gemini, opencode,
    /// goose, lmstudio, cline, copilot, antigravity, roo, continue; or a file. Only printed when not given.
    #[arg(long, value_name = "CLIENT|FILE")]
    pub to: Option<String>,
    /// Only this server, by its id.
    #[arg(long, value_name = "ID")]
    pub(crate) only: Vec<String>,
    /// Write the values of variables and secrets in clear text.
    #[arg(long)]
    pub(crate) with_values: bool,
    /// Replace entries of the same names.
    #[arg(long, requires = "to")]
    pub replace: bool,
    /// Show what would be written, and change nothing.
    #[arg(long, conflicts_with = "yes", requires = "to")]
    pub(crate) dry_run: bool,
    /// Write it without asking.
    #[arg(short, long, requires = "to")]
    pub(crate) yes: bool,
}
