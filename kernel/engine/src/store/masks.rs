//! The values that are secrets, and texts without them. What is masked stays masked: what a kernel was given once
//! may be anywhere in what its servers say later.

mod json;
mod unescape;

use std::borrow::Cow;
use std::collections::BTreeSet;

use self::unescape::UnescapeRounds;

/// Shorter values of the configuration are not looked for: they are no secrets, and would hit everywhere.
pub(crate) const SECRET_MIN: usize = 6;
/// Most values that are looked for: every record is searched for each of them. Beyond, only those of the
/// configuration in force are.
pub(crate) const MASKED_VALUES_MAX: usize = 4_096;
/// Stands in the place of a secret.
pub(crate) const MASK: &str = mgp_protocol::mgp::kernel::recorder::MASK;
/// Words in a name, written small and without `_` and `-`, that make its value a secret.
const SECRET_WORDS: [&str; 10] = [
    "apikey",
    "authorization",
    "cookie",
    "credential",
    "passphrase",
    "password",
    "passwd",
    "privatekey",
    "secret",
    "token",
];
/// What follows it in a text is a credential (RFC 6750).
const BEARER_PREFIX: &str = "bearer ";
/// Shorter ones are words.
const BEARER_LEN_MIN: usize = 8;

/// The values of one kernel that are secrets.
#[derive(Clone, Default)]
pub struct Masks(Vec<String>);

impl Masks {
    /// Those under [`SECRET_MIN`] bytes are not looked for.
    #[must_use]
    pub fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let mut masks = Self::default();
        masks.add_secrets(secrets);
        masks
    }

    /// These values are secrets now. Those before stay secret too: servers that were started with them
    /// may still run, and up to [`MASKED_VALUES_MAX`] altogether there is room.
    pub fn add_secrets(&mut self, secrets: impl IntoIterator<Item = String>) {
        let mut known: BTreeSet<String> = secrets.into_iter().collect();
        known.retain(|s| s.len() >= SECRET_MIN);
        let room = MASKED_VALUES_MAX.saturating_sub(known.len());
        let before = std::mem::take(&mut self.0);
        known.extend(before.into_iter().take(room));
        self.0 = known.into_iter().collect();
        // A secret that holds another is masked whole.
        self.0.sort_by_key(|s| std::cmp::Reverse(s.len()));
    }

    /// What is secret to the others is to these, too.
    pub fn merge(&mut self, others: &Self) {
        self.add_secrets(others.0.iter().cloned());
    }

    /// How many values are looked for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A text without the values that are secrets; the same where there is none, which is nearly always.
    #[must_use]
    pub(crate) fn mask_values<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut out = Cow::Borrowed(text);
        for secret in self.0.iter().filter(|s| text.contains(s.as_str())) {
            out = out.replace(secret.as_str(), MASK).into();
        }
        out
    }

    /// A text without those values, however often its characters were escaped as JSON does it, and without what
    /// stands after `Bearer`.
    #[must_use]
    pub fn mask_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let out = match self.mask_values(text) {
            Cow::Borrowed(same) => mask_bearer(same),
            Cow::Owned(masked) => mask_bearer(&masked).into_owned().into(),
        };
        // Where one is hidden in such a way that its place cannot be told, nothing of the text is shown.
        let hidden =
            |loosened: Option<String>| loosened.is_none_or(|text| self.contains_secret(&text));
        if out.contains('\\') && UnescapeRounds::new(&out).any(hidden) {
            MASK.into()
        } else {
            out
        }
    }

    /// JSON on one line without secrets: those values in any text, names and escaped texts included, and the
    /// values of members that are named like one. All else stays as it was written, numbers and escapes, too.
    /// `text` is JSON.
    #[must_use]
    pub fn mask_json(&self, text: &str) -> String {
        json::mask_json_text(self, text, 0).0
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

/// A name written small and without what parts its words.
pub(crate) fn normalize_key(key: &str) -> String {
    if key.is_ascii() {
        let kept = key
            .bytes()
            .filter(|c| !matches!(c, b'_' | b'-' | b'.' | b' '));
        return kept.map(|c| char::from(c.to_ascii_lowercase())).collect();
    }
    let kept = key.chars().filter(|c| !matches!(c, '_' | '-' | '.' | ' '));
    kept.flat_map(char::to_lowercase).collect()
}

/// Whether a name in its plain form has a word in it that makes its value a secret.
pub(crate) fn is_secret_key(key: &str) -> bool {
    let key = key.as_bytes();
    // Each place is looked at once: names are too short for a search to be set up.
    (0..key.len()).any(|at| {
        let rest = &key[at..];
        SECRET_WORDS
            .iter()
            .any(|word| rest.starts_with(word.as_bytes()))
    })
}

/// A text without the credentials that follow `Bearer`.
fn mask_bearer(text: &str) -> Cow<'_, str> {
    let credential = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
    let mut out = String::new();
    let (mut kept, mut from) = (0, 0);
    while let Some(at) = find_bearer(text, from) {
        let rest = &text[at..];
        let len = rest.find(|c| !credential(c)).unwrap_or(rest.len());
        from = at;
        if len >= BEARER_LEN_MIN {
            out.push_str(&text[kept..at]);
            out.push_str(MASK);
            from += len;
            kept = from;
        }
    }
    if kept == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[kept..]);
    Cow::Owned(out)
}

/// Where the text after the next `Bearer ` begins.
fn find_bearer(text: &str, from: usize) -> Option<usize> {
    let bytes = &text.as_bytes()[from..];
    let found = bytes
        .windows(BEARER_PREFIX.len())
        .position(|window| window.eq_ignore_ascii_case(BEARER_PREFIX.as_bytes()))?;
    Some(from + found + BEARER_PREFIX.len())
}

#[cfg(test)]
mod tests;
