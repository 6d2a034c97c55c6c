//! Programs and arguments that destroy data, take control or reach the network: they indicate an injected
//! command, and no server may be started with them.

use std::cell::LazyCell;

use super::ArgumentFinding;
use super::programs::{self, program_name};

/// Programs that run code from an argument, with the options for that.
const INLINE: [(&str, &[&str]); 24] = [
    ("sh", &["-c"]),
    ("bash", &["-c", "-i"]),
    ("zsh", &["-c"]),
    ("dash", &["-c"]),
    ("ksh", &["-c"]),
    ("fish", &["-c"]),
    ("ash", &["-c"]),
    ("csh", &["-c"]),
    ("tcsh", &["-c"]),
    ("python", &["-c"]),
    ("perl", &["-e", "-E"]),
    ("ruby", &["-e"]),
    ("node", &["-e", "--eval", "-p", "--print"]),
    ("deno", &["eval"]),
    ("bun", &["-e", "--eval"]),
    ("php", &["-r"]),
    ("lua", &["-e"]),
    ("cmd", &["/c", "/k", "/C", "/K"]),
    (
        "powershell",
        &["-c", "-command", "-enc", "-encodedcommand", "-e", "-ec"],
    ),
    (
        "pwsh",
        &["-c", "-command", "-enc", "-encodedcommand", "-e", "-ec"],
    ),
    ("rscript", &["-e"]),
    ("osascript", &["-e"]),
    ("vim", &["-c"]),
    ("ex", &["-c"]),
];

/// Programs that only start the program in their arguments.
const WRAPPERS: [&str; 13] = [
    "env", "nohup", "nice", "ionice", "time", "timeout", "stdbuf", "setsid", "busybox", "toybox",
    "command", "builtin", "then",
];

/// Options that make a harmless program run another one or send a file away.
const OPTIONS: [&str; 15] = [
    "-oproxycommand",
    "--upload-pack",
    "--receive-pack",
    "--to-command",
    "--checkpoint-action",
    "--use-compress-program",
    "--eval",
    "--rsh",
    "--no-preserve-root",
    "core.sshcommand",
    "core.fsmonitor",
    "core.hookspath",
    "core.pager",
    "--post-file",
    "--body-file",
];

const HINT: &str = "leave this out; deleting whole folders, starting shells and changing the system are for the operator";

/// The rule that one command violates.
pub(super) fn check(words: &[String]) -> Option<ArgumentFinding> {
    let words = drop_empty_words(words);
    let mut words = words.as_slice();
    let (program, rest) = loop {
        let (first, rest) = words.split_first()?;
        if first.contains('=') && !first.starts_with(['-', '=']) {
            return finding("environment", "a variable is set for the command");
        }
        let program = program_name(first);
        if !WRAPPERS.contains(&program.as_str()) {
            break (program, rest);
        }
        let is_own = |w: &String| {
            let is_time = |c: u8| c.is_ascii_digit() || c == b's' || c == b'.';
            w.starts_with('-') || w.bytes().all(is_time)
        };
        words = &rest[rest.iter().take_while(|w| is_own(w)).count()..];
    };
    if programs::is_in_group("danger", &program)
        || program.starts_with("mkfs")
        || program.starts_with("ld-")
    {
        return finding("program", &format!("{program} is not run for agents"));
    }
    check_launched_delete(&program, rest)
        .or_else(|| check_inline(&program, rest))
        .or_else(|| check_destructive(&program, rest))
        .or_else(|| check_options(&program, rest))
}

/// Programs that start a program anywhere among their arguments.
const LAUNCHERS: [&str; 16] = [
    "flock", "chronic", "npx", "pnpx", "bunx", "npm", "pnpm", "yarn", "unbuffer", "ltrace",
    "taskset", "numactl", "chrt", "ssh", "docker", "kubectl",
];

/// Finds a recursive delete after a program that starts others: `flock x rm -rf a`, `npx rimraf a`.
fn check_launched_delete(program: &str, rest: &[String]) -> Option<ArgumentFinding> {
    if !LAUNCHERS.contains(&program) {
        return None;
    }
    rest.iter().enumerate().find_map(|(at, word)| {
        let name = program_name(word);
        let deletes =
            name == "rimraf" || name == "rm" && has_option(&rest[at + 1..], "--recursive", "rR");
        deletes.then(|| {
            ArgumentFinding::new("recursive_delete", format!("{program} starts {name}"), HINT)
        })
    })
}

