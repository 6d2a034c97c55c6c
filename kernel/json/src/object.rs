//! Members of objects and items of arrays, verbatim.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::quote;

/// The members of an object in order, values verbatim; `None` for anything else.
#[must_use]
pub fn members(object: &str) -> Option<Vec<(Cow<'_, str>, &RawValue)>> {
    let mut all = Vec::new();
    for_each_member(object, |name, value| all.push((name, value)))?;
    Some(all)
}

/// The first member `name` of an object, as raw JSON text.
#[must_use]
pub fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let mut first = None;
    for_each_member(object, |found, value| {
        if first.is_none() && found == name {
            first = Some(value.get());
        }
    })?;
    first
}

/// The value of the only member of this name; `None` without one, and with several, as readers differ on those.
#[must_use]
pub fn unique_member<'a>(members: &[(Cow<'_, str>, &'a RawValue)], name: &str) -> Option<&'a str> {
    let mut found = members.iter().filter(|(found, _)| found == name);
    match (found.next(), found.next()) {
        (Some((_, value)), None) => Some(value.get()),
        (Some(_) | None, _) => None,
    }
}

/// The items of an array, verbatim; `None` for anything else.
#[must_use]
pub fn elements(array: &str) -> Option<Vec<&RawValue>> {
    serde_json::from_str(array).ok()
}

/// An object of these members, whose values are JSON text.
pub fn render_object<N: AsRef<str>, V: AsRef<str>>(
    members: impl IntoIterator<Item = (N, V)>,
) -> String {
    let mut out = String::from("{");
    for (name, json) in members {
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(&quote(name.as_ref()));
        out.push(':');
        out.push_str(json.as_ref());
    }
    out.push('}');
    out
}

fn for_each_member<'a>(
    object: &'a str,
    take: impl FnMut(Cow<'a, str>, &'a RawValue),
) -> Option<()> {
    let mut json = serde_json::Deserializer::from_str(object);
    json.deserialize_map(MemberVisitor(take)).ok()?;
    json.end().ok()
}

struct MemberVisitor<F>(F);

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de, F: FnMut(Cow<'de, str>, &'de RawValue)> Visitor<'de> for MemberVisitor<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((Name(name), value)) = map.next_entry()? {
            (self.0)(name, value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_items_are_verbatim() {
        let text = r#" {"a":1.0e2 ,"\u0062" : [1, 2],"a":null} "#;
        let all: Vec<_> = members(text).unwrap();
        let all: Vec<_> = all
            .iter()
            .map(|(name, json)| (&**name, json.get()))
            .collect();
        assert_eq!(all, [("a", "1.0e2"), ("b", "[1, 2]"), ("a", "null")]);
        assert_eq!(member(text, "a"), Some("1.0e2"));
        assert_eq!(member(text, "c"), None);
        let all = members(text).unwrap();
        let unique = ["a", "b", "c"].map(|name| unique_member(&all, name));
        assert_eq!(unique, [None, Some("[1, 2]"), None]);
        let items = elements("[1.0, \"\\u0061\"]").unwrap();
        assert_eq!(items[0].get(), "1.0");
        assert_eq!(
            render_object([("a\"", "1.0"), ("b", "[]")]),
            r#"{"a\"":1.0,"b":[]}"#
        );
        assert_eq!(render_object::<&str, &str>([]), "{}");
    }

    /// Text with a valid beginning that is not JSON to its end has no members.
    #[test]
    fn a_broken_object_has_no_members() {
        for text in [
            r#"{"a":1"#,
            r#"{"a":1}x"#,
            r#"{"a":1,}"#,
            "[]",
            "7",
            r#"{"\ud800":1}"#,
        ] {
            assert!(members(text).is_none(), "{text}");
            assert_eq!(member(text, "a"), None, "{text}");
        }
    }

    #[test]
    fn names_without_escapes_are_not_copied() {
        let all = members(r#"{"a":1,"\u0062":2}"#).unwrap();
        assert!(matches!(all[0].0, Cow::Borrowed("a")));
        assert!(matches!(all[1].0, Cow::Owned(_)));
    }
}
