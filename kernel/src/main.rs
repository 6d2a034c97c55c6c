//! The program `mgp`: one kernel for all MCP and MGP servers of a machine.

use std::process::ExitCode;

use clap::Parser;
use mgp_kernel::cli::{self, Cli, Parts};

fn main() -> ExitCode {
    let parts = Parts {
        up: mgp_kernel::kernel::run,
        guard: mgp_kernel::kernel::guard,
        embed: mgp_tools::finder::serve,
        sandbox: mgp_kernel::kernel::sandbox,
    };
    cli::run(Cli::parse(), &parts)
}
