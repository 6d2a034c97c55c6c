//! `sandbox`: no shell syntax, recursive deletes, or paths outside the roots (MGP §4.5).

use super::arguments::{ArgumentKind, CallArguments, Leaf};
use super::programs::{CommandPurpose, FOLDERS};
use super::roles::{self, Role};
use super::{
    ArgumentFinding, BlockedArgument, ScreenedCall, Validator, command_rules, commands,
    dangerous_commands, fast_path, normalization, paths, patterns, programs, split_commands,
};
use crate::variables;

pub(super) fn check(call: &ScreenedCall<'_>, args: &CallArguments) -> Result<(), BlockedArgument> {
    let runs = call.can_run_commands();
    for leaf in &args.leaves {
        if let Some(finding) = check_leaf(leaf, args, runs, call.roots) {
            return Err(BlockedArgument::for_leaf(Validator::Sandbox, leaf, finding));
        }
    }
    let rules = split_commands::Rules {
        validator: Validator::Sandbox,
        tool: call.tool,
        check_words: |_: &Leaf, words: &[String]| check_argv(words, call.roots),
        check_line: |line: &str| check_command(line, call.roots),
    };
    split_commands::check(&rules, args, runs)
}

/// Checks a text by its role: in a tool that runs commands, a text without a known role is a command.
fn check_leaf(
    leaf: &Leaf,
    args: &CallArguments,
    runs: bool,
    roots: &[String],
) -> Option<ArgumentFinding> {
    if leaf.kind == ArgumentKind::Number {
        return None;
    }
    if leaf.text.contains('\0') {
        let hint = "send text without null bytes";
        return Some(ArgumentFinding::new(
            "null_byte",
            "the text holds a null byte",
            hint,
        ));
    }
    if let Some(name) = variable_name(leaf) {
        let reason = format!("{name} changes which program is run, or what it reads");
        return Some(ArgumentFinding::new(
            "environment",
            reason,
            "leave this variable out",
        ));
    }
    let role = match (leaf.kind, leaf.role) {
        (ArgumentKind::Key, _) => Role::Other,
        (_, Role::Other) | (ArgumentKind::Element, Role::Action) if runs => Role::Command,
        (_, role) => role,
    };
    match (role, leaf.kind) {
        (Role::Command, ArgumentKind::Element) | (Role::Args, _) => {
            split_commands::check_separator(&leaf.text).or_else(|| check_word(&leaf.text, roots))
        }
        (Role::Command, _) if split_commands::is_shell_of_command(args, leaf) => None,
        (Role::Command, _) if leaf.role == role && split_commands::has_words(args, leaf, runs) => {
            check_command_text(&leaf.text, |_| None)
        }
        (Role::Command, _) => check_command(&leaf.text, roots),
        (Role::Path, _) => check_path(&leaf.text, roots),
        (Role::Url, _) => check_url(&leaf.text, roots),
        (Role::Prose | Role::Code, _) if runs => check_script(&leaf.text),
        // `source` may be a path.
        (Role::Code, _) => check_place(&leaf.text),
        (Role::Prose, _) => None,
        (Role::Host | Role::Sql | Role::Method | Role::Mode | Role::Action | Role::Other, _) => {
            check_other(&leaf.text)
        }
    }
}

/// The reserved variable that is set here: as a key, or among variables as `NAME=value` or by its name.
fn variable_name(leaf: &Leaf) -> Option<&str> {
    let is_key = leaf.kind == ArgumentKind::Key;
    if is_key && variables::selects_code(&leaf.text) {
        return Some(&leaf.text);
    }
    let place = if is_key { &leaf.parent } else { &leaf.path };
    let names_variables = |part: &str| {
        let is_one = |word: &String| ["env", "envs", "environ", "environment"].contains(&&**word);
        roles::split_words(part).iter().any(is_one)
    };
    let mut windows = place.as_bytes().windows(3);
    let is_likely = windows.any(|three| three.eq_ignore_ascii_case(b"env"));
    if !is_likely || !place.split('/').any(names_variables) {
        return None;
    }
    if is_key {
        return variables::is_reserved_variable(&leaf.text).then_some(&leaf.text);
    }
    leaf.text.split_whitespace().find_map(|word| {
        let name = word.split_once('=').map_or(word, |(name, _)| name);
        // A value may be the same word in small letters.
        let is_set = name.len() < word.len() || !name.contains(|c: char| c.is_ascii_lowercase());
        (is_set && variables::is_reserved_variable(name)).then_some(name)
    })
}

