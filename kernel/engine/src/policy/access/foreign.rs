//! Access of other nodes' agents to this node's servers: what the logs of the cluster grant them, limited to what is
//! shared with their node. No default policy ever applies to them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use mgp_protocol::ids::{AgentId, GroupName, NodeAgent, NodeId, ServerId};
use mgp_protocol::mgp::access::{Permission, Source};

use super::decision::{AccessDecision, ExpiredLease, ForeignDenial, LeaseExpiryCause};
use super::{
    AccessEntry, AgentRules, CallerRules, EntryCondition, EntryEffect, GrantTable, GroupMembership,
    Principal, find_deciding_entry,
};
use crate::clock::MonotonicTime;
use crate::policy::grants::{GrantResource, LoggedGrant, Subject};
use crate::policy::tool_pattern::ToolPattern;

/// Which tools of this node's servers are shared, and with whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedTools {
    with_cluster: BTreeMap<ServerId, BTreeSet<Box<str>>>,
    with_nodes: BTreeMap<NodeId, BTreeMap<ServerId, BTreeSet<Box<str>>>>,
}

impl SharedTools {
    /// Shares some tools of a server with one node, or with all of them. `tools` is the name of one tool, or a prefix
    /// and `*`.
    pub fn add(&mut self, server: ServerId, with: Option<NodeId>, tools: &str) {
        let servers = match with {
            Some(node) => self.with_nodes.entry(node).or_default(),
            None => &mut self.with_cluster,
        };
        servers.entry(server).or_default().insert(tools.into());
    }

    fn patterns_for<'a>(
        &'a self,
        node: NodeId,
        server: &ServerId,
    ) -> impl Iterator<Item = &'a str> {
        let own = self
            .with_nodes
            .get(&node)
            .and_then(|servers| servers.get(server));
        let all = self.with_cluster.get(server);
        own.into_iter().chain(all).flatten().map(AsRef::as_ref)
    }

    /// Whether something of the server is shared with the node.
    #[must_use]
    pub(crate) fn is_server_shared(&self, node: NodeId, server: &ServerId) -> bool {
        self.patterns_for(node, server).next().is_some()
    }

    /// Whether a tool that is shared with the node can match this pattern.
    fn overlaps(&self, node: NodeId, server: &ServerId, tools: &ToolPattern) -> bool {
        let meant = tools.prefix().unwrap_or_default();
        let mut all = self.patterns_for(node, server);
        all.any(|shared| match shared.strip_suffix('*') {
            Some(beginning) => beginning.starts_with(meant) || meant.starts_with(beginning),
            None => tools.matches(shared),
        })
    }

    /// Whether this tool is shared with the node or, without one, the server as a whole.
    #[must_use]
    pub(crate) fn is_shared(&self, node: NodeId, server: &ServerId, tool: Option<&str>) -> bool {
        self.patterns_for(node, server)
            .any(|shared| match (tool, shared.strip_suffix('*')) {
                (None, beginning) => beginning == Some(""),
                (Some(tool), Some(beginning)) => tool.starts_with(beginning),
                (Some(tool), None) => tool == shared,
            })
    }
}

/// How long grants that other nodes could revoke are still honoured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignLease {
    /// All nodes that can revoke are within their leases. The named lease expires first, at this time; `None` where
    /// there is no other node.
    Valid(Option<(MonotonicTime, NodeId)>),
    /// A lease has expired.
    Expired(ExpiredLease),
    /// The logs lack entries that they once contained: one may be a revocation.
    LogsIncomplete,
}

impl GrantTable {
    /// The table with other rules for agents of other nodes. If only their lease was extended, pass the table's own
    /// generation: nothing has to be decided again.
    #[must_use]
    pub fn with_foreign(&self, foreign: Option<Arc<ForeignRules>>, generation: u64) -> Self {
        let foreign_since = if generation == self.generation {
            self.foreign_since
        } else {
            generation
        };
        Self {
            foreign,
            generation,
            foreign_since,
            ..self.clone()
        }
    }

