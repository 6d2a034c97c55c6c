//! Capability grants of MCPL 0.5: what a host lets a server do or receive (0.5 §5.3, §5.4, §6.7).

use std::collections::BTreeSet;

use mgp_json::lookalike;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::McplVersion;
use super::feature_sets::Capability;

/// The most paths or names of one list that are read. The vocabulary has 17 paths, and a server at most 256 sets; the
/// kernel as one server has those of all servers.
const LIST_MAX: usize = 4096;
/// The most bytes of one receipt that are stored, for the log.
const REASON_MAX: usize = 512;

/// The params of `featureSets/update` as a request (0.5 §5.3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantUpdate {
    /// The grant. Whatever is not in it is denied.
    pub effective_capabilities: BTreeSet<Capability>,
    /// Declared, and denied. Decides nothing.
    pub denied_capabilities: BTreeSet<Capability>,
    /// The enabled sets.
    pub enabled: Vec<String>,
    /// The disabled sets.
    pub disabled: Vec<String>,
}

/// The same as a host sends it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedGrant {
    /// Paths and patterns. Absent grants nothing.
    effective: Vec<String>,
    /// The only enabled sets, if present.
    pub enabled: Option<Vec<String>>,
    /// Disabled sets.
    pub disabled: Vec<String>,
}

/// As written. A member that is there twice is malformed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawGrant {
    #[serde(default)]
    effective_capabilities: Vec<String>,
    #[serde(default)]
    denied_capabilities: Vec<String>,
    #[serde(default, deserialize_with = "parse_present")]
    enabled: Option<Vec<String>>,
    #[serde(default)]
    disabled: Vec<String>,
}

impl ReceivedGrant {
    /// Parses a policy message.
    ///
    /// # Errors
    /// A malformed list, or a path that is both granted and denied: nothing is granted then (0.5 §5.4).
    pub fn parse(params: &str) -> Result<Self, String> {
        let read: RawGrant =
            lookalike::from_object(params).map_err(|error| lookalike::strip_position(&error))?;
        let enabled = read.enabled.as_deref().unwrap_or_default();
        let lists = [
            &*read.effective_capabilities,
            &*read.denied_capabilities,
            &*read.disabled,
            enabled,
        ];
        if lists.iter().any(|list| list.len() > LIST_MAX) {
            return Err(format!("a list has more than {LIST_MAX} entries"));
        }
        let denied = &read.denied_capabilities;
        match read
            .effective_capabilities
            .iter()
            .find(|path| denied.contains(path))
        {
            Some(path) => Err(format!("{path:?} is granted and denied")),
            None => Ok(Self {
                effective: read.effective_capabilities,
                enabled: read.enabled,
                disabled: read.disabled,
            }),
        }
    }

    /// True if a path is granted, by itself or by a pattern.
    #[must_use]
    pub fn grants(&self, capability: Capability) -> bool {
        let mut all = self.effective.iter();
        all.any(|pattern| matches_path(pattern, capability.as_str()))
    }

    /// All granted paths.
    #[must_use]
    pub fn granted(&self) -> BTreeSet<Capability> {
        let all = Capability::all(McplVersion::V0_5).iter().copied();
        all.filter(|one| self.grants(*one)).collect()
    }

    /// True if the lists leave this set enabled; `enabled` never supplies what its uses lack.
    #[must_use]
    pub fn selects(&self, set: &str) -> bool {
        let names = |list: &[String]| list.iter().any(|pattern| names_set(pattern, set));
        self.enabled.as_ref().is_none_or(|list| names(list)) && !names(&self.disabled)
    }
}

/// `null` is no list.
fn parse_present<'de, D: Deserializer<'de>>(list: D) -> Result<Option<Vec<String>>, D::Error> {
    Vec::deserialize(list).map(Some)
}

/// `*` is one whole segment, and both have as many segments (0.5 §5.4).
#[must_use]
pub fn matches_path(pattern: &str, path: &str) -> bool {
    let (mut pattern, mut path) = (pattern.split('.'), path.split('.'));
    loop {
        match (pattern.next(), path.next()) {
            (None, None) => return true,
            (Some(wanted), Some(segment)) if wanted == "*" || wanted == segment => {}
            _ => return false,
        }
    }
}

/// `memory.*` is everything below `memory` (§6.3).
fn names_set(pattern: &str, set: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(group) if group.is_empty() || group.ends_with('.') => set.starts_with(group),
        _ => pattern == set,
    }
}

/// A server's answer to a grant (0.5 §6.7): what it will do. It decides nothing about the grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantReceipt {
    /// It takes the grant; with what it lacks, for its log.
    Accepted {
        /// Some of its features are unavailable.
        is_degraded: bool,
    },
    /// It does not.
    Refused {
        /// The consequence.
        fallback: GrantFallback,
        /// In its words.
        reason: String,
    },
}

/// The consequence of a refused grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrantFallback {
    /// MCP alone.
    #[serde(rename = "mcp-only")]
    McpOnly,
    /// The connection ends.
    #[serde(rename = "close")]
    Close,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawReceipt<'a> {
    accepted: bool,
    #[serde(borrow, default)]
    unavailable_features: Option<&'a RawValue>,
    #[serde(default)]
    fallback: Option<GrantFallback>,
    #[serde(default)]
    reason: Option<String>,
}

