//! The table of programs, `programs.txt`: the words that each program is allowed to run with.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use super::scripts;

/// A row continues in lines that begin with spaces.
static TEXT: LazyLock<String> =
    LazyLock::new(|| include_str!("programs.txt").replace("\n    ", " "));
static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(&TEXT));

/// Folders whose programs may be started by their absolute path.
pub(super) const FOLDERS: [&str; 6] = [
    "/bin/",
    "/usr/bin/",
    "/usr/local/bin/",
    "/sbin/",
    "/usr/sbin/",
    "/opt/homebrew/bin/",
];

/// The purpose of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandPurpose {
    /// Reading only.
    Read,
    /// Anything that neither destroys nor starts other programs.
    Run,
}

/// Checks the words of a program against its rows; `Err` has the first unknown word.
pub(super) fn check_invocation(
    name: &str,
    rest: &[String],
    purpose: CommandPurpose,
) -> Result<(), Option<String>> {
    let rows = TABLE.rows.get(name).map_or(&[][..], Vec::as_slice);
    let rows = rows
        .iter()
        .filter(|row| row.is_reading || purpose == CommandPurpose::Run);
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    check_rows(&rows.collect::<Vec<_>>(), &rest)
}

/// True if the table has a row for this program.
pub(super) fn is_known(program: &str) -> bool {
    TABLE.rows.contains_key(program)
}

/// The group of a program in the section [never].
pub(super) fn forbidden_group(program: &str) -> Option<&'static str> {
    TABLE.groups.get(program).copied()
}

/// True for an option by which a program runs another one.
pub(super) fn is_running_option(option: &str) -> bool {
    TABLE.options.contains(option)
}

/// True for a word by which a program destroys data.
pub(super) fn is_destroying_word(word: &str) -> bool {
    TABLE.words.contains(word)
}

/// True if a program is in this group of the section [never].
pub(super) fn is_in_group(group: &str, program: &str) -> bool {
    TABLE.groups.get(program).is_some_and(|of| *of == group)
}

/// True if `find` with these words runs only reading programs.
pub(super) fn is_reading_find(rest: &[String]) -> bool {
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    let plain = |word: &&str| !matches!(*word, "-execdir" | "-ok" | "-okdir");
    strip_reading_execs(&rest).is_ok_and(|words| words.iter().all(plain))
}

/// The key of a program in the table: its name if it is in a folder of programs, otherwise as written.
pub(super) fn table_key(word: &str) -> String {
    let placed = FOLDERS.iter().any(|f| word.starts_with(f)) && !word.contains("..");
    if placed || !word.contains(['/', '\\']) {
        program_name(word)
    } else {
        word.to_ascii_lowercase()
    }
}

/// Programs whose names go on with a version or a variant.
#[rustfmt::skip]
const VERSIONED: [&str; 28] = [
    "python", "pypy", "perl", "ruby", "node", "lua", "php", "pip", "tclsh", "wish", "guile", "bash", "gcc", "g++",
    "clang", "clang++", "ksh", "zsh", "dash", "sh", "vim", "vi", "emacs", "gdb", "lldb", "erl", "octave", "mksh",
];

/// Programs that have a `g` before their name where others are installed, too.
#[rustfmt::skip]
const GNU: [&str; 20] = [
    "sed", "find", "tar", "env", "nice", "nohup", "stdbuf", "time", "timeout", "rm", "cp", "mv", "dd", "chmod",
    "chown", "awk", "make", "xargs", "shred", "install",
];

/// The name of a program: `rm` for `/bin/rm`, `RM.EXE` and `\rm`; `python` for `python3.12`.
pub(super) fn program_name(word: &str) -> String {
    let name = word.rsplit(['/', '\\']).next().unwrap_or(word);
    let lower = name.to_ascii_lowercase();
    let lower = [".exe", ".cmd", ".com", ".bat"]
        .iter()
        .find_map(|end| lower.strip_suffix(end))
        .unwrap_or(&lower);
    if is_known(lower) {
        return lower.to_owned();
    }
    let is_base = |name: &&str| VERSIONED.contains(name);
    // `python3.13t`, `ksh93`, `bash-static`, `vim.basic`.
    let unnumbered = lower.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    let first = lower.split(['-', '.']).next().unwrap_or(lower);
    let bare = first.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_variant = |name: &&str| is_base(name) && forbidden_group(name).is_some();
    let variant = [first, bare].into_iter().find(is_variant);
    let shorter = Some(unnumbered).filter(is_base).or(variant);
    // GNU's programs beside others of the same name: `gsed`.
    let of_gnu = lower.strip_prefix('g').filter(|name| GNU.contains(name));
    shorter.or(of_gnu).unwrap_or(lower).to_owned()
}