    /// The rules for agents of other nodes.
    #[must_use]
    pub fn foreign(&self) -> Option<&Arc<ForeignRules>> {
        self.foreign.as_ref()
    }

    /// Whether the caller may subscribe to resources of the server. Another node does that for its agents, one of
    /// which must have access.
    #[must_use]
    pub fn can_subscribe(&self, principal: &Principal, server: &ServerId, now_ms: u64) -> bool {
        let lapsed = self
            .foreign
            .as_ref()
            .is_some_and(|it| it.has_expired_lease());
        let of_node = is_node_principal(principal);
        self.can_stay_subscribed(principal, server, now_ms) && !(of_node && lapsed)
    }

    /// Whether a subscriber to resources of the server may stay subscribed: an expired lease ends no subscription,
    /// because it may be renewed.
    #[must_use]
    pub fn can_stay_subscribed(
        &self,
        principal: &Principal,
        server: &ServerId,
        now_ms: u64,
    ) -> bool {
        let of_node = match (principal.agent(), &self.foreign) {
            (Some(agent), Some(rules)) => {
                rules.can_node_subscribe(agent, server, now_ms.max(self.as_of_ms))
            }
            (Some(_) | None, _) => true,
        };
        of_node && self.is_server_open(principal, server, now_ms)
    }

    /// What denies all agents of other nodes at present.
    #[must_use]
    pub fn foreign_lease_denial(&self) -> Option<ForeignDenial> {
        match self.foreign.as_ref()?.lease() {
            ForeignLease::Expired(lapsed) => Some(ForeignDenial::LeaseExpired(lapsed)),
            ForeignLease::LogsIncomplete => Some(ForeignDenial::LogsIncomplete),
            ForeignLease::Valid(_) => None,
        }
    }

    /// The table with the lease expired, if its time has come; `None` otherwise.
    #[must_use]
    pub fn with_expired_lease(&self, now: impl FnOnce() -> MonotonicTime) -> Option<Self> {
        let foreign = self.foreign.as_ref()?;
        let ForeignLease::Valid(Some((end, by))) = foreign.lease() else {
            return None;
        };
        let cause = LeaseExpiryCause::TimedOut(end);
        let lapsed = ForeignLease::Expired(ExpiredLease { node: by, cause });
        (now() >= end).then(|| Self {
            foreign: Some(Arc::new(foreign.with_lease(lapsed))),
            ..self.clone()
        })
    }
}

/// The rules for all agents of other nodes. Immutable; changes make new ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignRules {
    members: BTreeSet<NodeId>,
    agents: HashMap<AgentId, ServerRules>,
    /// For all agents of a node.
    nodes: HashMap<NodeId, ServerRules>,
    /// For agents of a name, on any member node.
    names: HashMap<AgentId, ServerRules>,
    groups: HashMap<AgentId, GroupRules>,
    /// The groups of these, as `agents`, `nodes` and `names`.
    members_by: Memberships,
    shared: SharedTools,
    lease: ForeignLease,
}

/// The rules of the same callers, by server.
type ServerRules = HashMap<ServerId, AgentRules>;

/// The rules of a group: all, and what of them closes something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct GroupRules {
    whole: ServerRules,
    closing: ServerRules,
}

/// Which groups whom an admin's entry put into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Memberships {
    agents: HashMap<AgentId, BTreeSet<GroupMembership>>,
    nodes: HashMap<NodeId, BTreeSet<GroupMembership>>,
    names: HashMap<AgentId, BTreeSet<GroupMembership>>,
}

impl Memberships {
    fn add(&mut self, subject: &Subject, group: &GroupName, effect: EntryEffect) {
        let groups = match subject {
            Subject::Agent(agent) => self
                .agents
                .entry(AgentId::from_node_agent(agent))
                .or_default(),
            Subject::AgentsAt(node) => self.nodes.entry(*node).or_default(),
            Subject::AgentEverywhere(agent) => self.names.entry(agent.clone()).or_default(),
            Subject::Server(_) => return,
        };
        groups.insert((group.id(), effect));
    }

