//! Parses the arguments of a call to a flat list of texts.
//!
//! Duplicate keys are both in it, because servers differ in which one they use. JSON inside strings is
//! parsed too.

use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;

use mgp_json::lookalike::are_alike;
use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};

use super::ArgumentFinding;
use super::roles::{self, Role};

/// The most texts in one call. Real calls have some tens; more is rejected, not passed unchecked.
const LEAVES_MAX: usize = 20_000;
/// The most commands in one call: each is compared with all other texts of the call.
pub(super) const COMMANDS_MAX: usize = 256;
/// The maximum nesting of JSON inside strings.
const NESTED_MAX: usize = 4;

/// One text, or a number as text.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    /// JSON pointer.
    pub(super) path: Rc<str>,
    /// Pointer to the object or array that contains the text.
    pub(super) parent: Rc<str>,
    /// Pointer to the nearest object.
    pub(super) object: Rc<str>,
    /// The nearest key above it.
    pub(super) key: Rc<str>,
    /// The role implied by the key.
    pub(super) role: Role,
    /// The unescaped text.
    pub(super) text: String,
    /// Its kind.
    pub(super) kind: ArgumentKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentKind {
    Text,
    /// An element of an array of texts.
    Element,
    Number,
    /// The key of an object, which is itself text that the server reads.
    Key,
}

#[derive(Debug, Default)]
pub(super) struct CallArguments {
    pub(super) leaves: Vec<Leaf>,
}

impl CallArguments {
    /// Parses the texts in the arguments; `declared` are names from the tool's schema that determine roles.
    /// A similar name that some servers read as a declared one has its role.
    pub(super) fn parse(text: &str, declared: &[String]) -> Result<Self, ArgumentFinding> {
        let mut args = Self::default();
        args.parse_nested(text, &ArgumentPosition::default(), declared)
            .map_err(|e| unreadable_finding(&e.to_string()))?;
        let mut at = 0;
        let mut depths = vec![0; args.leaves.len()];
        while at < args.leaves.len() {
            let depth = depths[at];
            let nested = args.leaves[at]
                .text
                .trim_start()
                .starts_with(['{', '[', '"']);
            if depth < NESTED_MAX && nested {
                let leaf = args.leaves[at].clone();
                let before = args.leaves.len();
                let position = ArgumentPosition {
                    path: leaf.path,
                    parent: leaf.parent,
                    object: leaf.object,
                    key: leaf.key,
                    role: leaf.role,
                    kind: leaf.kind,
                };
                // A text that only looks like JSON is checked as text.
                if args.parse_nested(&leaf.text, &position, declared).is_err() {
                    args.leaves.truncate(before);
                }
                depths.resize(args.leaves.len(), depth + 1);
            }
            at += 1;
            if args.leaves.len() > LEAVES_MAX {
                return Err(unreadable_finding("too many values"));
            }
        }
        let commands = args.leaves.iter().filter(|l| l.role == Role::Command);
        let heads = commands.filter(|l| l.kind != ArgumentKind::Element || l.path.ends_with("/0"));
        if heads.count() > COMMANDS_MAX {
            return Err(unreadable_finding("too many commands"));
        }
        Ok(args)
    }

    fn parse_nested(
        &mut self,
        text: &str,
        position: &ArgumentPosition,
        declared: &[String],
    ) -> Result<(), serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_str(text);
        LeafVisitor {
            out: &mut self.leaves,
            position,
            declared,
        }
        .deserialize(&mut reader)?;
        reader.end()
    }

    /// Joins the texts that `take` selects; the elements of one array are lines of one text.
    pub(super) fn join_texts(&self, take: impl Fn(&Leaf) -> bool) -> Vec<(String, String)> {
        let mut out: Vec<(String, String)> = Vec::new();
        for leaf in self.leaves.iter().filter(|l| take(l)) {
            match leaf.kind {
                ArgumentKind::Key | ArgumentKind::Number => {}
                ArgumentKind::Text => out.push((leaf.path.to_string(), leaf.text.clone())),
                ArgumentKind::Element => {
                    match out.iter_mut().find(|(path, _)| **path == *leaf.parent) {
                        Some((_, text)) => {
                            if !text.ends_with('\n') {
                                text.push('\n');
                            }
                            text.push_str(&leaf.text);
                        }
                        None => out.push((leaf.parent.to_string(), leaf.text.clone())),
                    }
                }
            }
        }
        out
    }
}

fn unreadable_finding(what: &str) -> ArgumentFinding {
    ArgumentFinding::new(
        "unreadable",
        format!("the arguments cannot be checked ({what})"),
        "send plain JSON of moderate size",
    )
}

#[derive(Clone, Debug)]
struct ArgumentPosition {
    path: Rc<str>,
    parent: Rc<str>,
    object: Rc<str>,
    key: Rc<str>,
    role: Role,
    kind: ArgumentKind,
}

impl Default for ArgumentPosition {
    fn default() -> Self {
        Self {
            path: "".into(),
            parent: "".into(),
            object: "".into(),
            key: "".into(),
            role: Role::Other,
            kind: ArgumentKind::Text,
        }
    }
}

