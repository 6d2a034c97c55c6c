//! Which sets of which server are enabled: what the operator wrote, and what was switched since.

use std::collections::BTreeMap;

use mgp_protocol::mcpl::feature_sets::{Capability, FeatureSet, is_valid_name};

use crate::scopes::ScopeRules;

/// `[mcpl.servers.NAME]`: what one server may do beside being called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct McplServerRules {
    /// Sets that are enabled.
    pub enable: Vec<SetPattern>,
    /// Sets that are not.
    pub disable: Vec<SetPattern>,
    /// Which set a tool belongs to, by the server's own name for the tool.
    pub tools: BTreeMap<String, String>,
    /// What is said of scopes, by the set.
    pub scopes: BTreeMap<String, ScopeRules>,
}

/// A set by its name, or all whose names begin alike: `memory.*`, `*` (MCPL §6.3).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetPattern(String);

/// Why a text is no name of sets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name of a feature set, and none of several like `memory.*`")]
pub struct SetPatternError(String);

impl SetPattern {
    /// Reads `memory.retrieval`, `memory.*` or `*`.
    ///
    /// # Errors
    /// [`SetPatternError`].
    pub fn parse(text: &str) -> Result<Self, SetPatternError> {
        let good = match text.strip_suffix(".*") {
            Some(group) => is_valid_name(group),
            None => text == "*" || is_valid_name(text),
        };
        if good {
            Ok(Self(text.to_owned()))
        } else {
            Err(SetPatternError(text.chars().take(200).collect()))
        }
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True for a name of one set.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.0.ends_with('*')
    }

    /// How exactly it names this set; `None` when it does not name it.
    #[must_use]
    pub fn specificity(&self, set: &str) -> Option<usize> {
        match self.0.strip_suffix('*') {
            // `memory.*` begins with `memory.`, so that `memories` is not meant.
            Some(group) => set.starts_with(group).then_some(group.len()),
            None => (self.0 == set).then_some(usize::MAX),
        }
    }
}

/// Why a set is enabled, or is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetReason {
    /// The operator's last word at the command line.
    Switched(SetPattern),
    /// The configuration.
    Configured(SetPattern),
    /// Nobody said anything of it.
    Default,
}

impl SetReason {
    /// For people.
    #[must_use]
    pub fn render(&self) -> String {
        match self {
            Self::Switched(pattern) => format!("switched by hand ({})", pattern.as_str()),
            Self::Configured(pattern) => format!("[mcpl] of mgp.toml ({})", pattern.as_str()),
            Self::Default => "default".to_owned(),
        }
    }
}

/// What the operator switched at the command line, of one server: it lasts.
pub type Switches = BTreeMap<SetPattern, bool>;

/// Whether a set is enabled when nobody says anything of it: only one that does nothing unasked. Its tools are
/// called by agents, and who may call them is said elsewhere.
#[must_use]
pub(crate) fn is_enabled_by_default(set: &FeatureSet) -> bool {
    let only_tools = set.uses.iter().all(|uses| *uses == Capability::Tools);
    only_tools && !set.uses.is_empty()
}

/// The declarations of sets that were approved, by name: as they were when the set was first enabled, or as a person
/// approved them since.
pub type ApprovedSets = BTreeMap<String, FeatureSet>;

/// What counts of a declaration until it is approved: nothing that the approved one did not say, and scopes where either
/// of the two has them.
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

/// Whether a declaration says more than the approved one, or something else to whoever reads it. One that only uses less
/// counts as it is.
#[must_use]
pub(crate) fn exceeds_approved(declared: &FeatureSet, approved: &FeatureSet) -> bool {
    declared.description != approved.description
        || !declared.uses.is_subset(&approved.uses)
        || (approved.scoped && !declared.scoped)
        || (declared.rollback && !approved.rollback)
}

/// Longest description that is shown, in characters.
const DESCRIPTION_CHARS_MAX: usize = 160;

/// What changed of a set, old against new, for people.
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
    let yes = |it: bool| if it { "yes" } else { "no" }.to_owned();
    let all: [(&str, String, String); 4] = [
        ("uses", uses(approved), uses(declared)),
        ("scoped", yes(approved.scoped), yes(declared.scoped)),
        ("rollback", yes(approved.rollback), yes(declared.rollback)),
        ("description", description(approved), description(declared)),
    ];
    let mut lines = vec![format!("{name}:")];
    for (what, was, is) in all.into_iter().filter(|(_, was, is)| was != is) {
        lines.push(format!("  {what} was: {was}"));
        lines.push(format!("  {what} is:  {is}"));
    }
    lines
}

/// Whether a set is enabled, and who says so. The most exact word counts; of two that are as exact that of the
/// command line, which is the later one; of these the no.
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
    let said = |patterns: &[SetPattern], off: bool| {
        let said = patterns.iter().filter_map(move |pattern| {
            let exact = pattern.specificity(name)?;
            Some((exact, false, off, SetReason::Configured(pattern.clone())))
        });
        said.collect::<Vec<_>>()
    };
    let configured = rules.into_iter().flat_map(|rules| {
        let enabled = said(&rules.enable, false);
        enabled.into_iter().chain(said(&rules.disable, true))
    });
    let last = switched
        .chain(configured)
        .max_by_key(|(exact, by_hand, off, _)| (*exact, *by_hand, *off));
    match last {
        Some((_, _, off, reason)) => (!off, reason),
        None => (is_enabled_by_default(set), SetReason::Default),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(all: &[&str]) -> Vec<SetPattern> {
        let all = all.iter().map(|one| SetPattern::parse(one));
        all.collect::<Result<_, _>>().unwrap()
    }

    fn set(uses: &[Capability]) -> FeatureSet {
        FeatureSet {
            description: String::new(),
            uses: uses.iter().copied().collect(),
            scoped: false,
            rollback: false,
        }
    }

    /// MCPL-110: what pushes, hooks, infers or uses channels is off until the operator says otherwise.
    #[test]
    fn only_tools_are_on_by_default() {
        for one in Capability::ALL {
            assert_eq!(
                is_enabled_by_default(&set(&[one])),
                one == Capability::Tools,
                "{one}"
            );
            let with_tools = set(&[Capability::Tools, one]);
            assert_eq!(is_enabled_by_default(&with_tools), one == Capability::Tools);
        }
        assert!(!is_enabled_by_default(&set(&[])));
    }

    /// MCPL-036: `memory.*` means all below `memory`, and no other one.
    #[test]
    fn a_pattern_names_what_is_below_it() {
        let names = |pattern: &str, set: &str| SetPattern::parse(pattern).unwrap().specificity(set);
        assert!(names("memory.*", "memory.retrieval").is_some());
        assert!(names("memory.*", "memory.a.b").is_some());
        assert!(names("memory.a.*", "memory.a.b") > names("memory.*", "memory.a.b"));
        assert_eq!(names("memory.*", "memory"), None);
        assert_eq!(names("memory.*", "memories.a"), None);
        assert_eq!(names("memory.*", "Memory.a"), None);
        assert_eq!(names("*", "anything"), Some(0));
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

    /// MCPL-110: the most exact word counts, then the later one, then the no.
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

    /// Less is taken as it is; more, or another text, waits. What counts meanwhile is the less of both.
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
