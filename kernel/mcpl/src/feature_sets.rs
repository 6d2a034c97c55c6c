//! The feature sets that servers declare, and which of them are enabled (MCPL §6).

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::error::MissingUse;
use mgp_protocol::mcpl::feature_sets::{Capability, FeatureSet, SETS_MAX, ScopePatterns, Update};
use mgp_protocol::mcpl::negotiation::McplFeatures;
use mgp_protocol::mcpl::{McplError, ServerCapabilities};

use crate::policy::{
    ApprovedSets, McplServerRules, SetReason, Switches, exceeds_approved, is_enabled,
    limit_to_approved,
};
use crate::scopes::ScopeRules;

/// Changes of its sets that a server may tell in a row; each is read, published and answered.
pub(crate) const CHANGES_MAX: u32 = 32;
/// How often it may tell one more, in milliseconds.
pub(crate) const CHANGE_EVERY_MS: u64 = 1000;

/// Approved declarations of one server, those of sets that it does not declare now among them. A set beyond is not
/// enabled.
pub(crate) const APPROVED_MAX: usize = 4 * SETS_MAX;

/// How many changes of its sets a server may tell still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeBudget {
    left: u32,
    since_ms: u64,
}

impl ChangeBudget {
    /// All of them, at this moment.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        Self {
            left: CHANGES_MAX,
            since_ms: now_ms,
        }
    }

    /// Whether it may tell one more now. What is beyond is not taken: its sets stay as they were.
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

/// The sets of all servers that speak MCPL now, published.
#[derive(Clone, Debug, Default)]
pub struct FeatureSets {
    /// By the server.
    pub servers: BTreeMap<ServerId, Arc<ServerSets>>,
}

/// The sets of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSets {
    /// What it takes part in.
    pub abilities: McplFeatures,
    /// Its sets, by name.
    pub sets: BTreeMap<String, DeclaredSet>,
    /// Which set a tool belongs to, as the configuration says.
    pub(crate) tools: BTreeMap<String, String>,
}

/// A set that a server declared, and what was decided about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredSet {
    /// As it counts.
    pub set: FeatureSet,
    /// As declared.
    pub declared: FeatureSet,
    /// The declaration that was approved, where the server declares more now, which waits for approval.
    pub approved: Option<FeatureSet>,
    /// Whether it is enabled.
    pub enabled: bool,
    /// Who says so.
    pub reason: SetReason,
    /// What is said of its scopes.
    pub scope: ScopeRules,
}

