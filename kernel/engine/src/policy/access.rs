//! Access control: which caller may call which tool (MGP §5). An entry for the tool decides, else one for its server,
//! else the default policy. Where two entries of one level disagree, deny wins. Sets only narrow the result.
//!
//! Owners build a [`GrantTable`] from the grants and publish it; calls read it. A waiting call holds an
//! [`AccessLease`] and is decided again before it is sent, so that a revocation applies to it, too.

mod agent_rules;
mod changes;
mod conditions;
mod decision;
mod explain;
mod foreign;
mod groups;
mod requests;
mod sets;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use mgp_protocol::ids::{AgentId, GroupName, NodeId, ServerId, SetName};
use mgp_protocol::mgp::access::{DefaultPolicy, Permission, Source};

use self::agent_rules::AgentRuleSet;
pub use self::agent_rules::RemoteServers;
pub use self::changes::{ChangeRequest, GrantRecords};
pub(crate) use self::conditions::EntryCondition;
pub use self::conditions::{CallConditions, EntryEffect, describe_failure};
pub use self::decision::{
    AccessDecision, DenialResponse, ForeignDenial, denial_response, hidden_query_response,
};
pub(crate) use self::decision::{ExpiredLease, LeaseExpiryCause};
pub(crate) use self::explain::{
    ExplainedGrant, LevelEntries, describe_conflict, describe_membership, explain_foreign,
};
pub use self::explain::{explain, explain_local_denial, list, list_cluster};
pub use self::foreign::{ForeignLease, ForeignRules, SharedTools};
pub(crate) use self::groups::GROUPS_OF_AGENT_MAX;
pub use self::groups::{CONFIGURED_GROUPS_MAX, ClaimedGroups};
#[cfg(test)]
pub(crate) use self::requests::PATTERNS_MAX;
pub use self::requests::{
    GrantRequest, GrantRequestError, authorize, grant, remaining_pattern_grants, revoke,
};
pub(crate) use self::requests::{grant_to_creator, revoke_server_grants};
pub(crate) use self::sets::SetSource;
pub use self::sets::{ToolSet, ToolSets};
use crate::policy::grants::{Authority, GrantId, GrantResource, Grants, LoggedGrant, Subject};
use crate::policy::tool_pattern::ToolPattern;

/// The principal, as authenticated by the endpoint; never taken from a message body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    /// A person with access to everything, by the name the endpoint authenticated.
    Operator(Arc<str>),
    /// An agent.
    Agent(AgentId),
    /// An agent at the endpoint of a set, which narrows its access.
    InSet(AgentId, SetName),
    /// An agent whose token gives it groups, perhaps at the endpoint of a set.
    InGroups(AgentId, Option<SetName>, ClaimedGroups),
}

impl Principal {
    /// The name used in logs.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Operator(name) => name,
            Self::Agent(agent) | Self::InSet(agent, _) | Self::InGroups(agent, ..) => {
                agent.as_str()
            }
        }
    }

    /// The agent, whichever endpoint it uses; `None` for the operator.
    #[must_use]
    pub fn agent(&self) -> Option<&AgentId> {
        match self {
            Self::Operator(_) => None,
            Self::Agent(agent) | Self::InSet(agent, _) | Self::InGroups(agent, ..) => Some(agent),
        }
    }

    /// The set of its endpoint.
    fn set(&self) -> Option<&SetName> {
        match self {
            Self::InSet(_, set) => Some(set),
            Self::InGroups(_, set, _) => set.as_ref(),
            Self::Operator(_) | Self::Agent(_) => None,
        }
    }

    /// True for a group, where one is explained.
    fn is_group(&self) -> bool {
        self.agent().is_some_and(AgentId::is_group)
    }

    /// The groups that its token gives it, if any.
    fn claimed_groups(&self) -> Option<&ClaimedGroups> {
        match self {
            Self::InGroups(.., groups) => Some(groups),
            Self::Operator(_) | Self::Agent(_) | Self::InSet(..) => None,
        }
    }
}

/// The default policies, used where no entry exists (§5.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultPolicies {
    /// For servers without a policy of their own.
    pub kernel: DefaultPolicy,
    /// By server.
    pub servers: HashMap<ServerId, DefaultPolicy>,
    /// The group of agents of this node that no entry and no token puts into one.
    pub group: Option<GroupMembership>,
}

impl DefaultPolicies {
    /// The policy for a server.
    #[must_use]
    pub(crate) fn for_server(&self, server: &ServerId) -> DefaultPolicy {
        self.servers.get(server).copied().unwrap_or(self.kernel)
    }

