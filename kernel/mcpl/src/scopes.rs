//! Scopes: what a label is, and whether a list lets it through (MCPL §7).
//!
//! A label is a text that a server or a template of arguments makes; what it is about knows the server alone. So
//! a list opens only what can be read in one way ([`label`]), and closes what may be read as what it names.

pub mod approvals;
mod glob;
pub mod label;
pub mod template;

use std::collections::BTreeMap;

use mgp_json::set_members;
use mgp_protocol::mcpl::feature_sets::ScopePatterns;

pub use self::glob::{ScopePattern, ScopePatternError};
use self::template::LabelTemplate;

/// Patterns in one list.
pub const PATTERNS_MAX: usize = 256;

/// `[mcpl.servers.NAME.scopes.SET]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeRules {
    /// How the label of a call is made of its arguments; without it no tool with scopes can be called.
    pub label: Option<LabelTemplate>,
    /// Approved without a person.
    pub whitelist: Vec<ScopePattern>,
    /// Denied, whatever else is said.
    pub blacklist: Vec<ScopePattern>,
    /// Members of the payload that are added, as JSON text, by the labels they are for.
    pub enrich: Vec<(ScopePattern, BTreeMap<String, String>)>,
}

/// What the lists say of a label (MCPL §7.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopeVerdict {
    /// The blacklist has it: with this pattern.
    Denied(String),
    /// The whitelist has it, and the blacklist has not: with this pattern.
    Approved(String),
    /// A person decides. Why the whitelist was not asked, where the label is not in its normal form.
    Undecided(Option<&'static str>),
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
        let texts = |all: &[ScopePattern]| all.iter().map(|one| one.as_str().to_owned()).collect();
        ScopePatterns {
            whitelist: texts(&self.whitelist),
            blacklist: texts(&self.blacklist),
        }
    }

    /// The payload with what the operator adds to labels like this one (MCPL §7.5); `None` for an empty one that
    /// stays empty. A member that is there already is the operator's afterwards.
    #[must_use]
    pub fn enrich(&self, label: &str, payload: Option<&str>) -> Option<String> {
        let rules = self.enrich.iter();
        let added: BTreeMap<&str, &str> = rules
            .filter(|(pattern, _)| label::check_normal(label).is_ok() && pattern.matches(label))
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

/// Evaluates a label against two lists.
#[must_use]
pub(crate) fn evaluate_lists(
    label: &str,
    blacklist: &[ScopePattern],
    whitelist: &[ScopePattern],
) -> ScopeVerdict {
    // Whatever it may be read as is closed.
    let readings = label::readings(label);
    let closes = |pattern: &&ScopePattern| {
        readings
            .iter()
            .any(|reading| pattern.matches_in_any_case(reading))
    };
    if let Some(pattern) = blacklist.iter().find(closes) {
        return ScopeVerdict::Denied(pattern.as_str().to_owned());
    }
    if let Err(why) = label::check_normal(label) {
        return ScopeVerdict::Undecided(Some(why));
    }
    match whitelist.iter().find(|pattern| pattern.matches(label)) {
        Some(pattern) => ScopeVerdict::Approved(pattern.as_str().to_owned()),
        None => ScopeVerdict::Undecided(None),
    }
}

/// What an agent says of a set's scopes, read as lists: an agent only narrows, so a pattern that cannot be read
/// opens nothing, and closes everything.
#[must_use]
pub fn is_allowed_by(label: &str, said: &ScopePatterns) -> bool {
    let read = |all: &[String]| -> Option<Vec<ScopePattern>> {
        let all = all.iter().take(PATTERNS_MAX + 1);
        let all: Vec<_> = all
            .map(|one| ScopePattern::parse(one))
            .collect::<Result<_, _>>()
            .ok()?;
        (all.len() <= PATTERNS_MAX).then_some(all)
    };
    let Some(blacklist) = read(&said.blacklist) else {
        return false;
    };
    let whitelist = read(&said.whitelist).unwrap_or_default();
    match evaluate_lists(label, &blacklist, &whitelist) {
        ScopeVerdict::Denied(_) => false,
        ScopeVerdict::Approved(_) => true,
        ScopeVerdict::Undecided(_) => said.whitelist.is_empty(),
    }
}

#[cfg(test)]
mod tests;