    /// The groups of a caller.
    fn groups_of<'a>(
        &'a self,
        id: &AgentId,
        caller: &NodeAgent,
    ) -> impl Iterator<Item = &'a GroupMembership> + Clone + use<'a> {
        let all = [
            self.agents.get(id),
            self.nodes.get(&caller.node),
            self.names.get(&caller.agent),
        ];
        all.into_iter().flatten().flatten()
    }
}

impl ForeignRules {
    /// Collects the grants in force for servers of this node, each with its expiry by the local clock. `members` are
    /// the other nodes in the cluster.
    #[must_use]
    pub fn new<'a>(
        members: BTreeSet<NodeId>,
        shared: SharedTools,
        lease: ForeignLease,
        granted: impl Iterator<Item = (&'a LoggedGrant, Option<u64>, EntryEffect)>,
    ) -> Self {
        let mut agents: HashMap<AgentId, ServerRules> = HashMap::new();
        let mut nodes: HashMap<NodeId, ServerRules> = HashMap::new();
        let mut names: HashMap<AgentId, ServerRules> = HashMap::new();
        let mut groups: HashMap<AgentId, GroupRules> = HashMap::new();
        let mut members_by = Memberships::default();
        let mut compiled = 0;
        for (granted, end_ms, effect) in granted {
            let resource = &granted.grant.resource;
            if let GrantResource::Group(group) = resource {
                members_by.add(&granted.grant.subject, group, effect);
            }
            let Some(on) = resource.server() else {
                continue;
            };
            let servers = match &granted.grant.subject {
                Subject::AgentEverywhere(group) if group.is_group() => {
                    &mut groups.entry(group.clone()).or_default().whole
                }
                Subject::Agent(agent) => agents.entry(AgentId::from_node_agent(agent)).or_default(),
                Subject::AgentsAt(node) => nodes.entry(*node).or_default(),
                Subject::AgentEverywhere(agent) => names.entry(agent.clone()).or_default(),
                Subject::Server(_) => continue,
            };
            let rules = servers.entry(on.server.clone()).or_default();
            let condition = EntryCondition::from_granted(granted, effect, &mut compiled);
            rules.add(resource, AccessEntry::new(granted, end_ms, condition));
        }
        let all = agents.values_mut().chain(nodes.values_mut());
        let all = all.chain(names.values_mut()).flat_map(HashMap::values_mut);
        let of_groups = groups.values_mut().flat_map(|it| it.whole.values_mut());
        all.chain(of_groups).for_each(AgentRules::sort);
        for group in groups.values_mut() {
            let whole = group.whole.iter();
            group.closing = whole
                .map(|(on, it)| (on.clone(), it.to_closing()))
                .collect();
        }
        Self {
            members,
            agents,
            nodes,
            names,
            groups,
            members_by,
            shared,
            lease,
        }
    }

    /// How long access is honoured.
    #[must_use]
    pub fn lease(&self) -> ForeignLease {
        self.lease
    }

    /// True when at most the lease differs.
    #[must_use]
    pub fn is_same_except_lease(&self, other: &Self) -> bool {
        self.members == other.members
            && self.agents == other.agents
            && self.nodes == other.nodes
            && self.names == other.names
            && self.groups == other.groups
            && self.members_by == other.members_by
            && self.shared == other.shared
            && self.has_expired_lease() == other.has_expired_lease()
    }

    /// The same rules with another lease.
    #[must_use]
    pub fn with_lease(&self, lease: ForeignLease) -> Self {
        Self {
            lease,
            ..self.clone()
        }
    }

    pub(super) fn has_expired_lease(&self) -> bool {
        match self.lease {
            ForeignLease::Expired(_) | ForeignLease::LogsIncomplete => true,
            ForeignLease::Valid(_) => false,
        }
    }

