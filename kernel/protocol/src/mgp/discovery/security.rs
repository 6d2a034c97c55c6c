//! `security` in tool definitions (MGP §4): the declaration of a server, and the member that the kernel
//! adds for agents.

use std::borrow::Cow;

use mgp_json::{Splice, members, quote};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The member of a tool definition.
pub const MEMBER: &str = "security";
/// The member that the kernel adds (later drafts, §4.6): the effective risk level (A-47).
pub(crate) const EFFECTIVE: &str = "effective_risk_level";
/// The most entries of one list, which bounds the stored data. A longer list counts as malformed.
pub(crate) const LIST_MAX: usize = 64;

/// The risk of a tool (§4.4), in increasing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RiskLevel {
    /// No side effects.
    Safe,
    /// Limited side effects.
    Moderate,
    /// Effects on the system, or irreversible effects.
    Dangerous,
}

impl RiskLevel {
    /// All levels, in increasing order.
    pub const ALL: [Self; 3] = [Self::Safe, Self::Moderate, Self::Dangerous];

    /// The value on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Moderate => "moderate",
            Self::Dangerous => "dangerous",
        }
    }

    /// Parses the value.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == word)
    }
}

/// A server's declaration about a tool, unverified. The object itself is relayed unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// `risk_level`; `None` if missing or invalid.
    pub risk_level: Option<RiskLevel>,
    /// The permissions that a call needs, in the server's spelling.
    pub permissions_required: Vec<String>,
    /// Categories of side effects.
    pub side_effects: Vec<String>,
    /// Names of validators: one, or a list of them.
    pub validators: Vec<String>,
    /// True if its effects can be undone.
    pub reversible: Option<bool>,
    /// True if each call should be confirmed.
    pub confirmation_required: bool,
    /// `code_safety`: the policy for code in arguments (§7.3), as declared.
    pub code_safety: Option<Value>,
    /// Malformed members: a reason for caution.
    pub unreadable: Vec<&'static str>,
}

#[derive(Default, Deserialize)]
struct RawSecurity<'a> {
    #[serde(borrow, default)]
    risk_level: Option<&'a RawValue>,
    #[serde(borrow, default)]
    permissions_required: Option<&'a RawValue>,
    #[serde(borrow, default)]
    side_effects: Option<&'a RawValue>,
    #[serde(borrow, default)]
    validator: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reversible: Option<&'a RawValue>,
    #[serde(borrow, default)]
    confirmation_required: Option<&'a RawValue>,
    #[serde(borrow, default)]
    code_safety: Option<&'a RawValue>,
}

