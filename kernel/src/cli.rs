//! The command line.
//!
//! A running kernel is controlled only over its socket, with MCP and MGP; there is no private protocol.

pub(crate) mod args;
mod client;
mod commands;
mod completions;
mod failure;
mod hidden_input;
mod manual_pages;
mod old_spellings;
mod print;
mod stdio;
mod text_format;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

pub(crate) use args::Cli;

use args::{Command, Internal, Invocation};
use client::CliContext;
use failure::Failure;
use old_spellings::OldSpelling;
use print::print_error;

/// Parses the command line.
///
/// # Errors
/// The exit code, if help was requested or the command line is invalid; either has been printed.
pub fn parse_args(words: impl IntoIterator<Item = OsString>) -> Result<Cli, ExitCode> {
    let words = move_help_to_option(words.into_iter().collect());
    let (words, spelling) = old_spellings::modernize(words);
    if let Some(OldSpelling { old, new }) = spelling
        && !words
            .iter()
            .take_while(|word| *word != "--")
            .any(|word| word == "--json")
    {
        print_error(format_args!(
            "mgp: `mgp {old}` is spelled `mgp {new}` now; the old spelling works until 1.0"
        ));
    }
    let error = match Cli::try_parse_from(&words) {
        Ok(cli) => return Ok(cli),
        Err(error) => error,
    };
    let behind = words.iter().position(|word| word == "--");
    let options = &words[..behind.unwrap_or(words.len())];
    // Requested help and version are printed on stdout.
    if error.use_stderr() && options.iter().any(|word| word == "--json") {
        let text = error.render().to_string();
        let text = text.trim().strip_prefix("error: ").unwrap_or(text.trim());
        print_failure(&Failure::Usage(text.to_owned()), true);
        return Err(Failure::Usage(String::new()).exit_code().into());
    }
    let _ = error.print();
    Err(u8::try_from(error.exit_code()).unwrap_or(2).into())
}

/// `mgp help servers add` as `mgp servers add --help`.
fn move_help_to_option(mut words: Vec<OsString>) -> Vec<OsString> {
    let is_option = |word: &OsString| word.to_string_lossy().starts_with('-');
    let first = words.iter().skip(1).position(|word| !is_option(word));
    if let Some(at) = first.map(|at| at + 1)
        && words[at] == "help"
    {
        words.remove(at);
        words.push("--help".into());
    }
    words
}

/// Runs the command.
#[must_use]
pub fn run(cli: Cli) -> ExitCode {
    let json = cli.options.json;
    let done = match cli.command {
        Invocation::Internal(Internal::Guard) => return crate::kernel::run_guard(),
        Invocation::Internal(Internal::Sandbox { command }) => {
            return crate::kernel::run_sandbox_launcher(&command);
        }
        Invocation::Internal(Internal::Embed) => return mgp_tools::search::serve(),
        Invocation::Internal(Internal::ReplayKernel { command }) => {
            commands::run_replay_kernel(&command)
        }
        Invocation::Internal(Internal::DemoServer(server)) => {
            crate::demo::run(&server.root).map_err(Failure::from)
        }
        Invocation::Internal(Internal::SkillFolder { folder }) => {
            crate::skill_folder::run(&folder).map_err(Failure::from)
        }
        Invocation::Internal(Internal::ManualPages { folder }) => {
            manual_pages::write(&folder).map_err(Failure::from)
        }
        Invocation::Internal(Internal::Complete(typed)) => {
            completions::print_completions(&typed, cli.options)
        }
        Invocation::Command(command) => {
            if matches!(&command, Command::Up(up) if up.own_session) {
                // A process group leader cannot start a session; then it keeps its session.
                let _ = nix::unistd::setsid();
            }
            CliContext::new(cli.options).and_then(|context| {
                commands::run(&context, command).map_err(|failure| context.explain_absence(failure))
            })
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print_failure(&failure, json);
            failure.exit_code().into()
        }
    }
}

/// Prints the failure on stderr.
fn print_failure(failure: &Failure, json: bool) {
    match (failure, json) {
        (Failure::OutputClosed, _) => {}
        (failure, true) => print_error(failure.to_json()),
        (failure, false) => {
            // The message may contain foreign text.
            let told = text_format::indent_continuations(&failure.to_string(), "     | ");
            print_error(format_args!("mgp: {told}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_may_precede_the_command() {
        for (typed, read) in [
            ("mgp help", "mgp --help"),
            ("mgp help servers add", "mgp servers add --help"),
            ("mgp --json help", "mgp --json --help"),
            ("mgp tools call help", "mgp tools call help"),
        ] {
            let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
            assert_eq!(move_help_to_option(words(typed)), words(read));
        }
    }
}