    /// All rules for a caller and a server: its own, those of all agents of its node, those of its name, and those of
    /// the groups of all three. Each is a lookup, independent of their number. `id` is the local id of the caller.
    pub(super) fn rules_for<'a, 'b>(
        &'a self,
        (id, caller): (&AgentId, &NodeAgent),
        server: &'b ServerId,
    ) -> CallerRules<
        impl Iterator<Item = &'a AgentRules> + Clone + use<'a>,
        impl Iterator<Item = &'a AgentRules> + Clone + use<'a, 'b>,
    > {
        let own = self.agents.get(id);
        let at_node = self.nodes.get(&caller.node);
        let named = self.names.get(&caller.agent);
        let all = [own, at_node, named].map(|rules| rules.and_then(|rules| rules.get(server)));
        let groups = self.members_by.groups_of(id, caller);
        let groups = groups.filter_map(move |(group, effect)| {
            let rules = self.groups.get(group)?;
            match effect {
                EntryEffect::Whole => rules.whole.get(server),
                EntryEffect::Closing => rules.closing.get(server),
            }
        });
        CallerRules {
            own: all.into_iter().flatten(),
            groups,
        }
    }

    /// The groups of a caller, by the entries of admins; each may come twice.
    pub(super) fn groups_of(&self, agent: &AgentId) -> impl Iterator<Item = &GroupMembership> {
        let caller = agent.as_remote();
        let caller = caller.filter(|caller| self.members.contains(&caller.node));
        let groups = caller.map(|caller| self.members_by.groups_of(agent, &caller));
        groups.into_iter().flatten()
    }

    /// The groups that entries name.
    pub(super) fn group_names(&self) -> impl Iterator<Item = GroupName> {
        let by = &self.members_by;
        let joined = by.agents.values().chain(by.nodes.values());
        let joined = joined.chain(by.names.values()).flatten();
        let all = self.groups.keys().chain(joined.map(|(group, _)| group));
        all.filter_map(AgentId::group)
    }

    /// Whether the server is visible to the caller.
    pub(super) fn is_server_visible(
        &self,
        agent: &AgentId,
        server: &ServerId,
        now_ms: u64,
    ) -> bool {
        let Some(caller) = agent
            .as_remote()
            .filter(|caller| self.members.contains(&caller.node))
        else {
            return false;
        };
        if !self.shared.is_server_shared(caller.node, server) {
            return false;
        }
        if caller.is_node() || self.has_expired_lease() {
            return caller.is_node();
        }
        let rules = self.rules_for((agent, &caller), server);
        let opens = |tool: Option<&str>| {
            let first = find_deciding_entry(&rules, tool, now_ms);
            first.is_some_and(|(_, entry)| entry.can_open())
        };
        let mut tools = rules.all().flat_map(|rules| rules.tools.keys());
        let mut patterns = rules.all().flat_map(|rules| &rules.patterns);
        opens(None)
            || tools.any(|tool| {
                opens(Some(tool)) && self.shared.is_shared(caller.node, server, Some(tool))
            })
            || patterns.any(|(tools, entry)| {
                entry.can_open()
                    && entry.is_in_force(now_ms)
                    && self.shared.overlaps(caller.node, server, tools)
            })
    }

    /// For a node itself: whether one of its agents has access to the server as a whole while the lease lasts; true
    /// for any other caller.
    fn can_node_subscribe(&self, caller: &AgentId, server: &ServerId, now_ms: u64) -> bool {
        let Some(node) = caller.as_remote().filter(NodeAgent::is_node) else {
            return true;
        };
        let of_node = |agent: &AgentId| agent.as_remote().is_some_and(|it| it.node == node.node);
        let agents = self.agents.keys().chain(self.members_by.agents.keys());
        let agents = agents.filter(|agent| of_node(agent)).cloned();
        let named = self.names.keys().chain(self.members_by.names.keys());
        let named = named.map(|agent| AgentId::from_node_agent(&node.node.agent(agent.clone())));
        // Represents all agents without an entry of their own.
        let unnamed = AgentId::pattern_for_node(node.node);
        let mut agents = agents.chain(named).chain([unnamed]);
        agents.any(|agent| {
            let decision = self.decide(&agent, server, None, now_ms);
            decision.permission == Permission::Allow
                || matches!(
                    decision.foreign_denial,
                    Some(ForeignDenial::LeaseExpired(_) | ForeignDenial::LogsIncomplete)
                )
        })
    }

