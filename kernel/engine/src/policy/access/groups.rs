//! Groups of agents, which grants name in place of one. A group is in the table like an agent, with entries of its own.
//!
//! At one level the entries that are for the caller itself decide before those of its groups; among groups a denial wins.

use std::collections::BTreeSet;
use std::sync::Arc;

use mgp_protocol::ids::{AgentId, GroupName, ServerId};

use super::agent_rules::AgentRuleSet;
use super::{AgentRules, Audience, CallerRules, GrantTable, GroupMembership, Principal};

/// Most groups that the configuration gives limits, and most that the claims of tokens are mapped to. Each group of a
/// caller is looked up on its calls, and a person can review that many.
pub const CONFIGURED_GROUPS_MAX: usize = 64;
/// Most groups that entries give one agent, for the same reason.
pub(crate) const GROUPS_OF_AGENT_MAX: usize = 32;

/// The groups that a caller's token gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClaimedGroups(Option<Arc<[GroupMembership]>>);

impl ClaimedGroups {
    /// These groups, each once. Where one counts as a whole, it does.
    #[must_use]
    pub fn new(mut all: Vec<GroupMembership>) -> Self {
        all.sort();
        all.dedup_by(|next, kept| next.0 == kept.0);
        Self((!all.is_empty()).then(|| all.into()))
    }

    /// The groups, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &GroupMembership> + Clone {
        self.0.iter().flat_map(|all| all.iter())
    }

    /// True without any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl GrantTable {
    /// The groups of a caller of this node: by entries, by its token, or the default one.
    fn local_groups<'a>(
        &'a self,
        principal: &'a Principal,
        held: Option<&'a AgentRuleSet>,
    ) -> impl Iterator<Item = &'a GroupMembership> + Clone {
        let entered = held.map(|held| &*held.groups).unwrap_or_default();
        let claimed = principal.claimed_groups();
        let is_in_none = entered.is_empty() && claimed.is_none_or(ClaimedGroups::is_empty);
        let default = self.defaults.group.as_ref();
        let default = default.filter(|_| is_in_none && !principal.is_group());
        let claimed = claimed.into_iter().flat_map(ClaimedGroups::iter);
        entered.iter().chain(claimed).chain(default)
    }

    /// The groups of a caller that count in some way, with limits of their own perhaps; each may come twice.
    pub fn groups_of<'a>(
        &'a self,
        principal: &'a Principal,
    ) -> impl Iterator<Item = &'a GroupMembership> {
        let agent = principal.agent();
        let here = agent.filter(|agent| !agent.is_remote());
        let local = here.map(|agent| {
            let held = self.agents.get(agent).map(Arc::as_ref);
            self.local_groups(principal, held)
        });
        let remote = agent.filter(|agent| agent.is_remote()).and_then(|agent| {
            let foreign = self.foreign.as_ref()?;
            Some(foreign.groups_of(agent))
        });
        local
            .into_iter()
            .flatten()
            .chain(remote.into_iter().flatten())
    }

    /// The entries for a caller of this node at a server.
    pub(super) fn local_rules<'a, 'b>(
        &'a self,
        principal: &'b Principal,
        agent: &AgentId,
        server: &'b ServerId,
    ) -> CallerRules<
        impl Iterator<Item = &'a AgentRules> + Clone + use<'a>,
        impl Iterator<Item = &'a AgentRules> + Clone + use<'a, 'b>,
    >
    where
        'a: 'b,
    {
        let held = self.agents.get(agent).map(Arc::as_ref);
        let own = held.and_then(|held| held.for_server(server, &self.remote));
        let groups = self.local_groups(principal, held);
        let groups = groups.filter_map(move |(group, effect)| {
            let held = self.agents.get(group)?.counting(*effect)?;
            held.for_server(server, &self.remote)
        });
        CallerRules {
            own: own.into_iter(),
            groups,
        }
    }

    /// The audience `base` with the entries of the caller's groups. Callers in the same groups share their lists.
    pub(super) fn join_audience(&self, principal: &Principal, base: Audience) -> Audience {
        let Some(agent) = principal.agent() else {
            return base;
        };
        let held = self.agents.get(agent).map(Arc::as_ref);
        let groups = self.local_groups(principal, held);
        let groups = groups.filter_map(|(group, effect)| {
            let changed_in = self.agents.get(group)?.changed_in;
            Some((group.clone(), *effect, changed_in))
        });
        let groups: BTreeSet<_> = groups.collect();
        if groups.is_empty() {
            return base;
        }
        // Without groups all is open to such a caller.
        let base = if base == Audience::All {
            Audience::Common(self.defaults_since)
        } else {
            base
        };
        Audience::InGroups(Box::new(base), groups.into_iter().collect())
    }

    /// All groups that entries name, in the own journal or in the logs of the cluster.
    #[must_use]
    pub fn groups(&self) -> BTreeSet<GroupName> {
        let granted = self.agents.keys().filter_map(AgentId::group);
        let joined = self.agents.values().flat_map(|held| held.groups.iter());
        let joined = joined.filter_map(|(group, _)| group.group());
        let foreign = self.foreign.iter().flat_map(|rules| rules.group_names());
        granted.chain(joined).chain(foreign).collect()
    }
}
