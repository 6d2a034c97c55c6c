//! The entries of one agent of this node: for this node's servers, and this node's own denials for servers of other
//! nodes. Access to those is granted in the logs of the cluster, and decided by the node that owns them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use mgp_protocol::ids::{AgentId, NodeServer, ServerId};
use mgp_protocol::mgp::access::Permission;

use super::{AccessEntry, AgentRules, EntryCondition, EntryEffect, GrantTable, GroupMembership};
use crate::policy::grants::{Authority, GrantResource, GrantStatus, Grants, Subject};

/// Servers of other nodes, by their local ids: these begin with the node's name, which may change.
pub type RemoteServers = BTreeMap<ServerId, NodeServer>;

/// All entries of one agent.
#[derive(Clone, Debug, Default)]
pub(super) struct AgentRuleSet {
    servers: HashMap<ServerId, AgentRules>,
    /// For servers of other nodes, by the nodes' ids.
    remote: HashMap<NodeServer, AgentRules>,
    /// The groups that it is in, sorted.
    pub(super) groups: Box<[GroupMembership]>,
    /// Of a group: what closes something, for a caller for whom no more of it counts.
    closing: Option<Box<Self>>,
    /// The generation of the table in which they last changed.
    pub(super) changed_in: u64,
}

impl AgentRuleSet {
    /// An agent's grants in force at `now_ms`. For a server of another node only denials count.
    pub(super) fn new(
        agent: &AgentId,
        grants: &Grants,
        authority: &Authority,
        now_ms: u64,
        since: u64,
    ) -> Self {
        let mut held = Self {
            changed_in: since,
            ..Self::default()
        };
        let here = authority.local_node();
        let subject = Subject::Agent(here.agent(agent.clone()));
        let mut compiled = 0;
        let mut groups = Vec::new();
        for granted in grants.for_subject(&subject) {
            let resource = &granted.grant.resource;
            let effect = if grants.status(granted, authority, now_ms) == GrantStatus::InForce {
                EntryEffect::Whole
            } else if grants.is_closing(granted, authority, now_ms) {
                EntryEffect::Closing
            } else {
                continue;
            };
            if let GrantResource::Group(group) = resource {
                groups.push((group.id(), effect));
            }
            let Some(on) = resource.server() else {
                continue;
            };
            let counts = on.node == here || granted.grant.permission == Permission::Deny;
            if !counts {
                continue;
            }
            let rules = if on.node == here {
                held.servers.entry(on.server.clone()).or_default()
            } else {
                held.remote.entry(on.clone()).or_default()
            };
            let condition = EntryCondition::from_granted(granted, effect, &mut compiled);
            let end_ms = granted.grant.not_after_ms;
            rules.add(resource, AccessEntry::new(granted, end_ms, condition));
        }
        let all = held.servers.values_mut().chain(held.remote.values_mut());
        all.for_each(AgentRules::sort);
        groups.sort();
        groups.dedup_by(|next, kept| next.0 == kept.0);
        held.groups = groups.into();
        held.closing = agent.is_group().then(|| Box::new(held.to_closing()));
        held
    }

    /// Only what closes something.
    fn to_closing(&self) -> Self {
        let of = |rules: &AgentRules| rules.to_closing();
        let servers = self.servers.iter();
        let remote = self.remote.iter();
        Self {
            servers: servers.map(|(on, rules)| (on.clone(), of(rules))).collect(),
            remote: remote.map(|(on, rules)| (on.clone(), of(rules))).collect(),
            changed_in: self.changed_in,
            ..Self::default()
        }
    }

