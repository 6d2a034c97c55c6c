//! The program `mgp`: one kernel for all MCP and MGP servers of a machine.

use std::process::ExitCode;

use mgp_kernel::cli;

fn main() -> ExitCode {
    match cli::parse_args(std::env::args_os()) {
        Ok(cli) => cli::run(cli),
        Err(code) => code,
    }
}
