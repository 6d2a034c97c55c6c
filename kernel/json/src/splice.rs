//! Edits of JSON text that leave every other byte as it was.
//!
//! A relayed payload is never rebuilt: numbers keep their digits, unknown members their place and
//! order. Spans are found by parsing borrowed values and comparing addresses, so an edit can only
//! land on a value the parser saw.

use std::borrow::Cow;
use std::ops::Range;

use crate::{members, render_object};

/// Edits of one JSON text, applied all at once.
#[derive(Debug)]
pub struct Splice<'a> {
    text: &'a str,
    edits: Vec<(Range<usize>, Cow<'a, str>)>,
}

impl<'a> Splice<'a> {
    /// Starts with the text unchanged.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self {
            text,
            edits: Vec::new(),
        }
    }

    /// Replaces `part` with `json`.
    ///
    /// # Panics
    /// When `part` was not borrowed from this text: the caller mixed up two frames.
    pub fn replace(&mut self, part: &str, json: impl Into<Cow<'a, str>>) {
        let span = self.span(part);
        self.edits.push((span, json.into()));
    }

    /// Inserts `name: json` as the first member of `object`. Once per object: a second call would not know of the first.
    ///
    /// # Panics
    /// When `object` was not borrowed from this text or is no object.
    pub fn insert_member(&mut self, object: &str, name: &str, json: &str) {
        self.insert_members(object, &[(name, json)]);
    }

    /// Inserts several members at the start of `object`, in order.
    ///
    /// # Panics
    /// When `object` was not borrowed from this text or is no object.
    pub fn insert_members(&mut self, object: &str, members: &[(&str, &str)]) {
        let span = self.span(object);
        assert!(object.starts_with('{'), "members go into objects");
        if members.is_empty() {
            return;
        }
        // Without braces: those of `object` stay.
        let mut text = render_object(members.iter().copied());
        text.pop();
        text.remove(0);
        if !object[1..].trim_start().starts_with('}') && !self.is_emptied(&span) {
            text.push(',');
        }
        self.edits
            .push((span.start + 1..span.start + 1, text.into()));
    }

    /// Removes members of `object`, with their commas. Missing names change nothing. Members are inserted after this, if at
    /// all.
    ///
    /// # Panics
    /// When `object` was not borrowed from this text.
    pub fn remove_members(&mut self, object: &str, names: &[&str]) {
        let (whole, all) = (self.span(object), members(object).unwrap_or_default());
        let end = |n: usize| self.span(all[n].1.get()).end;
        let begin = |n: usize| {
            let start = n.checked_sub(1).map_or(whole.start + 1, end);
            let rest = self.text[start..].trim_start_matches([',', ' ', '\t', '\r', '\n']);
            self.text.len() - rest.len()
        };
        let is_removed = |n: &usize| names.contains(&&*all[*n].0);
        let order: Vec<usize> = (0..all.len()).collect();
        let mut removed = Vec::new();
        for run in order.chunk_by(|one, next| is_removed(one) == is_removed(next)) {
            let (Some(first), Some(last), true) = (run.first(), run.last(), is_removed(&run[0]))
            else {
                continue;
            };
            // Up to the next remaining member, or else from the end of the previous one.
            removed.push(match (first.checked_sub(1), last + 1 < all.len()) {
                (_, true) => begin(*first)..begin(last + 1),
                (Some(before), false) => end(before)..end(*last),
                (None, false) => begin(*first)..end(*last),
            });
        }
        let nothing = |span| (span, Cow::Borrowed(""));
        self.edits.extend(removed.into_iter().map(nothing));
    }

    /// Whether all members of the object at this place are removed.
    fn is_emptied(&self, object: &Range<usize>) -> bool {
        let inner = object.start + 1..object.end - 1;
        let is_blank = |range: Range<usize>| self.text[range].trim().is_empty();
        self.edits.iter().any(|(edit, text)| {
            text.is_empty()
                && inner.start <= edit.start
                && edit.end <= inner.end
                && is_blank(inner.start..edit.start)
                && is_blank(edit.end..inner.end)
        })
    }

    fn span(&self, part: &str) -> Range<usize> {
        let start = (part.as_ptr() as usize)
            .checked_sub(self.text.as_ptr() as usize)
            .expect("the part lies in the text");
        assert!(
            start + part.len() <= self.text.len(),
            "the part lies in the text"
        );
        start..start + part.len()
    }

    /// Upper bound of the edited text's length, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let grown: usize = self.edits.iter().map(|(_, json)| json.len()).sum();
        self.text.len() + grown
    }

    /// Appends the edited text to `out`.
    pub fn append_to(mut self, out: &mut Vec<u8>) {
        // At the same position, insertions come before removals.
        self.edits.sort_by_key(|(span, _)| (span.start, span.end));
        out.reserve(self.size());
        let mut start = 0;
        for (span, json) in &self.edits {
            out.extend_from_slice(&self.text.as_bytes()[start..span.start]);
            out.extend_from_slice(json.as_bytes());
            start = span.end;
        }
        out.extend_from_slice(&self.text.as_bytes()[start..]);
    }

    /// The edited text.
    #[must_use]
    pub fn finish(self) -> Cow<'a, str> {
        if self.edits.is_empty() {
            return Cow::Borrowed(self.text);
        }
        let mut out = Vec::new();
        self.append_to(&mut out);
        Cow::Owned(String::from_utf8(out).expect("whole texts put together are text"))
    }
}

