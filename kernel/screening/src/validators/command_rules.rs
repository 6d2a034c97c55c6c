//! Checks one command for its purpose: first by the table of programs, then by the dangerous commands.

use super::programs::{self, CommandPurpose, program_name, table_key};
use super::{ArgumentFinding, dangerous_commands};

const READ_HINT: &str =
    "this tool is limited to reading; ask for what is there without changing it";
const RUN_HINT: &str = "run a known program with its plain options; what starts other programs, \
    interpreters among them, is for the operator";

/// The reason why one command is rejected for this purpose.
pub(super) fn check(words: &[String], purpose: CommandPurpose) -> Option<ArgumentFinding> {
    let mut words: Vec<String> = words.iter().filter(|w| !w.is_empty()).cloned().collect();
    let name = table_key(words.first()?);
    if let ("tar", Some(bare)) = (name.as_str(), words.get_mut(1))
        && !bare.starts_with('-')
    {
        bare.insert(0, '-');
    }
    let (first, rest) = words.split_first()?;
    let refused = match programs::check_invocation(&name, rest, purpose) {
        Ok(()) => return dangerous_commands::check_destructive(&name, rest),
        Err(why) => why,
    };
    if let Some(finding) = dangerous_commands::check(&words) {
        return Some(finding);
    }
    let group = programs::forbidden_group(&name);
    let known = programs::is_known(&name);
    let (rule, reason) = match (purpose, group) {
        (CommandPurpose::Read, _) => (
            "command",
            match refused {
                Some(word) => format!("{name} with {word} is not known only to read"),
                None => format!("{name} is not known only to read, used like this"),
            },
        ),
        (CommandPurpose::Run, _) if known => (
            "option",
            match refused {
                Some(word) => format!("{name} with {word} is not among what is run for agents"),
                None => format!("{name} is not run for agents like this"),
            },
        ),
        (CommandPurpose::Run, Some(group)) => {
            ("program", format!("{name} {}", group_reason(group)))
        }
        (CommandPurpose::Run, None) => return check_unknown(first, &name, rest),
    };
    let hint = match purpose {
        CommandPurpose::Read => READ_HINT,
        CommandPurpose::Run => RUN_HINT,
    };
    Some(ArgumentFinding::new(rule, reason, hint))
}

fn group_reason(group: &str) -> &'static str {
    match group {
        "shell" => "is a shell",
        "interpreter" => "runs what its file or its words say",
        "wrapper" => "starts other programs",
        "network" => "opens a line to another machine",
        "database" => "runs text as statements",
        _ => "is not run for agents",
    }
}

/// Checks a program that is not in the table: rejected if its words run or destroy something, or if it is
/// below the folder.
fn check_unknown(first: &str, name: &str, rest: &[String]) -> Option<ArgumentFinding> {
    let found = |rule, reason| Some(ArgumentFinding::new(rule, reason, RUN_HINT));
    if first.contains(['/', '\\']) {
        return found(
            "program",
            format!("{first} is a path; programs are known by their names"),
        );
    }
    for (at, word) in rest.iter().enumerate() {
        let (option, value) = word.split_once('=').unwrap_or((word, ""));
        let lower = option.to_lowercase();
        let next = rest.get(at + 1).map_or("", String::as_str);
        let text = |w: &str| w.contains([' ', '(', ';', '!']) || is_forbidden_program(w);
        let short = matches!(option, "-c" | "-e" | "-x" | "-E" | "-r") && text(next);
        if programs::is_running_option(&lower) || short {
            return found(
                "option",
                format!("{option} makes {name} run another program"),
            );
        }
        if word.starts_with(['!', '+']) && word.contains('!') || word.starts_with(":!") {
            return found("option", format!("{word} starts a shell in some programs"));
        }
        if is_forbidden_program(word) || is_forbidden_program(value) {
            return found("program", format!("{name} is to start {word}"));
        }
        if at < 4 && programs::is_destroying_word(&lower) {
            return found("dangerous", format!("{name} {word} destroys"));
        }
    }
    None
}

/// True if a word of a command is a shell, an interpreter or another program that is never run.
fn is_forbidden_program(word: &str) -> bool {
    let name = program_name(word.split_whitespace().next().unwrap_or_default());
    let groups = ["shell", "interpreter", "danger"];
    word.contains(char::is_alphanumeric)
        && groups
            .iter()
            .any(|group| programs::is_in_group(group, &name))
}

#[cfg(test)]
mod tests {
    use super::super::commands;
    use super::*;

    fn rule(line: &str, purpose: CommandPurpose) -> Option<&'static str> {
        check(&commands::split_words(line).unwrap(), purpose).map(|f| f.rule)
    }

    /// MGP-058: a program of the table runs with its listed options and with no others.
    #[test]
    fn known_program_runs_with_its_listed_options_only() {
        for (line, passes) in [
            ("tar -xzf a.tgz", true),
            ("tar xzf a.tgz", true),
            ("tar xf a.tar --to-command=x", false),
            ("tar xf a.tar --use-comp=x", false),
            ("tar cf host:/dev/x a", false),
            ("git -C x status", true),
            ("git -c core.pager=x status", false),
            ("git submodule foreach id", false),
            ("cargo +nightly test -p x -- --nocapture", true),
            ("cargo --config x test", false),
            ("npm run build -- --watch", true),
            ("npm --script-shell=/x run build", false),
            ("make -j4 test", true),
            ("make SHELL=/x test", false),
            ("python3 -m pytest -q", true),
            ("python3 x.py", false),
            ("/usr/bin/git status", true),
            ("/tmp/git status", false),
            ("./run", false),
            ("find . -exec grep -l x {} +", true),
            ("find . -exec touch {} +", false),
            ("sed -ne p a", true),
            ("sed -ne 'w b' a", false),
            ("sed -new\\ b a", false),
            ("sed -e p --expression='w b' a", false),
            ("sed -i.extra 'e id' a", false),
            ("awk -vname=3 '{print > \"x\"}' a", false),
        ] {
            assert_eq!(rule(line, CommandPurpose::Run).is_none(), passes, "{line}");
        }
    }

    /// MGP-058: the reason says what kind of program it is.
    #[test]
    fn program_is_rejected_for_what_it_is() {
        for (line, reason) in [
            ("csh x", "csh is a shell"),
            ("tclsh", "tclsh runs what its file or its words say"),
            ("xvfb-run x", "xvfb-run starts other programs"),
            ("ftp x", "ftp opens a line to another machine"),
            ("mongo x", "mongo runs text as statements"),
        ] {
            let words = commands::split_words(line).unwrap();
            let finding = check(&words, CommandPurpose::Run).unwrap();
            assert_eq!(finding.reason, reason, "{line}");
        }
    }

    /// MGP-058, MGP-059: a program outside the table does not count as reading, and runs only without
    /// suspicious words.
    #[test]
    fn unknown_program_runs_plainly_and_never_counts_as_reading() {
        for (line, runs) in [
            ("mytool check src", true),
            ("mytool -c config.toml", true),
            ("mytool sh -c id", false),
            ("mytool --exec id", false),
            ("mytool -e 'id; id'", false),
            ("mytool +!id", false),
            ("mytool +now x!", true),
            ("mytool a b c delete", false),
            ("mytool a b c d delete", true),
            ("mytool repo delete x", false),
            ("./mytool", false),
        ] {
            assert_eq!(rule(line, CommandPurpose::Run).is_none(), runs, "{line}");
            assert!(rule(line, CommandPurpose::Read).is_some(), "{line}");
        }
    }
}