/// Checks words against the rows of a program; `Err` has the first unknown word.
fn check_rows(rows: &[&ProgramRow], rest: &[&str]) -> Result<(), Option<String>> {
    let base: Vec<&ProgramRow> = rows
        .iter()
        .copied()
        .filter(|r| r.words.is_empty())
        .collect();
    let ahead = leading_option_count(&base, rest);
    let rest_behind = &rest[ahead..];
    let longest = rows.iter().filter(|r| r.matches_start(rest_behind));
    let longest = longest.map(|r| r.words.len()).max().unwrap_or(0);
    if longest == 0 {
        return if base.is_empty() {
            Err(rest.first().map(|w| (*w).to_owned()))
        } else {
            check_words(&base, rest)
        };
    }
    let matched = rows
        .iter()
        .copied()
        .filter(|r| r.words.len() == longest && r.matches_start(rest_behind));
    check_words(&matched.collect::<Vec<_>>(), &rest_behind[longest..])
}

/// The number of words before a subcommand that are options of the program itself.
fn leading_option_count(base: &[&ProgramRow], rest: &[&str]) -> usize {
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        let toolchain = word.starts_with('+') && base.iter().any(|r| r.plus_operands_only);
        match base.iter().find_map(|r| r.option_value_position(word)) {
            Some(ValuePosition::Next) => at += 2,
            Some(ValuePosition::Within | ValuePosition::None) => at += 1,
            None if toolchain => at += 1,
            None => return at,
        }
    }
    rest.len().min(at)
}

fn check_words(rows: &[&ProgramRow], rest: &[&str]) -> Result<(), Option<String>> {
    let cut = |word: &str| Some(word.chars().take(40).collect::<String>());
    let any = |has: fn(&ProgramRow) -> bool| rows.iter().any(|r| has(r));
    let rest = if any(|r| r.script == Some(ScriptKind::Find)) {
        strip_reading_execs(rest)?
    } else {
        rest.to_vec()
    };
    let mut operands: Vec<&str> = Vec::new();
    let mut programs: Vec<&str> = Vec::new();
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        at += 1;
        if *word == "--" {
            if !any(|r| r.allows_double_dash) {
                operands.extend(&rest[at..]);
            }
            break;
        }
        if !word.starts_with('-') || *word == "-" {
            operands.push(word);
            continue;
        }
        let value = match rows.iter().find_map(|r| r.option_value_position(word)) {
            None => return Err(cut(word)),
            Some(ValuePosition::None) => continue,
            Some(ValuePosition::Within) => word,
            Some(ValuePosition::Next) => match rest.get(at) {
                // A value of one version of a program may be an option of another version.
                Some(next) if next.len() < 2 || !next.starts_with('-') || is_negative(next) => {
                    at += 1;
                    next
                }
                _ => continue,
            },
        };
        if rows.iter().all(|r| !r.can_take_value(value)) {
            return Err(cut(value));
        }
        if any(|r| r.script == Some(ScriptKind::Sed)) {
            programs.extend(inline_script(word, value));
        }
    }
    if programs.is_empty() {
        programs.extend(operands.first());
    }
    if let Some(program) = programs
        .iter()
        .find(|p| rows.iter().any(|r| !r.is_reading_script(p)))
    {
        return Err(cut(program));
    }
    let mut numbered = operands.iter().enumerate();
    match numbered.find(|(nth, word)| rows.iter().all(|r| !r.can_take_operand(*nth, word))) {
        Some((_, word)) => Err(cut(word)),
        None => Ok(()),
    }
}

/// True for a number below zero: `-mtime -1`.
fn is_negative(word: &str) -> bool {
    let number = word.strip_prefix('-').unwrap_or_default();
    number.starts_with(|c: char| c.is_ascii_digit())
}

