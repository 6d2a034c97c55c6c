//! The feature sets that servers declare, and which of them are enabled (MCPL §6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::error::MissingUse;
use mgp_protocol::mcpl::feature_sets::{Capability, FeatureSet, SETS_MAX, ScopePatterns, Update};
use mgp_protocol::mcpl::grants::{ReceivedGrant, UnavailableFeature};
use mgp_protocol::mcpl::negotiation::McplFeatures;
use mgp_protocol::mcpl::{McplError, McplVersion, ServerCapabilities};

use crate::policy::{
    ApprovedSets, McplServerRules, SetReason, Switches, exceeds_approved, is_enabled,
    limit_to_approved,
};
use crate::scopes::ScopeRules;

/// Burst of set changes of one server; each is parsed, published and answered.
pub(crate) const CHANGES_MAX: u32 = 32;
/// Time until one more change is allowed, in milliseconds.
pub(crate) const CHANGE_EVERY_MS: u64 = 1000;

/// Approved declarations of one server, including sets that it no longer declares. Further sets stay disabled.
pub(crate) const APPROVED_MAX: usize = 4 * SETS_MAX;

/// Rate limit of a server's set changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeBudget {
    left: u32,
    since_ms: u64,
}

impl ChangeBudget {
    /// A full burst.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        Self {
            left: CHANGES_MAX,
            since_ms: now_ms,
        }
    }

    /// Whether one more change is allowed now. Changes beyond the limit are ignored.
    pub fn try_take(&mut self, now_ms: u64) -> bool {
        let more = now_ms.saturating_sub(self.since_ms) / CHANGE_EVERY_MS;
        self.since_ms += more * CHANGE_EVERY_MS;
        let more = u32::try_from(more).unwrap_or(CHANGES_MAX);
        self.left = self.left.saturating_add(more).min(CHANGES_MAX);
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

/// The sets of all connected MCPL servers, published.
#[derive(Clone, Debug, Default)]
pub struct FeatureSets {
    /// By server.
    pub servers: BTreeMap<ServerId, Arc<ServerSets>>,
}

/// The sets of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSets {
    /// Features that the server declares.
    pub abilities: McplFeatures,
    /// Its sets, by name.
    pub sets: BTreeMap<String, DeclaredSet>,
    /// What it may do and receive, if it speaks 0.5.
    pub grant: BTreeSet<Capability>,
    /// Configured sets of tools.
    pub(crate) tools: BTreeMap<String, String>,
}

/// A declared set, with the decisions about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredSet {
    /// The effective declaration.
    pub set: FeatureSet,
    /// As declared.
    pub declared: FeatureSet,
    /// The approved declaration, if the server now declares more, which waits for approval.
    pub approved: Option<FeatureSet>,
    /// Whether it is enabled.
    pub enabled: bool,
    /// Why.
    pub reason: SetReason,
    /// Its scope rules.
    pub scope: ScopeRules,
}

