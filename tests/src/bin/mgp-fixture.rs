//! The scripted MCP server of this project's tests; `--help` lists what it can be told to do.

use std::process::ExitCode;

use mgp_tests::fixture;

fn main() -> ExitCode {
    fixture::main(&fixture::options())
}
