//! The kernel's own assessment of how dangerous a call is (MGP §4, A-47), and whether a person must confirm it first.
//!
//! A server's declarations can raise the risk of its tools, never lower it.

mod confirmation;

use mgp_protocol::mgp::discovery::security::{RiskLevel, Security};
use mgp_protocol::mgp::permission::PermissionType;

pub use self::confirmation::{
    AvailableChannels, CallDigest, ConfirmationAnswer, ConfirmationChannel, ConfirmationFlow,
    ConfirmationOutcome, ConfirmationStep,
};
use crate::policy::trust::TrustLevel;

/// The validators of §4.5. An unknown name is not ignored, but counts as a strict declaration.
const VALIDATOR_RISKS: [(&str, RiskLevel); 5] = [
    ("readonly", RiskLevel::Safe),
    ("sandbox", RiskLevel::Moderate),
    ("network_restricted", RiskLevel::Moderate),
    ("code_safety", RiskLevel::Moderate),
    ("none", RiskLevel::Dangerous),
];

/// A reason for a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RiskReason {
    /// The level.
    pub level: RiskLevel,
    /// The reason, as text.
    pub reason: String,
}

/// The kernel's assessment of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Risk {
    /// The level for decisions; agents see it next to the server's own.
    pub level: RiskLevel,
    /// True when the server declared another level, for the event `RISK_LEVEL_OVERRIDE`.
    pub(crate) overrides_declared: bool,
    /// A person must confirm each call, whatever is granted.
    pub(crate) confirm_each_call: bool,
    /// All reasons for this level.
    pub reasons: Vec<RiskReason>,
}

/// The trust level of a server: as configured, or lower if it declares so itself (A-20). An unknown word
/// means the lowest.
#[must_use]
pub fn effective_trust(configured: TrustLevel, declared: Option<&str>) -> TrustLevel {
    let declared = declared.map(|word| TrustLevel::parse(word).unwrap_or(TrustLevel::Sandboxed));
    declared.map_or(configured, |declared| configured.min(declared))
}

/// The lowest risk of any tool of such a server.
fn min_risk(trust: TrustLevel) -> RiskLevel {
    match trust {
        TrustLevel::Trusted => RiskLevel::Safe,
        TrustLevel::Standard => RiskLevel::Moderate,
        TrustLevel::Sandboxed | TrustLevel::Experimental => RiskLevel::Dangerous,
    }
}

/// Assesses a tool by its declarations (`None` for a tool without `security`) and the trust level of its server.
/// `operator` is a configured level, which overrides the result.
#[must_use]
pub(crate) fn assess(
    trust: TrustLevel,
    said: Option<&Security>,
    operator: Option<RiskLevel>,
) -> Risk {
    let declared = said.and_then(|said| said.risk_level);
    let causes = match operator {
        Some(level) => vec![RiskReason {
            level,
            reason: "the operator set it".into(),
        }],
        None => collect_reasons(trust, said),
    };
    let highest = causes.iter().map(|cause| cause.level).max();
    let level = highest.unwrap_or(RiskLevel::Dangerous);
    Risk {
        level,
        overrides_declared: declared.is_some_and(|declared| declared != level),
        confirm_each_call: said.is_some_and(|said| said.confirmation_required),
        reasons: causes
            .into_iter()
            .filter(|cause| cause.level == level)
            .collect(),
    }
}

