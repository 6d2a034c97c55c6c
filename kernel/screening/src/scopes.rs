//! Evaluates labels against whitelists and blacklists of patterns, for scopes (MCPL §7) and for conditions on grants.
//!
//! Only a server knows what a label means. So a whitelist opens only labels with a single reading ([`check_normal`]), and
//! a blacklist closes each label with a matching reading.

mod label;
mod pattern;

use self::label::readings;
pub use self::label::{LABEL_MAX, READ_MAX, check_normal};
pub use self::pattern::{ScopePattern, ScopePatternError};

/// The verdict of the lists on a label (MCPL §7.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopeVerdict {
    /// The blacklist matches, with this pattern.
    Denied(String),
    /// The whitelist matches, with this pattern, and the blacklist does not.
    Approved(String),
    /// A person decides. With the reason if the whitelist was skipped, as the label is not in normal form.
    Undecided(Option<&'static str>),
}

/// Evaluates a label against two lists.
#[must_use]
pub fn evaluate_lists(
    label: &str,
    blacklist: &[ScopePattern],
    whitelist: &[ScopePattern],
) -> ScopeVerdict {
    if let Some(pattern) = find_resembling(label, blacklist) {
        return ScopeVerdict::Denied(pattern.as_str().to_owned());
    }
    match find_matching(label, whitelist) {
        Ok(Some(pattern)) => ScopeVerdict::Approved(pattern.as_str().to_owned()),
        Ok(None) => ScopeVerdict::Undecided(None),
        Err(why) => ScopeVerdict::Undecided(Some(why)),
    }
}

/// The first pattern that a label matches exactly.
///
/// # Errors
/// Why the label has more than one reading, in words: then none matches.
pub fn find_matching<'p>(
    label: &str,
    patterns: &'p [ScopePattern],
) -> Result<Option<&'p ScopePattern>, &'static str> {
    check_normal(label)?;
    Ok(patterns.iter().find(|pattern| pattern.matches(label)))
}

/// The first pattern that a reading of the label matches, in any case.
#[must_use]
pub fn find_resembling<'p>(label: &str, patterns: &'p [ScopePattern]) -> Option<&'p ScopePattern> {
    if patterns.is_empty() {
        return None;
    }
    let readings = readings(label);
    patterns.iter().find(|pattern| {
        let mut all = readings.iter();
        all.any(|reading| pattern.matches_in_any_case(reading))
    })
}
