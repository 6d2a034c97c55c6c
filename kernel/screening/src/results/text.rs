//! Masks one text. The text is taken in units, which end where no match can go on: so a text that comes in chunks is
//! masked like the same text as a whole.

use super::ResultGuard;
use super::findings::{FindingKind, Findings};
use super::matches::Matches;
use super::secrets::{
    PEM_BEGIN, announces_credential, find_private_keys, find_tokens, has_open_private_key,
};
use super::unseen::UnseenFilter;
use crate::masks::{MASK, Masks};

/// Longest unit, in bytes: the longest private keys in use (RSA of 16,384 bits) have 12.5 kB. A longer one ends
/// anywhere.
pub(super) const UNIT_MAX: usize = 16 << 10;
/// What stands between groups of digits: a space, and spaces and a hyphen that do not break a line.
const NUMBER_GAPS: [char; 4] = [' ', '\u{a0}', '\u{202f}', '\u{2011}'];
/// Longest run of groups of digits that may be one number.
const NUMBER_MAX: usize = 64;

/// A text on its way through a guard.
#[derive(Debug, Default)]
pub(super) struct Masking {
    unit: String,
    unseen: UnseenFilter,
}

/// What masks: the settings, and the secrets that are known.
#[derive(Clone, Copy)]
pub(super) struct Masker<'a> {
    pub(super) guard: &'a ResultGuard,
    pub(super) masks: &'a Masks,
}

impl ResultGuard {
    /// A whole text, masked and without unseen characters; `None` if nothing was found.
    pub(super) fn mask_text(
        &self,
        masks: &Masks,
        text: &str,
        findings: &mut Findings,
    ) -> Option<String> {
        let masker = Masker { guard: self, masks };
        if masker.is_trivial(text) {
            return None;
        }
        let (mut out, mut found) = (String::with_capacity(text.len()), Findings::default());
        let mut masking = Masking::default();
        masking.push(masker, text, &mut out, &mut found);
        masking.finish(masker, &mut out, &mut found);
        // The place of an escaped value is not known.
        if self.rules().secrets && !masks.is_empty() && masks.has_escaped_value(&out) {
            found.add(FindingKind::Configured);
            MASK.clone_into(&mut out);
        }
        findings.merge(&found);
        (!found.is_empty()).then_some(out)
    }
}

impl Masker<'_> {
    /// Whether nothing can be found in this text: most texts are short words.
    fn is_trivial(self, text: &str) -> bool {
        let has_sign = |byte: u8| !byte.is_ascii() || byte.is_ascii_digit() || byte == b'@';
        text.len() <= 16
            && self.guard.patterns.is_empty()
            && !text.bytes().any(|byte| has_sign(byte) || byte == b'\\')
            && self.masks.values_in(text).is_empty()
    }

    /// Masks what is found in a unit.
    fn mask_unit(self, unit: &str, known: &[&str], out: &mut String, findings: &mut Findings) {
        let mut found = Matches::default();
        let rules = self.guard.rules();
        for value in known {
            for (at, value) in unit.match_indices(value) {
                found.add(at..at + value.len(), FindingKind::Configured);
            }
        }
        let has_digit = unit.bytes().any(|byte| byte.is_ascii_digit());
        if rules.secrets {
            if unit.contains(PEM_BEGIN) {
                find_private_keys(unit, &mut found);
            }
            if has_digit || unit.len() > 24 {
                find_tokens(unit, &mut found);
            }
        }
        if has_digit || unit.contains('@') {
            for kind in &rules.personal {
                kind.find(unit, &mut found);
            }
        }
        for pattern in &self.guard.patterns {
            for at in pattern.find_iter(unit) {
                found.add(at.range(), FindingKind::Pattern);
            }
        }
        if found.is_empty() {
            return out.push_str(unit);
        }
        let mut copied = 0;
        for (range, kind) in found.merged() {
            out.push_str(&unit[copied..range.start]);
            push_mask(kind, out);
            findings.add(kind);
            copied = range.end;
        }
        out.push_str(&unit[copied..]);
    }
}

/// What replaces a match: the kind is named, so that a model knows what it does not see.
pub(super) fn push_mask(kind: FindingKind, out: &mut String) {
    if matches!(kind, FindingKind::Configured | FindingKind::Named) {
        return out.push_str(MASK);
    }
    out.push_str(MASK.trim_end_matches(']'));
    out.push(':');
    out.push_str(kind.as_str());
    out.push(']');
}

