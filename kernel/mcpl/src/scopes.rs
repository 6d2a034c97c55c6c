//! Scopes: evaluates labels against whitelists and blacklists (MCPL §7).
//!
//! A label is a text from a server or from a template of arguments. Patterns and readings are those of conditions on
//! grants ([`mgp_screening::scopes`]).

pub mod approvals;
pub mod template;

use std::collections::BTreeMap;

use mgp_json::set_members;
use mgp_protocol::mcpl::feature_sets::ScopePatterns;
pub use mgp_screening::scopes::{ScopePattern, ScopeVerdict};
use mgp_screening::scopes::{check_normal, evaluate_lists};

use self::template::LabelTemplate;

/// Patterns in one list.
pub const PATTERNS_MAX: usize = 256;

/// `[mcpl.servers.NAME.scopes.SET]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeRules {
    /// The template of a call's label; without it no tool with scopes can be called.
    pub label: Option<LabelTemplate>,
    /// Approved without a person.
    pub whitelist: Vec<ScopePattern>,
    /// Denied, before all else.
    pub blacklist: Vec<ScopePattern>,
    /// Members added to the payload, as JSON text, by label pattern.
    pub enrich: Vec<(ScopePattern, BTreeMap<String, String>)>,
}

impl ScopeRules {
    /// Evaluates a label: the blacklist first, then the whitelist, else a person (MCPL §7.6).
    #[must_use]
    pub fn evaluate(&self, label: &str) -> ScopeVerdict {
        evaluate_lists(label, &self.blacklist, &self.whitelist)
    }

    /// The lists, as servers read them.
    #[must_use]
    pub fn patterns(&self) -> ScopePatterns {
        let texts = |all: &[ScopePattern]| {
            all.iter()
                .map(|pattern| pattern.as_str().to_owned())
                .collect()
        };
        ScopePatterns {
            whitelist: texts(&self.whitelist),
            blacklist: texts(&self.blacklist),
        }
    }

    /// The payload with the operator's members for this label (MCPL §7.5); `None` for an empty one that stays empty.
    /// They replace existing members.
    #[must_use]
    pub fn enrich(&self, label: &str, payload: Option<&str>) -> Option<String> {
        let rules = self.enrich.iter();
        let added: BTreeMap<&str, &str> = rules
            .filter(|(pattern, _)| check_normal(label).is_ok() && pattern.matches(label))
            .flat_map(|(_, added)| added.iter().map(|(k, v)| (k.as_str(), v.as_str())))
            .collect();
        if added.is_empty() {
            return payload.map(str::to_owned);
        }
        let payload = payload.unwrap_or("{}");
        let added: Vec<(&str, &str)> = added.into_iter().collect();
        Some(set_members(payload, &added))
    }
}

/// Applies an agent's scope patterns. An agent only narrows, so an invalid pattern opens nothing, and closes
/// everything.
#[must_use]
pub fn is_allowed_by(label: &str, patterns: &ScopePatterns) -> bool {
    let read = |all: &[String]| -> Option<Vec<ScopePattern>> {
        let all = all.iter().take(PATTERNS_MAX + 1);
        let all: Vec<_> = all
            .map(|pattern| ScopePattern::parse(pattern))
            .collect::<Result<_, _>>()
            .ok()?;
        (all.len() <= PATTERNS_MAX).then_some(all)
    };
    let Some(blacklist) = read(&patterns.blacklist) else {
        return false;
    };
    let whitelist = read(&patterns.whitelist).unwrap_or_default();
    match evaluate_lists(label, &blacklist, &whitelist) {
        ScopeVerdict::Denied(_) => false,
        ScopeVerdict::Approved(_) => true,
        ScopeVerdict::Undecided(_) => patterns.whitelist.is_empty(),
    }
}

#[cfg(test)]
mod tests;
