//! Decides who may publish to and observe a channel (MCPL §14.5).
//!
//! No message of §14 names a feature set (A-42): a channel is open if an enabled set with this capability allows its
//! id. A set without scopes allows whatever its blacklist does not match.

use mgp_protocol::mcpl::feature_sets::Capability;

use crate::feature_sets::{DeclaredSet, ServerSets};
use crate::scopes::ScopeVerdict;

/// The channel of a model's reasoning: observed with permission, published to by nobody.
pub(crate) const THINKING: &str = "thinking";
/// The user's own screen: no server has it.
pub(crate) const UI: &str = "ui";
/// Suffix of the set that observes [`THINKING`].
const THINKING_SET: &str = "channels.thinking";

/// True for the channels that belong to no server.
#[must_use]
pub fn is_pseudo(channel: &str) -> bool {
    channel == THINKING || channel == UI
}

/// Opening, listing and closing a channel need any of these.
pub const ANY_USE: &[Capability] = &[
    Capability::ChannelsPublish,
    Capability::ChannelsIncoming,
    Capability::ChannelsStreaming,
];

/// The set of a server that allows this capability at a channel (the server's own id); `None` if none does.
#[must_use]
pub fn permitting_set<'a>(
    sets: &'a ServerSets,
    uses: Capability,
    channel: &str,
) -> Option<&'a str> {
    find_permitting_set(sets, &[uses], channel, |_| true)
}

/// As [`permitting_set`], for the first allowed of these capabilities, among the sets that the caller admits.
#[must_use]
pub fn find_permitting_set<'a>(
    sets: &'a ServerSets,
    uses: &[Capability],
    channel: &str,
    admits: impl Fn(&str) -> bool,
) -> Option<&'a str> {
    uses.iter().find_map(|uses| {
        if *uses == Capability::ChannelsPublish && is_pseudo(channel) {
            return None;
        }
        let mut using = sets.sets_using(*uses);
        let open = using.find(|(name, declared)| {
            let thinks = *name == THINKING_SET || name.ends_with(".channels.thinking");
            // That set observes nothing else, and no other set observes it.
            thinks == (channel == THINKING) && is_allowed_by(declared, channel) && admits(name)
        });
        open.map(|(name, _)| name)
    })
}

fn is_allowed_by(declared: &DeclaredSet, channel: &str) -> bool {
    match declared.scope.evaluate(channel) {
        ScopeVerdict::Approved(_) => true,
        ScopeVerdict::Denied(_) => false,
        ScopeVerdict::Undecided(_) => !declared.set.scoped && declared.scope.whitelist.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use mgp_protocol::mcpl::ServerCapabilities;
    use mgp_protocol::mcpl::feature_sets::DeclaredSets;
    use mgp_protocol::mcpl::negotiation::McplFeatures;

    use crate::policy::{McplServerRules, SetPattern};

    /// MCPL-115, MCPL-131: nobody publishes to a model's reasoning, only its own set observes it, and that set observes
    /// nothing else.
    #[test]
    fn what_a_model_thinks_has_a_set_of_its_own_and_no_writer() {
        let mut abilities = McplFeatures::default();
        (abilities.channels.publish, abilities.channels.observe) = (true, true);
        abilities.channels.incoming = true;
        let capabilities = ServerCapabilities {
            version: "0.4".into(),
            features: abilities,
            manifest: None,
            sets: DeclaredSets::parse(
                r#"{"channels.publish":{"description":"p","uses":["channels.publish"]},
                    "channels.observe":{"description":"o","uses":["channels.observe"]},
                    "channels.thinking":{"description":"t","uses":["channels.observe","channels.publish"]}}"#,
            ),
        };
        let rules = McplServerRules {
            enable: vec![SetPattern::parse("*").unwrap()],
            ..McplServerRules::default()
        };
        let sets = ServerSets::new(&capabilities, Some(&rules), None, &mut BTreeMap::new());
        let observes = |channel| permitting_set(&sets, Capability::ChannelsObserve, channel);
        let publishes = |channel| permitting_set(&sets, Capability::ChannelsPublish, channel);
        assert_eq!(publishes("a"), Some("channels.publish"));
        assert_eq!([publishes(THINKING), publishes(UI)], [None, None]);
        assert_eq!(observes(THINKING), Some("channels.thinking"));
        assert_eq!(observes("a"), Some("channels.observe"));
        let mut without = rules.clone();
        without.disable = vec![SetPattern::parse("channels.thinking").unwrap()];
        let sets = ServerSets::new(&capabilities, Some(&without), None, &mut BTreeMap::new());
        assert_eq!(
            permitting_set(&sets, Capability::ChannelsObserve, THINKING),
            None
        );
        let only = McplServerRules {
            enable: vec![SetPattern::parse("channels.thinking").unwrap()],
            ..McplServerRules::default()
        };
        let sets = ServerSets::new(&capabilities, Some(&only), None, &mut BTreeMap::new());
        assert_eq!(
            permitting_set(&sets, Capability::ChannelsObserve, "a"),
            None
        );
    }

    /// A caller that disabled one of two sets uses the channel through the other one.
    #[test]
    fn a_channel_is_open_in_the_name_of_a_set_that_its_caller_admits() {
        let mut abilities = McplFeatures::default();
        (abilities.channels.publish, abilities.channels.observe) = (true, true);
        abilities.channels.incoming = true;
        let capabilities = ServerCapabilities {
            version: "0.4".into(),
            features: abilities,
            manifest: None,
            sets: DeclaredSets::parse(
                r#"{"a":{"description":"a","uses":["channels.publish"]},
                    "b":{"description":"b","uses":["channels.publish"]},
                    "c":{"description":"c","uses":["channels.observe"]}}"#,
            ),
        };
        let rules = McplServerRules {
            enable: vec![SetPattern::parse("*").unwrap()],
            ..McplServerRules::default()
        };
        let sets = ServerSets::new(&capabilities, Some(&rules), None, &mut BTreeMap::new());
        let open = |admitted: &[&str]| {
            find_permitting_set(&sets, ANY_USE, "x", |set| admitted.contains(&set))
        };
        assert_eq!(open(&["a", "b", "c"]), Some("a"));
        assert_eq!(open(&["b", "c"]), Some("b"));
        assert_eq!(open(&["c"]), Some("c"));
        assert_eq!(open(&[]), None);
    }
}