    /// True when every server is open to agents without an entry.
    fn is_open(&self) -> bool {
        let mut all = self.servers.values().chain([&self.kernel]);
        all.all(|policy| *policy == DefaultPolicy::OptOut)
    }
}

/// One grant in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessEntry {
    /// Its id.
    pub id: GrantId,
    /// Allow or deny.
    pub(crate) permission: Permission,
    /// When it expires, in milliseconds since 1970.
    pub(crate) not_after_ms: Option<u64>,
    /// Who decided it.
    pub(crate) decided_by: Arc<str>,
    /// When, in milliseconds since 1970.
    pub(crate) decided_ms: u64,
    /// What keeps it from allowing every call.
    pub(crate) condition: Option<EntryCondition>,
    /// The group that it is for.
    pub(crate) group: Option<GroupName>,
}

impl AccessEntry {
    /// An entry, with its expiry by the local clock.
    fn new(
        granted: &LoggedGrant,
        not_after_ms: Option<u64>,
        condition: Option<EntryCondition>,
    ) -> Self {
        Self {
            id: granted.grant.id,
            permission: granted.grant.permission,
            not_after_ms,
            decided_by: display_author(granted).into(),
            decided_ms: granted.issued_at_ms,
            condition,
            group: granted.grant.subject.group(),
        }
    }

    fn describe(&self) -> String {
        let to = self.group.as_ref().map(|group| format!(" to {group}"));
        let to = to.unwrap_or_default();
        format!("grant {} of {}{to}", self.id, self.decided_by)
    }

    fn is_in_force(&self, now_ms: u64) -> bool {
        self.not_after_ms.is_none_or(|end| now_ms < end)
    }

    /// The entry that decides comes first: deny before allow, without a condition before with one, then the one that
    /// expires last.
    fn rank(&self) -> impl Ord + use<> {
        let end = self.not_after_ms.unwrap_or(u64::MAX);
        (
            self.permission == Permission::Allow,
            self.condition.is_some(),
            !self.can_open(),
            std::cmp::Reverse(end),
            self.id,
        )
    }
}

/// The author to display: the person named in the grant, else the principal that requested it.
fn display_author(granted: &LoggedGrant) -> &str {
    granted.grant.told_by.as_deref().unwrap_or(&granted.author)
}

/// Entries of one agent on one server, each list with the deciding one first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AgentRules {
    server: Vec<AccessEntry>,
    tools: HashMap<Box<str>, Vec<AccessEntry>>,
    /// For tools with a common prefix.
    patterns: Vec<(ToolPattern, AccessEntry)>,
}

impl AgentRules {
    fn entries(&self) -> impl Iterator<Item = &AccessEntry> {
        let patterns = self.patterns.iter().map(|(_, entry)| entry);
        let tools = self.tools.values().flatten();
        tools.chain(patterns).chain(&self.server)
    }

    /// The deciding entry of one level that is in force.
    fn first_in_force(
        &self,
        level: RuleLevel,
        tool: Option<&str>,
        now_ms: u64,
    ) -> Option<&AccessEntry> {
        let counts = |entry: &&AccessEntry| entry.is_in_force(now_ms);
        match (level, tool) {
            (RuleLevel::Tool, Some(tool)) => self.tools.get(tool)?.iter().find(counts),
            (RuleLevel::Pattern, Some(tool)) => {
                let mut patterns = self.patterns.iter();
                let first = patterns.find(|(tools, entry)| tools.matches(tool) && counts(&entry));
                first.map(|(_, entry)| entry)
            }
            (RuleLevel::Server, _) => self.server.iter().find(counts),
            (RuleLevel::Tool | RuleLevel::Pattern, None) => None,
        }
    }

    /// Sorts the deciding entry to the front.
    fn sort(&mut self) {
        let tools = self.tools.values_mut();
        for list in tools.chain([&mut self.server]) {
            list.sort_by_key(AccessEntry::rank);
        }
        self.patterns.sort_by_key(|(_, entry)| entry.rank());
    }

    /// Adds an entry for a resource of this server.
    fn add(&mut self, resource: &GrantResource, entry: AccessEntry) {
        match resource {
            GrantResource::Server(_) => self.server.push(entry),
            GrantResource::Tool(_, tool) => {
                let of_tool = self.tools.entry(tool.as_str().into()).or_default();
                of_tool.push(entry);
            }
            GrantResource::Tools(_, tools) => self.patterns.push((tools.clone(), entry)),
            GrantResource::Permission(_) | GrantResource::Group(_) => {}
        }
    }
}