/// The script that `-e` passes to `sed` or `awk`, alone or after other letters.
fn inline_script<'a>(word: &'a str, value: &'a str) -> Option<&'a str> {
    if word.starts_with("--") {
        return match word.strip_prefix("--expression")? {
            "" => Some(value),
            fused => fused.strip_prefix('='),
        };
    }
    let (before, fused) = word.split_once('e')?;
    // After another letter with a value, `e` is part of that value.
    if !before.chars().all(|c| "-nErsuz".contains(c)) {
        return None;
    }
    Some(if fused.is_empty() { value } else { fused })
}

/// The words of `find` without `-exec … ;` of reading programs.
fn strip_reading_execs<'a>(rest: &[&'a str]) -> Result<Vec<&'a str>, Option<String>> {
    let mut out = Vec::new();
    let mut words = rest.iter().copied();
    while let Some(word) = words.next() {
        if word != "-exec" {
            out.push(word);
            continue;
        }
        let mut inner: Vec<String> = Vec::new();
        for word in words.by_ref().take_while(|word| *word != ";") {
            // All files that were found stand here.
            if word == "+" {
                inner.push("{}".to_owned());
                break;
            }
            inner.push(word.to_owned());
        }
        // Its name may be a program.
        let is_script = |name: &str| matches!(name, "sed" | "awk" | "gawk" | "mawk" | "nawk");
        let names_script = inner.iter().skip(1).find(|word| !word.starts_with('-'));
        if inner
            .first()
            .is_some_and(|name| is_script(&table_key(name)))
            && names_script.is_some_and(|word| word == "{}")
        {
            return Err(Some("-exec".to_owned()));
        }
        let program = inner.first().cloned().unwrap_or_default();
        let words = inner.get(1..).unwrap_or_default();
        let key = table_key(&program);
        // `find` within `find` is not read further, at any depth.
        if key == "find" || check_invocation(&key, words, CommandPurpose::Read).is_err() {
            return Err(Some(format!("-exec {program}")));
        }
    }
    Ok(out)
}

struct Table {
    rows: HashMap<&'static str, Vec<ProgramRow>>,
    /// Programs that are never run, with their groups.
    groups: HashMap<&'static str, &'static str>,
    options: HashSet<&'static str>,
    words: HashSet<&'static str>,
}

impl Table {
    fn parse(text: &'static str) -> Self {
        let mut table = Self {
            rows: HashMap::new(),
            groups: HashMap::new(),
            options: HashSet::new(),
            words: HashSet::new(),
        };
        let mut part = "";
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let heading = line.strip_prefix('[').and_then(|l| l.strip_suffix(']'));
            match (heading, part) {
                (Some(heading), _) => part = heading,
                (None, "option") => table.options.extend(line.split_whitespace()),
                (None, "word") => table.words.extend(line.split_whitespace()),
                (None, "never") => {
                    let (group, names) = line.split_once(" : ").expect("group : names");
                    table
                        .groups
                        .extend(names.split_whitespace().map(|n| (n, group.trim())));
                }
                (None, part) => {
                    let (head, spec) = line.split_once(" :").expect("program : options");
                    let mut words = head.split_whitespace();
                    let names = words.next().expect("a row names a program");
                    let words: Vec<Vec<&str>> = words.map(|w| w.split('|').collect()).collect();
                    for name in names.split('|') {
                        let row = ProgramRow::parse(part == "read", words.clone(), spec);
                        table.rows.entry(name).or_default().push(row);
                    }
                }
            }
        }
        table
    }
}

/// The position of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValuePosition {
    None,
    Within,
    Next,
}

/// Whether an option has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OptionArity {
    Nothing,
    One,
    Optional,
    /// `-`, standard output.
    Stdout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScriptKind {
    Sed,
    Awk,
    Find,
}

/// The allowed kind of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operand {
    Any,
    Name,
    Local,
    Url,
    Git,
}

/// One allowed form of calling a program.
#[derive(Clone, Debug)]
struct ProgramRow {
    is_reading: bool,
    words: Vec<Vec<&'static str>>,
    all_options_except: Option<Vec<&'static str>>,
    letters: HashMap<char, OptionArity>,
    names: HashMap<&'static str, OptionArity>,
    whole_words: bool,
    max_operands: Option<usize>,
    plus_operands_only: bool,
    operand: Operand,
    script: Option<ScriptKind>,
    allows_double_dash: bool,
}

