//! Names that are almost other names, and letters that are almost others.

use std::collections::{BTreeSet, HashMap};

use super::Act;
use super::sentence::ActWeight;

/// Words of which names of tools are made: a name with one of them misspelt is taken for the other tool.
const COMMON: &[&str] = &[
    "account",
    "agent",
    "analyze",
    "append",
    "archive",
    "article",
    "attachment",
    "balance",
    "branch",
    "browser",
    "bucket",
    "calendar",
    "cancel",
    "channel",
    "click",
    "clone",
    "cluster",
    "comment",
    "commit",
    "contact",
    "container",
    "content",
    "convert",
    "create",
    "customer",
    "dashboard",
    "database",
    "delete",
    "deploy",
    "describe",
    "directory",
    "document",
    "download",
    "draft",
    "email",
    "event",
    "execute",
    "export",
    "fetch",
    "field",
    "file",
    "files",
    "filter",
    "folder",
    "forecast",
    "generate",
    "github",
    "gitlab",
    "google",
    "history",
    "image",
    "import",
    "index",
    "insert",
    "invoice",
    "issue",
    "label",
    "library",
    "link",
    "list",
    "login",
    "memory",
    "merge",
    "message",
    "metric",
    "monitor",
    "move",
    "navigate",
    "note",
    "notion",
    "order",
    "payment",
    "permission",
    "postgres",
    "process",
    "product",
    "profile",
    "project",
    "prompt",
    "public",
    "pull",
    "push",
    "query",
    "read",
    "record",
    "release",
    "remove",
    "rename",
    "reply",
    "report",
    "repository",
    "request",
    "resource",
    "result",
    "review",
    "schedule",
    "schema",
    "screenshot",
    "search",
    "secret",
    "send",
    "server",
    "session",
    "sheet",
    "slack",
    "spreadsheet",
    "start",
    "status",
    "stripe",
    "summary",
    "table",
    "task",
    "team",
    "template",
    "terminal",
    "thread",
    "ticket",
    "transaction",
    "transfer",
    "translate",
    "update",
    "upload",
    "user",
    "users",
    "value",
    "version",
    "video",
    "wallet",
    "weather",
    "webhook",
    "workflow",
    "workspace",
    "write",
];

/// Words of a name that are compared.
const WORDS_MAX: usize = 8;
/// Names that differ in the same word only, such as `get_…`.
const CANDIDATES_MAX: usize = 5_000;

/// Fewer letters differ by one too often.
const WORD_MIN: usize = 4;

/// A letter of Cyrillic or Greek that looks like a Latin one.
fn latin_twin(c: char) -> Option<char> {
    Some(match c {
        'а' | 'α' => 'a',
        'с' | 'ϲ' => 'c',
        'ԁ' => 'd',
        'е' | 'ҽ' => 'e',
        'һ' => 'h',
        'і' | 'ι' => 'i',
        'ј' => 'j',
        'к' | 'κ' => 'k',
        'ӏ' => 'l',
        'м' => 'm',
        'ո' | 'п' => 'n',
        'о' | 'ο' | 'օ' => 'o',
        'р' | 'ρ' => 'p',
        'ԛ' => 'q',
        'г' => 'r',
        'ѕ' => 's',
        'т' | 'τ' => 't',
        'υ' | 'ս' => 'u',
        'ν' | 'ѵ' => 'v',
        'ԝ' => 'w',
        'х' | 'χ' => 'x',
        'у' => 'y',
        'А' | 'Α' => 'A',
        'В' | 'Β' => 'B',
        'С' => 'C',
        'Е' | 'Ε' => 'E',
        'Н' | 'Η' => 'H',
        'І' | 'Ι' => 'I',
        'К' | 'Κ' => 'K',
        'М' | 'Μ' => 'M',
        'О' | 'Ο' => 'O',
        'Р' | 'Ρ' => 'P',
        'Т' | 'Τ' => 'T',
        'Х' | 'Χ' => 'X',
        _ => return None,
    })
}

/// A text with the twins in words that also have Latin letters replaced, and how many such words there are.
pub(super) fn fold_twins(text: &str) -> (String, usize) {
    let (mut out, mut mixed) = (String::with_capacity(text.len()), 0);
    for word in text.split_inclusive(|c: char| !c.is_alphanumeric()) {
        let latin = word.chars().filter(char::is_ascii_alphabetic).count();
        let twins = word.chars().filter(|c| latin_twin(*c).is_some()).count();
        let others = word.chars().filter(|c| c.is_alphabetic() && !c.is_ascii());
        if latin >= 2 && twins > 0 && others.count() == twins {
            mixed += 1;
            out.extend(word.chars().map(|c| latin_twin(c).unwrap_or(c)));
        } else {
            out.push_str(word);
        }
    }
    (out, mixed)
}