/// Parses members, and records malformed ones.
#[derive(Default)]
struct Reader(Vec<&'static str>);

impl Reader {
    fn read_member<'a, T: Deserialize<'a>>(
        &mut self,
        name: &'static str,
        raw: Option<&'a RawValue>,
    ) -> Option<T> {
        let raw = raw?;
        let read = serde_json::from_str(raw.get()).ok();
        if read.is_none() {
            self.0.push(name);
        }
        read
    }

    fn read_list(&mut self, name: &'static str, raw: Option<&RawValue>) -> Vec<String> {
        let list: Vec<String> = self.read_member(name, raw).unwrap_or_default();
        if list.len() <= LIST_MAX {
            return list;
        }
        self.0.push(name);
        Vec::new()
    }

    fn read_one_or_more(&mut self, name: &'static str, raw: Option<&RawValue>) -> Vec<String> {
        match raw {
            Some(text) if text.get().starts_with('"') => {
                self.read_member(name, raw).into_iter().collect()
            }
            other => self.read_list(name, other),
        }
    }
}

impl Security {
    /// Parses the `security` member of a tool definition; `None` if absent. Of duplicates the last counts,
    /// as in most parsers, and the duplication is recorded.
    #[must_use]
    pub fn from_definition(definition: &str) -> Option<Self> {
        let all = members(definition)?;
        let mut found = all.iter().filter(|(name, _)| name == MEMBER);
        let raw = found.next_back().filter(|(_, raw)| raw.get() != "null")?.1;
        let mut security = Self::parse(raw);
        if found.next_back().is_some() {
            security.unreadable.push(MEMBER);
        }
        Some(security)
    }

    fn parse(raw: &RawValue) -> Self {
        let parsed = Some(raw.get()).filter(|text| text.starts_with('{'));
        let Some(parsed) =
            parsed.and_then(|text| serde_json::from_str::<RawSecurity<'_>>(text).ok())
        else {
            return Self {
                unreadable: vec![MEMBER],
                ..Self::default()
            };
        };
        let mut reader = Reader::default();
        let level: Option<RiskLevel> = reader.read_member("risk_level", parsed.risk_level);
        Self {
            risk_level: level,
            permissions_required: reader
                .read_list("permissions_required", parsed.permissions_required),
            side_effects: reader.read_list("side_effects", parsed.side_effects),
            validators: reader.read_one_or_more("validator", parsed.validator),
            reversible: reader.read_member("reversible", parsed.reversible),
            confirmation_required: reader
                .read_member("confirmation_required", parsed.confirmation_required)
                // A malformed value was probably meant to require confirmation.
                .unwrap_or(parsed.confirmation_required.is_some()),
            code_safety: reader.read_member("code_safety", parsed.code_safety),
            unreadable: reader.0,
        }
    }
}

/// Adds the kernel's own level to the `security` object of a definition, which is created if absent. A
/// level of the server is replaced; every other byte is unchanged (§4.1). A definition or `security` that
/// is no object is left unchanged.
#[must_use]
pub fn with_effective_level<'a>(definition: &'a str, level: RiskLevel) -> Cow<'a, str> {
    let json = quote(level.as_str());
    let Some(all) = members(definition) else {
        return definition.into();
    };
    let found: Vec<&RawValue> = all
        .iter()
        .filter(|(name, _)| name == MEMBER)
        .map(|m| m.1)
        .collect();
    let mut splice = Splice::new(definition);
    if found.is_empty() {
        let security = format!("{{{}:{json}}}", quote(EFFECTIVE));
        splice.insert_member(definition.trim(), MEMBER, &security);
    }
    for raw in found {
        let Some(inner) = members(raw.get()) else {
            splice.replace(raw.get(), format!("{{{}:{json}}}", quote(EFFECTIVE)));
            continue;
        };
        let mut claims = inner
            .iter()
            .filter(|(name, _)| name == EFFECTIVE)
            .peekable();
        if claims.peek().is_none() {
            splice.insert_member(raw.get(), EFFECTIVE, &json);
        }
        for (_, claim) in claims {
            splice.replace(claim.get(), json.clone());
        }
    }
    splice.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DOCUMENT: &str = r#"{"name":"execute_command","security":{"risk_level":"dangerous",
        "permissions_required":["shell.execute"],"side_effects":["filesystem","process"],
        "validator":"sandbox","reversible":false,"confirmation_required":true}}"#;

    /// MGP-047, MGP-051, MGP-052, MGP-053: the example of §4.2.
    #[test]
    fn example_of_the_document_is_parsed() {
        let security = Security::from_definition(DOCUMENT).unwrap();
        assert_eq!(security.risk_level, Some(RiskLevel::Dangerous));
        assert_eq!(security.permissions_required, ["shell.execute"]);
        assert_eq!(security.side_effects, ["filesystem", "process"]);
        assert_eq!(security.validators, ["sandbox"]);
        assert_eq!(security.reversible, Some(false));
        assert!(security.confirmation_required && security.unreadable.is_empty());
        assert_eq!(Security::from_definition(r#"{"name":"a"}"#), None);
        assert_eq!(Security::from_definition(r#"{"security":null}"#), None);
    }

    /// MGP-049: a missing or invalid level is no level, and an invalid one is recorded.
    #[test]
    fn malformed_members_are_recorded() {
        let read =
            |text: &str| Security::from_definition(&format!(r#"{{"security":{text}}}"#)).unwrap();
        assert_eq!(read("{}"), Security::default());
        let odd = read(
            r#"{"risk_level":"none","validator":7,"confirmation_required":"yes","reversible":1}"#,
        );
        assert_eq!(
            odd.unreadable,
            [
                "risk_level",
                "validator",
                "reversible",
                "confirmation_required"
            ]
        );
        assert!(
            odd.confirmation_required,
            "it was meant to ask for something"
        );
        assert_eq!(read("[]").unreadable, [MEMBER]);
        assert_eq!(read(r#"{"validator":["a","b"]}"#).validators, ["a", "b"]);
        let twice = r#"{"security":{"risk_level":"dangerous"},"security":{"risk_level":"safe"}}"#;
        assert_eq!(
            Security::from_definition(twice).unwrap().unreadable,
            [MEMBER]
        );
    }

    /// MGP-047, A-47: relayed unchanged, with the kernel's level added.
    #[test]
    fn kernel_level_is_added_and_nothing_else_changes() {
        let shown = with_effective_level(
            r#"{"name":"a","security":{"risk_level":"safe","x":1.50}}"#,
            RiskLevel::Moderate,
        );
        assert_eq!(
            shown,
            r#"{"name":"a","security":{"effective_risk_level":"moderate","risk_level":"safe","x":1.50}}"#
        );
        assert_eq!(
            with_effective_level(r#" {"name":"a"} "#, RiskLevel::Safe),
            r#" {"security":{"effective_risk_level":"safe"},"name":"a"} "#
        );
    }

    /// A-47: a server cannot set the kernel's member.
    #[test]
    fn declared_effective_level_is_replaced() {
        let claim = r#"{"security":{"effective_risk_level":"safe","effective_risk_level":{"a":1}},
            "security":{"effective_risk_level":"safe"},"name":"a"}"#;
        let shown = with_effective_level(claim, RiskLevel::Dangerous);
        assert!(
            !shown.contains("safe") && !shown.contains(r#""a":1"#),
            "{shown}"
        );
        assert_eq!(shown.matches("dangerous").count(), 3);
        let odd = with_effective_level(r#"{"security":"safe"}"#, RiskLevel::Dangerous);
        assert_eq!(odd, r#"{"security":{"effective_risk_level":"dangerous"}}"#);
    }

    proptest! {
        #[test]
        fn no_definition_panics_the_parser(text in "\\PC{0,60}") {
            for text in [text.clone(), format!(r#"{{"security":{text}}}"#)] {
                let _ = Security::from_definition(&text);
                let _ = with_effective_level(&text, RiskLevel::Safe);
            }
        }
    }
}