/// A group of a caller, and what of the group's entries counts for it.
pub type GroupMembership = (AgentId, EntryEffect);

/// The entries that apply to a caller at one server.
#[derive(Clone, Debug)]
struct CallerRules<O, G> {
    /// Those for the caller itself.
    own: O,
    /// Those of its groups.
    groups: G,
}

impl<'a, O, G> CallerRules<O, G>
where
    O: Iterator<Item = &'a AgentRules> + Clone,
    G: Iterator<Item = &'a AgentRules> + Clone,
{
    /// All of them.
    fn all(&self) -> impl Iterator<Item = &'a AgentRules> + Clone + use<'a, O, G> {
        self.own.clone().chain(self.groups.clone())
    }
}

/// The level of an entry: the more specific one decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleLevel {
    Tool,
    Pattern,
    Server,
}

impl RuleLevel {
    const ALL: [Self; 3] = [Self::Tool, Self::Pattern, Self::Server];

    fn source(self) -> Source {
        match self {
            Self::Tool | Self::Pattern => Source::ToolGrant,
            Self::Server => Source::ServerGrant,
        }
    }
}

/// The entry that decides about a tool or, without one, about the server as a whole, among all that apply to the
/// caller: one for the tool before one for several, these before one for its server. Within a level those for the caller
/// itself come before those of its groups, and of either deny wins.
fn find_deciding_entry<'a, O, G>(
    rules: &CallerRules<O, G>,
    tool: Option<&str>,
    now_ms: u64,
) -> Option<(Source, &'a AccessEntry)>
where
    O: Iterator<Item = &'a AgentRules> + Clone,
    G: Iterator<Item = &'a AgentRules> + Clone,
{
    RuleLevel::ALL.into_iter().find_map(|level| {
        let in_force = |rules: &'a AgentRules| rules.first_in_force(level, tool, now_ms);
        let own = rules.own.clone().filter_map(in_force);
        let own = own.min_by_key(|entry| entry.rank());
        let first = own.or_else(|| {
            let groups = rules.groups.clone().filter_map(in_force);
            groups.min_by_key(|entry| entry.rank())
        });
        Some((level.source(), first?))
    })
}

/// The published state that decides calls. Immutable; changes publish a new one.
#[derive(Clone, Debug)]
pub struct GrantTable {
    agents: HashMap<AgentId, Arc<AgentRuleSet>>,
    defaults: DefaultPolicies,
    as_of_ms: u64,
    generation: u64,
    /// The generation in which the defaults last changed.
    defaults_since: u64,
    /// Rules for agents of other nodes; `None` where there is no cluster, and they have no access.
    foreign: Option<Arc<ForeignRules>>,
    /// The generation in which these rules last changed.
    foreign_since: u64,
    /// The sets that narrow access.
    sets: Arc<ToolSets>,
    /// The known servers of other nodes, by their local ids.
    remote: Arc<RemoteServers>,
    local_node: NodeId,
}

/// Callers that share their lists, because they have the same access to every server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Audience {
    /// Has access to everything.
    All,
    /// Has no entries: the default policies of this generation decide.
    Common(u64),
    /// Has entries of its own, unchanged since the first generation, with the default policies of the second.
    Agent(AgentId, u64, u64),
    /// Has these entries of groups besides, each unchanged since its generation.
    InGroups(Box<Self>, Vec<(AgentId, EntryEffect, u64)>),
    /// The intersection of that audience and the set.
    InSet(Box<Self>, Arc<ToolSet>),
}

/// Permission for a call, valid as long as nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessLease {
    generation: u64,
    expires_ms: Option<u64>,
    foreign: bool,
}

impl GrantTable {
    /// Builds the table from the grants in force at `now_ms` (milliseconds since 1970). Each published table must
    /// have another `generation`.
    #[must_use]
    pub fn build(
        grants: &Grants,
        authority: &Authority,
        defaults: DefaultPolicies,
        now_ms: u64,
        generation: u64,
    ) -> Self {
        let empty = Self {
            agents: HashMap::new(),
            defaults,
            as_of_ms: now_ms,
            generation,
            defaults_since: generation,
            foreign: None,
            foreign_since: generation,
            sets: Arc::default(),
            remote: Arc::default(),
            local_node: authority.local_node(),
        };
        let agents = grants.iter().filter_map(|g| match &g.grant.subject {
            Subject::Agent(agent) => {
                (agent.node == authority.local_node()).then(|| agent.agent.clone())
            }
            Subject::Server(_) | Subject::AgentsAt(_) | Subject::AgentEverywhere(_) => None,
        });
        let all: BTreeSet<AgentId> = agents.collect();
        empty.with_changes(&all, grants, authority, now_ms, generation)
    }