/// The set a tool belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolSet<'a> {
    /// No set, and no set with scopes is possible.
    None,
    /// This set.
    Member(&'a str, &'a DeclaredSet),
    /// A disabled set.
    Disabled(&'a str),
    /// A set that the configuration or the definition names, but the server does not declare.
    Undeclared(String),
    /// One of these, which have scopes; neither configuration nor definition says which.
    Ambiguous(Vec<&'a str>),
}

impl DeclaredSet {
    /// Whether it uses this capability, or what includes it.
    #[must_use]
    pub fn uses(&self, capability: Capability) -> bool {
        let mut uses = self.set.uses.iter();
        uses.any(|used| capability.is_part_of(*used))
    }

    /// Whether its tools are called: those of a set that waits for its server's receipt are, as tools are MCP's own.
    fn allows_tools(&self) -> bool {
        self.enabled || self.reason == SetReason::Unanswered
    }
}

impl ServerSets {
    /// The sets of a server with these declarations.
    #[must_use]
    pub fn new(
        capabilities: &ServerCapabilities,
        rules: Option<&McplServerRules>,
        switches: Option<&Switches>,
        approved: &mut ApprovedSets,
    ) -> Self {
        let mut sets = Self {
            abilities: capabilities.features,
            sets: BTreeMap::new(),
            grant: BTreeSet::new(),
            tools: BTreeMap::new(),
        };
        for (name, set) in &capabilities.sets.sets {
            sets.insert(name.clone(), set.clone());
        }
        sets.reevaluate(rules, switches, approved);
        sets
    }

    fn insert(&mut self, name: String, set: FeatureSet) {
        let declared_set = DeclaredSet {
            set: set.clone(),
            declared: set,
            approved: None,
            enabled: false,
            reason: SetReason::Default,
            scope: ScopeRules::default(),
        };
        self.sets.insert(name, declared_set);
    }

    /// Decides again which sets are enabled, and their effective declarations. Enabling a set approves its declaration;
    /// disabling it revokes the approval.
    pub fn reevaluate(
        &mut self,
        rules: Option<&McplServerRules>,
        switches: Option<&Switches>,
        approved: &mut ApprovedSets,
    ) {
        for (name, declared_set) in &mut self.sets {
            let known = approved.get(name);
            declared_set.set = known.map_or_else(
                || declared_set.declared.clone(),
                |known| limit_to_approved(&declared_set.declared, known),
            );
            declared_set.approved = known
                .filter(|known| exceeds_approved(&declared_set.declared, known))
                .cloned();
            (declared_set.enabled, declared_set.reason) =
                is_enabled(name, &declared_set.set, rules, switches);
            if declared_set.enabled && known.is_none() && approved.len() < APPROVED_MAX {
                approved.insert(name.clone(), declared_set.declared.clone());
            } else if declared_set.enabled && known.is_none() {
                declared_set.enabled = false;
            } else if !declared_set.enabled && declared_set.reason != SetReason::Default {
                approved.remove(name);
                declared_set.approved = None;
                declared_set.set = declared_set.declared.clone();
            }
            let scope = rules.and_then(|rules| rules.scopes.get(name));
            // Configured scopes hold, whatever the server declares.
            declared_set.set.scoped |= scope.is_some();
            declared_set.scope = scope.cloned().unwrap_or_default();
        }
        self.derive_grant(rules);
        self.tools = rules.map(|rules| rules.tools.clone()).unwrap_or_default();
    }

    /// Applies changed declarations (MCPL §6.7); [`Self::reevaluate`] decides about new sets. Returns those beyond the
    /// limit.
    pub fn change(
        &mut self,
        added: BTreeMap<String, FeatureSet>,
        removed: impl Iterator<Item = impl AsRef<str>>,
    ) -> Vec<String> {
        for name in removed {
            self.sets.remove(name.as_ref());
        }
        let mut left_out = Vec::new();
        for (name, set) in added {
            if self.sets.len() < SETS_MAX || self.sets.contains_key(&name) {
                self.insert(name, set)
            } else {
                left_out.push(name)
            }
        }
        left_out
    }

    /// The `featureSets/update` for the server (MCPL §5.3).
    #[must_use]
    pub fn update(&self) -> Update {
        let of = |enabled: bool| {
            let named = self
                .sets
                .iter()
                .filter(move |(_, declared_set)| declared_set.enabled == enabled);
            named.map(|(name, _)| name.clone()).collect()
        };
        let scoped = self.sets.iter();
        let scoped =
            scoped.filter(|(_, declared_set)| declared_set.enabled && declared_set.set.scoped);
        Update {
            enabled: of(true),
            disabled: of(false),
            scopes: scoped
                .map(|(name, declared_set)| (name.clone(), declared_set.scope.patterns()))
                .collect(),
        }
    }

    /// The set of this name, if the server may use this capability of it now.
    ///
    /// # Errors
    /// -32003 for one that is not declared, -32001 for one that is not enabled, does not use this, or belongs
    /// to a server that does not declare this (MCPL §6.6); -32002 if the grant of 0.5 lacks this.
    pub(crate) fn find_usable_set(
        &self,
        set: &str,
        uses: Capability,
    ) -> Result<&DeclaredSet, McplError> {
        if !self.is_granted(uses) {
            return Err(McplError::capability_denied(uses));
        }
        let Some(declared_set) = self.sets.get(set) else {
            return Err(McplError::unknown_set(set));
        };
        let is_0_5 = self.abilities.version == McplVersion::V0_5;
        if !declared_set.uses(uses) {
            let error = McplError::missing_use(set, uses, MissingUse::InSet);
            return Err(if is_0_5 {
                McplError {
                    message: error.message,
                    ..McplError::set_disabled(set)
                }
            } else {
                error
            });
        }
        if !self.abilities.has_capability(uses) {
            return Err(McplError::missing_use(set, uses, MissingUse::InDeclaration));
        }
        if declared_set.enabled {
            Ok(declared_set)
        } else if is_0_5 {
            Err(McplError::set_disabled(set))
        } else {
            Err(McplError::not_enabled(set, true))
        }
    }

    /// The enabled sets with this capability, if the server declares it.
    pub fn sets_using(&self, uses: Capability) -> impl Iterator<Item = (&str, &DeclaredSet)> {
        let declared = self.abilities.has_capability(uses) && self.is_granted(uses);
        let all = self.sets.iter();
        let using = all.filter(move |(_, declared_set)| {
            declared && declared_set.enabled && declared_set.uses(uses)
        });
        using.map(|(name, declared_set)| (name.as_str(), declared_set))
    }

    /// The set of a tool: as configured; else as in `_meta.featureSet` of its definition (`defined`); else the only one
    /// that uses tools.
    #[must_use]
    pub(crate) fn set_of_tool(&self, tool: &str, defined: Option<&str>) -> ToolSet<'_> {
        if let Some(named) = self.tools.get(tool).map(String::as_str).or(defined) {
            return match self.sets.get_key_value(named) {
                Some((name, declared_set)) if declared_set.allows_tools() => {
                    ToolSet::Member(name, declared_set)
                }
                Some((name, _)) => ToolSet::Disabled(name),
                None => ToolSet::Undeclared(named.chars().take(128).collect()),
            };
        }
        let able = |(_, declared_set): &(&String, &DeclaredSet)| {
            declared_set.set.uses.contains(&Capability::Tools)
        };
        let able: Vec<_> = self.sets.iter().filter(able).collect();
        match able.as_slice() {
            [] => ToolSet::None,
            [(name, declared_set)] if declared_set.allows_tools() => {
                ToolSet::Member(name, declared_set)
            }
            [(name, _)] => ToolSet::Disabled(name),
            several => {
                let scoped = several
                    .iter()
                    .filter(|(_, declared_set)| declared_set.set.scoped);
                let scoped: Vec<_> = scoped.map(|(name, _)| name.as_str()).collect();
                if scoped.is_empty() {
                    ToolSet::None
                } else {
                    ToolSet::Ambiguous(scoped)
                }
            }
        }
    }
}