fn check_command(text: &str, roots: &[String]) -> Option<ArgumentFinding> {
    check_command_text(text, |words| check_argv(words, roots))
}

fn check_command_text(
    text: &str,
    check_words: impl Fn(&[String]) -> Option<ArgumentFinding>,
) -> Option<ArgumentFinding> {
    for view in normalization::with_normalized(text) {
        let words = match commands::split_words(&view) {
            Ok(words) => words,
            Err(finding) => return Some(finding),
        };
        let found = check_words(&words)
            .or_else(|| commands::split_unquoted(&view).find_map(|part| check_deletion(&part)));
        if found.is_some() {
            return found;
        }
    }
    find_windows_variable(text)
}

/// Checks a script of a tool that runs code: several lines are expected, destructive commands are not.
fn check_script(text: &str) -> Option<ArgumentFinding> {
    normalization::with_normalized(text)
        .iter()
        .find_map(|view| commands::split_unquoted(view).find_map(|part| check_deletion(&part)))
}

/// Within quotes only plain destructive commands count: text may mention commands.
fn check_deletion(words: &[String]) -> Option<ArgumentFinding> {
    dangerous_commands::check(words).filter(|f| f.rule == "recursive_delete" && words.len() > 2)
}

/// Finds `%COMSPEC%` and similar variables.
fn find_windows_variable(text: &str) -> Option<ArgumentFinding> {
    let name =
        |part: &str| part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let pieces: Vec<&str> = text.split('%').collect();
    let inner = pieces.get(1..pieces.len().saturating_sub(1))?;
    inner.iter().any(|p| name(p)).then(|| {
        let hint = "write the value itself";
        ArgumentFinding::new(
            "metacharacter",
            "% in a command: a variable is put in",
            hint,
        )
    })
}

/// Checks a program and its arguments.
fn check_argv(words: &[String], roots: &[String]) -> Option<ArgumentFinding> {
    command_rules::check(words, CommandPurpose::Run).or_else(|| check_operands(words, roots))
}

/// Checks a program that is started as a server: any program that is not dangerous by itself.
pub(super) fn check_start_command(words: &[String], roots: &[String]) -> Option<ArgumentFinding> {
    dangerous_commands::check(words).or_else(|| check_operands(words, roots))
}

fn check_operands(words: &[String], roots: &[String]) -> Option<ArgumentFinding> {
    let known = |w: &String| FOLDERS.iter().any(|p| w.starts_with(p)) && !w.contains("..");
    let skipped = usize::from(words.first().is_some_and(known));
    let script = script_index(words);
    let program = programs::program_name(words.first().map_or("", String::as_str));
    let separates = SEPARATING.contains(&program.as_str());
    let rest = words.iter().enumerate().skip(skipped);
    rest.filter(|(at, _)| Some(*at) != script)
        .find_map(|(_, word)| check_operand(word, separates, roots))
}

/// The position of the script of `sed` or `awk`, which may begin like a path: `/start/,/end/p`.
fn script_index(words: &[String]) -> Option<usize> {
    let program = programs::program_name(words.first()?);
    let elsewhere = |w: &String| w.starts_with("-e") || w.starts_with("-f") || w.starts_with("--");
    if !["sed", "awk", "gawk", "mawk"].contains(&program.as_str()) || words.iter().any(elsewhere) {
        return None;
    }
    let first = words.iter().skip(1).position(|w| !w.starts_with('-'))? + 1;
    let option = &words[first - 1];
    (!option.starts_with("-F") && !option.starts_with("-v")).then_some(first)
}

