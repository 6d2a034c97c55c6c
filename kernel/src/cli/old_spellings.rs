//! Old spellings of commands, accepted until 1.0.

use std::ffi::OsString;

/// Options with a value that may precede a word of an old spelling.
const WITH_VALUE: [&str; 5] = ["--config", "--socket", "--data-dir", "--agent", "--only"];

/// Hidden commands that answer scripts in their own format, and their replacements.
const HIDDEN: [(&str, &str); 2] = [("node approve", "approve"), ("node refuse", "deny")];
/// Old spellings and the current ones. The first match counts.
const SPELLINGS: [(&str, &str); 15] = [
    ("node id", "nodes show"),
    ("node revoke", "nodes remove"),
    ("node", "nodes"),
    ("servers info", "servers show"),
    ("sets info", "sets show"),
    ("events channels", "events list"),
    ("grant", "grants add"),
    ("revoke", "grants remove"),
    ("share", "shares add"),
    ("unshare", "shares remove"),
    ("login", "logins add"),
    ("logout", "logins remove"),
    // Without a verb: `mgp grants --agent x`.
    ("grants", "grants list"),
    ("shares", "shares list"),
    // With a second word that is no option: `mgp deny files shell.execute`.
    ("deny", "permissions remove"),
];
/// Verbs after a noun that had none before.
const VERBS: [&str; 5] = ["list", "add", "remove", "help", "show"];

/// An old spelling that was typed, and the current one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OldSpelling {
    pub(super) old: &'static str,
    pub(super) new: &'static str,
}

/// Rewrites an old spelling, and reports it. Options keep their positions.
pub(super) fn modernize(mut words: Vec<OsString>) -> (Vec<OsString>, Option<OldSpelling>) {
    let positions = positionals(&words);
    let typed: Vec<&str> = positions
        .iter()
        .filter_map(|at| words[*at].to_str())
        .collect();
    let wants_help = words.iter().any(|word| word == "--help" || word == "-h");
    let is_old = |(old, _): &&(&str, &str)| matches(&typed, wants_help, old);
    let Some(&(old, new)) = SPELLINGS.iter().find(is_old) else {
        return (words, None);
    };
    let hidden = HIDDEN
        .iter()
        .find(|(hidden, _)| begins_with(&typed, hidden));
    let replaced = &positions[..old.split(' ').count()];
    for at in replaced[1..].iter().rev() {
        words.remove(*at);
    }
    let first = replaced[0];
    words.splice(first..=first, new.split(' ').map(OsString::from));
    let (old, new) = *hidden.unwrap_or(&(old, new));
    (words, Some(OldSpelling { old, new }))
}

/// Positions of the first words that are neither options nor their values: as many as a spelling has, and none after
/// a word that is not UTF-8.
fn positionals(words: &[OsString]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 1;
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        if word == "--" || found.len() == 3 {
            break;
        }
        if WITH_VALUE.contains(&word) {
            at += 1;
        } else if !word.starts_with('-') {
            found.push(at);
        }
        at += 1;
    }
    found
}

fn begins_with(typed: &[&str], spelling: &str) -> bool {
    let mut typed = typed.iter();
    spelling.split(' ').all(|word| typed.next() == Some(&word))
}