impl FeatureSets {
    /// The sets of an MCPL server.
    #[must_use]
    pub fn get(&self, server: &ServerId) -> Option<&Arc<ServerSets>> {
        self.servers.get(server)
    }

    /// The set of this name, if this server may use this capability of it now.
    ///
    /// # Errors
    /// As [`ServerSets::find_usable_set`]; -32003 for a server that speaks no MCPL.
    pub fn find_usable_set(
        &self,
        server: &ServerId,
        set: &str,
        uses: Capability,
    ) -> Result<&DeclaredSet, McplError> {
        let sets = self
            .get(server)
            .ok_or_else(|| McplError::unknown_set(set))?;
        sets.find_usable_set(set, uses)
    }

    /// The servers that declare this capability and have an enabled set with it.
    pub fn servers_using(
        &self,
        uses: Capability,
    ) -> impl Iterator<Item = (&ServerId, &Arc<ServerSets>)> {
        let all = self.servers.iter();
        all.filter(move |(_, sets)| sets.sets_using(uses).next().is_some())
    }

    /// The set of a server's tool; none if the server does not speak MCPL.
    #[must_use]
    pub fn set_of_tool(&self, server: &ServerId, tool: &str, defined: Option<&str>) -> ToolSet<'_> {
        match self.get(server) {
            Some(sets) => sets.set_of_tool(tool, defined),
            None => ToolSet::None,
        }
    }
}