    /// The table after a change for these agents; others keep their entries.
    #[must_use]
    pub fn with_changes(
        &self,
        changed: &BTreeSet<AgentId>,
        grants: &Grants,
        authority: &Authority,
        now_ms: u64,
        generation: u64,
    ) -> Self {
        let now_ms = now_ms.max(self.as_of_ms);
        let mut table = Self {
            as_of_ms: now_ms,
            generation,
            ..self.clone()
        };
        for agent in changed {
            let held = AgentRuleSet::new(agent, grants, authority, now_ms, generation);
            if held.is_empty() {
                table.agents.remove(agent)
            } else {
                table.agents.insert(agent.clone(), Arc::new(held))
            };
        }
        table
    }

    /// The table with other default policies.
    #[must_use]
    pub fn with_defaults(&self, defaults: DefaultPolicies, generation: u64) -> Self {
        Self {
            defaults,
            generation,
            defaults_since: generation,
            ..self.clone()
        }
    }

    /// The node whose table it is.
    #[must_use]
    pub fn local_node(&self) -> NodeId {
        self.local_node
    }

    /// The generation of the table.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The default policies.
    #[must_use]
    pub fn defaults(&self) -> &DefaultPolicies {
        &self.defaults
    }

    /// The audience of this caller.
    #[must_use]
    pub fn audience(&self, principal: &Principal) -> Audience {
        let Some(agent) = principal.agent() else {
            return Audience::All;
        };
        if agent.is_remote() {
            return Audience::Agent(agent.clone(), self.foreign_since, self.foreign_since);
        }
        let base = match self.agents.get(agent) {
            Some(held) => Audience::Agent(agent.clone(), held.changed_in, self.defaults_since),
            None if self.defaults.is_open() => Audience::All,
            None => Audience::Common(self.defaults_since),
        };
        let base = self.join_audience(principal, base);
        self.narrow_audience(principal, base)
    }

    /// True when all callers have the same access.
    #[must_use]
    pub fn is_uniform(&self) -> bool {
        let same = self.agents.is_empty() && self.foreign.is_none() && self.defaults.is_open();
        same && *self.sets == ToolSets::default()
    }

    /// Whether the caller has access to the server as a whole: its prompts, resources and notifications.
    #[must_use]
    pub fn is_server_open(&self, principal: &Principal, server: &ServerId, now_ms: u64) -> bool {
        self.is_allowed(principal, server, None, now_ms)
    }

    /// Whether the server is visible to the caller: it has access to the server as a whole, or to one of its tools.
    #[must_use]
    pub fn is_server_visible(&self, principal: &Principal, server: &ServerId, now_ms: u64) -> bool {
        let whole = self.decide(principal, server, None, now_ms);
        let Some(agent) = principal.agent() else {
            return true;
        };
        if agent.is_remote() {
            let now_ms = now_ms.max(self.as_of_ms);
            let foreign = self.foreign.as_ref();
            return foreign.is_some_and(|rules| rules.is_server_visible(agent, server, now_ms));
        }
        let rules = self.local_rules(principal, agent, server);
        let tools = rules.all().flat_map(|rules| rules.tools.keys());
        let mut tools = tools
            .map(|tool| &**tool)
            .chain(self.tools_in_sets(principal, server));
        whole.permission == Permission::Allow
            || whole.entry.is_some_and(AccessEntry::has_condition)
            || tools.any(|tool| self.is_allowed(principal, server, Some(tool), now_ms))
    }

    /// Whether an agent or a group has entries of its own.
    #[must_use]
    pub(crate) fn has_entries(&self, agent: &AgentId) -> bool {
        self.agents.contains_key(agent)
    }

    /// All agents that have entries.
    pub fn agents(&self) -> impl Iterator<Item = &AgentId> + Clone {
        self.agents.keys()
    }

