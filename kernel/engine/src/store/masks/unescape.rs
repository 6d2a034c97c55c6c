//! Texts with their JSON escapes undone.

use std::borrow::Cow;

use mgp_json::unescape;

/// JSON within JSON within JSON is as deep as anybody nests texts; what is escaped more often is not read.
const ROUNDS_MAX: usize = 8;

/// A text as each further reader of JSON would read it, until there is nothing left to undo; `None` at the end where
/// there still is.
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
        let Cow::Owned(undone) = unescape(&self.text) else {
            return None;
        };
        self.round += 1;
        if self.round > ROUNDS_MAX {
            return (self.round == ROUNDS_MAX + 1).then_some(None);
        }
        self.text.clone_from(&undone);
        Some(Some(undone))
    }
}
