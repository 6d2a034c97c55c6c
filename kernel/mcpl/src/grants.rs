//! The grant of a server of MCPL 0.5, derived from what it declares and what the operator enabled (0.5 §5.4, §6.4).
//!
//! Enabling a set approves its uses, as in 0.4. The grant of a connection is the union of the uses of its enabled sets:
//! nothing that only the server says adds to it. A reduction is in force at once, and an expansion with the server's
//! receipt.

use std::collections::BTreeSet;

use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::feature_sets::{Capability, Changed, FeatureSet};
use mgp_protocol::mcpl::grants::GrantUpdate;
use mgp_protocol::mcpl::inference::Lifecycle;
use mgp_protocol::mcpl::scope::Elevate;
use mgp_protocol::mcpl::{ManifestChanged, McplError, McplVersion, context};
use serde::Serialize;

use crate::feature_sets::ServerSets;
use crate::policy::{McplServerRules, SetReason};

/// What a method of 0.5 needs, in either direction (0.5 §14.1, §10); the first that is granted suffices.
const NEEDS: [(&str, Capability); 13] = [
    ("push/event", Capability::PushEvents),
    ("inference/request", Capability::InferenceRequest),
    ("model/info", Capability::ModelInfo),
    ("context/beforeInference", Capability::BeforeInference),
    ("inference/lifecycle", Capability::InferenceLifecycle),
    ("channels/register", Capability::ChannelsRegister),
    ("channels/changed", Capability::ChannelsRegister),
    ("channels/list", Capability::ChannelsRegister),
    ("channels/open", Capability::ChannelsLifecycle),
    ("channels/close", Capability::ChannelsLifecycle),
    ("channels/publish", Capability::ChannelsPublish),
    ("channels/incoming", Capability::ChannelsIncoming),
    ("channels/outgoing", Capability::ChannelsStreaming),
];

/// The words that 0.5 removed.
const REMOVED: [&str; 3] = [
    Elevate::METHOD,
    Changed::METHOD,
    context::AfterInference::METHOD,
];
/// The words that 0.4 does not have.
const ADDED: [&str; 2] = [Lifecycle::METHOD, ManifestChanged::METHOD];

/// What changed with a manifest, in the words of 0.5 §17.6: derived here, never taken from the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ManifestImpact {
    /// The kind.
    pub impact: &'static str,
    /// The capability, or the set.
    pub subject: String,
    /// Whether it is in force, or waits for a decision.
    pub disposition: &'static str,
}

