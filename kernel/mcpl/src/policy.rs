//! Decides which feature sets of a server are enabled: configuration, then switches at the command line.

use std::collections::BTreeMap;

use mgp_protocol::mcpl::McplVersion;
use mgp_protocol::mcpl::feature_sets::{Capability, FeatureSet, is_valid_name};
use mgp_protocol::mcpl::grants::matches_path;

use crate::scopes::ScopeRules;

/// `[mcpl.servers.NAME]`: the MCPL features of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct McplServerRules {
    /// Enabled sets.
    pub enable: Vec<SetPattern>,
    /// Disabled sets.
    pub disable: Vec<SetPattern>,
    /// Denied capabilities of a server that speaks MCPL 0.5, whichever sets are enabled.
    pub deny: Vec<CapabilityPattern>,
    /// The set of each tool, by the server's own tool name.
    pub tools: BTreeMap<String, String>,
    /// Scope rules by set.
    pub scopes: BTreeMap<String, ScopeRules>,
}

/// An exact set name or a wildcard: `memory.*`, `*` (MCPL §6.3).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetPattern(String);

/// The text is no set pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither the name of a feature set nor a pattern like `memory.*`")]
pub struct SetPatternError(String);

/// A capability path of MCPL 0.5, in which `*` is one segment (0.5 §5.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapabilityPattern(String);

/// The pattern denies nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} matches no capability of MCPL 0.5; `*` is one segment, as in `channels.*`")]
pub struct CapabilityPatternError(String);

impl CapabilityPattern {
    /// Reads `contextHooks.beforeInference.inject.system` or `channels.*`.
    ///
    /// # Errors
    /// [`CapabilityPatternError`] if it matches no capability, because it would deny nothing.
    pub fn parse(text: &str) -> Result<Self, CapabilityPatternError> {
        let pattern = Self(text.to_owned());
        let mut all = Capability::all(McplVersion::V0_5).iter();
        if all.any(|one| pattern.matches(*one)) {
            Ok(pattern)
        } else {
            Err(CapabilityPatternError(text.chars().take(200).collect()))
        }
    }

    /// Whether it matches this capability.
    #[must_use]
    pub(crate) fn matches(&self, capability: Capability) -> bool {
        matches_path(&self.0, capability.as_str())
    }
}

impl SetPattern {
    /// Reads `memory.retrieval`, `memory.*` or `*`.
    ///
    /// # Errors
    /// [`SetPatternError`].
    pub fn parse(text: &str) -> Result<Self, SetPatternError> {
        let is_valid = match text.strip_suffix(".*") {
            Some(group) => is_valid_name(group),
            None => text == "*" || is_valid_name(text),
        };
        if is_valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(SetPatternError(text.chars().take(200).collect()))
        }
    }

    /// The pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True without a wildcard.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.0.ends_with('*')
    }

    /// Length of the match, for ranking; `None` without a match.
    #[must_use]
    pub fn specificity(&self, set: &str) -> Option<usize> {
        match self.0.strip_suffix('*') {
            // The prefix keeps its dot, so that `memory.*` does not match `memories`.
            Some(group) => set.starts_with(group).then_some(group.len()),
            None => (self.0 == set).then_some(usize::MAX),
        }
    }
}

/// Why a set is enabled or disabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetReason {
    /// Switched at the command line.
    Switched(SetPattern),
    /// The configuration.
    Configured(SetPattern),
    /// It uses a capability that its server does not declare, or that `deny` denies.
    Denied(Capability),
    /// Its server has not accepted the grant.
    Unanswered,
    /// Neither switched nor configured.
    Default,
}

impl SetReason {
    /// For people.
    #[must_use]
    pub fn render(&self) -> String {
        match self {
            Self::Switched(pattern) => format!("switched by hand ({})", pattern.as_str()),
            Self::Configured(pattern) => format!("[mcpl] of mgp.toml ({})", pattern.as_str()),
            Self::Denied(capability) => {
                format!(
                    "{capability} is denied by [mcpl] of mgp.toml, or not declared by the server"
                )
            }
            Self::Unanswered => "the server has not accepted the grant".to_owned(),
            Self::Default => "default".to_owned(),
        }
    }
}

/// Persistent switches of one server, made at the command line.
pub type Switches = BTreeMap<SetPattern, bool>;

/// Only sets that use nothing but tools are enabled by default: agents call tools, and access rules decide which.
#[must_use]
pub(crate) fn is_enabled_by_default(set: &FeatureSet) -> bool {
    let only_tools = set.uses.iter().all(|uses| *uses == Capability::Tools);
    only_tools && !set.uses.is_empty()
}

/// Approved declarations by set name: as of the first enabling, or as approved by a person since.
pub type ApprovedSets = BTreeMap<String, FeatureSet>;