fn finding(rule: &'static str, reason: &str) -> Option<ArgumentFinding> {
    Some(ArgumentFinding::new(rule, reason, HINT))
}

fn drop_empty_words(words: &[String]) -> Vec<String> {
    words.iter().filter(|w| !w.is_empty()).cloned().collect()
}

fn check_inline(program: &str, rest: &[String]) -> Option<ArgumentFinding> {
    let (_, options) = INLINE.iter().find(|(name, _)| *name == program)?;
    let given = |word: &String| {
        let lower = word.to_lowercase();
        options.contains(&word.as_str())
            || program.starts_with("p") && options.contains(&lower.as_str())
            // `-lc` and `-cprint(1)` are `-c` too.
            || options.iter().any(|o| {
                let letter = o.strip_prefix('-').filter(|l| l.len() == 1);
                letter.is_some_and(|l| has_clustered_letter(word, l))
            })
    };
    if rest.iter().any(given) {
        return finding(
            "inline_program",
            &format!("{program} is given a program as text"),
        );
    }
    let shell = program.ends_with("sh") && program != "pwsh";
    (shell && (rest.is_empty() || rest.iter().any(|w| w == "-s")))
        .then(|| ArgumentFinding::new("shell", "a shell is opened", HINT))
}

/// True if a word like `-rf` has this letter; `--force` has none.
fn has_clustered_letter(word: &str, letter: &str) -> bool {
    word.strip_prefix('-')
        .is_some_and(|rest| !rest.starts_with('-') && rest.split(letter).count() > 1)
}

fn has_option(rest: &[String], long: &str, letters: &str) -> bool {
    // Long options may be abbreviated as long as they are unambiguous.
    let cut = |w: &str| w.len() > 4 && long.starts_with(w);
    rest.iter().any(|w| {
        cut(w)
            || letters
                .chars()
                .any(|l| has_clustered_letter(w, l.encode_utf8(&mut [0; 4])))
    })
}

/// True for `git clean`, which is not only asked what it would delete, and `git filter-branch`.
fn deletes_with_git(rest: &[String]) -> bool {
    let mut words = rest.iter().map(|word| word.to_lowercase());
    while let Some(word) = words.next() {
        if matches!(&*word, "-c" | "--git-dir" | "--work-tree" | "--namespace") {
            words.next();
        } else if !word.starts_with('-') {
            let is_asked = |word: String| matches!(&*word, "-n" | "-nd" | "-ndx" | "--dry-run");
            return word == "filter-branch"
                || word == "clean" && !words.next().is_some_and(is_asked);
        }
    }
    false
}

/// Finds commands that delete more than one file, or escape the sandbox.
pub(super) fn check_destructive(program: &str, rest: &[String]) -> Option<ArgumentFinding> {
    let any = |set: &[&str]| {
        rest.iter()
            .any(|w| set.contains(&w.to_lowercase().as_str()))
    };
    let starts = |start: &str| rest.iter().any(|w| w.to_lowercase().starts_with(start));
    let all = || {
        any(&[
            "/", "/*", "*", ".", "./", "..", "~", "~/", "./*", "c:\\", "c:", "--",
        ])
    };
    let recursive = match program {
        "rm" => has_option(rest, "--recursive", "rR") || all(),
        "rmdir" | "rd" => any(&["/s", "-p", "--parents"]),
        "del" | "erase" => any(&["/s", "/q", "/f"]),
        "deltree" => true,
        "remove-item" | "ri" => starts("-rec") || starts("-r"),
        "unlink" => false,
        "git" => deletes_with_git(rest),
        "rsync" => starts("--delete"),
        _ => false,
    };
    if recursive {
        return finding(
            "recursive_delete",
            &format!("{program} deletes more than one file"),
        );
    }
    let system = match program {
        "dd" => starts("of="),
        "chmod" => {
            has_option(rest, "--recursive", "R")
                || any(&["777", "0777", "a+rwx"])
                || rest.iter().any(|w| is_set_id(w))
        }
        "chown" | "chgrp" => has_option(rest, "--recursive", "R") || starts("root"),
        "mv" | "cp" | "tee" | "truncate" => {
            starts("/dev/") && !any(&["/dev/null"]) || any(&["/dev/null"]) && program == "mv"
        }
        "kill" => any(&["-1", "1"]),
        "docker" | "podman" => {
            starts("--privileged")
                || rest.iter().any(|w| w.starts_with("/:"))
                || starts("--pid=host")
        }
        "curl" => {
            has_option(rest, "--upload-file", "T")
                || rest.iter().any(|w| w.contains("=@") || w.starts_with('@'))
        }
        "history" => any(&["-c"]),
        "awk" | "gawk" | "mawk" => rest
            .iter()
            .any(|w| w.contains("system(") || w.contains("getline")),
        "tar" => starts("-i") && starts("--use"),
        "git" => rest.iter().any(|w| w.starts_with("ext::")),
        _ => false,
    };
    system.then(|| {
        ArgumentFinding::new(
            "dangerous",
            format!("{program} is used to harm or to get out"),
            HINT,
        )
    })
}