impl ArgumentPosition {
    fn new_leaf(&self, text: String, kind: ArgumentKind) -> Leaf {
        Leaf {
            path: self.path.clone(),
            parent: self.parent.clone(),
            object: self.object.clone(),
            key: self.key.clone(),
            role: self.role,
            text,
            kind,
        }
    }

    fn element(&self, at: usize) -> Self {
        Self {
            path: format!("{}/{at}", self.path).into(),
            parent: self.path.clone(),
            object: self.object.clone(),
            key: self.key.clone(),
            role: self.role,
            kind: ArgumentKind::Element,
        }
    }

    fn member(&self, key: &str, declared: &[String]) -> Self {
        let canonical = canonical_key(key, declared);
        let escaped = if key.contains(['~', '/']) {
            key.replace('~', "~0").replace('/', "~1").into()
        } else {
            Cow::Borrowed(key)
        };
        let role = match (self.role, roles::role_for_key(canonical)) {
            // `{"sql": {"text": …, "values": […]}}`
            (Role::Sql, Role::Prose) => Role::Sql,
            (_, role) => role,
        };
        Self {
            path: [&self.path, "/", &escaped].concat().into(),
            parent: self.path.clone(),
            object: self.path.clone(),
            key: canonical.into(),
            role,
            kind: ArgumentKind::Text,
        }
    }
}

/// The declared name that a server may read for this one.
fn canonical_key<'a>(key: &'a str, declared: &'a [String]) -> &'a str {
    let alike = || declared.iter().find(|name| are_alike(name, key));
    if declared.iter().any(|name| name == key) {
        key
    } else {
        alike().map_or(key, String::as_str)
    }
}

struct LeafVisitor<'a> {
    out: &'a mut Vec<Leaf>,
    position: &'a ArgumentPosition,
    declared: &'a [String],
}

impl<'de> DeserializeSeed<'de> for LeafVisitor<'_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        if self.out.len() > LEAVES_MAX {
            return Err(de::Error::custom("too many values"));
        }
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for LeafVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, n: u64) -> Result<(), E> {
        self.out
            .push(self.position.new_leaf(n.to_string(), ArgumentKind::Number));
        Ok(())
    }

    fn visit_i64<E>(self, n: i64) -> Result<(), E> {
        self.out
            .push(self.position.new_leaf(n.to_string(), ArgumentKind::Number));
        Ok(())
    }

    fn visit_f64<E>(self, n: f64) -> Result<(), E> {
        self.out
            .push(self.position.new_leaf(n.to_string(), ArgumentKind::Number));
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        let kind = self.position.kind;
        self.out.push(self.position.new_leaf(text.to_owned(), kind));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut at = 0;
        loop {
            let position = self.position.element(at);
            let walk = LeafVisitor {
                out: &mut *self.out,
                position: &position,
                declared: self.declared,
            };
            if seq.next_element_seed(walk)?.is_none() {
                return Ok(());
            }
            at += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let position = self.position.member(&key, self.declared);
            let mut named = position.new_leaf(key, ArgumentKind::Key);
            named.key = self.position.key.clone();
            named.role = self.position.role;
            self.out.push(named);
            let walk = LeafVisitor {
                out: &mut *self.out,
                position: &position,
                declared: self.declared,
            };
            map.next_value_seed(walk)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn leaf_count(args: &serde_json::Value) -> Result<usize, ArgumentFinding> {
        CallArguments::parse(&args.to_string(), &[]).map(|args| args.leaves.len())
    }

    /// MGP-060: JSON within texts is read as the arguments are, to a bounded depth.
    #[test]
    fn nested_text_is_read_to_a_depth() {
        let nest = |depth| {
            let wrap = |text: String, _| json!([text]).to_string();
            json!([(0..depth).fold("x".to_owned(), wrap)])
        };
        for depth in 0..=NESTED_MAX {
            assert_eq!(leaf_count(&nest(depth)), Ok(depth + 1));
        }
        assert_eq!(leaf_count(&nest(NESTED_MAX + 1)), Ok(NESTED_MAX + 1));
    }

    /// MGP-058: more values or commands than are checked are rejected.
    #[test]
    fn values_and_commands_are_counted() {
        assert_eq!(leaf_count(&json!(vec!["x"; LEAVES_MAX])), Ok(LEAVES_MAX));
        assert!(leaf_count(&json!(vec!["x"; LEAVES_MAX + 1])).is_err());
        let commands = |count| json!(vec![json!({ "command": "ls" }); count]);
        assert!(leaf_count(&commands(COMMANDS_MAX)).is_ok());
        assert!(leaf_count(&commands(COMMANDS_MAX + 1)).is_err());
        let words = json!({ "command": vec!["ls"; COMMANDS_MAX + 2] });
        assert!(leaf_count(&words).is_ok());
        let lists = json!(vec![json!({ "command": ["ls"] }); COMMANDS_MAX + 1]);
        assert!(leaf_count(&lists).is_err());
    }
}
