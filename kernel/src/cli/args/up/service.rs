//! `mgp service`.

use clap::{Args, Subcommand};

/// `mgp service`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
The kernel as a service of your session: systemd holds its socket and starts it when a client connects \
for the first time, again when it fails, and keeps its log in the journal.

Examples:
  mgp service install
  mgp service status
  journalctl --user -u mgp -f
  mgp service remove")]
pub enum Service {
    /// Write the units, and have systemd listen on the socket.
    Install(ServiceInstall),
    /// Show whether it is installed and runs, and which programs it finds.
    Status,
    /// Stop it and remove the units.
    Remove,
    /// Run the kernel with the PATH of your shell; the unit starts this.
    #[command(hide = true)]
    Run,
}

/// `mgp service install`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mgp service install
  mgp service install --dry-run      # shows the units and writes nothing
  mgp service install --write-only   # for an image: systemd takes them up at the next login")]
pub struct ServiceInstall {
    /// Show the files and write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write the files, and do not ask the service manager for anything.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) write_only: bool,
}
