//! The program `mgp`: one kernel for all MCP and MGP servers of a machine.

use std::process::ExitCode;

use mgp_kernel::cli;

/// Allocations of a call are many and small, and are often freed by another thread.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match cli::parse_args(std::env::args_os()) {
        Ok(cli) => cli::run(cli),
        Err(code) => code,
    }
}