    /// What of a group's entries counts for a caller.
    pub(super) fn counting(&self, effect: EntryEffect) -> Option<&Self> {
        match effect {
            EntryEffect::Whole => Some(self),
            EntryEffect::Closing => self.closing.as_deref(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.remote.is_empty() && self.groups.is_empty()
    }

    pub(super) fn rules(&self) -> impl Iterator<Item = &AgentRules> {
        self.servers.values().chain(self.remote.values())
    }

    /// The entries for a server. While this id of a server of another node is unknown, for instance just after its
    /// node was renamed, denials for any server with the same own id count.
    pub(super) fn for_server(
        &self,
        server: &ServerId,
        remote: &RemoteServers,
    ) -> Option<&AgentRules> {
        if !server.is_remote() {
            return self.servers.get(server);
        }
        if self.remote.is_empty() {
            return None;
        }
        if let Some(on) = remote.get(server) {
            return self.remote.get(on);
        }
        let (_, own) = server.remote_parts()?;
        let mut all = self.remote.iter();
        let found = all.find(|(on, _)| on.server == own);
        found.map(|(_, rules)| rules)
    }
}

impl GrantTable {
    /// The table with new local ids of servers of other nodes.
    #[must_use]
    pub fn with_remote(&self, remote: Arc<RemoteServers>, generation: u64) -> Self {
        let mut agents = self.agents.clone();
        let concerned = agents.values_mut().filter(|held| !held.remote.is_empty());
        for held in concerned {
            *held = Arc::new(AgentRuleSet {
                servers: held.servers.clone(),
                remote: held.remote.clone(),
                groups: held.groups.clone(),
                closing: held.closing.clone(),
                changed_in: generation,
            });
        }
        Self {
            agents,
            remote,
            generation,
            ..self.clone()
        }
    }

    /// The servers of other nodes, by their local ids.
    #[must_use]
    pub fn remote(&self) -> &Arc<RemoteServers> {
        &self.remote
    }
}

#[cfg(test)]
mod tests {
    use mgp_protocol::ids::NodeId;
    use mgp_protocol::mgp::access::{DefaultPolicy, Source};

    use super::*;
    use crate::node_key::NodeKey;
    use crate::policy::access::{DefaultPolicies, Principal};
    use crate::policy::grants::{
        CausalContext, Grant, GrantChange, GrantId, GrantResource, LogChange, LogPosition,
        Operation, SignedOperation,
    };

    fn agent() -> AgentId {
        AgentId::new("agent.a")
    }

    fn table(permission: Permission, tool: Option<&str>) -> GrantTable {
        let key = NodeKey::new(&[1; 32]);
        let (here, on) = (key.node_id(), nas().server(ServerId::new("demo")));
        let grant = Grant {
            id: GrantId([1; 16]),
            subject: Subject::Agent(here.agent(agent())),
            resource: match tool {
                Some(tool) => GrantResource::Tool(on, tool.into()),
                None => GrantResource::Server(on),
            },
            permission,
            not_after_ms: None,
            told_by: None,
            justification: None,
            replaces: Vec::new(),
            when: None,
        };
        let mut grants = Grants::default();
        let (sequence, previous) = grants.next_position(here);
        let operation = Operation {
            cluster: None,
            place: LogPosition {
                issuer: here,
                sequence,
            },
            previous,
            author: "operator".into(),
            told_at_ms: 0,
            change: LogChange::Grants(GrantChange::Grant(grant)),
            context: CausalContext::default(),
        };
        let signed = SignedOperation::new(operation, &key);
        grants.apply(signed.encoded()).unwrap();
        let defaults = DefaultPolicies {
            kernel: match permission {
                Permission::Deny => DefaultPolicy::OptOut,
                Permission::Allow => DefaultPolicy::OptIn,
            },
            servers: HashMap::new(),
            group: None,
        };
        GrantTable::build(&grants, &Authority::with_local_issuer(here), defaults, 0, 1)
    }

    fn nas() -> NodeId {
        NodeId([2; 32])
    }

    fn called(table: &GrantTable, name: &str, node: NodeId, generation: u64) -> GrantTable {
        let server = ServerId::new("demo");
        let id = ServerId::new_remote(name, &server);
        let remote = [(id, node.server(server))].into();
        table.with_remote(Arc::new(remote), generation)
    }

    fn opens(table: &GrantTable, server: &str, tool: &str) -> bool {
        let who = Principal::Agent(agent());
        table.is_allowed(&who, &ServerId::new(server), Some(tool), 0)
    }

    #[test]
    fn an_own_denial_follows_the_node_and_not_its_name() {
        let table = called(&table(Permission::Deny, Some("time")), "nas", nas(), 2);
        assert!(!opens(&table, "nas/demo", "time") && opens(&table, "nas/demo", "other"));
        assert!(opens(&table, "demo", "time"), "a server of this node");
        let renamed = called(&table, "attic", nas(), 3);
        assert!(!opens(&renamed, "attic/demo", "time"));
        assert_eq!((table.generation(), renamed.generation()), (2, 3));
        let names: Vec<&ServerId> = renamed.remote().keys().collect();
        assert_eq!(names, [&ServerId::new("attic/demo")]);
        let another = called(&table, "nas", NodeId([3; 32]), 4);
        assert!(
            opens(&another, "nas/demo", "time"),
            "another node of the name"
        );
        assert_ne!(
            table.audience(&Principal::Agent(agent())),
            renamed.audience(&Principal::Agent(agent()))
        );
    }

    /// Between a rename and the time at which it is known here.
    #[test]
    fn an_own_denial_counts_while_the_node_is_not_known_by_its_name() {
        let table = table(Permission::Deny, None);
        assert!(!opens(&table, "nas/demo", "time") && opens(&table, "nas/files", "time"));
        let who = Principal::Agent(agent());
        let nas = ServerId::new("nas/demo");
        assert!(!table.is_server_visible(&who, &nas, 0));
        let decision = table.decide(&who, &nas, Some("time"), 0);
        assert_eq!(decision.source, Source::ServerGrant);
    }

    /// What is allowed of another node stands in the logs of the cluster.
    #[test]
    fn this_nodes_own_entries_allow_nothing_of_other_nodes() {
        let table = called(&table(Permission::Allow, None), "nas", nas(), 2);
        assert!(!opens(&table, "nas/demo", "time"));
    }
}
