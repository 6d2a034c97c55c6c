//! The command line.
//!
//! A running kernel is asked only over its socket, with MCP and MGP; there is no private way in.

pub mod args;
mod client;
mod commands;
mod completions;
mod failure;
mod print;
mod stdio;
mod unseen;
mod words;

use std::process::ExitCode;

pub use args::Cli;

use args::{Command, Internal, Invocation};
use client::CliContext;
use failure::Failure;
use print::report;

/// Carries out what was typed.
#[must_use]
pub fn run(cli: Cli) -> ExitCode {
    let json = cli.options.json;
    let done = match cli.command {
        Invocation::Internal(Internal::Guard) => return crate::kernel::guard(),
        Invocation::Internal(Internal::Sandbox { command }) => {
            return crate::kernel::sandbox(&command);
        }
        Invocation::Internal(Internal::Embed) => return mgp_tools::search::serve(),
        Invocation::Internal(Internal::ReplayKernel { command }) => {
            commands::replay_kernel(&command)
        }
        Invocation::Internal(Internal::DemoServer(server)) => {
            crate::demo::run(&server.root).map_err(Failure::from)
        }
        Invocation::Internal(Internal::Complete(typed)) => {
            completions::complete(&typed, cli.options)
        }
        Invocation::Command(command) => {
            if matches!(&command, Command::Up(up) if up.own_session) {
                // A leader of a group has no session of its own to begin; then it stays where it is.
                let _ = nix::unistd::setsid();
            }
            CliContext::new(cli.options).and_then(|context| {
                commands::run(&context, command).map_err(|failure| context.explained(failure))
            })
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tell(&failure, json);
            failure.code().into()
        }
    }
}

/// Says on stderr what went wrong.
fn tell(failure: &Failure, json: bool) {
    match (failure, json) {
        (Failure::NobodyReads, _) => {}
        (failure, true) => report(failure.to_json()),
        (failure, false) => {
            // What failed may be told in the words of others.
            let told = words::indented(&failure.to_string(), "     | ");
            report(format_args!("mgp: {told}"));
        }
    }
}
