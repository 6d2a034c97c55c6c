//! Old spellings of commands, which are read until 1.0.

use std::ffi::OsString;

/// Options of every command that take a value.
const WITH_VALUE: [&str; 3] = ["--config", "--socket", "--data-dir"];

/// Two that answer scripts with a form of their own, and stay commands that are not shown; and today's words.
const HIDDEN: [(&str, &str); 2] = [("node approve", "approve"), ("node refuse", "deny")];
/// Old words and those of today. The first match counts.
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
    // A list alone: `mgp grants --agent x`.
    ("grants", "grants list"),
    ("shares", "shares list"),
    // With a second word that is no option: `mgp deny files shell.execute`.
    ("deny", "permissions remove"),
];
/// Verbs behind a noun that stood alone before.
const VERBS: [&str; 5] = ["list", "add", "remove", "help", "show"];

/// An old spelling that was typed, and today's.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OldSpelling {
    pub(super) old: &'static str,
    pub(super) new: &'static str,
}

/// Rewrites an old spelling, and reports which one it was.
pub(super) fn modernize(mut words: Vec<OsString>) -> (Vec<OsString>, Option<OldSpelling>) {
    let Some(first) = command_position(&words) else {
        return (words, None);
    };
    let found = SPELLINGS
        .iter()
        .find(|(old, _)| matches(&words[first..], old));
    let Some(&(old, new)) = found else {
        return (words, None);
    };
    let typed = old.split(' ').count();
    let hidden = HIDDEN
        .iter()
        .find(|(hidden, _)| matches(&words[first..], hidden));
    words.splice(first..first + typed, new.split(' ').map(OsString::from));
    let (old, new) = *hidden.unwrap_or(&(old, new));
    (words, Some(OldSpelling { old, new }))
}

/// Where the command begins, behind the options that stand before it.
fn command_position(words: &[OsString]) -> Option<usize> {
    let mut at = 1;
    loop {
        let word = words.get(at)?.to_str()?;
        match word.starts_with('-') {
            false => return Some(at),
            true if WITH_VALUE.contains(&word) => at += 2,
            true => at += 1,
        }
    }
}

fn matches(words: &[OsString], old: &str) -> bool {
    let typed: Vec<&str> = words.iter().map_while(|word| word.to_str()).collect();
    let is_old = old
        .split(' ')
        .eq(typed.iter().copied().take(old.split(' ').count()));
    let next = typed.get(1).copied();
    is_old
        && match old {
            "grants" | "shares" => {
                !next.is_some_and(|next| VERBS.contains(&next) || ["-h", "--help"].contains(&next))
            }
            "deny" => {
                let named = next.is_some_and(|next| !next.starts_with('-'));
                named && typed.get(2).is_some_and(|third| !third.starts_with('-'))
            }
            _ => true,
        }
}

#[cfg(test)]
mod tests {
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
}