/// The effective declaration until approval: nothing beyond the approved one, and scopes if either has them.
#[must_use]
pub(crate) fn limit_to_approved(declared: &FeatureSet, approved: &FeatureSet) -> FeatureSet {
    FeatureSet {
        description: approved.description.clone(),
        uses: declared
            .uses
            .intersection(&approved.uses)
            .copied()
            .collect(),
        scoped: declared.scoped || approved.scoped,
        rollback: declared.rollback && approved.rollback,
    }
}

/// True when a declaration uses more than the approved one, or has another description. Using less needs no approval.
#[must_use]
pub(crate) fn exceeds_approved(declared: &FeatureSet, approved: &FeatureSet) -> bool {
    declared.description != approved.description
        || !declared.uses.is_subset(&approved.uses)
        || (approved.scoped && !declared.scoped)
        || (declared.rollback && !approved.rollback)
}

/// Longest description shown, in characters.
const DESCRIPTION_CHARS_MAX: usize = 160;

/// The changes of a set, old against new, for people.
#[must_use]
pub fn difference(name: &str, approved: &FeatureSet, declared: &FeatureSet) -> Vec<String> {
    let uses = |set: &FeatureSet| {
        let uses = set.uses.iter().map(ToString::to_string);
        uses.collect::<Vec<_>>().join(", ")
    };
    let description = |set: &FeatureSet| {
        set.description
            .chars()
            .take(DESCRIPTION_CHARS_MAX)
            .collect()
    };
    let yes_no = |flag: bool| if flag { "yes" } else { "no" }.to_owned();
    let all: [(&str, String, String); 4] = [
        ("uses", uses(approved), uses(declared)),
        ("scoped", yes_no(approved.scoped), yes_no(declared.scoped)),
        (
            "rollback",
            yes_no(approved.rollback),
            yes_no(declared.rollback),
        ),
        ("description", description(approved), description(declared)),
    ];
    let mut lines = vec![format!("{name}:")];
    for (what, was, is) in all.into_iter().filter(|(_, was, is)| was != is) {
        lines.push(format!("  {what} was: {was}"));
        lines.push(format!("  {what} is:  {is}"));
    }
    lines
}