impl ProgramRow {
    fn parse(reads: bool, words: Vec<Vec<&'static str>>, spec: &'static str) -> Self {
        let mut row = Self {
            is_reading: reads,
            words,
            all_options_except: None,
            letters: HashMap::new(),
            names: HashMap::new(),
            whole_words: false,
            max_operands: None,
            plus_operands_only: false,
            operand: Operand::Any,
            script: None,
            allows_double_dash: false,
        };
        let except: Vec<&str> = spec
            .split_whitespace()
            .filter_map(|w| w.strip_prefix('!'))
            .collect();
        for token in spec.split_whitespace() {
            match token {
                "*" => row.all_options_except = Some(except.clone()),
                "words" => row.whole_words = true,
                "--" => row.allows_double_dash = true,
                "<+>" => row.plus_operands_only = true,
                "<name>" => row.operand = Operand::Name,
                "<local>" => row.operand = Operand::Local,
                "<url>" => row.operand = Operand::Url,
                "<git>" => row.operand = Operand::Git,
                "<sed>" => row.script = Some(ScriptKind::Sed),
                "<awk>" => row.script = Some(ScriptKind::Awk),
                "<find>" => row.script = Some(ScriptKind::Find),
                number if number.starts_with('<') => {
                    row.max_operands = Some(number[1..2].parse().expect("<N> is a digit"));
                }
                except if except.starts_with('!') => {}
                option => row.add(option),
            }
        }
        row
    }

    fn add(&mut self, option: &'static str) {
        if option.starts_with("--") || self.whole_words {
            let dash = option
                .strip_suffix("=-")
                .map(|name| (name, OptionArity::Stdout));
            let one = option
                .strip_suffix('=')
                .map(|name| (name, OptionArity::One));
            let (name, takes) = dash.or(one).unwrap_or((option, OptionArity::Nothing));
            self.names.insert(name, takes);
            return;
        }
        let mut letters = option[1..].chars().peekable();
        while let Some(letter) = letters.next() {
            let takes = match letters.next_if(|c| matches!(c, '=' | '?')) {
                Some('=') if letters.next_if_eq(&'-').is_some() => OptionArity::Stdout,
                Some('=') => OptionArity::One,
                Some(_) => OptionArity::Optional,
                None => OptionArity::Nothing,
            };
            self.letters.insert(letter, takes);
        }
    }

    fn matches_start(&self, rest: &[&str]) -> bool {
        let one = |pattern: &str, word: &str| match pattern.strip_suffix('*') {
            Some(start) => word.starts_with(start) && !word.starts_with('-') && !word.contains('/'),
            None => pattern == word,
        };
        self.words.len() <= rest.len()
            && self
                .words
                .iter()
                .zip(rest)
                .all(|(alternatives, word)| alternatives.iter().any(|p| one(p, word)))
    }

    /// The position of the option's value; `None` for an unknown option.
    fn option_value_position(&self, word: &str) -> Option<ValuePosition> {
        if !word.starts_with('-') || word.len() < 2 {
            return None;
        }
        if let Some(except) = &self.all_options_except {
            return (!except.iter().any(|e| is_form_of_option(e, word)))
                .then_some(ValuePosition::None);
        }
        let (name, fused) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let known = self.names.get(word).or_else(|| self.names.get(name));
        if let Some(takes) = known {
            return match (takes, fused) {
                (OptionArity::Stdout, Some("-")) => Some(ValuePosition::Within),
                (OptionArity::Stdout, _) => None,
                (_, Some(_)) => Some(ValuePosition::Within),
                (OptionArity::One, None) => Some(ValuePosition::Next),
                (OptionArity::Nothing | OptionArity::Optional, None) => Some(ValuePosition::None),
            };
        }
        if self.whole_words {
            let short = word.get(..2).and_then(|short| self.names.get(short));
            return (short == Some(&OptionArity::One)).then_some(ValuePosition::Within);
        }
        if word.starts_with("--") {
            return None;
        }
        self.cluster_value_position(&word[1..])
    }

    /// The value position of clusters like `-laf` and `-ofile`; each letter must be known.
    fn cluster_value_position(&self, letters: &str) -> Option<ValuePosition> {
        for (at, letter) in letters.char_indices() {
            let behind = &letters[at + letter.len_utf8()..];
            match (self.letters.get(&letter)?, behind) {
                (OptionArity::Nothing, _) => {}
                (OptionArity::Stdout, "-") | (OptionArity::Optional, _) => {
                    return Some(ValuePosition::Within);
                }
                (OptionArity::Stdout, _) => return None,
                (OptionArity::One, "") => return Some(ValuePosition::Next),
                (OptionArity::One, _) => return Some(ValuePosition::Within),
            }
        }
        Some(ValuePosition::None)
    }