    /// As [`GrantTable::decide`] for agents of other nodes, and for these nodes themselves.
    pub(super) fn decide(
        &self,
        agent: &AgentId,
        server: &ServerId,
        tool: Option<&str>,
        now_ms: u64,
    ) -> AccessDecision<'_> {
        let Some(caller) = agent
            .as_remote()
            .filter(|caller| self.members.contains(&caller.node))
        else {
            return deny(ForeignDenial::NotMember);
        };
        let is_shared = self.shared.is_shared(caller.node, server, tool);
        if caller.is_node() {
            // A node only lists what the index contains anyway; calls come from its agents.
            return match tool {
                None if is_shared => allow(Source::ServerGrant, None),
                None => deny(ForeignDenial::NotShared),
                Some(_) => deny(ForeignDenial::NotGranted),
            };
        }
        let Some((source, entry)) =
            find_deciding_entry(&self.rules_for((agent, &caller), server), tool, now_ms)
        else {
            return deny(ForeignDenial::NotGranted);
        };
        match (entry.permission, self.lease) {
            (Permission::Deny, _) => AccessDecision {
                permission: Permission::Deny,
                ..allow(source, Some(entry))
            },
            (Permission::Allow, _) if !is_shared => deny(ForeignDenial::NotShared),
            (Permission::Allow, ForeignLease::Expired(lapsed)) => {
                deny(ForeignDenial::LeaseExpired(lapsed))
            }
            (Permission::Allow, ForeignLease::LogsIncomplete) => {
                deny(ForeignDenial::LogsIncomplete)
            }
            (Permission::Allow, ForeignLease::Valid(_)) => {
                allow(source, Some(entry)).with_condition(tool)
            }
        }
    }

    /// Why a caller is denied in spite of its grants, for explanations.
    #[must_use]
    pub(crate) fn find_denial(
        &self,
        caller: &NodeAgent,
        server: &ServerId,
        tool: Option<&str>,
    ) -> Option<ForeignDenial> {
        if !self.members.contains(&caller.node) {
            return Some(ForeignDenial::NotMember);
        }
        if !self.shared.is_shared(caller.node, server, tool) {
            return Some(ForeignDenial::NotShared);
        }
        match self.lease {
            ForeignLease::Expired(lapsed) => Some(ForeignDenial::LeaseExpired(lapsed)),
            ForeignLease::LogsIncomplete => Some(ForeignDenial::LogsIncomplete),
            ForeignLease::Valid(_) => None,
        }
    }
}

/// True for a node itself, not for its agents.
fn is_node_principal(principal: &Principal) -> bool {
    let caller = principal.agent().and_then(AgentId::as_remote);
    caller.is_some_and(|caller| caller.is_node())
}

fn allow(source: Source, entry: Option<&AccessEntry>) -> AccessDecision<'_> {
    AccessDecision {
        permission: Permission::Allow,
        source,
        entry,
        foreign: true,
        foreign_denial: None,
        narrowing: None,
        is_conditional: false,
    }
}

/// The denial where no cluster or no grant gives access.
pub(super) fn deny(why: ForeignDenial) -> AccessDecision<'static> {
    AccessDecision {
        permission: Permission::Deny,
        source: Source::DefaultPolicy,
        entry: None,
        foreign: true,
        foreign_denial: Some(why),
        narrowing: None,
        is_conditional: false,
    }
}
