//! What the logs of the cluster mean at this node's servers, as rules that calls are decided by.

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::ids::{NodeAgent, NodeId, NodeServer, ServerId};
use mgp_protocol::mgp::access::{Entry, Explanation, Source};

use super::replica::Replica;
use crate::clock::MonotonicTime;
use crate::policy::access::{
    ExpiredLease, ForeignLease, ForeignRules, SharedTools, describe_conflict, explain_foreign,
    list_cluster,
};
use crate::policy::grants::{GrantResource, GrantStatus, LoggedGrant, Specificity, Subject};

/// What this node has to share, and what of it is shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalServers {
    /// Its servers.
    pub names: BTreeSet<ServerId>,
    /// What is shared, and with whom.
    pub shared: SharedTools,
}

/// The rules for agents of other nodes.
#[must_use]
pub fn foreign_rules(
    replica: &Replica,
    known: &LocalServers,
    now_ms: u64,
    now: MonotonicTime,
) -> ForeignRules {
    let here = replica.logs().local_node();
    let of_servers_here = |granted: &&LoggedGrant| match &granted.grant.resource {
        GrantResource::Server(on) | GrantResource::Tool(on, _) | GrantResource::Tools(on, _) => {
            on.node == here && known.names.contains(&on.server)
        }
        GrantResource::Permission(_) => false,
    };
    let of_others = |granted: &&LoggedGrant| match &granted.grant.subject {
        Subject::Agent(agent) => agent.node != here,
        Subject::AgentsAt(node) => *node != here,
        Subject::AgentEverywhere(_) => true,
        Subject::Server(_) => false,
    };
    let all = replica.logs().grants().iter();
    let all = all
        .filter(of_servers_here)
        .filter(of_others)
        .filter(|granted| replica.grant_status(granted, now_ms) == GrantStatus::InForce)
        .map(|granted| (granted, replica.expiry_ms(granted)));
    ForeignRules::new(
        trusted_nodes(replica),
        known.shared.clone(),
        replica.lease(now),
        all,
    )
}

/// The other nodes whose word on their agents is taken.
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

/// Explains what these rules decide on a call of an agent of another node, or what another node's rules will by
/// what is known here.
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
    let all = grants_for_agent(replica, caller);
    let levels = entries_by_level(replica, &all, &on, tool, now_ms);
    let rules = foreign_rules(replica, known, now_ms, now);
    let name = |node| member_name(replica, node);
    let hindrance = rules.find_denial(caller, server, tool);
    explain_foreign(
        levels.into_iter(),
        hindrance.map(|why| why.describe(name, now)),
        &name,
    )
}

/// The entries for one resource, each with whether it counts.
type EntriesAtLevel<'a> = (Source, GrantResource, Vec<(&'a LoggedGrant, GrantStatus)>);

/// All entries about an agent, by its name or by a pattern.
fn grants_for_agent(replica: &Replica, caller: &NodeAgent) -> Vec<LoggedGrant> {
    let subjects = Subject::subjects_for(caller).into_iter();
    let all = subjects.flat_map(|subject| replica.logs().grants_for(&subject));
    all.collect()
}

/// Those at a server or one of its tools, the closest first, each with whether it counts.
fn entries_by_level<'a>(
    replica: &Replica,
    about: &'a [LoggedGrant],
    on: &NodeServer,
    tool: Option<&str>,
    now_ms: u64,
) -> Vec<EntriesAtLevel<'a>> {
    let mut all: BTreeMap<Specificity, Vec<(&LoggedGrant, GrantStatus)>> = BTreeMap::new();
    for granted in about {
        if let Some(closeness) = granted.grant.resource.specificity(on, tool) {
            let of_level = all.entry(closeness).or_default();
            of_level.push((granted, replica.grant_status(granted, now_ms)));
        }
    }
    let mut found = |closeness| all.remove(&closeness).unwrap_or_default();
    let mut levels = Vec::new();
    if let Some(tool) = tool {
        let of_tool = GrantResource::Tool(on.clone(), tool.to_owned());
        levels.push((Source::ToolGrant, of_tool, found(Specificity::Tool)));
        let of_several = found(Specificity::Tools);
        let resource = of_several.first().map(|(it, _)| it.grant.resource.clone());
        levels.extend(resource.map(|resource| (Source::ToolGrant, resource, of_several)));
    }
    let of_server = found(Specificity::Server);
    let server = GrantResource::Server(on.clone());
    levels.push((Source::ServerGrant, server, of_server));
    levels
}

/// What the members call a node: the same at each of them.
#[must_use]
pub(crate) fn member_name(replica: &Replica, node: NodeId) -> String {
    let member = replica.logs().members().get(node);
    member.map_or_else(|| node.short_id(), |member| member.name.clone())
}