    /// True if this `sed` or `awk` program only reads.
    fn is_reading_script(&self, program: &str) -> bool {
        match self.script {
            Some(ScriptKind::Sed) => scripts::is_reading_sed(program),
            Some(ScriptKind::Awk) => scripts::is_reading_awk(program),
            Some(ScriptKind::Find) | None => true,
        }
    }

    fn can_take_value(&self, value: &str) -> bool {
        match self.operand {
            Operand::Local => is_local(match value.split_once('=') {
                Some((option, value)) if option.starts_with('-') => value,
                Some(_) | None => value.trim_start_matches('-'),
            }),
            Operand::Url => {
                let sends = ["=@", "=<", ";@", "%output"]
                    .iter()
                    .any(|s| value.contains(s));
                let named = value.split('@').next().unwrap_or_default();
                let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
                !(sends || value.contains('@') && named.chars().all(plain))
            }
            Operand::Git => !value.contains("::"),
            Operand::Any | Operand::Name => true,
        }
    }

    fn can_take_operand(&self, nth: usize, word: &str) -> bool {
        let fits = match self.operand {
            Operand::Any => true,
            Operand::Name => is_name(word),
            Operand::Local => is_local(word),
            Operand::Url => {
                let scheme = word.split_once("://").map(|(scheme, _)| scheme);
                scheme.is_none_or(|s| ["http", "https"].contains(&s.to_lowercase().as_str()))
                    && !word.to_lowercase().starts_with("file:")
                    && !word.starts_with('@')
            }
            Operand::Git => !word.contains("::") && !word.starts_with('!'),
        };
        fits && self.max_operands.is_none_or(|count| nth < count)
            && (!self.plus_operands_only || word.starts_with('+'))
    }
}

/// True if a word is this option, in a cluster, abbreviated or with a value.
fn is_form_of_option(option: &str, word: &str) -> bool {
    let name = word.split('=').next().unwrap_or(word);
    if option.starts_with("--") {
        return name == option || name.len() > 2 && option.starts_with(name);
    }
    let letter = &option[1..];
    option == name || letter.len() == 1 && !word.starts_with("--") && word[1..].contains(letter)
}

/// True for a name: no URL, no repository, no setting. `==` of a version is allowed.
fn is_name(word: &str) -> bool {
    let lower = word.to_lowercase();
    let fetched = [
        "git+",
        "git@",
        "file:",
        "github:",
        "gitlab:",
        "bitbucket:",
        "gist:",
    ];
    let setting = word.split_once('=').is_some_and(|(before, after)| {
        !after.starts_with('=') && !before.ends_with(['=', '>', '<', '~', '!'])
    });
    // A file of words, and no package of a scope (`@scope/name`).
    let file = word.strip_prefix('@').is_some_and(|rest| {
        !rest.contains('/') || !rest.starts_with(|c: char| c.is_ascii_alphanumeric())
    });
    !lower.contains("://")
        && !word.starts_with('+')
        && !file
        && !fetched.iter().any(|f| lower.starts_with(f))
        && !setting
}

fn is_local(word: &str) -> bool {
    is_name(word) && !word.contains([':', '@'])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each program of the table is in one group, and each option has a valid form.
    #[test]
    fn program_table_is_consistent() {
        let text = include_str!("programs.txt");
        let never = text.split("[never]").nth(1).unwrap();
        let never = never.split("[option]").next().unwrap();
        let names: Vec<&str> = never
            .lines()
            .filter_map(|l| l.split_once(" : "))
            .flat_map(|(_, names)| names.split_whitespace())
            .collect();
        let distinct: HashSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), distinct.len());
        assert!(TABLE.rows.len() > 300 && TABLE.groups.len() > 500);
        for (name, row) in TABLE
            .rows
            .iter()
            .flat_map(|(n, rows)| rows.iter().map(move |r| (n, r)))
        {
            let dashed = row.names.keys().all(|o| o.starts_with('-'));
            let lettered = row
                .letters
                .keys()
                .all(|c| c.is_ascii_alphanumeric() || *c == '#');
            assert!(dashed && lettered, "{name}: {row:?}");
        }
    }
}
