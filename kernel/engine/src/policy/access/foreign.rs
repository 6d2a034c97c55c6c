//! What agents of other nodes may do at this node's servers: what the logs of the cluster grant them, of what is
//! shared with their node. No default policy ever applies to them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use mgp_protocol::ids::{AgentId, NodeAgent, NodeId, ServerId};
use mgp_protocol::mgp::access::{Permission, Source};

use super::decision::{AccessDecision, ForeignClosed, LapseCause, LapsedLease};
use super::{AccessEntry, AgentRules, GrantTable, Principal};
use crate::clock::MonotonicTime;
use crate::policy::grants::{GrantResource, Granted, Subject};

/// Which tools of this node's servers are shared, and with whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedTools {
    with_all: BTreeMap<ServerId, BTreeSet<Box<str>>>,
    with_one: BTreeMap<NodeId, BTreeMap<ServerId, BTreeSet<Box<str>>>>,
}

impl SharedTools {
    /// Shares some tools of a server with one node, or with all of them. `tools` is the name of one, or how the
    /// names of several begin and `*`.
    pub fn add(&mut self, server: ServerId, with: Option<NodeId>, tools: &str) {
        let servers = match with {
            Some(node) => self.with_one.entry(node).or_default(),
            None => &mut self.with_all,
        };
        servers.entry(server).or_default().insert(tools.into());
    }

    fn of<'a>(&'a self, node: NodeId, server: &ServerId) -> impl Iterator<Item = &'a str> {
        let own = self
            .with_one
            .get(&node)
            .and_then(|servers| servers.get(server));
        let all = self.with_all.get(server);
        own.into_iter().chain(all).flatten().map(AsRef::as_ref)
    }

    /// Whether something of the server is shared with the node.
    #[must_use]
    pub fn shows(&self, node: NodeId, server: &ServerId) -> bool {
        self.of(node, server).next().is_some()
    }

    /// Whether this tool is shared with the node or, without one, the server as a whole.
    #[must_use]
    pub fn covers(&self, node: NodeId, server: &ServerId, tool: Option<&str>) -> bool {
        self.of(node, server)
            .any(|shared| match (tool, shared.strip_suffix('*')) {
                (None, beginning) => beginning == Some(""),
                (Some(tool), Some(beginning)) => tool.starts_with(beginning),
                (Some(tool), None) => tool == shared,
            })
    }
}

/// How long what other nodes could take back is still allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignLease {
    /// Everyone who could take something back was heard. The word of this one ends first, then; None where there
    /// is nobody else.
    Held(Option<(MonotonicTime, NodeId)>),
    /// It has lapsed.
    Lapsed(LapsedLease),
    /// The logs lack something that they held: it may have taken something back.
    Shortened,
}