/// Most letters of options before a path: `-rf/etc/x` has two, `-Isrc/x` is a path by itself.
const CLUSTER_MAX: usize = 3;

/// Programs to which one slash behind a letter is a separator: `cut -d/`.
const SEPARATING: [&str; 9] = [
    "cut", "sort", "join", "paste", "column", "awk", "gawk", "mawk", "tr",
];

/// The path behind the letters of options: `-f/etc/x`, `-rf~/x`, `-f../x`. To a program that `separates`, one slash
/// alone is none.
fn fused_value(word: &str, separates: bool) -> Option<&str> {
    let letters = word.strip_prefix('-')?;
    let value = letters.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let count = letters.len() - value.len();
    let climbs = value == ".." || value.starts_with("../");
    let is_separator = separates && value == "/";
    let is_rooted = value.starts_with(['/', '~']) && !is_separator && count <= CLUSTER_MAX;
    (climbs || is_rooted).then_some(value)
}

/// True if a shell may read a part of this path as `..`: `.?/x`.
fn may_climb(path: &str) -> bool {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    let is_glob =
        |part: &&str| part.starts_with(".?") || part.starts_with(".*") || part.starts_with(".[");
    parts.iter().any(is_glob)
}

/// Checks a word that may be a path, or an option with one: `--file=/etc/passwd`.
fn check_operand(word: &str, separates: bool, roots: &[String]) -> Option<ArgumentFinding> {
    let value = match word.split_once('=') {
        Some((option, value)) if option.starts_with('-') => value,
        _ => word,
    };
    let value = fused_value(value, separates).unwrap_or(value);
    let looks = value.starts_with(['/', '~', '\\'])
        || value.contains("..")
        || value.contains("/.")
        || value.get(1..3).is_some_and(|c| c == ":\\" || c == ":/")
        || value.to_ascii_lowercase().starts_with("file:")
        || value.starts_with('.')
        || value.to_ascii_lowercase().contains("%2e");
    let exempt = value == "/dev/null"
        || value.contains("://")
            && !value.contains("../")
            && !value.to_ascii_lowercase().starts_with("file:");
    // A sentence may have a path in it.
    let spaced = value.contains(char::is_whitespace)
        && !value.starts_with(['/', '~', '.'])
        && !value.contains("/..");
    if !looks || exempt || spaced {
        return None;
    }
    paths::check(value, roots).or_else(|| may_climb(value).then(climb_finding))
}

/// Checks one word of a list: no shell splits it, but one may still be started for it. Its program is not known here.
fn check_word(text: &str, roots: &[String]) -> Option<ArgumentFinding> {
    normalization::with_normalized(text)
        .iter()
        .find_map(|view| patterns::check(view).or_else(|| check_operand(view, true, roots)))
}

fn check_path(text: &str, roots: &[String]) -> Option<ArgumentFinding> {
    paths::check(text, roots).or_else(|| check_other(text))
}

fn check_url(text: &str, roots: &[String]) -> Option<ArgumentFinding> {
    let plain = normalization::normalize(text);
    let scheme = plain.trim_start().get(..5).unwrap_or_default();
    if scheme.eq_ignore_ascii_case("file:") {
        return paths::check(&plain, roots);
    }
    if !plain.contains("://")
        && let Some(finding) = check_place(&plain)
    {
        return Some(finding);
    }
    normalization::with_normalized(text)
        .iter()
        .find_map(|view| patterns::check(&view.replace('&', "\u{b7}")))
}

/// A value of one word may be opened as a path: then outside of system locations.
fn check_place(text: &str) -> Option<ArgumentFinding> {
    let is_file = text
        .get(..5)
        .is_some_and(|start| start.eq_ignore_ascii_case("file:"));
    let is_place = text.starts_with(['/', '~']) && text.len() > 2 || is_file;
    (is_place && !text.contains(char::is_whitespace)).then(|| paths::check(text, &[]))?
}

