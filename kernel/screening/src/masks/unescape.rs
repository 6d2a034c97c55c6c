//! Removes JSON escapes, level by level.

use std::borrow::Cow;

use mgp_json::unescape;

/// Deeper than anybody nests JSON in strings; texts with more levels are not read.
const ROUNDS_MAX: usize = 8;

/// Yields the text after each level of unescaping; a final `None` if escapes remain after [`ROUNDS_MAX`].
pub(super) struct UnescapeRounds {
    text: String,
    round: usize,
}

impl UnescapeRounds {
    pub(super) fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            round: 0,
        }
    }
}

impl Iterator for UnescapeRounds {
    type Item = Option<String>;

    fn next(&mut self) -> Option<Option<String>> {
        let Cow::Owned(unescaped) = unescape(&self.text) else {
            return None;
        };
        self.round += 1;
        if self.round > ROUNDS_MAX {
            return (self.round == ROUNDS_MAX + 1).then_some(None);
        }
        self.text.clone_from(&unescaped);
        Some(Some(unescaped))
    }
}
