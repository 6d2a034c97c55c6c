//! `mgp replay`.

use std::path::PathBuf;

use clap::Args;

/// `mgp replay`.
#[derive(Debug, Args)]
#[command(after_help = "\
Plays the calls, lists and reads of the recording one after the other, and compares each answer with the recorded \
one, as JSON values. What a server asks meanwhile is answered as it was. What changes by its nature (cursors, ids \
and times of tasks, request states) counts as the same. Exit code 0 when all answers are the same, 1 when not.

Examples:
  mgp replay github.jsonl
  mgp replay github.jsonl --server github-next
  mgp replay github.jsonl --ignore /result/content/0/text --json
  mgp replay github.jsonl --set token=secret:github
  mgp replay github.jsonl --notifications
  mgp replay github.jsonl --update
  mgp replay files.jsonl -- npx -y @modelcontextprotocol/server-filesystem .")]
pub struct Replay {
    /// A file of `mgp trace SERVER --save FILE`.
    pub file: PathBuf,
    /// The server; by default that of the recording.
    #[arg(long, value_name = "ID", conflicts_with = "command")]
    pub server: Option<String>,
    /// A part of answers that may differ: a JSON pointer, in which `*` stands for any part. May be given more than
    /// once.
    #[arg(long, value_name = "POINTER")]
    pub(crate) ignore: Vec<String>,
    /// The value of what is masked under this name: env:VARIABLE, or secret:NAME of `mgp secrets`. May be given more
    /// than once.
    #[arg(long, value_name = "NAME=FROM")]
    pub(crate) set: Vec<String>,
    /// Also compare whether the server reported progress for requests that asked for it.
    #[arg(long)]
    pub(crate) notifications: bool,
    /// Write answers that differ into the file.
    #[arg(long)]
    pub(crate) update: bool,
    /// Make calls that may change something without confirmation.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Start a fresh copy of the server in a temporary kernel: the program and its arguments, after `--`.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
