//! Secret values, and masking of texts. A value stays masked: servers may repeat a secret long after it was configured.

mod json;
mod unescape;

use std::borrow::Cow;
use std::collections::BTreeSet;

use self::unescape::UnescapeRounds;

use crate::validators::is_invisible;

/// Shorter values of the configuration are not masked: they are hardly secrets, and would match everywhere.
pub(crate) const SECRET_MIN: usize = 6;
/// Most masked values: every record is searched for each of them. Beyond, only those of the current configuration are
/// masked.
pub const MASKED_VALUES_MAX: usize = 4_096;
/// Replaces a secret.
pub const MASK: &str = mgp_protocol::mgp::kernel::recorder::MASK;
/// Words in a normalized name that make its value a secret.
const SECRET_WORDS: [&str; 12] = [
    "accesskey",
    "apikey",
    "authorization",
    "cookie",
    "credential",
    "passphrase",
    "password",
    "passwd",
    "privatekey",
    "secret",
    "signingkey",
    "token",
];
/// A credential follows it (RFC 6750).
const BEARER_PREFIX: &str = "bearer ";
/// Shorter credentials are taken for words.
const BEARER_LEN_MIN: usize = 8;

/// The values of one kernel that are secrets.
#[derive(Clone, Default)]
pub struct Masks(Vec<String>);

impl Masks {
    /// Masks these values, except those under [`SECRET_MIN`] bytes.
    #[must_use]
    pub fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let mut masks = Self::default();
        masks.add_secrets(secrets);
        masks
    }

    /// Adds values. Earlier ones stay masked, as servers that were started with them may still run, up to
    /// [`MASKED_VALUES_MAX`] in total.
    pub fn add_secrets(&mut self, secrets: impl IntoIterator<Item = String>) {
        let mut values: BTreeSet<String> = secrets.into_iter().collect();
        values.retain(|s| s.len() >= SECRET_MIN);
        let capacity = MASKED_VALUES_MAX.saturating_sub(values.len());
        let before = std::mem::take(&mut self.0);
        values.extend(before.into_iter().take(capacity));
        self.0 = values.into_iter().collect();
        // A secret that contains another one is masked first.
        self.0.sort_by_key(|s| std::cmp::Reverse(s.len()));
    }

    /// Adds the values of other masks.
    pub fn merge(&mut self, others: &Self) {
        self.add_secrets(others.0.iter().cloned());
    }

    /// The number of masked values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if no value is masked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Masks secret values in a text; borrows it if there are none, which is the usual case.
    #[must_use]
    pub fn mask_values<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut out = Cow::Borrowed(text);
        for secret in self.0.iter().filter(|s| text.contains(s.as_str())) {
            out = out.replace(secret.as_str(), MASK).into();
        }
        out
    }

    /// Masks secret values, also in escaped JSON of any depth, and credentials after `Bearer`.
    #[must_use]
    pub fn mask_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let out = match self.mask_values(text) {
            Cow::Borrowed(text) => mask_bearer(text),
            Cow::Owned(masked) => mask_bearer(&masked).into_owned().into(),
        };
        // The position of an escaped secret is not known, so the whole text is masked.
        if self.has_escaped_value(&out) {
            MASK.into()
        } else {
            out
        }
    }

    /// Masks secrets in JSON and returns it on one line: secret values in any text, including names and escaped texts,
    /// and the values of members with a secret's name. Everything else stays unchanged, also numbers and escapes.
    #[must_use]
    pub fn mask_json(&self, text: &str) -> String {
        json::mask_json_text(self, text, 0).0
    }

    /// The values that this text contains.
    pub(crate) fn values_in(&self, text: &str) -> Vec<&str> {
        let all = self.0.iter().map(String::as_str);
        all.filter(|secret| text.contains(secret)).collect()
    }

    /// The values of which a part may stand at the end of a text.
    pub(crate) fn values(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether a value is in this text with its letters escaped, at any depth.
    pub(crate) fn has_escaped_value(&self, text: &str) -> bool {
        let has_secret =
            |unescaped: Option<String>| unescaped.is_none_or(|text| self.contains_secret(&text));
        text.contains('\\') && UnescapeRounds::new(text).any(has_secret)
    }

    fn contains_secret(&self, text: &str) -> bool {
        self.0.iter().any(|secret| text.contains(secret.as_str()))
    }
}

/// Never shows a value.
impl std::fmt::Debug for Masks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Masks({})", self.0.len())
    }
}

/// A name in lower case and without word separators.
#[must_use]
pub fn normalize_key(key: &str) -> String {
    if key.is_ascii() {
        let letters = key
            .bytes()
            .filter(|c| !matches!(c, b'_' | b'-' | b'.' | b' '));
        return letters
            .map(|c| char::from(c.to_ascii_lowercase()))
            .collect();
    }
    // What nobody sees makes no other name.
    let is_letter = |c: &char| !matches!(c, '_' | '-' | '.' | ' ') && !is_invisible(*c);
    let letters = key.chars().filter(is_letter);
    letters.flat_map(char::to_lowercase).collect()
}

/// Whether a normalized name contains a word that makes its value a secret.
#[must_use]
pub fn is_secret_key(key: &str) -> bool {
    let key = key.as_bytes();
    // Names are too short to set up a search, and few of their letters begin a word.
    (0..key.len()).any(|at| match &key[at..] {
        rest @ [b'a' | b'c' | b'p' | b's' | b't', ..] => SECRET_WORDS
            .iter()
            .any(|word| rest.starts_with(word.as_bytes())),
        _ => false,
    })
}

/// Masks credentials after `Bearer`.
fn mask_bearer(text: &str) -> Cow<'_, str> {
    let is_credential = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
    let mut out = String::new();
    let (mut copied, mut from) = (0, 0);
    while let Some(at) = find_bearer(text, from) {
        let rest = &text[at..];
        let len = rest.find(|c| !is_credential(c)).unwrap_or(rest.len());
        from = at;
        if len >= BEARER_LEN_MIN {
            out.push_str(&text[copied..at]);
            out.push_str(MASK);
            from += len;
            copied = from;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// The position after the next `Bearer `.
fn find_bearer(text: &str, from: usize) -> Option<usize> {
    let bytes = &text.as_bytes()[from..];
    let found = bytes
        .windows(BEARER_PREFIX.len())
        .position(|window| window.eq_ignore_ascii_case(BEARER_PREFIX.as_bytes()))?;
    Some(from + found + BEARER_PREFIX.len())
}

#[cfg(test)]
mod tests;
