//! `mgp lan …`.

use clap::Subcommand;

/// `mgp lan …`.
#[derive(Debug, Subcommand)]
pub enum Lan {
    /// Announce this node on the local network, and look for the others of its cluster there: its id, its
    /// port and its addresses, never a name of a tool or an agent.
    On,
    /// Stop announcing this node.
    Off,
    /// Show whether it is on, and the discovered nodes.
    Status,
}
