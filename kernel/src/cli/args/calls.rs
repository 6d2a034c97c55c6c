//! `mgp calls …`.

use clap::{Args, Subcommand};

/// `mgp calls …`.
#[derive(Debug, Subcommand)]
pub enum Calls {
    /// Show whether a call took effect, according to the audit log.
    Show(ShowCall),
}

/// `mgp calls show`.
#[derive(Debug, Args)]
#[command(after_help = "\
The outcome is one of:
  done          its server answered it
  not executed  it reached no server: make it again
  unknown       it was sent and not answered: look at what it would have changed

The id stands in the error of the call (`call_id` or `callId`); a client that gives its requests \
a `trace_id` knows it before. A call has its record when it ends.

Examples:
  mgp calls show 550e8400-e29b-41d4-a716-446655440000
  mgp calls show 550e8400-e29b-41d4-a716-446655440000 --json | jq -r .outcome
  mgp audit tail --json | jq -r 'select(.result == \"TIMEOUT\").trace_id'")]
pub struct ShowCall {
    /// The id of the call.
    pub id: String,
}