/// The most exact pattern decides; of equally exact ones the switch, which is later; of these the disabling one.
#[must_use]
pub(crate) fn is_enabled(
    name: &str,
    set: &FeatureSet,
    rules: Option<&McplServerRules>,
    switches: Option<&Switches>,
) -> (bool, SetReason) {
    let switched = switches.into_iter().flatten().filter_map(|(pattern, on)| {
        let exact = pattern.specificity(name)?;
        Some((exact, true, !on, SetReason::Switched(pattern.clone())))
    });
    let matching = |patterns: &[SetPattern], off: bool| {
        let matches = patterns.iter().filter_map(move |pattern| {
            let exact = pattern.specificity(name)?;
            Some((exact, false, off, SetReason::Configured(pattern.clone())))
        });
        matches.collect::<Vec<_>>()
    };
    let configured = rules.into_iter().flat_map(|rules| {
        let enabled = matching(&rules.enable, false);
        enabled.into_iter().chain(matching(&rules.disable, true))
    });
    let decisive = switched
        .chain(configured)
        .max_by_key(|(exact, by_hand, off, _)| (*exact, *by_hand, *off));
    match decisive {
        Some((_, _, off, reason)) => (!off, reason),
        None => (is_enabled_by_default(set), SetReason::Default),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(all: &[&str]) -> Vec<SetPattern> {
        let parsed = all.iter().map(|text| SetPattern::parse(text));
        parsed.collect::<Result<_, _>>().unwrap()
    }

    fn set(uses: &[Capability]) -> FeatureSet {
        FeatureSet {
            description: String::new(),
            uses: uses.iter().copied().collect(),
            scoped: false,
            rollback: false,
        }
    }

    /// MCPL-110: sets with push, hooks, inference or channels are off until the operator enables them.
    #[test]
    fn only_tools_are_on_by_default() {
        let all = [McplVersion::V0_4, McplVersion::V0_5].map(Capability::all);
        for capability in all.concat() {
            assert_eq!(
                is_enabled_by_default(&set(&[capability])),
                capability == Capability::Tools,
                "{capability}"
            );
            let with_tools = set(&[Capability::Tools, capability]);
            assert_eq!(
                is_enabled_by_default(&with_tools),
                capability == Capability::Tools
            );
        }
        assert!(!is_enabled_by_default(&set(&[])));
    }

    /// MCPL-036: `memory.*` matches everything below `memory`, and nothing else.
    #[test]
    fn a_pattern_names_what_is_below_it() {
        let specificity =
            |pattern: &str, set: &str| SetPattern::parse(pattern).unwrap().specificity(set);
        assert!(specificity("memory.*", "memory.retrieval").is_some());
        assert!(specificity("memory.*", "memory.a.b").is_some());
        assert!(specificity("memory.a.*", "memory.a.b") > specificity("memory.*", "memory.a.b"));
        assert_eq!(specificity("memory.*", "memory"), None);
        assert_eq!(specificity("memory.*", "memories.a"), None);
        assert_eq!(specificity("memory.*", "Memory.a"), None);
        assert_eq!(specificity("*", "anything"), Some(0));
        for bad in [
            "",
            "mem*",
            "*.a",
            "memory.**",
            "a b",
            "memory.",
            ".*",
            "a.*.b",
            "é",
        ] {
            assert!(SetPattern::parse(bad).is_err(), "{bad}");
        }
    }

    /// MCPL-110: the most exact pattern decides, then the later one, then the disabling one.
    #[test]
    fn the_most_exact_word_counts() {
        let hook = set(&[Capability::BeforeInference]);
        let rules = McplServerRules {
            enable: patterns(&["memory.*", "both"]),
            disable: patterns(&["memory.secret", "both"]),
            ..McplServerRules::default()
        };
        let on = |name: &str, switches: &[(&str, bool)]| {
            let switches = switches.iter();
            let switches = switches
                .map(|(p, on)| (SetPattern::parse(p).unwrap(), *on))
                .collect();
            is_enabled(name, &hook, Some(&rules), Some(&switches)).0
        };
        assert!(on("memory.a", &[]) && !on("memory.secret", &[]) && !on("other", &[]));
        assert!(!on("both", &[]));
        assert!(on("memory.secret", &[("memory.secret", true)]));
        assert!(!on("memory.secret", &[("memory.*", true)]));
        assert!(!on("memory.a", &[("memory.*", false)]));
        assert!(on("memory.a", &[("*", false)]));
        assert!(on("other", &[("*", true)]));
        let (_, why) = is_enabled("memory.a", &hook, Some(&rules), None);
        assert_eq!(why.render(), "[mcpl] of mgp.toml (memory.*)");
    }

    /// A declaration that uses more, or has another text, waits. Meanwhile the intersection is in force.
    #[test]
    fn only_a_declaration_that_says_more_waits_for_approval() {
        let base = set(&[Capability::Tools]);
        let scoped = FeatureSet {
            scoped: true,
            ..base.clone()
        };
        let rollback = FeatureSet {
            rollback: true,
            ..base.clone()
        };
        let text = FeatureSet {
            description: "another".into(),
            ..base.clone()
        };
        let hook = set(&[Capability::Tools, Capability::BeforeInference]);
        let none = set(&[]);
        for (approved, declared, more) in [
            (&base, &base, false),
            (&base, &scoped, false),
            (&scoped, &base, true),
            (&scoped, &scoped, false),
            (&base, &rollback, true),
            (&rollback, &base, false),
            (&rollback, &rollback, false),
            (&base, &text, true),
            (&base, &hook, true),
            (&hook, &base, false),
            (&base, &none, false),
        ] {
            assert_eq!(
                exceeds_approved(declared, approved),
                more,
                "{approved:?} {declared:?}"
            );
            let counts = limit_to_approved(declared, approved);
            assert!(!exceeds_approved(&counts, approved));
            assert!(counts.uses.is_subset(&declared.uses));
            assert_eq!(counts.scoped, approved.scoped || declared.scoped);
            assert_eq!(counts.rollback, approved.rollback && declared.rollback);
        }
        assert_eq!(limit_to_approved(&hook, &base).uses, base.uses);
    }

    #[test]
    fn a_change_is_shown_old_against_new() {
        let approved = set(&[Capability::Tools]);
        assert_eq!(difference("edit", &approved, &approved), ["edit:"]);
        let declared = FeatureSet {
            description: "x".repeat(200),
            scoped: true,
            ..set(&[Capability::Tools, Capability::BeforeInference])
        };
        let lines = difference("edit", &approved, &declared);
        let uses = format!(
            "  uses is:  {}, {}",
            Capability::Tools,
            Capability::BeforeInference
        );
        let swapped = format!(
            "  uses is:  {}, {}",
            Capability::BeforeInference,
            Capability::Tools
        );
        assert!(
            lines.contains(&uses) || lines.contains(&swapped),
            "{lines:?}"
        );
        assert!(lines.contains(&"  scoped was: no".to_owned()), "{lines:?}");
        assert!(lines.contains(&"  scoped is:  yes".to_owned()), "{lines:?}");
        let description = format!("  description is:  {}", "x".repeat(160));
        assert_eq!((lines.len(), lines.last()), (7, Some(&description)));
    }

    #[test]
    fn a_pattern_is_shown_as_it_was_written() {
        for (text, is_exact) in [("memory.a", true), ("memory.*", false), ("*", false)] {
            let pattern = SetPattern::parse(text).unwrap();
            assert_eq!((pattern.as_str(), pattern.is_exact()), (text, is_exact));
            let by_hand = SetReason::Switched(pattern).render();
            assert_eq!(by_hand, format!("switched by hand ({text})"));
        }
        assert_eq!(SetReason::Default.render(), "default");
    }
}