fn collect_reasons(trust: TrustLevel, said: Option<&Security>) -> Vec<RiskReason> {
    let cause = |level, why: String| RiskReason { level, reason: why };
    let mut out = vec![cause(
        min_risk(trust),
        format!("its server is {}", trust.as_str()),
    )];
    let declared = said.and_then(|said| said.risk_level);
    out.push(match declared {
        Some(level) => cause(level, format!("its server says it is {}", level.as_str())),
        // A-21: a tool without declarations is not assumed to be harmless.
        None => cause(
            RiskLevel::Moderate,
            "its server does not say how risky it is".into(),
        ),
    });
    let Some(said) = said else { return out };
    for name in &said.permissions_required {
        let meant = PermissionType::parse_all(name);
        out.extend(
            meant
                .iter()
                .map(|p| cause(p.risk(), format!("it needs {p}"))),
        );
    }
    for name in &said.validators {
        let known = VALIDATOR_RISKS.iter().find(|(known, _)| known == name);
        out.push(match known {
            Some((_, level)) => cause(*level, format!("its validator is {name}")),
            None => cause(
                RiskLevel::Dangerous,
                format!("nobody knows its validator {name:?}"),
            ),
        });
    }
    if !said.side_effects.is_empty() {
        let effects = said.side_effects.join(", ");
        out.push(cause(
            RiskLevel::Moderate,
            format!("it has side effects: {effects}"),
        ));
    }
    for member in &said.unreadable {
        out.push(cause(
            RiskLevel::Dangerous,
            format!("its {member} cannot be read"),
        ));
    }
    out
}

/// When a person must confirm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfirmationPolicy {
    /// Also for moderate tools without an explicit grant (§4.4: optional).
    pub confirm_moderate: bool,
}

/// Why a call needs confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConfirmationReason {
    /// The tool requires it before each call.
    EachTime,
    /// The tool is dangerous and not explicitly granted.
    Dangerous,
    /// The tool is moderate and not explicitly granted, and the operator configured confirmation for that.
    Moderate,
}