/// The set a tool belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolSet<'a> {
    /// To none, and that is well: no set with scopes can be meant.
    None,
    /// To this one.
    Member(&'a str, &'a DeclaredSet),
    /// To one that is not enabled.
    Disabled(&'a str),
    /// To one that the configuration or the definition names, and that is not declared.
    Undeclared(String),
    /// It may belong to one of these, which have scopes: nobody says to which.
    Ambiguous(Vec<&'a str>),
}

impl ServerSets {
    /// The sets of a server that declared these.
    #[must_use]
    pub fn new(
        said: &ServerCapabilities,
        rules: Option<&McplServerRules>,
        switches: Option<&Switches>,
        approved: &mut ApprovedSets,
    ) -> Self {
        let mut sets = Self {
            abilities: said.features,
            sets: BTreeMap::new(),
            tools: BTreeMap::new(),
        };
        for (name, set) in &said.sets.sets {
            sets.insert(name.clone(), set.clone());
        }
        sets.reevaluate(rules, switches, approved);
        sets
    }

    fn insert(&mut self, name: String, set: FeatureSet) {
        let held = DeclaredSet {
            set: set.clone(),
            declared: set,
            approved: None,
            enabled: false,
            reason: SetReason::Default,
            scope: ScopeRules::default(),
        };
        self.sets.insert(name, held);
    }

    /// Decides anew which sets are enabled, and what counts of them. The first declaration of one that is enabled is
    /// approved with that; whoever disables a set takes this back.
    pub fn reevaluate(
        &mut self,
        rules: Option<&McplServerRules>,
        switches: Option<&Switches>,
        approved: &mut ApprovedSets,
    ) {
        for (name, held) in &mut self.sets {
            let known = approved.get(name);
            held.set = known.map_or_else(
                || held.declared.clone(),
                |known| limit_to_approved(&held.declared, known),
            );
            held.approved = known
                .filter(|known| exceeds_approved(&held.declared, known))
                .cloned();
            (held.enabled, held.reason) = is_enabled(name, &held.set, rules, switches);
            if held.enabled && known.is_none() && approved.len() < APPROVED_MAX {
                approved.insert(name.clone(), held.declared.clone());
            } else if held.enabled && known.is_none() {
                held.enabled = false;
            } else if !held.enabled && held.reason != SetReason::Default {
                approved.remove(name);
                held.approved = None;
                held.set = held.declared.clone();
            }
            let scope = rules.and_then(|rules| rules.scopes.get(name));
            // What the operator wrote of its scopes holds, whatever the server says of them.
            held.set.scoped |= scope.is_some();
            held.scope = scope.cloned().unwrap_or_default();
        }
        self.tools = rules.map(|rules| rules.tools.clone()).unwrap_or_default();
    }

    /// The server declares other sets (MCPL §6.7). What is new is decided by [`Self::reevaluate`]. Answers what does
    /// not fit any more.
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

    /// What is told to the server: `featureSets/update` (MCPL §5.3).
    #[must_use]
    pub fn update(&self) -> Update {
        let of = |enabled: bool| {
            let named = self
                .sets
                .iter()
                .filter(move |(_, held)| held.enabled == enabled);
            named.map(|(name, _)| name.clone()).collect()
        };
        let scoped = self.sets.iter().filter(|(_, held)| {
            held.enabled && (held.set.scoped || !held.scope.patterns().is_empty())
        });
        Update {
            enabled: of(true),
            disabled: of(false),
            scopes: scoped
                .map(|(name, held)| (name.clone(), held.scope.patterns()))
                .collect(),
        }
    }

    /// The set of this name, if the server may use it for this now.
    ///
    /// # Errors
    /// -32003 for one that is not declared, -32001 for one that is not enabled, does not use this, or belongs
    /// to a server that does not declare this (MCPL §6.6).
    pub(crate) fn find_usable_set(
        &self,
        set: &str,
        uses: Capability,
    ) -> Result<&DeclaredSet, McplError> {
        let Some(held) = self.sets.get(set) else {
            return Err(McplError::unknown_set(set));
        };
        if !held.set.uses.contains(&uses) {
            return Err(McplError::missing_use(set, uses, MissingUse::InSet));
        }
        if !self.abilities.has_capability(uses) {
            return Err(McplError::missing_use(set, uses, MissingUse::InDeclaration));
        }
        if held.enabled {
            Ok(held)
        } else {
            Err(McplError::not_enabled(set, true))
        }
    }

    /// The enabled sets that use this, of a server that declares it.
    pub fn sets_using(&self, uses: Capability) -> impl Iterator<Item = (&str, &DeclaredSet)> {
        let declared = self.abilities.has_capability(uses);
        let all = self.sets.iter();
        let using =
            all.filter(move |(_, held)| declared && held.enabled && held.set.uses.contains(&uses));
        using.map(|(name, held)| (name.as_str(), held))
    }

    /// The set that a tool belongs to: as the configuration says; else as its definition says in
    /// `_meta.featureSet`; else the only one that uses tools. `defined` is what its definition says.
    #[must_use]
    pub(crate) fn set_of_tool(&self, tool: &str, defined: Option<&str>) -> ToolSet<'_> {
        if let Some(named) = self.tools.get(tool).map(String::as_str).or(defined) {
            return match self.sets.get_key_value(named) {
                Some((name, held)) if held.enabled => ToolSet::Member(name, held),
                Some((name, _)) => ToolSet::Disabled(name),
                None => ToolSet::Undeclared(named.chars().take(128).collect()),
            };
        }
        let able = |(_, held): &(&String, &DeclaredSet)| held.set.uses.contains(&Capability::Tools);
        let able: Vec<_> = self.sets.iter().filter(able).collect();
        match able.as_slice() {
            [] => ToolSet::None,
            [(name, held)] if held.enabled => ToolSet::Member(name, held),
            [(name, _)] => ToolSet::Disabled(name),
            several => {
                let scoped = several.iter().filter(|(_, held)| held.set.scoped);
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
    /// The sets of a server that speaks MCPL.
    #[must_use]
    pub fn get(&self, server: &ServerId) -> Option<&Arc<ServerSets>> {
        self.servers.get(server)
    }

    /// The set of this name, if this server may use it for this now.
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

    /// The servers that have an enabled set which uses this, and declare it.
    pub fn servers_using(
        &self,
        uses: Capability,
    ) -> impl Iterator<Item = (&ServerId, &Arc<ServerSets>)> {
        let all = self.servers.iter();
        all.filter(move |(_, sets)| sets.sets_using(uses).next().is_some())
    }

    /// The set that a tool of a server belongs to; none where the server speaks no MCPL.
    #[must_use]
    pub fn set_of_tool(&self, server: &ServerId, tool: &str, defined: Option<&str>) -> ToolSet<'_> {
        match self.get(server) {
            Some(sets) => sets.set_of_tool(tool, defined),
            None => ToolSet::None,
        }
    }

    /// What is said of the scopes of a set.
    #[must_use]
    pub fn scope_rules(&self, server: &ServerId, set: &str) -> Option<&ScopeRules> {
        Some(&self.get(server)?.sets.get(set)?.scope)
    }
}

/// What an agent lets through of what the operator lets through: it can only narrow (MCPL-157).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentSets {
    /// Sets as the agent knows them, and whether it wants them. What it says nothing of it takes as it is.
    choices: BTreeMap<String, bool>,
    /// Scopes it does not want, and those it wants alone.
    scopes: BTreeMap<String, ScopePatterns>,
}

/// Sets that one agent may say something of; more are not there.
const CHOICES_MAX: usize = 4096;

impl AgentSets {
    /// Takes up a `featureSets/update` of the agent. Wildcards are written out against `known`, the names it
    /// can see.
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
        update.enabled.iter().for_each(|one| say(one, true));
        update.disabled.iter().for_each(|one| say(one, false));
        for (name, patterns) in &update.scopes {
            let seen = known.clone().any(|one| one == name);
            if seen && (self.scopes.len() < CHOICES_MAX || self.scopes.contains_key(name)) {
                self.scopes.insert(name.clone(), patterns.clone());
            }
        }
    }

    /// Whether it wants a set, by the name it knows.
    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        self.choices.get(name).copied().unwrap_or(true)
    }

    /// What it says of the scopes of a set, by the name it knows.
    #[must_use]
    pub fn scopes(&self, name: &str) -> Option<&ScopePatterns> {
        self.scopes.get(name)
    }
}

#[cfg(test)]
mod tests;