/// Explains what the logs say of an agent at a server, which its owner decides by. Whether it is shared, and whether its
/// owner has heard all who could deny it, is known there.
#[must_use]
pub fn explain_remote(
    replica: &Replica,
    caller: &NodeAgent,
    on: &NodeServer,
    tool: Option<&str>,
    now_ms: u64,
) -> Explanation {
    let all = grants_for_agent(replica, caller);
    let levels = entries_by_level(replica, &all, on, tool, now_ms);
    let name = |node| member_name(replica, node);
    explain_foreign(levels.into_iter(), None, &name)
}

/// The entries of the cluster's logs that are in force or in conflict with a revoke, with the names that `name` gives
/// other nodes.
pub fn list_entries(replica: &Replica, now_ms: u64, name: impl Fn(NodeId) -> String) -> Vec<Entry> {
    let all = replica.logs().grants().iter().filter_map(|granted| {
        let force = replica.grant_status(granted, now_ms);
        let conflict = describe_conflict(&force, |node| member_name(replica, node));
        (force == GrantStatus::InForce || conflict.is_some()).then_some((granted, conflict))
    });
    list_cluster(all, replica.logs().local_node(), name)
}

impl Replica {
    /// How long what other nodes' agents are allowed here holds.
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

    use super::super::lease::{DEFAULT_LEASE, Nonce};
    use super::super::replica::{LogMessage, ReplicaConfig, ReplicaContext};
    use super::super::test_logs::{
        LogWriter, admit_change, allow_change, cluster_id, cut_change, deny_change, expiring_at,
        for_subject, for_tool, for_tool_pattern, found_cluster, node, revoke_change,
    };
    use super::*;
    use crate::cluster::clock_offset::PeerClock;
    use crate::policy::access::{DefaultPolicies, ForeignDenial, GrantTable, Principal};
    use crate::policy::grants::{
        Authority, Grants, LogTip, MemberRole, Operation, SignedOperation,
    };

    /// Node 0, whose server it is, hears of what node 1 wrote.
    struct OwnerOfFiles {
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

    impl OwnerOfFiles {
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
            owner.hear();
            owner
        }

        fn now(&self) -> MonotonicTime {
            MonotonicTime::new(Duration::from_secs(self.seconds))
        }

