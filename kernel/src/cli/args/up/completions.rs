//! `mgp completions`.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

/// `mgp completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Once, for the shell that is open:
  eval \"$(mgp completions bash)\"
  eval \"$(mgp completions zsh)\"            (after compinit)
  mgp completions fish | source

For every one: the same line in ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish.

Names of servers, tools, agents and nodes come from the kernel that runs, within 200 ms; where none \
answers by then, there are none. Names with characters that no terminal shows are left out.")]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: CompletionShell,
}

/// A shell that completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompletionShell {
    /// GNU bash, from 3.2 on.
    Bash,
    /// zsh.
    Zsh,
    /// fish, from 3.0 on.
    Fish,
}

/// `mgp __complete`: called by the scripts of the shells.
#[derive(Debug, Args)]
pub struct Complete {
    /// The calling shell.
    #[arg(value_enum)]
    pub(crate) shell: CompletionShell,
    /// The words up to the cursor, the last one unfinished. From bash: what ends a word for it, and the
    /// line up to the cursor.
    #[arg(last = true)]
    pub(crate) words: Vec<OsString>,
}