/// An object without the members of these names, all else verbatim.
#[must_use]
pub fn remove_members<'a>(object: &'a str, names: &[&str]) -> Cow<'a, str> {
    let mut splice = Splice::new(object);
    splice.remove_members(object, names);
    splice.finish()
}

/// An object with these members first, which replace those of the same names.
///
/// # Panics
/// When `object` does not begin with a brace.
#[must_use]
pub fn set_members(object: &str, members: &[(&str, &str)]) -> String {
    let names: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
    let rest = remove_members(object, &names);
    let mut splice = Splice::new(&rest);
    splice.insert_members(&rest, members);
    splice.finish().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{member, quote};

    #[test]
    fn everything_but_the_edit_stays_to_the_byte() {
        let text =
            r#"{ "z":1.0e2, "name" : "a\"b", "deep":{"_meta":{}} ,"big":12345678901234567890123}"#;
        let name = member(text, "name").unwrap();
        let deep = member(text, "deep").unwrap();
        let meta = member(deep, "_meta").unwrap();
        let mut splice = Splice::new(text);
        splice.insert_member(meta, "progressToken", "7");
        splice.replace(name, quote("c"));
        assert_eq!(
            splice.finish(),
            r#"{ "z":1.0e2, "name" : "c", "deep":{"_meta":{"progressToken":7}} ,"big":12345678901234567890123}"#
        );
    }

    #[test]
    fn a_member_is_inserted_before_the_others() {
        let text = r#"{"a":1}"#;
        let mut splice = Splice::new(text);
        splice.insert_member(text, "b", "2");
        assert_eq!(splice.finish(), r#"{"b":2,"a":1}"#);
    }

    /// A-05: a member is removed with its comma, at any position, and can be replaced.
    #[test]
    fn members_are_removed_with_their_commas() {
        for (text, left) in [
            (r#"{"x":1,"a":2}"#, r#"{"a":2}"#),
            (r#"{ "x" : [1,2] , "y":{} ,"a":2 }"#, r#"{ "a":2 }"#),
            (r#"{"a":2 , "x":1, "y":","}"#, r#"{"a":2}"#),
            (
                r#"{"a":2,"\u0078":1,"b":3,"y":4,"c":5}"#,
                r#"{"a":2,"b":3,"c":5}"#,
            ),
            (r#"{"x":1,"a":2,"x":1}"#, r#"{"a":2}"#),
            (r#"{"x":1}"#, "{}"),
            (r#"{"a":{"x":1}}"#, r#"{"a":{"x":1}}"#),
            ("{}", "{}"),
        ] {
            let mut splice = Splice::new(text);
            splice.remove_members(text, &["x", "y"]);
            assert_eq!(splice.finish(), left, "{text}");
        }
        let text = r#"{"x":1,"a":2}"#;
        let mut splice = Splice::new(text);
        splice.remove_members(text, &["x"]);
        splice.insert_member(text, "b", "3");
        assert_eq!(splice.finish(), r#"{"b":3,"a":2}"#);
        for text in [r#"{"x":1}"#, r#"{ "x":1 , "y":2 }"#] {
            let mut splice = Splice::new(text);
            splice.remove_members(text, &["x", "y"]);
            splice.insert_member(text, "b", "3");
            assert_eq!(splice.finish().replace(' ', ""), r#"{"b":3}"#, "{text}");
        }
    }

    #[test]
    fn a_member_that_is_set_is_the_only_one_of_its_name() {
        for (text, edited) in [
            (r#"{"a":1, "b":2 ,"\u0061":3}"#, r#"{"a":7,"b":2}"#),
            (r#"{"a":1}"#, r#"{"a":7}"#),
            ("{ }", r#"{"a":7 }"#),
        ] {
            assert_eq!(set_members(text, &[("a", "7")]), edited);
        }
    }

    /// Editors of a frame do not know of each other.
    #[test]
    fn members_are_inserted_into_one_object_twice() {
        let text = r#"{"c":3}"#;
        let mut splice = Splice::new(text);
        splice.insert_member(text, "a", "1");
        splice.insert_member(text, "b", "2");
        assert_eq!(splice.finish(), r#"{"a":1,"b":2,"c":3}"#);
    }

    #[test]
    fn several_members_are_inserted_together() {
        for (text, edited) in [
            ("{ }", r#"{"a":1,"b":2 }"#),
            (r#"{"c":3}"#, r#"{"a":1,"b":2,"c":3}"#),
        ] {
            let mut splice = Splice::new(text);
            splice.insert_members(text, &[("a", "1"), ("b", "2")]);
            assert_eq!(splice.finish(), edited);
        }
    }
}
