//! The text of one configuration file, and locations in it.

use std::ops::Range;
use std::path::Path;

use super::problem::Location;

/// Replaces each character of a value in an excerpt.
const MASK: char = '•';

#[derive(Clone, Copy)]
pub(crate) struct SourceFile<'s> {
    pub(crate) path: &'s Path,
    pub(crate) text: &'s str,
}

impl SourceFile<'_> {
    /// The line of a byte offset, from 1.
    pub(crate) fn line_at(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }

    /// The location of a span of bytes.
    pub(super) fn locate(&self, span: Range<usize>) -> Location {
        let at = self.text.floor_char_boundary(span.start);
        let start = self.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[start..].lines().next().unwrap_or_default();
        let end = self
            .text
            .floor_char_boundary(span.end)
            .clamp(at, (start + line.len()).max(at));
        Location {
            line: self.line_at(at),
            column: self.text[start..at].chars().count() + 1,
            width: self.text[at..end].chars().count(),
            excerpt: mask_values(line),
        }
    }
}

/// The line with masked values: headers and keys stay; everything that may be a value, and so a secret, is
/// masked.
fn mask_values(line: &str) -> String {
    let shown = if is_header(line) {
        line.len()
    } else {
        find_key_end(line)
    };
    let hide = |c: char| if " \t=[]{},\"'".contains(c) { c } else { MASK };
    let (key, value) = line.split_at(shown);
    key.chars().chain(value.chars().map(hide)).collect()
}

fn is_header(line: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || " \t[]._-".contains(c);
    line.trim_start().starts_with('[') && line.chars().all(plain)
}

/// Where the key of `key = value` ends; 0 if the line may be inside a long value, such as base64 that ends in `=`.
fn find_key_end(line: &str) -> usize {
    let key = |c: char| c.is_ascii_alphanumeric() || " \t._-".contains(c);
    match line.split_once('=') {
        Some((name, value))
            if name.chars().all(key) && !value.trim_end().is_empty() && !value.starts_with('=') =>
        {
            name.len()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_show_keys_and_mask_values() {
        for (line, want) in [
            (r#"KEY = "sk-1 2""#, r#"KEY = "•••• •""#),
            (r#"env = { A = "x" }"#, r#"env = { • = "•" }"#),
            ("[servers.mgp]", "[servers.mgp]"),
            ("c2VjcmV0==", "••••••••=="),
            (r#"  "sk-secret","#, r#"  "•••••••••","#),
        ] {
            assert_eq!(mask_values(line), want);
        }
    }

    #[test]
    fn locations_count_characters_from_one() {
        let (path, text) = (Path::new("x.toml"), "a = 1\n\"ä\" = tru\nb = 2");
        let source = SourceFile { path, text };
        let at = text.find("tru").unwrap();
        let at = source.locate(at..at + 3);
        assert_eq!((at.line, at.column, at.width), (2, 7, 3));
        let end = source.locate(text.len()..text.len());
        assert_eq!((end.line, end.column, end.width), (3, 6, 0));
    }
}