    /// The tools of a server that this agent has entries for, or that its sets name, by the server's own names.
    pub fn named_tools<'a, 'b>(
        &'a self,
        principal: &'b Principal,
        server: &'b ServerId,
    ) -> impl Iterator<Item = &'a str> + use<'a, 'b>
    where
        'a: 'b,
    {
        let here = principal.agent().filter(|agent| !agent.is_remote());
        let local = here.map(|agent| self.local_rules(principal, agent, server).all());
        let foreign = principal.agent().zip(self.foreign.as_ref());
        let foreign = foreign.and_then(|(agent, rules)| {
            let caller = agent.as_remote()?;
            Some(rules.rules_for((agent, &caller), server).all())
        });
        let rules = local.into_iter().flatten();
        let rules = rules.chain(foreign.into_iter().flatten());
        let tools = rules.flat_map(|rules| rules.tools.keys());
        let tools = tools.map(|tool| &**tool);
        tools.chain(self.tools_in_sets(principal, server))
    }

    /// Agents with an entry that was in force when the table was made and expired by `now_ms`.
    #[must_use]
    pub fn expired_agents(&self, now_ms: u64) -> BTreeSet<AgentId> {
        let ended = |held: &AgentRuleSet| {
            let mut entries = held.rules().flat_map(AgentRules::entries);
            entries.any(|entry| !entry.is_in_force(now_ms))
        };
        let agents = self.agents.iter().filter(|(_, held)| ended(held));
        agents.map(|(agent, _)| agent.clone()).collect()
    }

    /// Decides one call; without a tool, access to the server as a whole. `tool` is the server's own name for it. A
    /// clock set back before the table's own time counts as that time.
    #[must_use]
    pub fn decide<'a>(
        &'a self,
        principal: &Principal,
        server: &ServerId,
        tool: Option<&str>,
        now_ms: u64,
    ) -> AccessDecision<'a> {
        let Some(agent) = principal.agent() else {
            return local_decision(Permission::Allow, Source::Operator, None);
        };
        if let Some((why, _)) = self.excluding_set(principal, server, tool) {
            return AccessDecision {
                narrowing: Some(why),
                ..local_decision(Permission::Deny, Source::DefaultPolicy, None)
            };
        }
        let now_ms = now_ms.max(self.as_of_ms);
        if agent.is_remote() {
            return match &self.foreign {
                Some(foreign) => foreign.decide(agent, server, tool, now_ms),
                None => foreign::deny(ForeignDenial::NotMember),
            };
        }
        let rules = self.local_rules(principal, agent, server);
        if let Some((source, entry)) = find_deciding_entry(&rules, tool, now_ms) {
            return local_decision(entry.permission, source, Some(entry)).with_condition(tool);
        }
        let permission = self.defaults.for_server(server).permission();
        local_decision(permission, Source::DefaultPolicy, None)
    }

    /// Whether this caller may call a tool, at least with some arguments, or, without a tool, use the server as a
    /// whole.
    #[must_use]
    pub fn is_allowed(
        &self,
        principal: &Principal,
        server: &ServerId,
        tool: Option<&str>,
        now_ms: u64,
    ) -> bool {
        let decision = self.decide(principal, server, tool, now_ms);
        decision.permission == Permission::Allow || decision.is_conditional
    }

    /// A lease for a call that this table allows whatever its arguments are; `None` if it denies it, or if its
    /// [conditions](Self::conditions) decide.
    #[must_use]
    pub fn lease(&self, decision: &AccessDecision<'_>) -> Option<AccessLease> {
        (decision.permission == Permission::Allow).then(|| AccessLease {
            generation: self.generation,
            expires_ms: decision.entry.and_then(|entry| entry.not_after_ms),
            foreign: decision.foreign,
        })
    }

    /// True while the lease is valid. If false, decide again.
    #[must_use]
    pub fn is_lease_valid(&self, pass: AccessLease, now_ms: u64) -> bool {
        let now_ms = now_ms.max(self.as_of_ms);
        let foreign = self.foreign.as_ref();
        let lapsed = pass.foreign && foreign.is_none_or(|rules| rules.has_expired_lease());
        let same = pass.generation == self.generation && !lapsed;
        same && pass.expires_ms.is_none_or(|end| now_ms < end)
    }

    /// When the first entry expires. After that the table contains expired entries, which are ignored but take
    /// memory.
    #[must_use]
    pub fn next_expiry_ms(&self) -> Option<u64> {
        let rules = self.agents.values().flat_map(|held| held.rules());
        let entries = rules.flat_map(AgentRules::entries);
        entries.filter_map(|entry| entry.not_after_ms).min()
    }
}

/// A decision about a caller of this node.
fn local_decision(
    permission: Permission,
    source: Source,
    entry: Option<&AccessEntry>,
) -> AccessDecision<'_> {
    AccessDecision {
        permission,
        source,
        entry,
        foreign: false,
        foreign_denial: None,
        narrowing: None,
        is_conditional: false,
    }
}