fn matches(typed: &[&str], wants_help: bool, old: &str) -> bool {
    begins_with(typed, old)
        && match old {
            // The help of the noun lists its verbs.
            "grants" | "shares" => {
                !wants_help && !typed.get(1).is_some_and(|next| VERBS.contains(next))
            }
            "deny" => typed.len() == 3,
            _ => true,
        }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use clap::Parser;

    use super::*;
    use crate::cli::args::Cli;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn old_spellings_are_rewritten() {
        for (old, new) in [
            ("mgp node list --json", "mgp nodes list --json"),
            ("mgp --json node id", "mgp --json nodes show"),
            (
                "mgp --config f node approve a-b-c",
                "mgp --config f nodes approve a-b-c",
            ),
            ("mgp node refuse", "mgp nodes refuse"),
            ("mgp grant a files --deny", "mgp grants add a files --deny"),
            ("mgp grants", "mgp grants list"),
            ("mgp grants --agent a", "mgp grants list --agent a"),
            ("mgp shares --json", "mgp shares list --json"),
            ("mgp unshare files", "mgp shares remove files"),
            ("mgp servers info files", "mgp servers show files"),
            (
                "mgp servers --json info files",
                "mgp servers show --json files",
            ),
            ("mgp node --socket s id", "mgp nodes show --socket s"),
            ("mgp grants --json", "mgp grants list --json"),
            (
                "mgp deny files --json camera",
                "mgp permissions remove files --json camera",
            ),
            // An agent with the name of a verb.
            ("mgp grants --agent list", "mgp grants list --agent list"),
            (
                "mgp login docs --no-browser",
                "mgp logins add docs --no-browser",
            ),
            (
                "mgp deny files shell.execute",
                "mgp permissions remove files shell.execute",
            ),
        ] {
            let (rewritten, spelling) = modernize(words(old));
            assert_eq!(rewritten, words(new));
            assert!(spelling.is_some(), "{old}");
            assert!(Cli::try_parse_from(&rewritten).is_ok(), "{new}");
        }
    }

    #[test]
    fn a_hidden_command_is_reported_with_its_new_spelling() {
        let (_, spelling) = modernize(words("mgp node approve a-b-c"));
        let expected = OldSpelling {
            old: "node approve",
            new: "approve",
        };
        assert_eq!(spelling, Some(expected));
    }

    #[test]
    fn new_spellings_stay_as_they_are() {
        for new in [
            "mgp nodes list",
            "mgp grants list --agent a",
            "mgp grants --help",
            "mgp shares -h",
            "mgp grants --json list",
            "mgp --json shares --socket s add files --to cluster",
            "mgp deny --only shell.execute tobami --json",
            "mgp shares add files --to cluster",
            "mgp deny tobami --only shell.execute",
            "mgp deny tobami --json",
            "mgp servers logs info",
            "mgp tools call grant",
            "mgp --help",
        ] {
            assert_eq!(modernize(words(new)), (words(new), None));
        }
    }

    #[test]
    fn every_new_spelling_is_a_command() {
        for (_, new) in SPELLINGS.into_iter().chain(HIDDEN) {
            let help = words(&format!("mgp {new} --help"));
            let error = Cli::try_parse_from(help).unwrap_err();
            assert!(!error.use_stderr(), "{new}: {error}");
        }
    }

    /// Errors, help, comments and docs: commands in backticks, after a prompt or on their own line.
    #[test]
    fn no_text_uses_an_old_spelling() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let (mut files, mut commands) = (Vec::new(), 0);
        text_files(root, &mut files);
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            for command in commands_in(&text) {
                let (_, old) = modernize(words(&command));
                assert_eq!(old, None, "{}: {command}", file.display());
                commands += 1;
            }
        }
        assert!(commands > 500, "only {commands} commands were found");
    }

    #[test]
    fn commands_are_found_in_text() {
        for (text, command) in [
            ("/// `mgp grant a`, or", Some("mgp grant a")),
            ("  mgp login docs   # for docs", Some("mgp login docs")),
            ("nas$ mgp node id", Some("mgp node id")),
            ("\"run `mgp grants` first\"", Some("mgp grants")),
            ("`mgp deny ID [--later]`", Some("mgp deny ID")),
            ("`mgp grants …` and others", None),
            ("b\"mgp grants operation v1\"", None),
        ] {
            let found: Vec<String> = commands_in(text).collect();
            assert_eq!(found, Vec::from_iter(command), "{text}");
        }
    }

    /// The commands in a text; none followed by `…`, which stands for all verbs of a noun.
    fn commands_in(text: &str) -> impl Iterator<Item = String> {
        let shown = text.match_indices("mgp ").filter(|(at, _)| {
            let before = text[..*at].rsplit('\n').next().unwrap_or_default();
            before.ends_with(['`', '"']) && !before.ends_with("b\"")
                || before.ends_with("$ ")
                || before.chars().all(|c| c == ' ')
        });
        shown.filter_map(|(at, _)| {
            let command = text[at..]
                .split(['`', '"', '\n', '#', '|', '[', ';'])
                .next()?;
            let command = command.split("  ").next().unwrap_or(command);
            (!command.contains('…')).then(|| command.trim_end().to_owned())
        })
    }

    fn text_files(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap_or_default();
            let extension = path.extension().and_then(|it| it.to_str());
            if path.is_dir() {
                if !name.starts_with('.') && !["target", "node_modules", "corpus"].contains(&name) {
                    text_files(&path, into);
                }
            } else if matches!(
                extension,
                Some("rs" | "md" | "js" | "html" | "example" | "py")
            ) && name != "old_spellings.rs"
            {
                into.push(path);
            }
        }
    }
}