impl GrantTable {
    /// The table with other rules for agents of other nodes. Where only the lease of these was prolonged, give the
    /// generation that the table has: nothing has to be decided again.
    #[must_use]
    pub fn with_foreign(&self, foreign: Option<Arc<ForeignRules>>, generation: u64) -> Self {
        let foreign_since = match generation == self.generation {
            true => self.foreign_since,
            false => generation,
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

    /// Whether the caller may follow resources of the server. Another node does that for its agents, one of which
    /// has to be let in.
    #[must_use]
    pub fn lets_follow(&self, principal: &Principal, server: &ServerId, now_ms: u64) -> bool {
        let lapsed = self.foreign.as_ref().is_some_and(|it| it.has_lapsed());
        let of_node = is_of_node_itself(principal);
        self.lets_keep_following(principal, server, now_ms) && !(of_node && lapsed)
    }

    /// Whether who follows resources of the server stays one who does: a lease that lapses ends nothing, it comes
    /// back.
    #[must_use]
    pub fn lets_keep_following(
        &self,
        principal: &Principal,
        server: &ServerId,
        now_ms: u64,
    ) -> bool {
        let of_node = match (principal.agent(), &self.foreign) {
            (Some(agent), Some(rules)) => {
                rules.lets_node_follow(agent, server, now_ms.max(self.as_of_ms))
            }
            (Some(_) | None, _) => true,
        };
        of_node && self.opens(principal, server, now_ms)
    }

    /// What keeps all agents of other nodes out at present.
    #[must_use]
    pub fn foreign_lapse(&self) -> Option<ForeignClosed> {
        match self.foreign.as_ref()?.lease() {
            ForeignLease::Lapsed(lapsed) => Some(ForeignClosed::Lapsed(lapsed)),
            ForeignLease::Shortened => Some(ForeignClosed::Shortened),
            ForeignLease::Held(_) => None,
        }
    }

    /// The table with the lease ended, where its time has come; None where it has not.
    #[must_use]
    pub fn lapsed(&self, now: impl FnOnce() -> MonotonicTime) -> Option<Self> {
        let foreign = self.foreign.as_ref()?;
        let ForeignLease::Held(Some((end, by))) = foreign.lease() else {
            return None;
        };
        let cause = LapseCause::Silent(end);
        let lapsed = ForeignLease::Lapsed(LapsedLease { by, cause });
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
    agents: HashMap<AgentId, HashMap<ServerId, AgentRules>>,
    shared: SharedTools,
    lease: ForeignLease,
}

impl ForeignRules {
    /// Collects what was granted: all of it in force, and for servers of this node, each with when it ends by the
    /// clock here. `members` are the other nodes that are in.
    #[must_use]
    pub fn new<'a>(
        members: BTreeSet<NodeId>,
        shared: SharedTools,
        lease: ForeignLease,
        granted: impl Iterator<Item = (&'a Granted, Option<u64>)>,
    ) -> Self {
        let mut agents: HashMap<AgentId, HashMap<ServerId, AgentRules>> = HashMap::new();
        for (granted, end_ms) in granted {
            let Subject::Agent(agent) = &granted.grant.subject else {
                continue;
            };
            let of_agent = agents.entry(AgentId::of_node(agent)).or_default();
            let entries = match &granted.grant.resource {
                GrantResource::Server(on) => {
                    &mut of_agent.entry(on.server.clone()).or_default().whole
                }
                GrantResource::Tool(on, tool) => {
                    let rules = of_agent.entry(on.server.clone()).or_default();
                    rules.tools.entry(tool.as_str().into()).or_default()
                }
                GrantResource::Permission(_) => continue,
            };
            entries.push(AccessEntry::ending(granted, end_ms));
        }
        let rules = agents.values_mut().flat_map(HashMap::values_mut);
        rules.for_each(AgentRules::sort);
        Self {
            members,
            agents,
            shared,
            lease,
        }
    }

    /// How long what is allowed holds.
    #[must_use]
    pub fn lease(&self) -> ForeignLease {
        self.lease
    }

    /// True when only the lease may differ.
    #[must_use]
    pub fn grants_the_same(&self, other: &Self) -> bool {
        self.members == other.members
            && self.agents == other.agents
            && self.shared == other.shared
            && self.has_lapsed() == other.has_lapsed()
    }

    /// The same with another lease.
    #[must_use]
    pub fn with_lease(&self, lease: ForeignLease) -> Self {
        Self {
            lease,
            ..self.clone()
        }
    }

    pub(super) fn has_lapsed(&self) -> bool {
        match self.lease {
            ForeignLease::Lapsed(_) | ForeignLease::Shortened => true,
            ForeignLease::Held(_) => false,
        }
    }

    pub(super) fn of(&self, agent: &AgentId, server: &ServerId) -> Option<&AgentRules> {
        self.agents.get(agent)?.get(server)
    }

    /// Whether the caller may know of the server.
    pub(super) fn sees(&self, agent: &AgentId, server: &ServerId, now_ms: u64) -> bool {
        let Some(caller) = agent
            .foreign()
            .filter(|caller| self.members.contains(&caller.node))
        else {
            return false;
        };
        if !self.shared.shows(caller.node, server) {
            return false;
        }
        let opens = |entries: &[AccessEntry]| {
            let first = entries.iter().find(|entry| entry.counts(now_ms));
            first.is_some_and(|entry| entry.permission == Permission::Allow)
        };
        is_node_itself(&caller)
            || !self.has_lapsed()
                && self.of(agent, server).is_some_and(|rules| {
                    let mut tools = rules.tools.iter();
                    opens(&rules.whole)
                        || tools.any(|(tool, entries)| {
                            opens(entries) && self.shared.covers(caller.node, server, Some(tool))
                        })
                })
    }

    /// Of another node itself, whether one of its agents is let in to the server as a whole while the lease lasts;
    /// true of anybody else.
    fn lets_node_follow(&self, caller: &AgentId, server: &ServerId, now_ms: u64) -> bool {
        let Some(node) = caller.foreign().filter(is_node_itself) else {
            return true;
        };
        let of_node = |agent: &AgentId| agent.foreign().is_some_and(|it| it.node == node.node);
        let mut agents = self.agents.keys().filter(|agent| of_node(agent));
        agents.any(|agent| {
            let decision = self.decide(agent, server, None, now_ms);
            decision.permission == Permission::Allow
                || matches!(
                    decision.closed,
                    Some(ForeignClosed::Lapsed(_) | ForeignClosed::Shortened)
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
            .foreign()
            .filter(|caller| self.members.contains(&caller.node))
        else {
            return closed(ForeignClosed::NotIn);
        };
        let is_shared = self.shared.covers(caller.node, server, tool);
        if is_node_itself(&caller) {
            // It lists what the index tells it of as well; what is done, its agents do.
            return match tool {
                None if is_shared => open(Source::ServerGrant, None),
                None => closed(ForeignClosed::NotShared),
                Some(_) => closed(ForeignClosed::NotGranted),
            };
        }
        let rules = self.of(agent, server);
        let deciding = rules.and_then(|rules| rules.deciding(tool, now_ms));
        let Some((source, entry)) = deciding else {
            return closed(ForeignClosed::NotGranted);
        };
        match (entry.permission, self.lease) {
            (Permission::Deny, _) => AccessDecision {
                permission: Permission::Deny,
                ..open(source, Some(entry))
            },
            (Permission::Allow, _) if !is_shared => closed(ForeignClosed::NotShared),
            (Permission::Allow, ForeignLease::Lapsed(lapsed)) => {
                closed(ForeignClosed::Lapsed(lapsed))
            }
            (Permission::Allow, ForeignLease::Shortened) => closed(ForeignClosed::Shortened),
            (Permission::Allow, ForeignLease::Held(_)) => open(source, Some(entry)),
        }
    }

    /// Why a caller is let in or not beside its grants: for explanations.
    #[must_use]
    pub fn hindrance(
        &self,
        caller: &NodeAgent,
        server: &ServerId,
        tool: Option<&str>,
    ) -> Option<ForeignClosed> {
        if !self.members.contains(&caller.node) {
            return Some(ForeignClosed::NotIn);
        }
        if !self.shared.covers(caller.node, server, tool) {
            return Some(ForeignClosed::NotShared);
        }
        match self.lease {
            ForeignLease::Lapsed(lapsed) => Some(ForeignClosed::Lapsed(lapsed)),
            ForeignLease::Shortened => Some(ForeignClosed::Shortened),
            ForeignLease::Held(_) => None,
        }
    }
}

/// True for another node, not for its agents.
fn is_of_node_itself(principal: &Principal) -> bool {
    let caller = principal.agent().and_then(AgentId::foreign);
    caller.is_some_and(|caller| is_node_itself(&caller))
}

fn is_node_itself(caller: &NodeAgent) -> bool {
    AgentId::of_node(caller) == AgentId::node_itself(caller.node)
}

fn open(source: Source, entry: Option<&AccessEntry>) -> AccessDecision<'_> {
    AccessDecision {
        permission: Permission::Allow,
        source,
        entry,
        foreign: true,
        closed: None,
        narrowed: None,
    }
}

/// The decision where no cluster or no grant lets the caller in.
pub(super) fn closed(why: ForeignClosed) -> AccessDecision<'static> {
    AccessDecision {
        permission: Permission::Deny,
        source: Source::DefaultPolicy,
        entry: None,
        foreign: true,
        closed: Some(why),
        narrowed: None,
    }
}