/// What the name of a tool or argument says: words that are almost others, letters that only look like Latin ones.
/// `described` are the words of its description, `others` the names of other servers' tools.
pub(super) fn judge_name(
    name: &str,
    described: &BTreeSet<String>,
    others: &OtherNames,
) -> Vec<ActWeight> {
    let mut found = Vec::new();
    let has_latin = name.chars().any(|c| c.is_ascii_alphabetic());
    let is_odd = |c: char| {
        latin_twin(c).is_some()
            || matches!(c, '\u{ff01}'..='\u{ff5e}' | '\u{1d400}'..='\u{1d7ff}' | '\u{2100}'..='\u{214f}')
    };
    if has_latin && name.chars().any(is_odd) {
        found.push((Act::ShadowsName, 120));
    }
    let words = split_words(name);
    for word in words
        .iter()
        .filter(|word| word.len() >= WORD_MIN && word.is_ascii())
    {
        if COMMON.contains(&&**word) || described.contains(word) {
            continue;
        }
        let known = COMMON.iter().copied();
        let mut known = known.filter(|known| is_misspelt(word, known));
        let Some(_) = known.next() else { continue };
        found.push((Act::ShadowsName, 100));
    }
    if found.is_empty() && others.has_almost(name) {
        found.push((Act::ShadowsName, 100));
    }
    found
}

/// Names of other servers' tools, found by what is left of them without one word.
#[derive(Clone, Debug, Default)]
pub(super) struct OtherNames {
    all: BTreeSet<String>,
    by_rest: HashMap<String, Vec<String>>,
}

impl OtherNames {
    pub(super) fn new(names: impl Iterator<Item = String>) -> Self {
        let mut known = Self::default();
        for name in names {
            for (rest, word) in without_each(&split_words(&name)) {
                known.by_rest.entry(rest).or_default().push(word);
            }
            known.all.insert(name);
        }
        known
    }

    /// Whether a name differs from one of these in one word that is misspelt.
    fn has_almost(&self, name: &str) -> bool {
        let words = split_words(name);
        !self.all.contains(name)
            && words.len() > 1
            && without_each(&words).any(|(rest, word)| {
                let known = self.by_rest.get(&rest).into_iter().flatten();
                known
                    .take(CANDIDATES_MAX)
                    .any(|known| is_misspelt(&word, known))
            })
    }
}

/// The words without each one in turn, and that one. Names have few words; the first count.
fn without_each(words: &[String]) -> impl Iterator<Item = (String, String)> {
    (0..words.len().min(WORDS_MAX)).map(|at| {
        let (before, after) = words.split_at(at);
        (
            format!("{}|{}", before.join(" "), after[1..].join(" ")),
            words[at].clone(),
        )
    })
}

/// The words of `readFile`, `read_file` and `read-file`, in lower case.
pub(super) fn split_words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut last = '_';
    for c in name.chars() {
        if !c.is_alphanumeric() {
            last = '_';
            continue;
        }
        let starts = last == '_' || c.is_uppercase() && last.is_lowercase();
        if starts {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase());
        }
        last = c;
    }
    words
}

/// Letters that are taken for each other.
fn look_alike(one: char, other: char, length: usize) -> bool {
    let pairs = [
        "il", "ij", "gq", "uv", "nm", "ce", "oc", "lt", "nh", "vw", "ft",
    ];
    // Short words are words with other letters, too.
    let pairs = &pairs[..if length < 6 { 3 } else { pairs.len() }];
    pairs
        .iter()
        .any(|pair| pair.contains(one) && pair.contains(other))
}

/// Whether a word is another one with one letter doubled, missing, replaced or swapped. Endings are grammar, and digits
/// that look like letters are a disguise.
fn is_misspelt(word: &str, known: &str) -> bool {
    if word == known || word.len() < WORD_MIN || known.len() < WORD_MIN {
        return false;
    }
    let disguised: String = word
        .chars()
        .map(|c| match c {
            '0' => 'o',
            '1' => 'l',
            '3' => 'e',
            '5' => 's',
            other => other,
        })
        .collect();
    if disguised == known
        || word.replace("rn", "m") == known
        || word.replace('l', "i") == known
        || word.replace('i', "l") == known
    {
        return word.len() == known.len() || word.replace("rn", "m") == known;
    }
    if word.bytes().any(|c| c.is_ascii_digit()) {
        return false;
    }
    let (a, b): (Vec<char>, Vec<char>) = (word.chars().collect(), known.chars().collect());
    let same_start = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let same_end = a
        .iter()
        .rev()
        .zip(b.iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    // The first letter and the ending stand: other words begin or end otherwise.
    if same_start == 0 || same_end == 0 {
        return false;
    }
    match a.len().abs_diff(b.len()) {
        // Of short words many are one letter apart.
        1 if known.len() < 6 => false,
        0 => {
            let differ: Vec<usize> = (0..a.len()).filter(|at| a[*at] != b[*at]).collect();
            match differ[..] {
                [at] => look_alike(a[at], b[at], known.len()),
                [one, two] if known.len() > 4 => {
                    two == one + 1 && a[one] == b[two] && a[two] == b[one]
                }
                _ => false,
            }
        }
        1 => same_start + same_end >= a.len().min(b.len()),
        _ => false,
    }
}
