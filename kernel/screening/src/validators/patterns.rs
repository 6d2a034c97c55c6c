//! Signs of an injected command in a text that is not a command itself.
//!
//! Tools build command lines from titles, branches and patterns. Harmless text does not need these shapes.

use super::programs::program_name;
use super::{ArgumentFinding, commands, dangerous_commands};

const HINT: &str = "leave shell syntax out of this argument";

/// Programs that an injected command usually starts with.
const AFTER_BREAK: [&str; 48] = [
    "rm",
    "cat",
    "curl",
    "wget",
    "nc",
    "bash",
    "sh",
    "zsh",
    "python",
    "perl",
    "ruby",
    "node",
    "php",
    "id",
    "whoami",
    "uname",
    "sleep",
    "ping",
    "nslookup",
    "dig",
    "touch",
    "chmod",
    "chown",
    "kill",
    "echo",
    "ls",
    "env",
    "printenv",
    "base64",
    "powershell",
    "cmd",
    "dir",
    "type",
    "net",
    "calc",
    "cp",
    "mv",
    "tee",
    "dd",
    "ssh",
    "scp",
    "ncat",
    "socat",
    "eval",
    "exec",
    "sudo",
    "open",
    "calc.exe",
];

pub(super) fn check(text: &str) -> Option<ArgumentFinding> {
    find_substitution(text)
        .or_else(|| find_breakout(text))
        .or_else(|| check_whole_command(text))
        .or_else(|| check_option(text))
}

fn shell_finding(reason: &str) -> Option<ArgumentFinding> {
    Some(ArgumentFinding::new("injection", reason, HINT))
}

/// Finds `$(id)`, a command in backticks, `${IFS}`, `<(…)`.
fn find_substitution(text: &str) -> Option<ArgumentFinding> {
    let inner = text
        .split("$(")
        .skip(1)
        .chain(text.split('`').skip(1).step_by(2));
    for command in inner {
        let words = commands::split_unquoted(command).next().unwrap_or_default();
        if words.first().is_some_and(|w| is_program(w)) {
            return shell_finding("a command is to be put in by a shell");
        }
    }
    let shapes = ["${IFS", "$IFS", "<(", ">(", "$((", "${@", "$'\\x"];
    let shape = shapes.iter().any(|s| text.contains(s)) && !text.contains("=>");
    if shape && !text.contains("<()") {
        return shell_finding("a shell would replace a part of it");
    }
    None
}

/// Finds `x; rm …`, `x && curl …`, `x | sh`, a line break before a command.
fn find_breakout(text: &str) -> Option<ArgumentFinding> {
    // The same command follows all separators of one run, and is parsed once for each kind of them: a run
    // of any length is read once.
    let (mut words, mut begins, mut seen) = (Vec::new(), 0, String::new());
    for (at, sep) in text.match_indices([';', '|', '&', '\n', '\r']) {
        if at >= begins {
            (begins, words) = commands::first_unquoted_part(text, at + sep.len())?;
            seen.clear();
        }
        if !seen.contains(sep) {
            seen.push_str(sep);
            if let Some(reason) = second_command_reason(sep, &words) {
                return shell_finding(reason);
            }
        }
    }
    None
}

/// The reason why the words after a separator are an injected command.
fn second_command_reason(sep: &str, words: &[String]) -> Option<&'static str> {
    let (first, more) = words.split_first()?;
    let shaped = more.iter().any(|word| is_command_like(word));
    // After a sentence's own semicolon a plain word follows; a command has more shape.
    let alone = more.is_empty();
    let program = is_program(first) && !(sep == "\n" && alone);
    if program && (shaped || alone) && !(sep == "|" && alone && !is_shell(first)) {
        return Some("a second command stands behind a separator");
    }
    if shaped && dangerous_commands::check(words).is_some() {
        return Some("a dangerous command stands behind a separator");
    }
    None
}

/// True for options, paths, redirections, substitutions.
fn is_command_like(word: &str) -> bool {
    word.starts_with(['-', '/', '~', '>', '<', '$', '.', '@', '#'])
        || word.contains("://")
        || word.contains('/')
        || word.contains('=')
}

fn is_shell(word: &str) -> bool {
    let name = program_name(word);
    name.ends_with("sh") || name == "python" || name == "perl" || name == "cmd"
}

fn is_program(word: &str) -> bool {
    AFTER_BREAK.contains(&program_name(word).as_str())
}

/// Checks whether the whole text is a dangerous command, or a fork bomb.
fn check_whole_command(text: &str) -> Option<ArgumentFinding> {
    let dense: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    if dense.contains(":(){:|:&};:") {
        return shell_finding("it is a fork bomb");
    }
    let lower = text.to_lowercase();
    let device = [
        "> /dev/sd",
        ">/dev/sd",
        "> /dev/nvme",
        "/dev/tcp/",
        "/dev/udp/",
    ];
    if device.iter().any(|d| lower.contains(d)) {
        return shell_finding("it writes to a device or opens a connection through the shell");
    }
    let words = commands::split_unquoted(text).next()?;
    let shaped = words.len() > 1 && words[1..].iter().any(|w| is_command_like(w));
    let finding = dangerous_commands::check(&words)?;
    (shaped && finding.rule != "environment").then_some(finding)
}

/// Checks for an option in place of a value, among options that run something.
fn check_option(text: &str) -> Option<ArgumentFinding> {
    let text = text.trim_start().to_lowercase();
    let runs = [
        "-oproxycommand",
        "--upload-pack",
        "--receive-pack",
        "--to-command",
        "--checkpoint-action",
        "--open-files-in-pager",
        "--exec=",
        "--config-env",
        "--use-compress-program",
    ];
    if runs.iter().any(|o| text.starts_with(o)) || text.starts_with("ext::") {
        return shell_finding("it is an option that runs a program, not a value");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A text of a million separators is read once, not once for each of them.
    #[test]
    fn long_run_of_separators_is_read_once() {
        for run in [";", "|&", ";()", "\n'"] {
            let text = format!("{}rm -rf /", run.repeat(500_000));
            assert!(find_breakout(&text).is_some(), "{run:?}");
        }
    }

    proptest! {
        /// MGP-058: checking each separator separately finds the same.
        #[test]
        fn run_of_separators_hides_nothing(text in "([;|&\n'\" ()]|rm|-rf|/x|sh|ls|word){0,12}") {
            let each = text.match_indices([';', '|', '&', '\n', '\r']).any(|(at, sep)| {
                let rest = text[at + sep.len()..].trim_start_matches(['&', '|', ' ', '\t', '\'', '"']);
                let words = commands::split_unquoted(rest).next().unwrap_or_default();
                second_command_reason(sep, &words).is_some()
            });
            prop_assert_eq!(find_breakout(&text).is_some(), each);
        }
    }
}
