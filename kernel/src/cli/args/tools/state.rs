//! `mgp state …`.

use clap::{Args, Subcommand};

/// `mgp state …`.
#[derive(Debug, Subcommand)]
pub enum State {
    /// Show how the state of a server's tools came to be: its checkpoints, as trees.
    Log(StateLog),
    /// Roll back to an earlier checkpoint; later states form a new branch.
    Rollback(StateRollback),
}

/// `mgp state log`.
#[derive(Debug, Args)]
#[command(after_help = "\
A state belongs to a feature set of a server, and to one session, one agent or everybody, as \
[mcpl.state] of mgp.toml says. `*` marks where its next call goes on from.

Examples:
  mgp state log notes
  mgp state log notes --set notes.edit --agent alice
  mgp state log notes --json | jq '.states[].checkpoints[-1]'")]
pub struct StateLog {
    /// The server.
    pub server: String,
    /// This feature set alone.
    #[arg(long)]
    pub(crate) set: Option<String>,
    /// This agent alone.
    #[arg(long)]
    pub(crate) agent: Option<String>,
}

/// `mgp state rollback`.
#[derive(Debug, Args)]
#[command(after_help = "\
The server is asked first. Where it cannot undo what it did, nothing is moved.

Examples:
  mgp state rollback notes chk_abc
  mgp state rollback notes chk_abc --set notes.edit --agent alice")]
pub struct StateRollback {
    /// The server.
    pub server: String,
    /// The checkpoint, as `mgp state log` shows it.
    pub(crate) checkpoint: String,
    /// The feature set, where several have this checkpoint.
    #[arg(long)]
    pub(crate) set: Option<String>,
    /// The agent, where several have it.
    #[arg(long)]
    pub(crate) agent: Option<String>,
    /// The session or its beginning, where several of one agent have it.
    #[arg(long)]
    pub(crate) session: Option<String>,
}
