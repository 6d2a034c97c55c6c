//! `security` in tool definitions (MGP §4): what a server says of its tools, and what the kernel
//! adds before agents read it.

use std::borrow::Cow;

use mgp_json::{Splice, members, quote};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The member of a tool definition.
pub const MEMBER: &str = "security";
/// What the kernel adds to it (later drafts, §4.6): the level its decisions rest on (A-47).
pub(crate) const EFFECTIVE: &str = "effective_risk_level";
/// Most entries read of one list, a bound on what a definition can make us keep. A longer list
/// counts as not understood.
pub(crate) const LIST_MAX: usize = 64;

/// How much harm a tool can do (§4.4), the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RiskLevel {
    /// No side effects.
    Safe,
    /// Limited side effects.
    Moderate,
    /// Effects on the system, or such as cannot be undone.
    Dangerous,
}

impl RiskLevel {
    /// All of them, the least first.
    pub const ALL: [Self; 3] = [Self::Safe, Self::Moderate, Self::Dangerous];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Moderate => "moderate",
            Self::Dangerous => "dangerous",
        }
    }
}

/// What a server says of a tool: claims. The object itself is relayed as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// `risk_level`; `None` when it is missing or no level.
    pub risk_level: Option<RiskLevel>,
    /// Permissions a call needs, in the spelling of the server.
    pub permissions_required: Vec<String>,
    /// Categories of side effects.
    pub side_effects: Vec<String>,
    /// Names of validators: one, or a list of them.
    pub validators: Vec<String>,
    /// Whether its effects can be undone.
    pub reversible: Option<bool>,
    /// Whether the user should be asked before each call.
    pub confirmation_required: bool,
    /// `code_safety`: how its code is to be judged (§7.3), as written.
    pub code_safety: Option<Value>,
    /// Members that were there and not understood: a reason to be careful.
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

/// Reads members and takes down those that are of another form.
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
    /// Reads the `security` member of a tool definition; `None` when there is none. Of several the
    /// last counts, as for most readers, and that there are several is taken down.
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
        let said = Some(raw.get()).filter(|text| text.starts_with('{'));
        let Some(said) = said.and_then(|text| serde_json::from_str::<RawSecurity<'_>>(text).ok())
        else {
            return Self {
                unreadable: vec![MEMBER],
                ..Self::default()
            };
        };
        let mut reader = Reader::default();
        let level: Option<RiskLevel> = reader.read_member("risk_level", said.risk_level);
        Self {
            risk_level: level,
            permissions_required: reader
                .read_list("permissions_required", said.permissions_required),
            side_effects: reader.read_list("side_effects", said.side_effects),
            validators: reader.read_one_or_more("validator", said.validator),
            reversible: reader.read_member("reversible", said.reversible),
            confirmation_required: reader
                .read_member("confirmation_required", said.confirmation_required)
                // What is there and no boolean was meant to ask for something.
                .unwrap_or(said.confirmation_required.is_some()),
            code_safety: reader.read_member("code_safety", said.code_safety),
            unreadable: reader.0,
        }
    }
}

/// The definition with the kernel's own level in its `security` object, which is made where there is
/// none. A level the server put there itself is replaced; every other byte stays (§4.1). A
/// definition or `security` that is no object is left alone.
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
    fn the_example_of_the_document_is_read() {
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

    /// MGP-049: what is missing or no level is no level, and the latter is taken down.
    #[test]
    fn what_cannot_be_read_is_named() {
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

    /// MGP-047, A-47: relayed as it is, with the kernel's level beside what the server says.
    #[test]
    fn the_kernels_level_is_added_and_nothing_else_changes() {
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

    /// A-47: a server cannot say the kernel's word.
    #[test]
    fn a_level_the_server_claims_is_replaced_wherever_it_stands() {
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
        fn no_definition_breaks_the_reader(text in "\\PC{0,60}") {
            for text in [text.clone(), format!(r#"{{"security":{text}}}"#)] {
                let _ = Security::from_definition(&text);
                let _ = with_effective_level(&text, RiskLevel::Safe);
            }
        }
    }
}
