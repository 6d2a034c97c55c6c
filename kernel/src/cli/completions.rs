//! `mgp completions`: shell completion.
//!
//! The shells' scripts are short: each passes the words up to the cursor to this program, which knows its own commands
//! and queries the running kernel for names. Names are texts of servers and other nodes: each is quoted so that
//! the shell takes it for one word.

mod bash;
mod command_line;
mod names;

use clap::CommandFactory;

use self::bash::BashLine;
use self::command_line::{CommandLine, Suggestion, Suggestions};
use super::args::{Cli, Complete, CompletionShell, Options};
use super::failure::Failure;
use super::print::print_line;

/// Prints the script of a shell.
pub(super) fn print_script(shell: CompletionShell) -> Result<(), Failure> {
    print_line(match shell {
        CompletionShell::Bash => include_str!("completions/mgp.bash").trim_end(),
        CompletionShell::Zsh => include_str!("completions/mgp.zsh").trim_end(),
        CompletionShell::Fish => include_str!("completions/mgp.fish").trim_end(),
    })
}

/// Prints the completions: first `words`, `files` or `folders`, then a line for each word, with its description after a
/// tab.
pub(super) fn print_completions(typed: &Complete, options: Options) -> Result<(), Failure> {
    let words = typed.words.iter().map(|word| word.to_string_lossy());
    let words: Vec<String> = words.map(std::borrow::Cow::into_owned).collect();
    let (words, bash) = match (typed.shell, words.as_slice()) {
        (CompletionShell::Bash, [breaks, line]) => {
            let line = BashLine::parse(line, breaks);
            (line.words.clone(), Some(line))
        }
        (CompletionShell::Bash, _) => return Ok(()),
        (CompletionShell::Zsh | CompletionShell::Fish, _) => (words, None),
    };
    let suggestions = suggestions(&words, options);
    let mut output = suggestions.kind.as_str().to_owned();
    for Suggestion { word, help: what } in suggestions.words {
        let word = match &bash {
            Some(line) => line.replacement_for(&word),
            None => Some(word),
        };
        let Some(word) = word else { continue };
        output += "\n";
        output += &word;
        if bash.is_none() && !what.is_empty() {
            output += "\t";
            output += &what;
        }
    }
    print_line(output)
}

fn suggestions(words: &[String], options: Options) -> Suggestions {
    let mut root = Cli::command();
    root.build();
    let Some((cursor, before)) = words.split_last() else {
        return Suggestions::default();
    };
    // The first word is the program.
    let Some(line) = CommandLine::parse(&root, before.get(1..).unwrap_or_default()) else {
        return Suggestions::default();
    };
    let mut found = line.suggest(cursor, |kind, typed| {
        names::list_names(
            kind,
            &line.merge_options(&options),
            &line.positionals,
            typed,
        )
    });
    found.words.retain(|found| names::is_printable(&found.word));
    found.words.truncate(names::SUGGESTIONS_MAX);
    found
}