/// Why a person must confirm a call that access control allows; `None` if not. `granted` is true if exactly this
/// tool, or its server, was granted.
#[must_use]
pub fn confirmation_reason(
    risk: &Risk,
    caution: ConfirmationPolicy,
    granted: bool,
) -> Option<ConfirmationReason> {
    if risk.confirm_each_call {
        return Some(ConfirmationReason::EachTime);
    }
    let asking = match risk.level {
        RiskLevel::Safe => None,
        RiskLevel::Moderate => caution
            .confirm_moderate
            .then_some(ConfirmationReason::Moderate),
        RiskLevel::Dangerous => Some(ConfirmationReason::Dangerous),
    };
    asking.filter(|_| !granted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(text: &str) -> Security {
        Security::from_definition(&format!(r#"{{"security":{text}}}"#)).unwrap()
    }

    fn level(trust: TrustLevel, text: &str) -> RiskLevel {
        assess(trust, Some(&said(text)), None).level
    }

    /// MGP-024, MGP-025, A-20: a server can ask for less trust, not for more.
    #[test]
    fn trust_is_the_lesser_of_configured_and_declared() {
        use TrustLevel::{Experimental, Sandboxed, Standard, Trusted};
        for (configured, declared, expected) in [
            (Standard, None, Standard),
            (Standard, Some("trusted"), Standard),
            (Standard, Some("core"), Standard),
            (Trusted, Some("core"), Trusted),
            (Trusted, Some("standard"), Standard),
            (Trusted, Some("experimental"), Experimental),
            (Experimental, Some("core"), Experimental),
            (Experimental, Some("untrusted"), Sandboxed),
            (Trusted, Some("god"), Sandboxed),
            (Sandboxed, Some("trusted"), Sandboxed),
        ] {
            assert_eq!(
                effective_trust(configured, declared),
                expected,
                "{declared:?}"
            );
        }
    }

    /// MGP-049, A-21: what says nothing is moderate, and dangerous when it is sandboxed.
    #[test]
    fn a_tool_that_says_nothing_is_not_taken_for_safe() {
        let silent = |trust| assess(trust, None, None).level;
        assert_eq!(silent(TrustLevel::Trusted), RiskLevel::Moderate);
        assert_eq!(silent(TrustLevel::Standard), RiskLevel::Moderate);
        assert_eq!(silent(TrustLevel::Sandboxed), RiskLevel::Dangerous);
        let odd = r#"{"risk_level":"harmless"}"#;
        assert_eq!(level(TrustLevel::Trusted, odd), RiskLevel::Dangerous);
    }

    /// A-47: each thing said can raise the level.
    #[test]
    fn the_highest_of_all_counts() {
        for (text, expected) in [
            (r#"{"risk_level":"safe"}"#, RiskLevel::Safe),
            (r#"{"risk_level":"dangerous"}"#, RiskLevel::Dangerous),
            (
                r#"{"risk_level":"safe","side_effects":["network"]}"#,
                RiskLevel::Moderate,
            ),
            (
                r#"{"risk_level":"safe","permissions_required":["shell"]}"#,
                RiskLevel::Dangerous,
            ),
            (
                r#"{"risk_level":"safe","permissions_required":["memory.read"]}"#,
                RiskLevel::Safe,
            ),
            (
                r#"{"risk_level":"safe","permissions_required":["com.x.y"]}"#,
                RiskLevel::Dangerous,
            ),
            (
                r#"{"risk_level":"safe","validator":"readonly"}"#,
                RiskLevel::Safe,
            ),
            (
                r#"{"risk_level":"safe","validator":"none"}"#,
                RiskLevel::Dangerous,
            ),
            (
                r#"{"risk_level":"safe","validator":"zzz"}"#,
                RiskLevel::Dangerous,
            ),
        ] {
            assert_eq!(level(TrustLevel::Trusted, text), expected, "{text}");
        }
        let risk = assess(
            TrustLevel::Standard,
            Some(&said(r#"{"risk_level":"safe"}"#)),
            None,
        );
        assert!(risk.overrides_declared);
        assert_eq!(risk.reasons.len(), 1);
        assert_eq!(risk.reasons[0].reason, "its server is standard");
        let set = assess(TrustLevel::Sandboxed, None, Some(RiskLevel::Safe));
        assert_eq!(set.level, RiskLevel::Safe);
    }

    /// MGP-005, MGP-054, MGP-055, MGP-056, MGP-057: the table of §4.4.
    #[test]
    fn a_yes_is_needed_as_the_table_of_the_document_says() {
        let of = |trust, text| assess(trust, Some(&said(text)), None);
        let safe = of(TrustLevel::Trusted, r#"{"risk_level":"safe"}"#);
        let moderate = of(TrustLevel::Standard, r#"{"risk_level":"safe"}"#);
        let dangerous = of(TrustLevel::Sandboxed, r#"{"risk_level":"safe"}"#);
        let asks = of(
            TrustLevel::Trusted,
            r#"{"risk_level":"safe","confirmation_required":true}"#,
        );
        let easy = ConfirmationPolicy::default();
        let cautious = ConfirmationPolicy {
            confirm_moderate: true,
        };
        assert_eq!(confirmation_reason(&safe, cautious, false), None);
        assert_eq!(confirmation_reason(&moderate, easy, false), None);
        assert_eq!(
            confirmation_reason(&moderate, cautious, false),
            Some(ConfirmationReason::Moderate)
        );
        assert_eq!(confirmation_reason(&moderate, cautious, true), None);
        assert_eq!(
            confirmation_reason(&dangerous, easy, false),
            Some(ConfirmationReason::Dangerous)
        );
        assert_eq!(confirmation_reason(&dangerous, easy, true), None);
        for granted in [false, true] {
            assert_eq!(
                confirmation_reason(&asks, easy, granted),
                Some(ConfirmationReason::EachTime)
            );
        }
    }

    proptest! {
        /// A-47: whatever a server says, a tool is never less dangerous than its trust allows, and
        /// never less than when the server says less good of it.
        #[test]
        fn a_server_cannot_talk_its_risk_down(
            level in 0_usize..4,
            permissions in proptest::collection::vec("[a-z.]{1,8}|shell|memory.read", 0..4),
            validators in proptest::collection::vec("[a-z]{1,8}|none|readonly", 0..3),
        ) {
            let security = Security {
                risk_level: RiskLevel::ALL.get(level).copied(),
                permissions_required: permissions,
                validators,
                ..Security::default()
            };
            for trust in [TrustLevel::Sandboxed, TrustLevel::Standard, TrustLevel::Trusted] {
                let risk = assess(trust, Some(&security), None);
                prop_assert!(risk.level >= min_risk(trust));
                prop_assert!(security.risk_level.is_none_or(|said| risk.level >= said));
                prop_assert!(!risk.reasons.is_empty());
            }
        }
    }
}