impl Masking {
    /// Takes the next part of the text, and appends what can be told.
    pub(super) fn push(
        &mut self,
        masker: Masker<'_>,
        text: &str,
        out: &mut String,
        findings: &mut Findings,
    ) {
        let strips = masker.guard.rules().unseen;
        let mut shown = String::with_capacity(text.len());
        let mut stripped = 0_u32;
        for c in text.chars() {
            if !strips || self.unseen.keeps(c) {
                shown.push(c);
            } else {
                stripped += 1;
            }
        }
        findings.add_count(FindingKind::Unseen, stripped);
        let known = self.known_values(masker, &shown);
        for c in shown.chars() {
            if self.ends_before(masker, c) {
                masker.mask_unit(&self.unit, &known, out, findings);
                self.unit.clear();
            }
            self.unit.push(c);
        }
    }

    /// Ends the text.
    pub(super) fn finish(&mut self, masker: Masker<'_>, out: &mut String, findings: &mut Findings) {
        let known = self.known_values(masker, "");
        masker.mask_unit(&self.unit, &known, out, findings);
        self.unit.clear();
        self.unseen = UnseenFilter::default();
    }

    /// Bytes that are held back.
    pub(super) fn held_len(&self) -> usize {
        self.unit.len()
    }

    /// The known secrets that may end in this part: searched for once, not in each unit.
    fn known_values<'m>(&self, masker: Masker<'m>, part: &str) -> Vec<&'m str> {
        if !masker.guard.rules().secrets || masker.masks.is_empty() {
            return Vec::new();
        }
        if self.unit.is_empty() {
            return masker.masks.values_in(part);
        }
        masker.masks.values_in(&format!("{}{part}", self.unit))
    }

    /// Whether the unit ends before this character: nothing that began in it can go on.
    fn ends_before(&self, masker: Masker<'_>, c: char) -> bool {
        let Some(last) = self.unit.chars().next_back() else {
            return false;
        };
        if self.unit.len() + c.len_utf8() > UNIT_MAX {
            return true;
        }
        if is_word(last) && is_word(c) || !masker.guard.patterns.is_empty() && last != '\n' {
            return false;
        }
        let rules = masker.guard.rules();
        if !rules.personal.is_empty() && self.has_open_number(c) {
            return false;
        }
        if !rules.secrets {
            return true;
        }
        !announces_credential(&self.unit)
            && !has_open_private_key(&self.unit)
            && !self.has_open_value(masker.masks)
    }

    /// Whether groups of digits may go on: they are separated by one space or other gap each.
    fn has_open_number(&self, next: char) -> bool {
        if self.unit.len() >= NUMBER_MAX {
            return false;
        }
        let groups = self.unit.strip_suffix(NUMBER_GAPS).unwrap_or(&self.unit);
        let is_separated = groups.len() < self.unit.len();
        let may_go_on = match is_separated {
            true => next.is_ascii_uppercase() || next.is_ascii_digit() || matches!(next, '+' | '('),
            false => NUMBER_GAPS.contains(&next),
        };
        let is_sign = |byte: &u8| {
            byte.is_ascii_uppercase()
                || byte.is_ascii_digit()
                || matches!(byte, b' ' | b'+' | b'(' | b')' | b'.' | b'-' | b'/')
        };
        let group = groups.as_bytes();
        may_go_on
            && group
                .iter()
                .rev()
                .take_while(|byte| is_sign(byte))
                .any(u8::is_ascii_digit)
    }

    /// Whether the unit ends with the beginning of a known secret that has more than one word.
    fn has_open_value(&self, masks: &Masks) -> bool {
        let begins = |value: &str| {
            value
                .char_indices()
                .skip(1)
                .any(|(len, _)| len <= self.unit.len() && self.unit.ends_with(&value[..len]))
        };
        let mut several = masks.values().filter(|value| !value.chars().all(is_word));
        several.any(begins)
    }
}

/// Whether a character may stand inside of a key, a token or an address.
fn is_word(c: char) -> bool {
    c.is_ascii_graphic()
        && !matches!(
            c,
            ',' | ';' | '|' | '<' | '>' | '{' | '}' | '[' | ']' | '"' | '\'' | '`'
        )
}
