//! Strips characters that nobody sees: zero-width ones, marks of direction, tags, and runs of variation selectors.

use crate::validators::is_invisible;

/// Strips a text piece by piece: what is kept depends on the character before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnseenFilter {
    last: Option<char>,
}

impl UnseenFilter {
    /// Whether this character, which follows the earlier ones, is kept.
    pub(crate) fn keeps(&mut self, c: char) -> bool {
        if !c.is_ascii() && is_invisible(c) && !self.is_needed(c) {
            return false;
        }
        self.last = Some(c);
        true
    }

    /// Scripts and emoji need joiners and selectors, one at a time and after a character of their own.
    fn is_needed(self, c: char) -> bool {
        let Some(last) = self.last else {
            return false;
        };
        let is_shown = !last.is_ascii() && !is_invisible(last);
        match c {
            // A heart, a selector, a joiner, and a flame.
            '\u{200d}' => is_shown || last == '\u{fe0f}',
            '\u{200c}' | '\u{180b}'..='\u{180d}' | '\u{180f}' => is_shown,
            // Also keycaps: a digit, a selector, and U+20E3.
            '\u{fe00}'..='\u{fe0f}' => is_shown || matches!(last, '0'..='9' | '#' | '*'),
            // Letters of Hangul and Khmer.
            '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' => is_shown,
            _ => false,
        }
    }
}