/// An agent's restrictions, which only narrow those of the operator (MCPL-157).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentSets {
    /// Whether the agent wants a set, by its name for agents. Other sets stay as they are.
    choices: BTreeMap<String, bool>,
    /// Scope patterns by set.
    scopes: BTreeMap<String, ScopePatterns>,
    /// A host of 0.5: what it did not grant is closed.
    is_closed: bool,
    /// Its grant.
    grant: BTreeSet<Capability>,
}

/// Most sets of one agent; further ones are ignored.
const CHOICES_MAX: usize = 4096;

impl AgentSets {
    /// Applies a `featureSets/update` of the agent. Wildcards are expanded against `known`, the names it can see.
    pub fn update<'a>(&mut self, update: &Update, known: impl Iterator<Item = &'a str> + Clone) {
        let mut say = |pattern: &str, wanted: bool| {
            let group = pattern
                .strip_suffix('*')
                .filter(|g| g.is_empty() || g.ends_with('.'));
            let named = known.clone().filter(|name| match group {
                Some(group) => name.starts_with(group),
                None => *name == pattern,
            });
            for name in named {
                if self.choices.len() < CHOICES_MAX || self.choices.contains_key(name) {
                    self.choices.insert(name.to_owned(), wanted);
                }
            }
        };
        update.enabled.iter().for_each(|pattern| say(pattern, true));
        update
            .disabled
            .iter()
            .for_each(|pattern| say(pattern, false));
        for (name, patterns) in &update.scopes {
            let seen = known.clone().any(|pattern| pattern == name);
            if seen && (self.scopes.len() < CHOICES_MAX || self.scopes.contains_key(name)) {
                self.scopes.insert(name.clone(), patterns.clone());
            }
        }
    }

    /// Of a host that speaks 0.5, which grants nothing before its first policy (0.5 §5.3).
    #[must_use]
    pub fn closed() -> Self {
        Self {
            is_closed: true,
            ..Self::default()
        }
    }

    /// Applies the policy of a host of 0.5 to the announced sets; returns those that it leaves unavailable for a lack of
    /// capabilities.
    pub fn apply_grant<'a>(
        &mut self,
        received: &ReceivedGrant,
        announced: impl Iterator<Item = (&'a String, &'a FeatureSet)>,
    ) -> Vec<UnavailableFeature> {
        self.grant = received.granted();
        self.choices.clear();
        let mut lacking = Vec::new();
        for (name, set) in announced.take(CHOICES_MAX) {
            let missing: BTreeSet<Capability> = set.uses.difference(&self.grant).copied().collect();
            let is_open = missing.is_empty() && received.selects(name);
            self.choices.insert(name.clone(), is_open);
            if !missing.is_empty() {
                lacking.push(UnavailableFeature::new(name.clone(), missing));
            }
        }
        lacking
    }

    /// Takes the grant back, after a policy that cannot be read.
    pub fn revoke(&mut self) {
        self.grant.clear();
        self.choices.clear();
    }

    /// Whether a host grants this. A host of 0.4 has no grant.
    #[must_use]
    pub fn grants(&self, capability: Capability) -> bool {
        !self.is_closed || self.grant.contains(&capability)
    }

    /// Whether the agent wants a set, by its name for agents.
    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        self.choices.get(name).copied().unwrap_or(!self.is_closed)
    }

    /// The agent's scope patterns of a set, by its name for agents.
    #[must_use]
    pub fn scopes(&self, name: &str) -> Option<&ScopePatterns> {
        self.scopes.get(name)
    }
}

#[cfg(test)]
mod tests;