impl GrantReceipt {
    /// Parses a receipt.
    ///
    /// # Errors
    /// The answer is no receipt: a refusal without `fallback` is none.
    pub fn parse(result: &str) -> Result<Self, String> {
        let receipt: RawReceipt<'_> =
            lookalike::from_object(result).map_err(|error| lookalike::strip_position(&error))?;
        if receipt.accepted {
            let lacks = receipt.unavailable_features.map_or("[]", RawValue::get);
            return Ok(Self::Accepted {
                is_degraded: !matches!(lacks, "[]" | "null"),
            });
        }
        Ok(Self::Refused {
            fallback: receipt.fallback.ok_or("a refusal names its `fallback`")?,
            reason: receipt
                .reason
                .unwrap_or_default()
                .chars()
                .take(REASON_MAX)
                .collect(),
        })
    }
}

/// A set that a grant leaves unavailable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnavailableFeature {
    /// The set.
    pub feature_set: String,
    /// What its uses lack.
    pub missing_capabilities: BTreeSet<Capability>,
    /// What becomes of it.
    effect: &'static str,
}

impl UnavailableFeature {
    /// A set that is disabled.
    #[must_use]
    pub const fn new(feature_set: String, missing_capabilities: BTreeSet<Capability>) -> Self {
        Self {
            feature_set,
            missing_capabilities,
            effect: "disabled",
        }
    }
}

/// Renders the receipt of a grant that was taken. Without a lack there is no `mode`.
#[must_use]
pub fn render_receipt(lacking: &[UnavailableFeature]) -> String {
    if lacking.is_empty() {
        return r#"{"accepted":true}"#.to_owned();
    }
    let lacking = serde_json::to_string(lacking).expect("names are always JSON");
    format!(r#"{{"accepted":true,"mode":"degraded","unavailableFeatures":{lacking}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NEW-010: `*` is exactly one segment, and a parent does not grant what is below it.
    #[test]
    fn wildcard_is_one_segment_and_a_parent_grants_nothing_below() {
        for (pattern, path, matches) in [
            ("channels.*", "channels.publish", true),
            ("channels.*", "channels.publish.anything", false),
            ("channels", "channels.publish", false),
            ("*", "pushEvents", true),
            ("*", "channels.publish", false),
            (
                "contextHooks.*",
                "contextHooks.beforeInference.inject.system",
                false,
            ),
            (
                "contextHooks.*.*",
                "contextHooks.beforeInference.observe",
                true,
            ),
            (
                "contextHooks.*.inject.*",
                "contextHooks.beforeInference.inject.system",
                true,
            ),
            ("channels.pub*", "channels.publish", false),
            ("", "pushEvents", false),
        ] {
            assert_eq!(matches_path(pattern, path), matches, "{pattern} {path}");
        }
    }

    /// NEW-011: absence is denial, and a message that grants and denies the same path grants nothing.
    #[test]
    fn absent_grant_grants_nothing_and_contradiction_is_malformed() {
        let none = ReceivedGrant::parse(r#"{"enabled":["a"]}"#).unwrap();
        assert!(none.granted().is_empty());
        let some = r#"{"effectiveCapabilities":["tools","channels.*"],"deniedCapabilities":["pushEvents"],"disabled":["a.b"]}"#;
        let some = ReceivedGrant::parse(some).unwrap();
        assert!(some.grants(Capability::ChannelsPublish) && !some.grants(Capability::PushEvents));
        assert_eq!(some.granted().len(), 8);
        assert!(some.selects("a.c") && !some.selects("a.b"));
        let listed = ReceivedGrant::parse(r#"{"enabled":["a.*"],"disabled":["a.b"]}"#).unwrap();
        assert!(listed.selects("a.c") && !listed.selects("a.b") && !listed.selects("b"));
        for bad in [
            r#"{"effectiveCapabilities":["tools"],"deniedCapabilities":["tools"]}"#,
            r#"{"effectiveCapabilities":"tools"}"#,
            r#"{"effectiveCapabilities":["tools"],"effectiveCapabilities":["pushEvents"]}"#,
            r#"{"enabled":[7]}"#,
            r#"{"enabled":null}"#,
            "[]",
        ] {
            assert!(ReceivedGrant::parse(bad).is_err(), "{bad}");
        }
    }

    /// NEW-012: only `accepted: true` is an acceptance, and a refusal names its consequence.
    #[test]
    fn receipts_are_parsed_and_anything_else_is_none() {
        let accepted = |is_degraded| Ok(GrantReceipt::Accepted { is_degraded });
        assert_eq!(GrantReceipt::parse(r#"{"accepted":true}"#), accepted(false));
        let degraded = r#"{"accepted":true,"mode":"degraded","unavailableFeatures":[{"featureSet":"a","effect":"disabled"}]}"#;
        assert_eq!(GrantReceipt::parse(degraded), accepted(true));
        let refused = r#"{"accepted":false,"fallback":"mcp-only","reason":"no"}"#;
        assert_eq!(
            GrantReceipt::parse(refused),
            Ok(GrantReceipt::Refused {
                fallback: GrantFallback::McpOnly,
                reason: "no".to_owned()
            })
        );
        for bad in [
            "{}",
            "[true]",
            r#"{"accepted":"true"}"#,
            r#"{"accepted":false}"#,
            r#"{"accepted":false,"fallback":"ask-again"}"#,
        ] {
            assert!(GrantReceipt::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn receipt_has_a_mode_only_if_something_is_unavailable() {
        assert_eq!(render_receipt(&[]), r#"{"accepted":true}"#);
        let lacking = UnavailableFeature::new("a.b".into(), [Capability::PushEvents].into());
        assert_eq!(
            render_receipt(&[lacking]),
            r#"{"accepted":true,"mode":"degraded","unavailableFeatures":[{"featureSet":"a.b","missingCapabilities":["pushEvents"],"effect":"disabled"}]}"#
        );
    }
}
