//! The program `mgp`: one kernel for all MCP and MGP servers of a machine.

use std::process::ExitCode;

use clap::Parser;
use mgp_kernel::cli::{self, Cli};

fn main() -> ExitCode {
    cli::run(Cli::parse())
}