        fn act<T>(&mut self, act: impl FnOnce(&mut Replica, &mut ReplicaContext<'_>) -> T) -> T {
            let mut nonce = || Nonce([7; 16]);
            let sign =
                |_: Operation| -> SignedOperation { unreachable!("this node writes nothing") };
            let mut means = ReplicaContext {
                now: self.now(),
                now_ms: 0,
                nonce: &mut nonce,
                sign: &sign,
            };
            act(&mut self.replica, &mut means)
        }

        fn take(&mut self, signed: SignedOperation) {
            self.act(|replica, means| replica.handle_entries(&[signed], means));
            self.hear();
        }

        /// Node 1 answers: it has what is known here.
        fn hear(&mut self) {
            let heads = Arc::new(self.replica.logs().heads(&Default::default()));
            let answer = LogMessage::Response {
                instance: LifeId([1; 16]),
                nonce: Nonce([7; 16]),
                heads,
            };
            self.act(|replica, means| {
                replica.handle_link_up(node(1), means);
                replica.handle_message(node(1), answer, means)
            });
        }

        fn table(&self) -> GrantTable {
            let open = DefaultPolicies {
                kernel: DefaultPolicy::OptOut,
                servers: std::collections::HashMap::new(),
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
    fn only_a_grant_opens_a_server_to_an_agent_of_another_node() {
        let mut owner = OwnerOfFiles::new();
        assert_eq!(
            owner.decide(&caller(), None),
            Err(Some(ForeignDenial::NotGranted))
        );
        let granted = owner.other.write(allow_change(1));
        owner.take(granted);
        assert_eq!(owner.decide(&caller(), None), Ok(()));
        assert_eq!(owner.decide(&caller(), Some("write")), Ok(()));
        for other in [
            node(1).agent(AgentId::new("b")),
            node(2).agent(AgentId::new("a")),
        ] {
            assert!(owner.decide(&other, None).is_err(), "{other}");
        }
        let at_home = Principal::Agent(AgentId::new("a"));
        assert!(
            owner.table().is_server_open(&at_home, &files(), 0),
            "its own are as before"
        );
        let taken_back = owner.founder.write(revoke_change(1));
        owner.take(taken_back);
        assert_eq!(
            owner.decide(&caller(), None),
            Err(Some(ForeignDenial::NotGranted))
        );
    }

    #[test]
    fn a_denial_wins_over_all_that_allows() {
        let mut owner = OwnerOfFiles::new();
        for change in [allow_change(1), deny_change(2), allow_change(3)] {
            let written = owner.other.write(change);
            owner.take(written);
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

    /// A grant with a pattern lets in whom it means, at every place where grants are read.
    #[test]
    fn a_pattern_opens_and_closes_for_all_that_it_means() {
        let mut owner = OwnerOfFiles::new();
        let admitted = owner.founder.write(admit_change(2, MemberRole::Member));
        owner.take(admitted);
        let other_name = node(1).agent(AgentId::new("b"));
        let other_node = node(2).agent(AgentId::new("a"));
        let at_node = owner
            .other
            .write(for_subject(allow_change(1), Subject::AgentsAt(node(1))));
        owner.take(at_node);
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
        owner.take(denied);
        assert_eq!(owner.decide(&caller(), read), Err(None));
        assert_eq!(owner.decide(&caller(), Some("write")), Ok(()));
        assert_eq!(owner.decide(&other_name, read), Ok(()));
        let tool = owner.founder.write(for_tool(allow_change(3), "read_it"));
        owner.take(tool);
        assert_eq!(
            owner.decide(&caller(), read),
            Ok(()),
            "the tool goes before several"
        );
        let everywhere = for_subject(allow_change(4), Subject::AgentEverywhere(AgentId::new("a")));
        let everywhere = owner.founder.write(for_tool_pattern(everywhere, "read_*"));
        owner.take(everywhere);
        assert_eq!(owner.decide(&other_node, read), Ok(()));
        let who = Principal::Agent(AgentId::from_node_agent(&other_node));
        assert!(owner.table().is_server_visible(&who, &files(), 0));
        let away = owner.founder.write(cut_change(2, LogTip::EMPTY));
        owner.take(away);
        assert_eq!(
            owner.decide(&other_node, read),
            Err(Some(ForeignDenial::NotMember))
        );
        let taken_back = owner.founder.write(revoke_change(1));
        owner.take(taken_back);
        assert!(owner.decide(&other_name, read).is_err());
    }

    /// What is granted and not shared stays closed, and so does what is shared and not granted.
    #[test]
    fn a_grant_counts_as_far_as_it_is_shared() {
        let mut owner = OwnerOfFiles::new();
        let granted = owner.other.write(allow_change(1));
        owner.take(granted);
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

    /// PRJ-006: what a revoke closes that its author did not know of is shown with the way to open it again.
    #[test]
    fn a_grant_in_conflict_is_listed_and_explained_with_what_to_do() {
        let mut owner = OwnerOfFiles::new();
        let granted = owner.other.write(allow_change(1));
        owner.take(granted);
        let unseen = owner.other.write(allow_change(2));
        owner.founder.context.logs = [(node(1), 1)].into();
        let taken_back = owner.founder.write(revoke_change(1));
        owner.take(unseen);
        owner.take(taken_back);
        let closed = Err(Some(ForeignDenial::NotGranted));
        assert_eq!(owner.decide(&caller(), None), closed);
        let why = "in conflict with the revoke of first at 1970-01-01T00:00:00.000Z: grant again to allow it";
        let listed = list_entries(&owner.replica, 0, |_| "desk".to_owned());
        let shown: Vec<Option<&str>> = listed.iter().map(|it| it.conflict.as_deref()).collect();
        assert_eq!(shown, [Some(why)]);
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
        owner.take(again);
        assert_eq!(owner.decide(&caller(), None), Ok(()));
    }

    /// What an agent may call elsewhere is known here by the same logs.
    #[test]
    fn only_what_is_granted_elsewhere_is_called_allowed() {
        let mut owner = OwnerOfFiles::new();
        let (on, other) = (node(0).server(files()), node(2).server(files()));
        let allowed = |owner: &OwnerOfFiles, on: &NodeServer| {
            let tool = Some("read_it");
            let decisive = owner.replica.decisive_grant(&caller(), on, tool, 0);
            let allowed = decisive.is_some_and(|it| it.grant.permission == Permission::Allow);
            let explained = explain_remote(&owner.replica, &caller(), on, tool, 0);
            assert_eq!(allowed, explained.permission == Permission::Allow);
            allowed
        };
        assert!(!allowed(&owner, &on), "nobody granted it");
        let granted = owner.other.write(allow_change(1));
        owner.take(granted);
        assert!(allowed(&owner, &on) && !allowed(&owner, &other));
        let denied = owner.founder.write(deny_change(2));
        owner.take(denied);
        assert!(!allowed(&owner, &on));
    }

    /// FED-039, FED-049: only allows lapse, and only those of other nodes' agents.
    #[test]
    fn what_is_allowed_ends_with_the_lease_and_comes_back_with_it() {
        let mut owner = OwnerOfFiles::new();
        let granted = owner.other.write(allow_change(1));
        owner.take(granted);
        let table = owner.table();
        let who = Principal::Agent(AgentId::from_node_agent(&caller()));
        let pass = table.lease(&table.decide(&who, &files(), None, 0)).unwrap();
        let at = |seconds| move || MonotonicTime::new(Duration::from_secs(seconds));
        assert!(table.with_expired_lease(at(29)).is_none() && table.is_lease_valid(pass, 0));
        let lapsed = table.with_expired_lease(at(30)).unwrap();
        assert!(
            !lapsed.is_lease_valid(pass, 0),
            "a call that waits is decided again"
        );
        assert!(!lapsed.is_server_open(&who, &files(), 0));
        assert!(lapsed.is_server_open(&Principal::Agent(AgentId::new("a")), &files(), 0));
        owner.seconds = 30;
        let closed = |owner: &OwnerOfFiles| match owner.decide(&caller(), None) {
            Err(Some(ForeignDenial::LeaseExpired(lapsed))) => {
                lapsed.describe("nas", MonotonicTime::new(Duration::from_secs(42)))
            }
            decided => panic!("{decided:?}"),
        };
        assert_eq!(closed(&owner), "the lease of nas lapsed 12 s ago");
        owner.hear();
        assert_eq!(owner.decide(&caller(), None), Ok(()));
    }

    /// FEDERATION, clocks: calls are decided by the clock that is furthest ahead.
    #[test]
    fn what_is_allowed_ends_by_the_clock_that_is_furthest_ahead() {
        let mut owner = OwnerOfFiles::new();
        let granted = owner.other.write(expiring_at(allow_change(1), 100_000));
        owner.take(granted);
        let who = Principal::Agent(AgentId::from_node_agent(&caller()));
        let opens = |owner: &OwnerOfFiles, ms| owner.table().is_server_open(&who, &files(), ms);
        assert!(opens(&owner, 99_999) && !opens(&owner, 100_000));
        let (offset_ms, error_ms) = (60_000, 0);
        let ahead = PeerClock {
            offset_ms,
            error_ms,
        };
        let changed = owner.act(|replica, means| replica.record_clock(node(1), ahead, means));
        assert!(!changed.is_empty(), "the rules are made anew");
        assert!(opens(&owner, 39_999) && !opens(&owner, 40_000));
        let table = owner.table();
        let pass = table.lease(&table.decide(&who, &files(), None, 0)).unwrap();
        assert!(table.is_lease_valid(pass, 39_999) && !table.is_lease_valid(pass, 40_000));
    }

    #[test]
    fn who_was_cut_off_and_who_never_was_in_is_nobody() {
        let mut owner = OwnerOfFiles::new();
        let granted = owner.founder.write(allow_change(1));
        owner.take(granted);
        assert_eq!(owner.decide(&caller(), None), Ok(()));
        let away = owner.founder.write(cut_change(1, LogTip::EMPTY));
        owner.take(away);
        assert_eq!(
            owner.decide(&caller(), None),
            Err(Some(ForeignDenial::NotMember))
        );
        let itself = Principal::Agent(AgentId::for_node(node(1)));
        assert!(!owner.table().is_server_open(&itself, &files(), 0));
    }

    /// A node asks for what it lists to its own agents; what is done, these do.
    #[test]
    fn a_node_itself_lists_what_is_shared_and_calls_nothing() {
        let owner = OwnerOfFiles::new();
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

    /// A node follows resources for its agents: as long as one of them is let in, over a lease that lapses and
    /// comes back, in which it hears nothing.
    #[test]
    fn a_node_itself_follows_resources_for_agents_that_are_let_in() {
        let mut owner = OwnerOfFiles::new();
        let itself = Principal::Agent(AgentId::for_node(node(1)));
        let follows = |table: &GrantTable| {
            let keeps = table.can_stay_subscribed(&itself, &files(), 0);
            (table.can_subscribe(&itself, &files(), 0), keeps)
        };
        assert_eq!(follows(&owner.table()), (false, false), "none is let in");
        let granted = owner.other.write(allow_change(1));
        owner.take(granted);
        assert_eq!(follows(&owner.table()), (true, true));
        let stranger = Principal::Agent(AgentId::for_node(node(2)));
        assert!(!owner.table().can_stay_subscribed(&stranger, &files(), 0));
        let end = || MonotonicTime::new(Duration::from_secs(30));
        assert_eq!(
            follows(&owner.table().with_expired_lease(end).unwrap()),
            (false, true)
        );
        let taken_back = owner.founder.write(revoke_change(1));
        owner.take(taken_back);
        assert_eq!(follows(&owner.table()), (false, false));
        let at_home = Principal::Agent(AgentId::new("a"));
        assert!(owner.table().can_subscribe(&at_home, &files(), 0));
    }

    /// Without a cluster nobody of another node has anything, under any policy.
    #[test]
    fn without_a_cluster_all_is_closed_to_agents_of_other_nodes() {
        let owner = OwnerOfFiles::new();
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
