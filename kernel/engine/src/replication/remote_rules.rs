//! Access rules for this node's servers, derived from the logs of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::ids::{NodeAgent, NodeId, NodeServer, ServerId};
use mgp_protocol::mgp::access::{Entry, Explanation, Source};

use super::replica::Replica;
use crate::clock::MonotonicTime;
use crate::policy::access::{
    EntryEffect, ExpiredLease, ExplainedGrant, ForeignLease, ForeignRules, LevelEntries,
    SharedTools, describe_conflict, describe_membership, explain_foreign, list_cluster,
};
use crate::policy::grants::{GrantResource, GrantStatus, LoggedGrant, Specificity, Subject};

/// The servers of this node, and what is shared of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalServers {
    /// All local servers.
    pub names: BTreeSet<ServerId>,
    /// The shared tools, and with which nodes.
    pub shared: SharedTools,
}

/// Builds the rules for agents of other nodes.
#[must_use]
pub fn foreign_rules(
    replica: &Replica,
    known: &LocalServers,
    now_ms: u64,
    now: MonotonicTime,
) -> ForeignRules {
    let here = replica.logs().local_node();
    let is_for_local_server = |granted: &&LoggedGrant| match &granted.grant.resource {
        GrantResource::Server(on) | GrantResource::Tool(on, _) | GrantResource::Tools(on, _) => {
            on.node == here && known.names.contains(&on.server)
        }
        GrantResource::Group(_) => true,
        GrantResource::Permission(_) => false,
    };
    let is_for_other_node = |granted: &&LoggedGrant| match &granted.grant.subject {
        Subject::Agent(agent) => agent.node != here,
        Subject::AgentsAt(node) => *node != here,
        Subject::AgentEverywhere(_) => true,
        Subject::Server(_) => false,
    };
    let all = replica.logs().grants().iter();
    let all = all
        .filter(is_for_local_server)
        .filter(is_for_other_node)
        .flat_map(|granted| effects(replica, granted, now_ms));
    ForeignRules::new(
        trusted_nodes(replica),
        known.shared.clone(),
        replica.lease(now),
        all,
    )
}