fn climb_finding() -> ArgumentFinding {
    ArgumentFinding::new(
        "traversal",
        "the text leads up and out of where it starts",
        "name things inside the allowed folders",
    )
}

fn check_other(text: &str) -> Option<ArgumentFinding> {
    if fast_path::is_safe_for_sandbox(text) {
        return None;
    }
    if let Some(finding) = check_place(text) {
        return Some(finding);
    }
    let escapes = |view: &String| {
        let climbs = view.replace('\\', "/");
        (climbs.starts_with("../") || climbs.contains("/../../")).then(climb_finding)
    };
    normalization::decode_variants(text)
        .iter()
        .find_map(|view| patterns::check(view).or_else(|| escapes(view)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_line(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    /// MGP-058: a word is a path if a program would open it as one.
    #[test]
    fn words_that_are_paths_stay_below_the_roots() {
        let roots = ["/srv/project".to_owned()];
        for outside in [
            "/etc/passwd",
            "/etc/a b",
            "/etc/a..b",
            "~/notes",
            "~/a b",
            "\\etc\\passwd",
            "../x",
            "../a b",
            "src/../../x",
            "a..%2f..%2f..%2fx",
            "src/.ssh/key",
            ".ssh/key",
            "C:\\a",
            "c:/a",
            "file:///etc/passwd",
            "FILE:/etc/passwd",
            "%2E%2E/x",
            "--file=/etc/passwd",
            "-f/etc/passwd",
            "-f~/x",
        ] {
            assert!(check_operand(outside, false, &roots).is_some(), "{outside}");
        }
        for inside in [
            "/srv/project/a",
            "--file=/srv/project/a",
            "/dev/null",
            "https://example.com/.ssh/key",
            "see ../x",
            "x=/etc/passwd",
            "HEAD~2..main",
            "a...b",
            "c:a",
            "-f",
        ] {
            let found = check_operand(inside, true, &roots);
            assert!(found.is_none(), "{inside} {found:?}");
        }
    }

    /// MGP-058: the script of `sed` and `awk` is found behind their options.
    #[test]
    fn scripts_are_no_paths() {
        for (line, script) in [
            ("sed -n /a/,/b/p x", Some(2)),
            ("/usr/bin/awk /a/ x", Some(1)),
            ("sed -e /a/p x", None),
            ("sed -f /etc/x y", None),
            ("sed --expression=/a/p x", None),
            ("awk -F : /a/ x", None),
            ("awk -v a=1 /a/ x", None),
            ("cat /a/ x", None),
            ("sed", None),
        ] {
            assert_eq!(script_index(&split_line(line)), script, "{line}");
        }
        assert!(check_operands(&split_line("sed -n /a/,/b/p x"), &["/srv".to_owned()]).is_none());
    }

    /// MGP-058: programs of known folders may be named by their path, and servers start like commands.
    #[test]
    fn servers_start_from_known_folders_without_dangerous_words() {
        let is_refused =
            |line| check_start_command(&split_line(line), &["/srv".to_owned()]).is_some();
        for line in ["node server.js", "/usr/bin/node server.js", "/srv/tool a"] {
            assert!(!is_refused(line), "{line}");
        }
        for line in [
            "rm -rf x",
            "node /etc/server.js",
            "/opt/x/../../tmp/tool a",
            "/tmp/tool a",
            "/usr/bin/../../tmp/tool a",
        ] {
            assert!(is_refused(line), "{line}");
        }
    }

    /// MGP-058: variables of Windows have at least two capitals between percent signs.
    #[test]
    fn variables_of_windows_are_found() {
        for line in ["%COMSPEC% /k", "type %A_B%"] {
            assert!(find_windows_variable(line).is_some(), "{line}");
        }
        for line in ["5%A%x", "%ab%", "100% OF 5%", "%HOME"] {
            assert!(find_windows_variable(line).is_none(), "{line}");
        }
    }
}
