//! Splits an object into members and joins them again; unchanged members keep their bytes.

use std::borrow::Cow;

use mgp_json::{members, quote};

/// A member of an object.
#[derive(Debug)]
pub(super) struct Member<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) value: &'a str,
    /// The text of name and value, original or replaced.
    pub(super) text: Cow<'a, str>,
}

impl<'a> Member<'a> {
    /// A member with another value.
    pub(super) fn new(name: &'a str, value: &'a str) -> Self {
        Self {
            name: Cow::Borrowed(name),
            value,
            text: Cow::Owned(format!("{}:{value}", quote(name))),
        }
    }

    /// Replaces the value by `json`.
    pub(super) fn replace(&mut self, json: &str) {
        self.text = Cow::Owned(format!("{}:{json}", quote(&self.name)));
    }
}

/// The members of an object in order; `None` if it is no object.
pub(super) fn split_members(object: &str) -> Option<Vec<Member<'_>>> {
    let members = members(object)?;
    let mut at = object.find('{')? + 1;
    let base = object.as_ptr() as usize;
    let parts = members.into_iter().map(|(name, value)| {
        let value = value.get();
        let end = value.as_ptr() as usize - base + value.len();
        let text = object[at..end].trim_start_matches([',', ' ', '\t', '\r', '\n']);
        at = end;
        Member {
            name,
            value,
            text: Cow::Borrowed(text),
        }
    });
    Some(parts.collect())
}

/// The last member of this name: most parsers use the last of duplicates.
pub(super) fn last_value<'a>(parts: &[Member<'a>], name: &str) -> Option<&'a str> {
    parts.iter().rev().find(|p| p.name == name).map(|p| p.value)
}

/// Renders an object of these members.
pub(super) fn join_object<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    join_list('{', texts, '}')
}

/// Renders an array of these elements.
pub(super) fn join_array<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    join_list('[', texts, ']')
}

fn join_list<'t>(open: char, texts: impl IntoIterator<Item = &'t str>, close: char) -> String {
    let mut out = String::from(open);
    for text in texts {
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(text);
    }
    out.push(close);
    out
}

/// Renders an object of these members.
pub(super) fn join_members(parts: &[Member<'_>]) -> String {
    join_object(parts.iter().map(|p| &*p.text))
}

/// True if the text may contain one of the words as a member's name.
pub(super) fn can_mention(text: &str, words: &[&str]) -> bool {
    words
        .iter()
        .any(|word| mgp_json::can_contain_string(text.as_bytes(), word))
}

/// Removes the members of these names. `None` if the object becomes empty; borrowed if nothing changes.
pub(super) fn remove_members<'a>(object: &'a str, names: &[&str]) -> Option<Cow<'a, str>> {
    let Some(mut all) = split_members(object) else {
        return Some(Cow::Borrowed(object));
    };
    let before = all.len();
    all.retain(|p| !names.contains(&&*p.name));
    if all.len() == before {
        return Some(Cow::Borrowed(object));
    }
    (!all.is_empty()).then(|| Cow::Owned(join_members(&all)))
}

/// Removes members of `_meta` among these members, and an empty `_meta` itself. True if something was
/// removed.
pub(super) fn strip_meta(all: &mut Vec<Member<'_>>, names: &[&str]) -> bool {
    let mut changed = false;
    all.retain_mut(|part| {
        if part.name != "_meta" {
            return true;
        }
        match remove_members(part.value, names) {
            Some(Cow::Borrowed(_)) => true,
            Some(Cow::Owned(rest)) => {
                changed = true;
                part.replace(&rest);
                true
            }
            None => {
                changed = true;
                false
            }
        }
    });
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_text() {
        let text = " { \"a\" : 1.0e2 ,\n \"b\\u0063\":{\"x\":[1, 2]}, \"d\":\"e,\" } ";
        let all = split_members(text).unwrap();
        let texts: Vec<&str> = all.iter().map(|p| &*p.text).collect();
        assert_eq!(
            texts,
            [
                "\"a\" : 1.0e2",
                "\"b\\u0063\":{\"x\":[1, 2]}",
                "\"d\":\"e,\""
            ]
        );
        assert_eq!(all[1].name, "bc");
        assert_eq!(last_value(&all, "bc"), Some("{\"x\":[1, 2]}"));
        assert!(split_members("[1]").is_none());
    }

    #[test]
    fn empty_objects_are_removed() {
        assert_eq!(remove_members(r#"{"a":1}"#, &["a"]), None);
        assert_eq!(remove_members("{}", &["a"]).unwrap(), "{}");
        assert_eq!(
            remove_members(r#"{"a":1, "b":2}"#, &["a"]).unwrap(),
            r#"{"b":2}"#
        );
    }
}
