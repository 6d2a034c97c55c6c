//! Conditions of grants. A level that an entry with a condition decides is closed to every call for which no condition
//! holds: no less specific entry and no default policy is asked.

use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::access::Permission;
use mgp_screening::conditions::{Condition, Facts, FailedPart, Fault, Resolve};
use serde::{Deserialize, Serialize};

use super::{AccessEntry, AgentRules, CallerRules, GrantTable, Principal, RuleLevel};
use crate::policy::grants::{GrantId, LoggedGrant};

/// Most conditions of all agents of other nodes, or of one of this node's. Each takes some kilobytes when it is
/// compiled; further ones never hold.
pub(super) const COMPILED_MAX: usize = 1024;

/// What keeps an entry from allowing every call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EntryCondition {
    /// It allows a call for which this holds.
    When(Condition),
    /// It allows nothing now, and closes its level.
    Closed,
}

/// What of a grant counts, or of all grants of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryEffect {
    /// All of it.
    Whole,
    /// Only that it closes what its condition does not allow, and what is denied to the group.
    Closing,
}

impl EntryCondition {
    /// The condition of a grant. `compiled` counts those of one table.
    pub(super) fn from_granted(
        granted: &LoggedGrant,
        effect: EntryEffect,
        compiled: &mut usize,
    ) -> Option<Self> {
        if !granted.grant.is_conditional() {
            return None;
        }
        *compiled += usize::from(effect == EntryEffect::Whole);
        Some(match effect {
            EntryEffect::Whole if *compiled <= COMPILED_MAX => {
                granted.condition().map_or(Self::Closed, Self::When)
            }
            EntryEffect::Whole | EntryEffect::Closing => Self::Closed,
        })
    }
}

impl AccessEntry {
    /// Whether it allows something: all calls, or those for which its condition holds.
    pub(super) fn can_open(&self) -> bool {
        self.permission == Permission::Allow && self.condition != Some(EntryCondition::Closed)
    }

    /// Whether calls of a tool must be evaluated for it.
    pub(super) fn has_condition(&self) -> bool {
        self.can_open() && self.condition.is_some()
    }

    /// What of it closes something; `None` where it only allows.
    fn to_closing(&self) -> Option<Self> {
        let closes = self.permission == Permission::Deny || self.condition.is_some();
        closes.then(|| Self {
            condition: (self.permission == Permission::Allow).then_some(EntryCondition::Closed),
            ..self.clone()
        })
    }

    fn when(&self) -> Option<&Condition> {
        match &self.condition {
            Some(EntryCondition::When(condition)) => Some(condition),
            Some(EntryCondition::Closed) | None => None,
        }
    }
}

/// The conditions of which one must hold for a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallConditions(Vec<(GrantId, Condition)>);

impl CallConditions {
    fn collect<'a>(entries: impl Iterator<Item = &'a AccessEntry>) -> Self {
        let all = entries.filter_map(|entry| Some((entry.id, entry.when()?.clone())));
        Self(all.collect())
    }

    /// The grant whose condition holds, by the text of the paths; `None` if there is none.
    #[must_use]
    pub fn find_holding(&self, facts: &Facts<'_>) -> Option<&(GrantId, Condition)> {
        self.0
            .iter()
            .find(|(_, condition)| condition.evaluate(facts) == Ok(true))
    }

    /// Whether one that holds by the text of its paths also holds where their links lead.
    #[must_use]
    pub fn hold_resolved(&self, facts: &Facts<'_>, resolve: Resolve<'_>) -> bool {
        let holds = |condition: &Condition| {
            condition.evaluate(facts) == Ok(true)
                && (!condition.uses_paths()
                    || condition.evaluate_resolved(facts, resolve) == Ok(true))
        };
        self.0.iter().any(|(_, condition)| holds(condition))
    }

    /// The conditions as they were written, for who may know them.
    #[must_use]
    pub fn describe(&self) -> String {
        let all = self.0.iter().map(|(_, condition)| condition.text());
        all.collect::<Vec<_>>().join(", or ")
    }
}

