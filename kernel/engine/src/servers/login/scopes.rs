//! Which scopes a login asks for.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Most scopes asked for at once; further ones are left out. A person has to read them.
const SCOPES_MAX: usize = 100;
/// Longest scope, in bytes; a longer one is left out.
const SCOPE_BYTES_MAX: usize = 200;
/// What a server lists that gives refresh tokens for it (SEP-2207).
pub(crate) const OFFLINE_ACCESS: &str = "offline_access";

/// Scopes, each once, in the order they were first named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ScopeSet(Vec<String>);

impl ScopeSet {
    /// Those of a text that are scopes (RFC 6749, section 3.3).
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self::from_names(text.split(' '))
    }

    /// Those of these that are scopes.
    pub fn from_names<'s>(scopes: impl IntoIterator<Item = &'s str>) -> Self {
        let mut set = Self::default();
        scopes.into_iter().for_each(|scope| set.add(scope));
        set
    }

    /// Nothing is asked for by name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// True when all of `others` are among them.
    #[must_use]
    pub fn covers(&self, others: &Self) -> bool {
        let own: BTreeSet<&str> = self.iter().collect();
        others.iter().all(|scope| own.contains(scope))
    }

    /// These, and those of `others` that are not among them.
    #[must_use]
    pub(crate) fn with_scopes(mut self, others: &Self) -> Self {
        others.iter().for_each(|scope| self.add(scope));
        self
    }

    fn add(&mut self, scope: &str) {
        let good = |b: u8| matches!(b, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
        let is = !scope.is_empty() && scope.len() <= SCOPE_BYTES_MAX && scope.bytes().all(good);
        if is && self.0.len() < SCOPES_MAX && !self.0.iter().any(|known| known == scope) {
            self.0.push(scope.to_owned());
        }
    }
}

impl fmt::Display for ScopeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

/// What is known when scopes are chosen.
#[derive(Clone, Copy, Debug)]
pub struct ScopeSources<'a> {
    /// Those of the entry.
    pub configured: &'a [String],
    /// Those of the challenge.
    pub challenged: &'a ScopeSet,
    /// Those that the last login at this issuer asked for.
    pub previous: &'a ScopeSet,
    /// Those that the server's metadata lists.
    pub resource: &'a [String],
    /// Those that the authorization server lists.
    pub issuer: &'a [String],
}

/// The scopes to ask for: those of the challenge, else those that the server lists; with those of the entry,
/// and those of the login before, so that a login for more loses nothing (SEP-2350); and a refresh token, where
/// that is a scope. None, where nobody names any.
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
    let offline = from.issuer.iter().any(|scope| scope == OFFLINE_ACCESS);
    if offline {
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
    fn the_challenge_says_which_else_the_server_else_nobody() {
        assert_eq!(choose("", "basic", "", "profile", ""), "basic");
        assert_eq!(choose("", "", "", "a b", ""), "a b");
        assert_eq!(choose("", "", "", "", "x"), "");
        assert_eq!(choose("own", "", "", "a b", ""), "own");
        assert_eq!(choose("own", "c", "", "a b", ""), "own c");
    }

    #[test]
    fn a_login_for_more_keeps_what_was_there() {
        assert_eq!(choose("", "write", "basic", "", ""), "basic write");
    }

    #[test]
    fn a_refresh_token_is_asked_for_only_where_that_is_a_scope() {
        assert_eq!(
            choose("", "a", "", "", "a offline_access"),
            "a offline_access"
        );
        assert_eq!(choose("", "a", "", "", "a"), "a");
    }

    #[test]
    fn what_is_no_scope_is_left_out_and_there_is_an_end() {
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
