//! Which scopes a login requests.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Most scopes requested at once, because a person has to read them; further ones are dropped.
const SCOPES_MAX: usize = 100;
/// Longest scope in bytes; longer ones are dropped.
const SCOPE_BYTES_MAX: usize = 200;
/// The scope for refresh tokens, if the authorization server lists it (SEP-2207).
pub(crate) const OFFLINE_ACCESS: &str = "offline_access";

/// Unique scopes in the order of first mention.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ScopeSet(Vec<String>);

impl ScopeSet {
    /// The valid scopes of a space-separated list (RFC 6749, section 3.3).
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self::from_names(text.split(' '))
    }

    /// The valid scopes of these names.
    pub(crate) fn from_names<'s>(scopes: impl IntoIterator<Item = &'s str>) -> Self {
        let mut set = Self::default();
        scopes.into_iter().for_each(|scope| set.add(scope));
        set
    }

    /// True if it has no scopes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the scopes.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// True if it contains all of `others`.
    #[must_use]
    pub fn covers(&self, others: &Self) -> bool {
        let known: BTreeSet<&str> = self.iter().collect();
        others.iter().all(|scope| known.contains(scope))
    }

    /// The union with `others`.
    #[must_use]
    pub(crate) fn with_scopes(mut self, others: &Self) -> Self {
        others.iter().for_each(|scope| self.add(scope));
        self
    }

    fn add(&mut self, scope: &str) {
        let is_scope_char = |b: u8| matches!(b, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
        let is_valid =
            !scope.is_empty() && scope.len() <= SCOPE_BYTES_MAX && scope.bytes().all(is_scope_char);
        if is_valid && self.0.len() < SCOPES_MAX && !self.0.iter().any(|known| known == scope) {
            self.0.push(scope.to_owned());
        }
    }
}

impl fmt::Display for ScopeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

/// The inputs of [`choose_scopes`].
#[derive(Clone, Copy, Debug)]
pub struct ScopeSources<'a> {
    /// Scopes of the entry.
    pub configured: &'a [String],
    /// Scopes of the challenge.
    pub challenged: &'a ScopeSet,
    /// Scopes that the last login at this issuer requested.
    pub previous: &'a ScopeSet,
    /// Scopes in the server's metadata.
    pub resource: &'a [String],
    /// Scopes in the authorization server's metadata.
    pub issuer: &'a [String],
}

/// The scopes to request: those of the challenge, or else those that the server lists unless the entry has some; plus
/// those of the entry and of the previous login, so that a login for more loses none (SEP-2350); plus
/// `offline_access` if the authorization server lists it.
#[must_use]
pub fn choose_scopes(from: ScopeSources<'_>) -> ScopeSet {
    let configured = ScopeSet::from_names(from.configured.iter().map(String::as_str));
    let listed = || ScopeSet::from_names(from.resource.iter().map(String::as_str));
    let wanted = match (from.challenged.is_empty(), configured.is_empty()) {
        (false, _) => from.challenged.clone(),
        (true, false) => ScopeSet::default(),
        (true, true) => listed(),
    };
    let all = configured.with_scopes(from.previous).with_scopes(&wanted);
    let supports_offline = from.issuer.iter().any(|scope| scope == OFFLINE_ACCESS);
    if supports_offline {
        all.with_scopes(&ScopeSet::from_names([OFFLINE_ACCESS]))
    } else {
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn choose(
        configured: &str,
        challenged: &str,
        before: &str,
        resource: &str,
        issuer: &str,
    ) -> String {
        let (challenged, before) = (ScopeSet::parse(challenged), ScopeSet::parse(before));
        let (configured, resource, issuer) = (words(configured), words(resource), words(issuer));
        let from = ScopeSources {
            configured: &configured,
            challenged: &challenged,
            previous: &before,
            resource: &resource,
            issuer: &issuer,
        };
        choose_scopes(from).to_string()
    }

    #[test]
    fn scopes_come_from_the_challenge_or_else_from_the_server() {
        assert_eq!(choose("", "basic", "", "profile", ""), "basic");
        assert_eq!(choose("", "", "", "a b", ""), "a b");
        assert_eq!(choose("", "", "", "", "x"), "");
        assert_eq!(choose("own", "", "", "a b", ""), "own");
        assert_eq!(choose("own", "c", "", "a b", ""), "own c");
    }

    #[test]
    fn a_login_for_more_scopes_keeps_the_previous_ones() {
        assert_eq!(choose("", "write", "basic", "", ""), "basic write");
    }

    #[test]
    fn a_refresh_token_is_requested_only_if_that_is_a_scope() {
        assert_eq!(
            choose("", "a", "", "", "a offline_access"),
            "a offline_access"
        );
        assert_eq!(choose("", "a", "", "", "a"), "a");
    }

    #[test]
    fn invalid_scopes_are_dropped_and_sets_are_bounded() {
        assert_eq!(
            ScopeSet::parse("a  a b\"c \u{e9} d\\e f").to_string(),
            "a f"
        );
        let many: Vec<String> = (0..200).map(|n| format!("s{n}")).collect();
        assert_eq!(
            ScopeSet::from_names(many.iter().map(String::as_str))
                .iter()
                .count(),
            SCOPES_MAX
        );
        assert!(ScopeSet::parse(&"x".repeat(SCOPE_BYTES_MAX + 1)).is_empty());
        assert!(ScopeSet::parse("a b").covers(&ScopeSet::parse("b")));
        assert!(!ScopeSet::parse("a").covers(&ScopeSet::parse("a b")));
    }
}