/// Why a condition does not hold.
#[must_use]
pub fn describe_failure(condition: &Condition, facts: &Facts<'_>) -> String {
    if !condition.is_readable() {
        return Fault::Unreadable.to_string();
    }
    let parts = condition.failed_parts(facts);
    let parts: Vec<String> = parts.iter().map(FailedPart::describe).collect();
    if parts.is_empty() {
        "it holds for the paths as they are written, and not for where their links lead".to_owned()
    } else {
        parts.join("; ")
    }
}

impl AgentRules {
    /// Only what closes something.
    pub(super) fn to_closing(&self) -> Self {
        let closing = |all: &[AccessEntry]| -> Vec<AccessEntry> {
            all.iter().filter_map(AccessEntry::to_closing).collect()
        };
        let tools = self.tools.iter();
        let patterns = self.patterns.iter();
        let patterns = patterns.filter_map(|(tools, it)| Some((tools.clone(), it.to_closing()?)));
        let mut rules = Self {
            server: closing(&self.server),
            tools: tools
                .map(|(tool, all)| (tool.clone(), closing(all)))
                .collect(),
            patterns: patterns.collect(),
        };
        rules.tools.retain(|_, all| !all.is_empty());
        rules.sort();
        rules
    }

    /// The entries of one level with a condition, in force.
    fn conditional_entries<'a>(
        &'a self,
        level: RuleLevel,
        tool: &'a str,
        now_ms: u64,
    ) -> impl Iterator<Item = &'a AccessEntry> {
        let of_tool = match level {
            RuleLevel::Tool => self.tools.get(tool).map(Vec::as_slice),
            RuleLevel::Pattern => None,
            RuleLevel::Server => Some(self.server.as_slice()),
        };
        let patterns = self.patterns.iter();
        let patterns = patterns
            .filter(move |(tools, _)| level == RuleLevel::Pattern && tools.matches(tool))
            .map(|(_, entry)| entry);
        let all = of_tool.into_iter().flatten().chain(patterns);
        all.filter(move |entry| entry.is_in_force(now_ms))
    }
}

/// The conditions at the level that decides about a tool: those for the caller itself, else those of its groups.
pub(super) fn find_conditions<'a, O, G>(
    rules: &CallerRules<O, G>,
    tool: &'a str,
    now_ms: u64,
) -> CallConditions
where
    O: Iterator<Item = &'a AgentRules> + Clone,
    G: Iterator<Item = &'a AgentRules> + Clone,
{
    for level in RuleLevel::ALL {
        let of = |rules: &'a AgentRules| rules.conditional_entries(level, tool, now_ms);
        let mut own = rules.own.clone().flat_map(of).peekable();
        if own.peek().is_some() {
            return CallConditions::collect(own);
        }
        let mut groups = rules.groups.clone().flat_map(of).peekable();
        if groups.peek().is_some() {
            return CallConditions::collect(groups);
        }
    }
    CallConditions::default()
}

impl GrantTable {
    /// The conditions of which one must hold for this call, if [`super::AccessDecision::is_conditional`].
    #[must_use]
    pub fn conditions(
        &self,
        principal: &Principal,
        server: &ServerId,
        tool: &str,
        now_ms: u64,
    ) -> CallConditions {
        let Some(agent) = principal.agent() else {
            return CallConditions::default();
        };
        let now_ms = now_ms.max(self.as_of_ms);
        match (agent.as_remote(), &self.foreign) {
            (Some(caller), Some(foreign)) => {
                find_conditions(&foreign.rules_for((agent, &caller), server), tool, now_ms)
            }
            (Some(_), None) => CallConditions::default(),
            (None, _) => find_conditions(&self.local_rules(principal, agent, server), tool, now_ms),
        }
    }
}