impl ServerSets {
    /// Whether a message of this method may pass between this server and the kernel now, in the version that is spoken.
    ///
    /// # Errors
    /// -32601 for a word of another version, -32002 for one that needs what is not granted.
    pub fn authorize(&self, method: &str) -> Result<(), McplError> {
        let unknown: &[&str] = match self.abilities.version {
            McplVersion::V0_4 => &ADDED,
            McplVersion::V0_5 => &REMOVED,
        };
        if unknown.contains(&method) {
            return Err(McplError::method_not_found(method));
        }
        let needed = NEEDS.iter().find(|(known, _)| {
            let rest = method.strip_prefix(known);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        match needed {
            Some((_, needed)) if !self.is_granted(*needed) => {
                Err(McplError::capability_denied(*needed))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether the grant has this capability. 0.4 has no grant: its sets decide.
    #[must_use]
    pub fn is_granted(&self, capability: Capability) -> bool {
        match self.abilities.version {
            McplVersion::V0_4 => true,
            McplVersion::V0_5 => self
                .grant
                .iter()
                .any(|granted| capability.is_part_of(*granted)),
        }
    }

    /// Whether tags of its events count (0.5 §16).
    #[must_use]
    pub fn has_tags(&self) -> bool {
        self.abilities.version == McplVersion::V0_5
    }

    /// Derives the grant. A set that uses what is not declared, or what the operator denies, is disabled as a whole.
    pub(crate) fn derive_grant(&mut self, rules: Option<&McplServerRules>) {
        if self.abilities.version == McplVersion::V0_4 {
            return;
        }
        let abilities = self.abilities;
        let is_denied = |used: &Capability| {
            rules.is_some_and(|rules| rules.deny.iter().any(|pattern| pattern.matches(*used)))
        };
        for declared in self.sets.values_mut().filter(|declared| declared.enabled) {
            let mut uses = declared.set.uses.iter();
            let missing = uses.find(|used| is_denied(used) || !abilities.has_capability(**used));
            if let Some(missing) = missing {
                (declared.enabled, declared.reason) = (false, SetReason::Denied(*missing));
            }
        }
        self.grant = self.enabled_uses();
        self.grant.retain(|granted| !is_denied(granted));
    }

    fn enabled_uses(&self) -> BTreeSet<Capability> {
        let enabled = self.sets.values().filter(|declared| declared.enabled);
        let uses = enabled.flat_map(|declared| declared.set.uses.iter().copied());
        uses.chain([Capability::Tools]).collect()
    }

    /// The part of it that the server has accepted. Tools are MCP's own, and need no receipt.
    #[must_use]
    pub fn limit_to_accepted(&self, accepted: Option<&GrantUpdate>) -> Self {
        let mut limited = self.clone();
        if self.abilities.version == McplVersion::V0_4 {
            return limited;
        }
        for (name, declared) in &mut limited.sets {
            let is_accepted = accepted.is_some_and(|accepted| {
                let uses = &declared.set.uses;
                accepted.enabled.contains(name) && uses.is_subset(&accepted.effective_capabilities)
            });
            if declared.enabled && !is_accepted && !uses_only_tools(&declared.set) {
                (declared.enabled, declared.reason) = (false, SetReason::Unanswered);
            }
        }
        let uses = limited.enabled_uses();
        limited.grant.retain(|granted| uses.contains(granted));
        limited
    }

    /// The `featureSets/update` for a server of 0.5 (0.5 §5.3).
    #[must_use]
    pub fn grant_update(&self) -> GrantUpdate {
        let update = self.update();
        let all = Capability::all(self.abilities.version).iter().copied();
        let declared = all.filter(|one| self.abilities.has_capability(*one));
        GrantUpdate {
            denied_capabilities: declared.filter(|one| !self.grant.contains(one)).collect(),
            effective_capabilities: self.grant.clone(),
            enabled: update.enabled,
            disabled: update.disabled,
        }
    }

    /// What becomes of a server with the manifest that `after` is made from; `before` is what was in force.
    #[must_use]
    pub fn impacts_of_change(before: &Self, after: &Self) -> Vec<ManifestImpact> {
        let impact = |impact, subject: String, disposition| ManifestImpact {
            impact,
            subject,
            disposition,
        };
        let revoked = before.grant.difference(&after.grant);
        let revoked = revoked.map(|one| impact("capability-revoked", one.to_string(), "applied"));
        let all = Capability::all(after.abilities.version).iter().copied();
        let expanded = all.filter(|one| {
            after.abilities.has_capability(*one)
                && !before.abilities.has_capability(*one)
                && !before.grant.contains(one)
        });
        let expanded = expanded.map(|one| {
            impact(
                "capability-expansion-pending",
                one.to_string(),
                "decision-needed",
            )
        });
        let was_enabled = |name: &str| before.sets.get(name).is_some_and(|set| set.enabled);
        let is_enabled = |name: &str| after.sets.get(name).is_some_and(|set| set.enabled);
        let degraded = before
            .sets
            .keys()
            .filter(|name| was_enabled(name) && !is_enabled(name));
        let degraded = degraded.map(|name| impact("feature-degraded", name.clone(), "applied"));
        let restored = after.sets.keys().filter(|name| {
            before.sets.contains_key(*name) && !was_enabled(name) && is_enabled(name)
        });
        let restored = restored.map(|name| impact("feature-restored", name.clone(), "applied"));
        revoked
            .chain(expanded)
            .chain(degraded)
            .chain(restored)
            .collect()
    }
}

fn uses_only_tools(set: &FeatureSet) -> bool {
    set.uses.iter().all(|uses| *uses == Capability::Tools)
}

#[cfg(test)]
mod tests;
