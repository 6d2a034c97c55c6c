//! Names in a document: of operations, of schemas, and of tools in paths.

use std::collections::{HashMap, HashSet};

/// The most characters of an operation id: the limit of model APIs for a function's name.
const ID_MAX: usize = 64;

/// The digits of the hash at the end of a changed id.
const HASH_LEN: usize = 8;

/// The most characters of a schema's name.
const SCHEMA_NAME_MAX: usize = 120;

/// The ids of operations, in the order of the tools. The id is the tool's name if that is a valid and
/// distinct identifier; otherwise it is truncated and gets a hash of the name, so that it depends on other
/// names as little as possible.
pub(super) fn operation_ids<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let mut alike: HashMap<String, usize> = HashMap::new();
    for name in names.clone() {
        *alike.entry(collision_key(&sanitize_id(name))).or_default() += 1;
    }
    let mut reserved = UniqueNames::default();
    let id = |name: &str| {
        let plain = sanitize_id(name);
        let unique = alike
            .get(&collision_key(&plain))
            .is_some_and(|count| *count == 1);
        if unique && plain == name && plain.len() <= ID_MAX {
            reserved.reserve(&plain)
        } else {
            let start: String = plain.chars().take(ID_MAX - HASH_LEN - 1).collect();
            let hash = blake3::hash(name.as_bytes()).to_hex();
            reserved.reserve(&format!("{start}_{}", &hash[..HASH_LEN]))
        }
    };
    names.map(id).collect()
}

/// Keeps letters, digits, `_` and `-`, beginning with a letter.
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

/// The form in which client generators use a name: they derive a class, a function and a file from it, and
/// drop case, `_` and `-`.
fn collision_key(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

/// A set of distinct names.
#[derive(Debug, Default)]
pub(super) struct UniqueNames {
    used: HashSet<String>,
    /// The next number to append to a name.
    numbers: HashMap<String, usize>,
}

impl UniqueNames {
    /// Reserves the name, with a number appended if it is taken.
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

/// Encodes a tool's name as one segment of a path (RFC 3986, 2.3): each byte that is not unreserved becomes
/// `%XX`, braces of path templates too.
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

/// Decodes the tool's name in a segment of a path; `None` if malformed or not UTF-8.
#[must_use]
pub fn parse_path_segment(segment: &str) -> Option<String> {
    let whole = !segment.is_empty() && !segment.contains('/');
    whole.then(|| percent_decode(segment)).flatten()
}

/// Decodes the escapes of a URL text; `None` if malformed or not UTF-8.
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
    fn valid_name_is_unchanged_and_independent_of_others() {
        assert_eq!(ids(&["files__read", "redeem"]), ["files__read", "redeem"]);
        let unique = ids(&["lists: all"]);
        assert!(
            unique[0].starts_with("lists__all_") && unique[0].len() == 19,
            "{unique:?}"
        );
        assert_eq!(ids(&["a", "lists: all", "b"])[1], unique[0]);
        assert!(ids(&["1st"])[0].starts_with("tool_1st_"));
        assert!(ids(&["é"])[0].starts_with("tool___"));
        assert!(ids(&[&"x".repeat(200)])[0].len() <= ID_MAX);
    }

    #[test]
    fn ids_are_distinct_for_generators() {
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
        // As a client generator derives names.
        let folded = |id: &String| id.replace(['_', '-'], "").to_ascii_lowercase();
        let alike: HashSet<String> = ids.iter().map(folded).collect();
        assert_eq!(alike.len(), names.len(), "{ids:?}");
        assert_eq!(ids[6], "x");
    }

    #[test]
    fn tool_name_round_trips_in_a_path() {
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
