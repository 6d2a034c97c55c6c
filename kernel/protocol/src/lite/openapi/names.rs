//! Names in a document: of operations, of schemas, and of tools in paths.

use std::collections::{HashMap, HashSet};

/// Characters of an operation's id, as many as model APIs take for a function's name.
const ID_MAX: usize = 64;

/// Digits of the hash that closes an id that could not stay as it was.
const HASH_LEN: usize = 8;

/// Characters of a schema's name.
const SCHEMA_NAME_MAX: usize = 120;

/// The ids of operations, in the order of the tools. A tool's name is its id where it is a plain word and no
/// other one is like it; else it is cut and closed with a hash of the name, so that it depends on the others
/// as little as can be.
pub(super) fn operation_ids<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let mut alike: HashMap<String, usize> = HashMap::new();
    for name in names.clone() {
        *alike.entry(collision_key(&sanitize_id(name))).or_default() += 1;
    }
    let mut taken = UniqueNames::default();
    let id = |name: &str| {
        let plain = sanitize_id(name);
        let alone = alike
            .get(&collision_key(&plain))
            .is_some_and(|count| *count == 1);
        if alone && plain == name && plain.len() <= ID_MAX {
            taken.reserve(&plain)
        } else {
            let start: String = plain.chars().take(ID_MAX - HASH_LEN - 1).collect();
            let hash = blake3::hash(name.as_bytes()).to_hex();
            taken.reserve(&format!("{start}_{}", &hash[..HASH_LEN]))
        }
    };
    names.map(id).collect()
}

/// Letters, digits, `_` and `-`, beginning with a letter.
fn sanitize_id(name: &str) -> String {
    let allowed = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') {
            c
        } else {
            '_'
        }
    };
    let plain: String = name.chars().map(allowed).collect();
    if plain.starts_with(|c: char| c.is_ascii_alphabetic()) {
        plain
    } else {
        format!("tool_{plain}")
    }
}

/// What a name is to programs that write clients: they make it a class, a function and a file, and so take
/// away case, `_` and `-`.
fn collision_key(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

/// Names of which no two are alike.
#[derive(Debug, Default)]
pub(super) struct UniqueNames {
    used: HashSet<String>,
    /// The next number to try behind a name.
    numbers: HashMap<String, usize>,
}

impl UniqueNames {
    /// The name, with a number behind it where it is taken.
    pub(super) fn reserve(&mut self, wanted: &str) -> String {
        let start: String = sanitize_id(wanted).chars().take(SCHEMA_NAME_MAX).collect();
        let mut name = start.clone();
        while !self.used.insert(collision_key(&name)) {
            let next = self.numbers.entry(collision_key(&start)).or_insert(2);
            name = format!("{start}_{next}");
            *next += 1;
        }
        name
    }
}

/// A tool's name as one segment of a path (RFC 3986, 2.3): each byte that is not unreserved stands as `%XX`,
/// braces of path templates too.
#[must_use]
pub fn path_segment(name: &str) -> String {
    let mut segment = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            segment.push(char::from(byte))
        } else {
            segment.push_str(&format!("%{byte:02X}"))
        }
    }
    segment
}

/// The tool's name that a segment of a path stands for; `None` for one that is badly written or not UTF-8.
#[must_use]
pub fn parse_path_segment(segment: &str) -> Option<String> {
    let whole = !segment.is_empty() && !segment.contains('/');
    whole.then(|| percent_decode(segment)).flatten()
}

/// Text of a URL without its escapes; `None` for one that is badly written or not UTF-8.
pub(super) fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(names: &[&str]) -> Vec<String> {
        operation_ids(names.iter().copied())
    }

    #[test]
    fn a_plain_name_stays_and_depends_on_no_other() {
        assert_eq!(ids(&["files__read", "redeem"]), ["files__read", "redeem"]);
        let alone = ids(&["lists: all"]);
        assert!(
            alone[0].starts_with("lists__all_") && alone[0].len() == 19,
            "{alone:?}"
        );
        assert_eq!(ids(&["a", "lists: all", "b"])[1], alone[0]);
        assert!(ids(&["1st"])[0].starts_with("tool_1st_"));
        assert!(ids(&["é"])[0].starts_with("tool___"));
        assert!(ids(&[&"x".repeat(200)])[0].len() <= ID_MAX);
    }

    #[test]
    fn no_two_ids_are_alike_to_a_generator() {
        let names = [
            "readFile",
            "read_file",
            "read-file",
            "read file",
            "READFILE",
            "readFile",
            "x",
        ];
        let ids = ids(&names);
        // As a generator of clients makes names of them.
        let folded = |id: &String| id.replace(['_', '-'], "").to_ascii_lowercase();
        let alike: HashSet<String> = ids.iter().map(folded).collect();
        assert_eq!(alike.len(), names.len(), "{ids:?}");
        assert_eq!(ids[6], "x");
    }

    #[test]
    fn a_tool_can_be_read_back_from_its_path() {
        for name in ["files__read", "a/b c", "{id}", "100%", "é", "a.b~c", "?q#f"] {
            let segment = path_segment(name);
            assert!(
                !segment.contains(['/', '{', '}', '?', '#', ' ']),
                "{segment}"
            );
            assert_eq!(parse_path_segment(&segment).as_deref(), Some(name));
        }
        for broken in ["", "%", "%4", "%zz", "%ff", "a/b"] {
            assert_eq!(parse_path_segment(broken), None, "{broken}");
        }
    }
}