/// A mode of `chmod` under which a program runs as its owner.
fn is_set_id(mode: &str) -> bool {
    let digits = mode.len() == 4 && mode.bytes().all(|c| c.is_ascii_digit());
    digits && !mode.starts_with(['0', '1']) || mode.contains("+s") || mode.contains("=s")
}

fn check_options(program: &str, rest: &[String]) -> Option<ArgumentFinding> {
    let finds = program == "find" || program == "fd";
    let only_reads = LazyCell::new(|| programs::is_reading_find(rest));
    let word = rest.iter().find(|word| {
        let lower = word.to_lowercase();
        let start = lower.split(['=', ' ']).next().unwrap_or_default();
        let starts = start.starts_with("-exec") || start.starts_with("-ok");
        let taken = match start {
            _ if starts => !*only_reads,
            "-delete" | "-fprintf" => true,
            _ => false,
        };
        finds && taken || OPTIONS.contains(&start) || is_launch_option(program, word)
    })?;
    let reason = format!("{word} makes {program} do more than it seems");
    Some(ArgumentFinding::new("option", reason, HINT))
}

/// True for options by which one program starts others.
fn is_launch_option(program: &str, word: &str) -> bool {
    let lower = word.to_lowercase();
    match program {
        "git" => lower.contains("=!") || lower.starts_with("--exec-path="),
        "ssh" | "scp" | "sftp" => {
            let option = lower.strip_prefix("-o").unwrap_or(&lower);
            let named = ["proxycommand", "localcommand", "permitlocalcommand"];
            named.iter().any(|n| option.starts_with(n)) || word.starts_with("-S")
        }
        "tar" | "bsdtar" => word.starts_with("-I"),
        "zip" => word.starts_with("-TT"),
        "rsync" => word.starts_with("-e"),
        "sed" => {
            let command =
                word.trim_start_matches(|c: char| c.is_ascii_digit() || "$!,".contains(c));
            command == "e" || command.starts_with("e ")
        }
        "vim" | "vi" | "nvim" | "less" | "more" | "man" => {
            word.starts_with('+') && word.contains('!')
        }
        "docker" | "podman" => lower.contains("source=/,") || lower.contains("src=/,"),
        "curl" => lower.starts_with("-d@"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::commands;
    use super::*;

    fn rule(line: &str) -> Option<&'static str> {
        check(&commands::split_words(line).unwrap()).map(|f| f.rule)
    }

    /// MGP-058: a recursive delete is found in all its spellings.
    #[test]
    fn recursive_delete_is_found_in_any_spelling() {
        for line in [
            "rm -rf /",
            "rm -r -f x",
            "rm x -R",
            "rm --recursive x",
            "rm --recu x",
            "/bin/rm -fr x",
            "r\\m -rf x",
            "'rm' \"-rf\" x",
            "env rm -rf x",
            "timeout 5 rm -rf x",
            "find . -delete",
            "git clean -fdx",
            "rmdir /s /q x",
            "busybox rm -rf x",
            "RM.EXE -rf x",
        ] {
            assert!(rule(line).is_some(), "{line}");
        }
        for line in [
            "rm notes.txt",
            "rm -f notes.txt",
            "git rm --cached x",
            "ls -R",
            "grep -r rm .",
        ] {
            assert_eq!(rule(line), None, "{line}");
        }
    }
}