/// What of a grant counts, each with when it ends by the local clock. A condition closes until the last clock says that
/// it has ended, and allows until the first one does.
fn effects<'a>(
    replica: &Replica,
    granted: &'a LoggedGrant,
    now_ms: u64,
) -> impl Iterator<Item = (&'a LoggedGrant, Option<u64>, EntryEffect)> + use<'a> {
    let counts = replica.grant_status(granted, now_ms) == GrantStatus::InForce;
    let whole = counts.then(|| (granted, replica.expiry_ms(granted), EntryEffect::Whole));
    let closes = replica.is_closing(granted, now_ms);
    let closing = closes.then(|| {
        (
            granted,
            replica.closing_expiry_ms(granted),
            EntryEffect::Closing,
        )
    });
    whole.into_iter().chain(closing)
}

/// The other nodes whose agents' identities are trusted.
fn trusted_nodes(replica: &Replica) -> BTreeSet<NodeId> {
    let members = replica.logs().members();
    let here = replica.logs().local_node();
    if !members.is_member(here) {
        return BTreeSet::new();
    }
    let others = members.iter().filter(|(node, member)| {
        *node != here && member.is_active() && !replica.has_duplicate_key(*node)
    });
    others.map(|(node, _)| node).collect()
}

/// Explains the decision of these rules on a call of an agent of another node.
#[must_use]
pub fn explain(
    replica: &Replica,
    known: &LocalServers,
    caller: &NodeAgent,
    on: (&ServerId, Option<&str>),
    now_ms: u64,
    now: MonotonicTime,
) -> Explanation {
    let (server, tool) = on;
    let on = replica.logs().local_node().server(server.clone());
    let rules = foreign_rules(replica, known, now_ms, now);
    let name = |node| member_name(replica, node);
    let denial = rules.find_denial(caller, server, tool);
    let denial = denial.map(|denial| denial.describe(name, now));
    explain_by_logs(replica, caller, (&on, tool), denial, now_ms)
}

/// Explains what the logs say of an agent at a server of any node.
fn explain_by_logs(
    replica: &Replica,
    caller: &NodeAgent,
    (on, tool): (&NodeServer, Option<&str>),
    denial: Option<String>,
    now_ms: u64,
) -> Explanation {
    let name = |node| member_name(replica, node);
    let all = grants_for_agent(replica, caller);
    let own = entries_by_level(replica, &all, (on, tool), EntryEffect::Whole, now_ms);
    let groups = replica.groups_of(caller, now_ms).into_iter();
    let groups: Vec<(EntryEffect, Vec<LoggedGrant>)> = groups
        .map(|(group, effect)| {
            let subject = Subject::cluster_group(&group);
            (effect, replica.logs().grants_for(&subject))
        })
        .collect();
    let groups = groups.iter().flat_map(|(effect, granted)| {
        entries_by_level(replica, granted, (on, tool), *effect, now_ms)
    });
    let groups: Vec<LevelEntries<'_>> = groups.filter(|(.., found)| !found.is_empty()).collect();
    let mut levels: Vec<(usize, LevelEntries<'_>)> = own
        .into_iter()
        .chain(groups)
        .map(|it| (rank(&it.1), it))
        .collect();
    // Stable: at one level those for the agent itself stay first.
    levels.sort_by_key(|(rank, _)| *rank);
    let levels = merge_groups(levels);
    let joined = all.iter().filter(|it| it.grant.joined_group().is_some());
    let joined = joined.filter(|it| {
        replica.grant_status(it, now_ms) == GrantStatus::InForce || replica.is_closing(it, now_ms)
    });
    let who = format!("{}@{}", caller.agent, name(caller.node));
    let joined: Vec<String> = joined.map(|it| describe_membership(it, &who)).collect();
    let explained = explain_foreign(levels.into_iter(), tool, denial, &name);
    Explanation {
        considered: [joined, explained.considered].concat(),
        ..explained
    }
}

/// The order of the levels.
fn rank(resource: &GrantResource) -> usize {
    match resource {
        GrantResource::Tool(..) => 0,
        GrantResource::Tools(..) => 1,
        GrantResource::Server(_) | GrantResource::Permission(_) | GrantResource::Group(_) => 2,
    }
}

/// The entries of all groups at one level decide together.
fn merge_groups(levels: Vec<(usize, LevelEntries<'_>)>) -> Vec<LevelEntries<'_>> {
    let mut merged: Vec<(usize, bool, LevelEntries<'_>)> = Vec::new();
    for (rank, level) in levels {
        let is_group = level.2.iter().any(|it| it.granted.grant.subject.is_group());
        match merged.last_mut() {
            Some((other, true, (.., found))) if is_group && *other == rank => found.extend(level.2),
            Some(_) | None => merged.push((rank, is_group, level)),
        }
    }
    merged.into_iter().map(|(.., level)| level).collect()
}

/// All grants for an agent, by its name or by a pattern.
fn grants_for_agent(replica: &Replica, caller: &NodeAgent) -> Vec<LoggedGrant> {
    let subjects = Subject::subjects_for(caller).into_iter();
    let all = subjects.flat_map(|subject| replica.logs().grants_for(&subject));
    all.collect()
}

/// The grants for a server or one of its tools, the most specific first, each with its status.
fn entries_by_level<'a>(
    replica: &Replica,
    grants: &'a [LoggedGrant],
    (on, tool): (&NodeServer, Option<&str>),
    effect: EntryEffect,
    now_ms: u64,
) -> Vec<LevelEntries<'a>> {
    let mut all: BTreeMap<Specificity, Vec<ExplainedGrant<'_>>> = BTreeMap::new();
    for granted in grants {
        if let Some(specificity) = granted.grant.resource.specificity(on, tool) {
            let explained = ExplainedGrant {
                granted,
                status: replica.grant_status(granted, now_ms),
                is_closing: replica.is_closing(granted, now_ms),
            };
            let level = all.entry(specificity).or_default();
            level.extend(explained.for_member(effect));
        }
    }
    let mut take_level = |specificity| all.remove(&specificity).unwrap_or_default();
    let mut levels = Vec::new();
    if let Some(tool) = tool {
        let resource = GrantResource::Tool(on.clone(), tool.to_owned());
        levels.push((Source::ToolGrant, resource, take_level(Specificity::Tool)));
        let grants = take_level(Specificity::Tools);
        let resource = grants.first().map(|it| it.granted.grant.resource.clone());
        levels.extend(resource.map(|resource| (Source::ToolGrant, resource, grants)));
    }
    let grants = take_level(Specificity::Server);
    let server = GrantResource::Server(on.clone());
    levels.push((Source::ServerGrant, server, grants));
    levels
}

/// The name of a node in the cluster: the same at all members.
#[must_use]
pub(crate) fn member_name(replica: &Replica, node: NodeId) -> String {
    let member = replica.logs().members().get(node);
    member.map_or_else(|| node.short_id(), |member| member.name.clone())
}

/// Explains the grants of an agent for a server of another node. Only its owner knows whether it is shared, and
/// whether the leases there are valid.
#[must_use]
pub fn explain_remote(
    replica: &Replica,
    caller: &NodeAgent,
    on: &NodeServer,
    tool: Option<&str>,
    now_ms: u64,
) -> Explanation {
    explain_by_logs(replica, caller, (on, tool), None, now_ms)
}

/// Lists the grants in force or in conflict with a revoke. `name` gives the names of other nodes.
pub fn list_entries(replica: &Replica, now_ms: u64, name: impl Fn(NodeId) -> String) -> Vec<Entry> {
    let all = replica.logs().grants().iter().filter_map(|granted| {
        let status = replica.grant_status(granted, now_ms);
        let conflict = describe_conflict(&status, |node| member_name(replica, node));
        (status == GrantStatus::InForce || conflict.is_some()).then_some((granted, conflict))
    });
    list_cluster(all, replica.logs().local_node(), name)
}

impl Replica {
    /// How long grants for agents of other nodes are valid here.
    #[must_use]
    pub fn lease(&self, now: MonotonicTime) -> ForeignLease {
        if self.is_missing_entries() {
            return ForeignLease::LogsIncomplete;
        }
        match self.expired_peer(now) {
            Some(by) => ForeignLease::Expired(ExpiredLease {
                node: by,
                cause: self.lease_expiry_cause(by),
            }),
            None => ForeignLease::Valid(self.next_lease_expiry(now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use mgp_protocol::federation::hello::LifeId;
    use mgp_protocol::ids::AgentId;
    use mgp_protocol::mgp::access::{DefaultPolicy, Permission};
    use mgp_screening::conditions::{Facts, ToolFacts};

    use super::super::lease::{DEFAULT_LEASE, Nonce};
    use super::super::replica::{LogMessage, ReplicaConfig, ReplicaContext};
    use super::super::test_logs::{
        LogWriter, admit_change, allow_change, cluster_id, cut_change, deny_change, expiring_at,
        for_subject, for_tool, for_tool_pattern, found_cluster, joining, node, on_condition,
        revoke_change,
    };
    use super::*;
    use crate::cluster::clock_offset::PeerClock;
    use crate::policy::access::{DefaultPolicies, ForeignDenial, GrantTable, Principal};
    use crate::policy::grants::{
        Authority, Grants, LogChange, LogTip, MemberRole, Operation, SignedOperation,
    };

    /// Node 0 owns the server, and receives operations of node 1.
    struct Owner {
        replica: Replica,
        known: LocalServers,
        founder: LogWriter,
        other: LogWriter,
        seconds: u64,
    }

    fn files() -> ServerId {
        ServerId::new("files")
    }

    fn caller() -> NodeAgent {
        node(1).agent(AgentId::new("a"))
    }

    impl Owner {
        fn new() -> Self {
            let (founding, mut founder) = found_cluster();
            let start = ReplicaConfig {
                node: node(0),
                cluster: cluster_id(),
                instance: LifeId([0; 16]),
                lease: DEFAULT_LEASE,
                hints: BTreeSet::new(),
                pending_revokes: Vec::new(),
                duplicates: BTreeSet::new(),
            };
            let admitted = founder.write(admit_change(1, MemberRole::Admin));
            let mut known = LocalServers::default();
            known.names.insert(files());
            known.shared.add(files(), None, "read_*");
            known.shared.add(files(), Some(node(1)), "*");
            let mut owner = Self {
                replica: Replica::new(start, &[founding, admitted]),
                known,
                founder,
                other: LogWriter::new(1, cluster_id()),
                seconds: 0,
            };
            owner.renew_lease();
            owner
        }

        fn now(&self) -> MonotonicTime {
            MonotonicTime::new(Duration::from_secs(self.seconds))
        }

        fn act<T>(&mut self, act: impl FnOnce(&mut Replica, &mut ReplicaContext<'_>) -> T) -> T {
            let mut nonce = || Nonce([7; 16]);
            let sign =
                |_: Operation| -> SignedOperation { unreachable!("this node writes nothing") };
            let mut cx = ReplicaContext {
                now: self.now(),
                now_ms: 0,
                nonce: &mut nonce,
                sign: &sign,
            };
            act(&mut self.replica, &mut cx)
        }

        fn merge(&mut self, signed: SignedOperation) {
            self.act(|replica, cx| replica.handle_entries(&[signed], cx));
            self.renew_lease();
        }

        /// Node 1 answers a request with the heads known here.
        fn renew_lease(&mut self) {
            let heads = Arc::new(self.replica.logs().heads(&Default::default()));
            let answer = LogMessage::Response {
                instance: LifeId([1; 16]),
                nonce: Nonce([7; 16]),
                heads,
            };
            self.act(|replica, cx| {
                replica.handle_link_up(node(1), cx);
                replica.handle_message(node(1), answer, cx)
            });
        }

        fn table(&self) -> GrantTable {
            let open = DefaultPolicies {
                kernel: DefaultPolicy::OptOut,
                servers: std::collections::HashMap::new(),
                group: None,
            };
            let rules = foreign_rules(&self.replica, &self.known, 0, self.now());
            let authority = Authority::with_local_issuer(node(0));
            let table = GrantTable::build(&Grants::default(), &authority, open, 0, 1);
            table.with_foreign(Some(Arc::new(rules)), 2)
        }

        fn decide(&self, who: &NodeAgent, tool: Option<&str>) -> Result<(), Option<ForeignDenial>> {
            let table = self.table();
            let who = Principal::Agent(AgentId::from_node_agent(who));
            let decision = table.decide(&who, &files(), tool, 0);
            let explained = explain(
                &self.replica,
                &self.known,
                &caller(),
                (&files(), tool),
                0,
                self.now(),
            );
            if who == Principal::Agent(AgentId::from_node_agent(&caller())) {
                assert_eq!(explained.permission, decision.permission, "{explained:?}");
            }
            match decision.permission {
                Permission::Allow => Ok(()),
                Permission::Deny => Err(decision.foreign_denial),
            }
        }
    }

    /// FED-044: agents of other nodes are always opt-in, whatever the default policy at home.
    #[test]
    fn only_a_grant_allows_an_agent_of_another_node() {
        let mut owner = Owner::new();
        assert_eq!(
            owner.decide(&caller(), None),
            Err(Some(ForeignDenial::NotGranted))
        );
        let granted = owner.other.write(allow_change(1));
        owner.merge(granted);
        assert_eq!(owner.decide(&caller(), None), Ok(()));
        assert_eq!(owner.decide(&caller(), Some("write")), Ok(()));
        for other in [
            node(1).agent(AgentId::new("b")),
            node(2).agent(AgentId::new("a")),
        ] {
            assert!(owner.decide(&other, None).is_err(), "{other}");
        }
        let local = Principal::Agent(AgentId::new("a"));
        assert!(
            owner.table().is_server_open(&local, &files(), 0),
            "local agents are not affected"
        );
        let revoked = owner.founder.write(revoke_change(1));
        owner.merge(revoked);
        assert_eq!(
            owner.decide(&caller(), None),
            Err(Some(ForeignDenial::NotGranted))
        );
    }

    #[test]
    fn a_denial_wins_over_all_allows() {
        let mut owner = Owner::new();
        for change in [allow_change(1), deny_change(2), allow_change(3)] {
            let written = owner.other.write(change);
            owner.merge(written);
        }
        assert_eq!(owner.decide(&caller(), Some("read_it")), Err(None));
        let listed = list_entries(&owner.replica, 0, |_| "desk".to_owned());
        assert_eq!(listed.len(), 3);
        assert!(
            listed
                .iter()
                .all(|entry| entry.agent_id == "a@desk" && entry.server_id == "files")
        );
    }

    /// EXT-145: a condition is one for agents of other nodes as well, by name and by pattern. It opens nothing that is no
    /// call of a tool, and closes what is less specific.
    #[test]
    fn a_condition_is_evaluated_by_the_owner() {
        let facts = |arguments| Facts {
            arguments,
            tool: ToolFacts {
                name: "read_it",
                server: "files",
                risk: "moderate",
                effect: "read",
                definition: "{}",
            },
            agent: "a",
            node: "01",
            now_ms: 0,
            trust: "standard",
            home: None,
        };
        let all = Subject::AgentsAt(node(1));
        for subject in [Subject::Agent(caller()), all] {
            let mut owner = Owner::new();
            let whole = owner.other.write(allow_change(1));
            owner.merge(whole);
            let narrow = for_tool(on_condition(allow_change(2), "args.n == 1"), "read_it");
            let narrow = owner.other.write(for_subject(narrow, subject.clone()));
            owner.merge(narrow);
            let table = owner.table();
            let who = Principal::Agent(AgentId::from_node_agent(&caller()));
            let read = Some("read_it");
            let decision = table.decide(&who, &files(), read, 0);
            assert!(decision.is_conditional && table.lease(&decision).is_none());
            let conditions = table.conditions(&who, &files(), "read_it", 0);
            assert!(conditions.find_holding(&facts(r#"{"n":1}"#)).is_some());
            assert!(conditions.find_holding(&facts(r#"{"n":2}"#)).is_none());
            assert!(owner.decide(&caller(), Some("write")).is_ok());
            let on = node(0).server(files());
            let there = explain_remote(&owner.replica, &caller(), &on, read, 0);
            assert_eq!(
                (there.permission, there.conditions.len()),
                (Permission::Deny, 1)
            );
            assert!(
                owner
                    .replica
                    .authorize(&caller(), &files(), read, 0, owner.now())
                    .is_err()
            );
            // What its issuer allowed does not count any more, and the condition still closes.
            let unknown = owner.other.write(LogChange::Unknown("later".into()));
            owner.merge(unknown);
            let founder = owner.founder.write(allow_change(3));
            owner.merge(founder);
            let table = owner.table();
            assert!(owner.decide(&caller(), Some("write")).is_ok());
            assert!(!table.is_allowed(&who, &files(), read, 0), "{subject:?}");
        }
    }

    fn readers() -> Subject {
        Subject::AgentEverywhere(AgentId::new("group.readers"))
    }

    /// EXT-216: an admin's entry puts an agent, or all of a node, into a group; nothing else does, whatever the agent's
    /// node says or calls it.
    #[test]
    fn a_group_counts_by_an_admins_entry_only() {
        let mut owner = Owner::new();
        let granted = owner.founder.write(for_subject(allow_change(1), readers()));
        owner.merge(granted);
        let read = Some("read_it");
        let not_granted = Err(Some(ForeignDenial::NotGranted));
        assert_eq!(owner.decide(&caller(), read), not_granted);
        // An agent that its node calls like the group, and one of a node that is no admin and writes the entry itself.
        let impostor = node(1).agent(AgentId::new("group.readers"));
        assert!(owner.decide(&impostor, read).is_err());
        let admitted = owner.founder.write(admit_change(2, MemberRole::Member));
        owner.merge(admitted);
        let member = node(2).agent(AgentId::new("a"));
        let mut forger = LogWriter::new(2, cluster_id());
        let own = for_subject(
            joining(allow_change(2), "readers"),
            Subject::Agent(member.clone()),
        );
        let forged = forger.write(own);
        owner.merge(forged);
        assert_eq!(owner.decide(&member, read), not_granted);
        let joined = owner.founder.write(joining(allow_change(3), "readers"));
        owner.merge(joined);
        assert_eq!(owner.decide(&caller(), read), Ok(()));
        assert!(
            owner
                .decide(&node(1).agent(AgentId::new("b")), read)
                .is_err()
        );
        let on = node(0).server(files());
        let there = explain_remote(&owner.replica, &caller(), &on, read, 0);
        assert_eq!(there.permission, Permission::Allow);
        assert!(there.rule.contains("to group.readers"), "{there:?}");
        assert!(
            there.considered[0].contains("a@node-1 is in group.readers"),
            "{there:?}"
        );
        // A denial of the agent's own wins, one of another group too; then the node is in it.
        let own = owner.founder.write(for_tool(deny_change(4), "read_it"));
        owner.merge(own);
        assert_eq!(owner.decide(&caller(), read), Err(None));
        let left = owner.founder.write(revoke_change(3));
        owner.merge(left);
        assert_eq!(owner.decide(&caller(), Some("write")), not_granted);
        let all = for_subject(
            joining(allow_change(5), "readers"),
            Subject::AgentsAt(node(2)),
        );
        let all = owner.founder.write(all);
        owner.merge(all);
        assert_eq!(owner.decide(&member, read), Ok(()));
    }

    /// EXT-216: while it is in doubt whether an entry counts, the group gives nothing and what it is denied stays.
    #[test]
    fn a_membership_in_doubt_only_closes() {
        let mut owner = Owner::new();
        let joined = owner.other.write(joining(allow_change(1), "readers"));
        owner.merge(joined);
        let own = owner.founder.write(allow_change(2));
        owner.merge(own);
        let denied = for_tool(for_subject(deny_change(3), readers()), "read_it");
        let denied = owner.founder.write(denied);
        owner.merge(denied);
        let allowed = for_tool(for_subject(allow_change(4), readers()), "read_more");
        let allowed = owner.founder.write(allowed);
        owner.merge(allowed);
        assert_eq!(owner.decide(&caller(), Some("read_it")), Err(None));
        let unknown = owner.other.write(LogChange::Unknown("later".into()));
        owner.merge(unknown);
        let revoked = owner.founder.write(revoke_change(2));
        owner.merge(revoked);
        assert_eq!(
            owner.decide(&caller(), Some("read_it")),
            Err(None),
            "it closes still"
        );
        let not_granted = Err(Some(ForeignDenial::NotGranted));
        assert_eq!(
            owner.decide(&caller(), Some("read_more")),
            not_granted,
            "and gives nothing"
        );
    }

    /// EXT-216: a revoke that did not know a group's grant closes it, as it closes that of a pattern.
    #[test]
    fn a_revoke_of_an_agent_closes_an_unseen_grant_of_a_group() {
        let mut owner = Owner::new();
        let joined = owner.founder.write(joining(allow_change(1), "readers"));
        owner.merge(joined);
        let own = owner.founder.write(allow_change(2));
        owner.merge(own);
        let unseen = owner.other.write(for_subject(allow_change(3), readers()));
        owner.founder.context.logs = [(node(1), 0)].into();
        let revoked = owner.founder.write(revoke_change(2));
        owner.merge(unseen);
        owner.merge(revoked);
        assert!(owner.decide(&caller(), Some("read_it")).is_err());
        owner.other.context.logs = [(node(0), owner.founder.tip.next)].into();
        let again = owner.other.write(for_subject(allow_change(4), readers()));
        owner.merge(again);
        assert_eq!(owner.decide(&caller(), Some("read_it")), Ok(()));
    }

    /// Every reader of grants applies patterns.
    #[test]
    fn a_pattern_allows_and_denies_all_that_it_matches() {
        let mut owner = Owner::new();
        let admitted = owner.founder.write(admit_change(2, MemberRole::Member));
        owner.merge(admitted);
        let other_name = node(1).agent(AgentId::new("b"));
        let other_node = node(2).agent(AgentId::new("a"));
        let at_node = owner
            .other
            .write(for_subject(allow_change(1), Subject::AgentsAt(node(1))));
        owner.merge(at_node);
        let read = Some("read_it");
        assert_eq!(owner.decide(&caller(), read), Ok(()));
        assert_eq!(owner.decide(&other_name, read), Ok(()));
        assert!(owner.decide(&other_node, read).is_err());
        let on = node(0).server(files());
        let there = explain_remote(&owner.replica, &other_name, &on, read, 0);
        assert_eq!(there.permission, Permission::Allow);
        assert!(
            there.rule.contains("to every agent of node-1"),
            "{}",
            there.rule
        );
        assert_eq!(
            list_entries(&owner.replica, 0, |_| "desk".to_owned())[0].agent_id,
            "*@desk"
        );
        let denied = owner
            .founder
            .write(for_tool_pattern(deny_change(2), "read_*"));
        owner.merge(denied);
        assert_eq!(owner.decide(&caller(), read), Err(None));
        assert_eq!(owner.decide(&caller(), Some("write")), Ok(()));
        assert_eq!(owner.decide(&other_name, read), Ok(()));
        let tool = owner.founder.write(for_tool(allow_change(3), "read_it"));
        owner.merge(tool);
        assert_eq!(
            owner.decide(&caller(), read),
            Ok(()),
            "a tool is more specific than a pattern"
        );
        let everywhere = for_subject(allow_change(4), Subject::AgentEverywhere(AgentId::new("a")));
        let everywhere = owner.founder.write(for_tool_pattern(everywhere, "read_*"));
        owner.merge(everywhere);
        assert_eq!(owner.decide(&other_node, read), Ok(()));
        let who = Principal::Agent(AgentId::from_node_agent(&other_node));
        assert!(owner.table().is_server_visible(&who, &files(), 0));
        let away = owner.founder.write(cut_change(2, LogTip::EMPTY));
        owner.merge(away);
        assert_eq!(
            owner.decide(&other_node, read),
            Err(Some(ForeignDenial::NotMember))
        );
        let revoked = owner.founder.write(revoke_change(1));
        owner.merge(revoked);
        assert!(owner.decide(&other_name, read).is_err());
    }

    /// A tool must be both granted and shared.
    #[test]
    fn a_grant_applies_only_to_shared_tools() {
        let mut owner = Owner::new();
        let granted = owner.other.write(allow_change(1));
        owner.merge(granted);
        owner.known.shared = SharedTools::default();
        owner.known.shared.add(files(), None, "read_*");
        let closed = Err(Some(ForeignDenial::NotShared));
        assert_eq!(owner.decide(&caller(), Some("read_it")), Ok(()));
        assert_eq!(owner.decide(&caller(), Some("write")), closed);
        assert_eq!(owner.decide(&caller(), None), closed);
        let who = Principal::Agent(AgentId::from_node_agent(&caller()));
        assert!(owner.table().is_server_visible(&who, &files(), 0));
        owner.known.shared = SharedTools::default();
        owner.known.shared.add(files(), Some(node(2)), "*");
        assert_eq!(owner.decide(&caller(), Some("read_it")), closed);
        assert!(!owner.table().is_server_visible(&who, &files(), 0));
    }

    /// PRJ-006: a grant that conflicts with a revoke is shown with the remedy.
    #[test]
    fn a_grant_in_conflict_is_listed_with_the_remedy() {
        let mut owner = Owner::new();
        let granted = owner.other.write(allow_change(1));
        owner.merge(granted);
        let unseen = owner.other.write(allow_change(2));
        owner.founder.context.logs = [(node(1), 1)].into();
        let revoked = owner.founder.write(revoke_change(1));
        owner.merge(unseen);
        owner.merge(revoked);
        let closed = Err(Some(ForeignDenial::NotGranted));
        assert_eq!(owner.decide(&caller(), None), closed);
        let why = "in conflict with the revoke of first at 1970-01-01T00:00:00.000Z: grant again to allow it";
        let listed = list_entries(&owner.replica, 0, |_| "desk".to_owned());
        let conflicts: Vec<Option<&str>> = listed.iter().map(|it| it.conflict.as_deref()).collect();
        assert_eq!(conflicts, [Some(why)]);
        let explained = explain(
            &owner.replica,
            &owner.known,
            &caller(),
            (&files(), None),
            0,
            owner.now(),
        );
        assert!(explained.considered[0].ends_with(why), "{explained:?}");
        owner.other.context.logs = [(node(0), owner.founder.tip.next)].into();
        let again = owner.other.write(allow_change(3));
        owner.merge(again);
        assert_eq!(owner.decide(&caller(), None), Ok(()));
    }

    #[test]
    fn a_call_to_another_node_is_allowed_only_if_granted_there() {
        let mut owner = Owner::new();
        let (on, other) = (node(0).server(files()), node(2).server(files()));
        let allowed = |owner: &Owner, on: &NodeServer| {
            let tool = Some("read_it");
            let decisive = owner.replica.decisive_grant(&caller(), on, tool, 0);
            let allowed = decisive.is_some_and(|it| it.grant.permission == Permission::Allow);
            let explained = explain_remote(&owner.replica, &caller(), on, tool, 0);
            assert_eq!(allowed, explained.permission == Permission::Allow);
            allowed
        };
        assert!(!allowed(&owner, &on), "no grant");
        let granted = owner.other.write(allow_change(1));
        owner.merge(granted);
        assert!(allowed(&owner, &on) && !allowed(&owner, &other));
        let denied = owner.founder.write(deny_change(2));
        owner.merge(denied);
        assert!(!allowed(&owner, &on));
    }

    /// FED-039, FED-049: only allows expire, and only those for agents of other nodes.
    #[test]
    fn allows_end_with_the_lease_and_return_with_it() {
        let mut owner = Owner::new();
        let granted = owner.other.write(allow_change(1));
        owner.merge(granted);
        let table = owner.table();
        let who = Principal::Agent(AgentId::from_node_agent(&caller()));
        let pass = table.lease(&table.decide(&who, &files(), None, 0)).unwrap();
        let at = |seconds| move || MonotonicTime::new(Duration::from_secs(seconds));
        assert!(table.with_expired_lease(at(29)).is_none() && table.is_lease_valid(pass, 0));
        let expired = table.with_expired_lease(at(30)).unwrap();
        assert!(
            !expired.is_lease_valid(pass, 0),
            "a waiting call is decided again"
        );
        assert!(!expired.is_server_open(&who, &files(), 0));
        assert!(expired.is_server_open(&Principal::Agent(AgentId::new("a")), &files(), 0));
        owner.seconds = 30;
        let closed = |owner: &Owner| match owner.decide(&caller(), None) {
            Err(Some(ForeignDenial::LeaseExpired(expired))) => {
                expired.describe("nas", MonotonicTime::new(Duration::from_secs(42)))
            }
            decided => panic!("{decided:?}"),
        };
        assert_eq!(closed(&owner), "the lease of nas lapsed 12 s ago");
        owner.renew_lease();
        assert_eq!(owner.decide(&caller(), None), Ok(()));
    }

    /// FEDERATION, clocks.
    #[test]
    fn allows_expire_by_the_clock_that_is_furthest_ahead() {
        let mut owner = Owner::new();
        let granted = owner.other.write(expiring_at(allow_change(1), 100_000));
        owner.merge(granted);
        let who = Principal::Agent(AgentId::from_node_agent(&caller()));
        let opens = |owner: &Owner, ms| owner.table().is_server_open(&who, &files(), ms);
        assert!(opens(&owner, 99_999) && !opens(&owner, 100_000));
        let (offset_ms, error_ms) = (60_000, 0);
        let ahead = PeerClock {
            offset_ms,
            error_ms,
        };
        let changed = owner.act(|replica, cx| replica.record_clock(node(1), ahead, cx));
        assert!(!changed.is_empty(), "the rules are rebuilt");
        assert!(opens(&owner, 39_999) && !opens(&owner, 40_000));
        let table = owner.table();
        let pass = table.lease(&table.decide(&who, &files(), None, 0)).unwrap();
        assert!(table.is_lease_valid(pass, 39_999) && !table.is_lease_valid(pass, 40_000));
    }

    #[test]
    fn agents_of_a_node_that_was_cut_off_are_denied() {
        let mut owner = Owner::new();
        let granted = owner.founder.write(allow_change(1));
        owner.merge(granted);
        assert_eq!(owner.decide(&caller(), None), Ok(()));
        let away = owner.founder.write(cut_change(1, LogTip::EMPTY));
        owner.merge(away);
        assert_eq!(
            owner.decide(&caller(), None),
            Err(Some(ForeignDenial::NotMember))
        );
        let itself = Principal::Agent(AgentId::for_node(node(1)));
        assert!(!owner.table().is_server_open(&itself, &files(), 0));
    }

    /// A node lists servers for its agents; only the agents call tools.
    #[test]
    fn a_node_lists_shared_servers_and_calls_no_tool() {
        let owner = Owner::new();
        let table = owner.table();
        let itself = Principal::Agent(AgentId::for_node(node(1)));
        assert!(
            table.is_server_open(&itself, &files(), 0)
                && table.is_server_visible(&itself, &files(), 0)
        );
        assert!(!table.is_allowed(&itself, &files(), Some("read_it"), 0));
        assert!(!table.is_server_open(&itself, &ServerId::new("other"), 0));
        let stranger = Principal::Agent(AgentId::for_node(node(2)));
        assert!(
            !table.is_server_open(&stranger, &files(), 0)
                && !table.is_server_visible(&stranger, &files(), 0)
        );
        assert!(!table.is_uniform());
    }

    /// A node subscribes for its agents. A subscription stays while an agent is allowed, also while the lease is
    /// expired.
    #[test]
    fn a_node_subscribes_while_one_of_its_agents_is_allowed() {
        let mut owner = Owner::new();
        let itself = Principal::Agent(AgentId::for_node(node(1)));
        let subscribes = |table: &GrantTable| {
            let can_stay = table.can_stay_subscribed(&itself, &files(), 0);
            (table.can_subscribe(&itself, &files(), 0), can_stay)
        };
        assert_eq!(
            subscribes(&owner.table()),
            (false, false),
            "no agent is allowed"
        );
        let granted = owner.other.write(allow_change(1));
        owner.merge(granted);
        assert_eq!(subscribes(&owner.table()), (true, true));
        let stranger = Principal::Agent(AgentId::for_node(node(2)));
        assert!(!owner.table().can_stay_subscribed(&stranger, &files(), 0));
        let end = || MonotonicTime::new(Duration::from_secs(30));
        assert_eq!(
            subscribes(&owner.table().with_expired_lease(end).unwrap()),
            (false, true)
        );
        let revoked = owner.founder.write(revoke_change(1));
        owner.merge(revoked);
        assert_eq!(subscribes(&owner.table()), (false, false));
        let local = Principal::Agent(AgentId::new("a"));
        assert!(owner.table().can_subscribe(&local, &files(), 0));
    }

    #[test]
    fn without_a_cluster_agents_of_other_nodes_are_denied() {
        let owner = Owner::new();
        let alone = owner.table().with_foreign(None, 3);
        for who in [
            AgentId::from_node_agent(&caller()),
            AgentId::for_node(node(1)),
        ] {
            let who = Principal::Agent(who);
            assert!(
                !alone.is_server_open(&who, &files(), 0)
                    && !alone.is_server_visible(&who, &files(), 0)
            );
        }
    }
}
