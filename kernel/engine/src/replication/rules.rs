//! What the logs of the cluster mean at this node's servers, as rules that calls are decided by.

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::ids::{NodeAgent, NodeId, NodeServer, ServerId};
use mgp_protocol::mgp::access::{Entry, Explanation, Source};

use super::replica::Replica;
use crate::clock::MonotonicTime;
use crate::policy::access::{
    ForeignLease, ForeignRules, LapsedLease, SharedTools, conflict, explain_foreign, list_cluster,
};
use crate::policy::grants::{Force, GrantResource, Granted, ResourceCloseness, Subject};

/// What this node has to share, and what of it is shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownServers {
    /// Its servers.
    pub names: BTreeSet<ServerId>,
    /// What is shared, and with whom.
    pub shared: SharedTools,
}

/// The rules for agents of other nodes.
#[must_use]
pub fn foreign_rules(
    replica: &Replica,
    known: &KnownServers,
    now_ms: u64,
    now: MonotonicTime,
) -> ForeignRules {
    let here = replica.logs().here();
    let of_servers_here = |granted: &&Granted| match &granted.grant.resource {
        GrantResource::Server(on) | GrantResource::Tool(on, _) | GrantResource::Tools(on, _) => {
            on.node == here && known.names.contains(&on.server)
        }
        GrantResource::Permission(_) => false,
    };
    let of_others = |granted: &&Granted| match &granted.grant.subject {
        Subject::Agent(agent) => agent.node != here,
        Subject::AgentsAt(node) => *node != here,
        Subject::AgentEverywhere(_) => true,
        Subject::Server(_) => false,
    };
    let all = replica.logs().grants().all();
    let all = all
        .filter(of_servers_here)
        .filter(of_others)
        .filter(|granted| replica.force(granted, now_ms) == Force::InForce)
        .map(|granted| (granted, replica.ends_at(granted)));
    ForeignRules::new(
        believed(replica),
        known.shared.clone(),
        replica.lease(now),
        all,
    )
}

/// The other nodes whose word on their agents is taken.
fn believed(replica: &Replica) -> BTreeSet<NodeId> {
    let members = replica.logs().members();
    let here = replica.logs().here();
    if !members.is_in(here) {
        return BTreeSet::new();
    }
    let others = members
        .all()
        .filter(|(node, member)| *node != here && member.is_in() && !replica.is_twice(*node));
    others.map(|(node, _)| node).collect()
}

/// Explains what these rules decide on a call of an agent of another node, or what another node's rules will by
/// what is known here.
#[must_use]
pub fn explain(
    replica: &Replica,
    known: &KnownServers,
    caller: &NodeAgent,
    on: (&ServerId, Option<&str>),
    now_ms: u64,
    now: MonotonicTime,
) -> Explanation {
    let (server, tool) = on;
    let on = replica.logs().here().server(server.clone());
    let all = grants_about(replica, caller);
    let levels = levels(replica, &all, &on, tool, now_ms);
    let rules = foreign_rules(replica, known, now_ms, now);
    let name = |node| member_name(replica, node);
    let hindrance = rules.hindrance(caller, server, tool);
    explain_foreign(
        levels.into_iter(),
        hindrance.map(|why| why.in_words(name, now)),
        &name,
    )
}

/// The entries for one resource, each with whether it counts.
type EntriesAtLevel<'a> = (Source, GrantResource, Vec<(&'a Granted, Force)>);

/// All entries about an agent, by its name or by a pattern.
fn grants_about(replica: &Replica, caller: &NodeAgent) -> Vec<Granted> {
    let subjects = Subject::all_for(caller).into_iter();
    let all = subjects.flat_map(|subject| replica.logs().grants_for(&subject));
    all.collect()
}

/// Those at a server or one of its tools, the closest first, each with whether it counts.
fn levels<'a>(
    replica: &Replica,
    about: &'a [Granted],
    on: &NodeServer,
    tool: Option<&str>,
    now_ms: u64,
) -> Vec<EntriesAtLevel<'a>> {
    let mut all: BTreeMap<ResourceCloseness, Vec<(&Granted, Force)>> = BTreeMap::new();
    for granted in about {
        if let Some(closeness) = granted.grant.resource.closeness(on, tool) {
            let of_level = all.entry(closeness).or_default();
            of_level.push((granted, replica.force(granted, now_ms)));
        }
    }
    let mut found = |closeness| all.remove(&closeness).unwrap_or_default();
    let mut levels = Vec::new();
    if let Some(tool) = tool {
        let of_tool = GrantResource::Tool(on.clone(), tool.to_owned());
        levels.push((Source::ToolGrant, of_tool, found(ResourceCloseness::Tool)));
        let of_several = found(ResourceCloseness::Tools);
        let resource = of_several.first().map(|(it, _)| it.grant.resource.clone());
        levels.extend(resource.map(|resource| (Source::ToolGrant, resource, of_several)));
    }
    let of_server = found(ResourceCloseness::Server);
    let server = GrantResource::Server(on.clone());
    levels.push((Source::ServerGrant, server, of_server));
    levels
}

/// What the members call a node: the same at each of them.
#[must_use]
pub fn member_name(replica: &Replica, node: NodeId) -> String {
    let member = replica.logs().members().get(node);
    member.map_or_else(|| node.short(), |member| member.name.clone())
}

/// Explains what the logs say of an agent at a server, which its owner decides by. Whether it is shared, and whether its
/// owner has heard all who could deny it, is known there.
#[must_use]
pub fn explain_elsewhere(
    replica: &Replica,
    caller: &NodeAgent,
    on: &NodeServer,
    tool: Option<&str>,
    now_ms: u64,
) -> Explanation {
    let all = grants_about(replica, caller);
    let levels = levels(replica, &all, on, tool, now_ms);
    let name = |node| member_name(replica, node);
    explain_foreign(levels.into_iter(), None, &name)
}

/// The entries of the cluster's logs that are in force or in conflict with a revoke, with the names that `name` gives
/// other nodes.
pub fn list(replica: &Replica, now_ms: u64, name: impl Fn(NodeId) -> String) -> Vec<Entry> {
    let all = replica.logs().grants().all().filter_map(|granted| {
        let force = replica.force(granted, now_ms);
        let conflict = conflict(&force, |node| member_name(replica, node));
        (force == Force::InForce || conflict.is_some()).then_some((granted, conflict))
    });
    list_cluster(all, replica.logs().here(), name)
}

impl Replica {
    /// How long what other nodes' agents are allowed here holds.
    #[must_use]
    pub fn lease(&self, now: MonotonicTime) -> ForeignLease {
        if self.is_shortened() {
            return ForeignLease::Shortened;
        }
        match self.unheard(now) {
            Some(by) => ForeignLease::Lapsed(LapsedLease {
                by,
                cause: self.lapse_cause(by),
            }),
            None => ForeignLease::Held(self.first_to_lapse(now)),
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

    use super::super::lease::{LEASE, Nonce};
    use super::super::replica::{LogMessage, ReplicaMeans, ReplicaStart};
    use super::super::scene::{
        Pen, admit, allow, cluster, cut, deny, found, node, of_tool, of_tools, revoke, to, until,
    };
    use super::*;
    use crate::cluster::clock_offset::MeasuredClock;
    use crate::policy::access::{Defaults, ForeignClosed, GrantTable, Principal};
    use crate::policy::grants::{Authority, Grants, LogTip, MemberRole, Operation, Signed};

    /// Node 0, whose server it is, hears of what node 1 wrote.
    struct OwnerOfFiles {
        replica: Replica,
        known: KnownServers,
        founder: Pen,
        other: Pen,
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
            let (founding, mut founder) = found();
            let start = ReplicaStart {
                here: node(0),
                cluster: cluster(),
                life: LifeId([0; 16]),
                lease: LEASE,
                hints: BTreeSet::new(),
                owed: Vec::new(),
                twice: BTreeSet::new(),
            };
            let admitted = founder.write(admit(1, MemberRole::Admin));
            let mut known = KnownServers::default();
            known.names.insert(files());
            known.shared.add(files(), None, "read_*");
            known.shared.add(files(), Some(node(1)), "*");
            let mut owner = Self {
                replica: Replica::new(start, &[founding, admitted]),
                known,
                founder,
                other: Pen::new(1, cluster()),
                seconds: 0,
            };
            owner.hear();
            owner
        }

        fn now(&self) -> MonotonicTime {
            MonotonicTime::new(Duration::from_secs(self.seconds))
        }

        fn act<T>(&mut self, act: impl FnOnce(&mut Replica, &mut ReplicaMeans<'_>) -> T) -> T {
            let mut nonce = || Nonce([7; 16]);
            let sign = |_: Operation| -> Signed { unreachable!("this node writes nothing") };
            let mut means = ReplicaMeans {
                now: self.now(),
                now_ms: 0,
                nonce: &mut nonce,
                sign: &sign,
            };
            act(&mut self.replica, &mut means)
        }

        fn take(&mut self, signed: Signed) {
            self.act(|replica, means| replica.take(&[signed], means));
            self.hear();
        }

        /// Node 1 answers: it has what is known here.
        fn hear(&mut self) {
            let heads = Arc::new(self.replica.logs().heads(&Default::default()));
            let answer = LogMessage::Answer {
                life: LifeId([1; 16]),
                nonce: Nonce([7; 16]),
                heads,
            };
            self.act(|replica, means| {
                replica.linked(node(1), means);
                replica.hear(node(1), answer, means)
            });
        }

        fn table(&self) -> GrantTable {
            let open = Defaults {
                kernel: DefaultPolicy::OptOut,
                servers: std::collections::HashMap::new(),
            };
            let rules = foreign_rules(&self.replica, &self.known, 0, self.now());
            let authority = Authority::home(node(0));
            let table = GrantTable::build(&Grants::default(), &authority, open, 0, 1);
            table.with_foreign(Some(Arc::new(rules)), 2)
        }

        fn decide(&self, who: &NodeAgent, tool: Option<&str>) -> Result<(), Option<ForeignClosed>> {
            let table = self.table();
            let who = Principal::Agent(AgentId::of_node(who));
            let decision = table.decide(&who, &files(), tool, 0);
            let explained = explain(
                &self.replica,
                &self.known,
                &caller(),
                (&files(), tool),
                0,
                self.now(),
            );
            if who == Principal::Agent(AgentId::of_node(&caller())) {
                assert_eq!(explained.permission, decision.permission, "{explained:?}");
            }
            match decision.permission {
                Permission::Allow => Ok(()),
                Permission::Deny => Err(decision.closed),
            }
        }
    }

    /// FED-044: agents of other nodes are always opt-in, whatever the default policy at home.
    #[test]
    fn only_a_grant_opens_a_server_to_an_agent_of_another_node() {
        let mut owner = OwnerOfFiles::new();
        assert_eq!(
            owner.decide(&caller(), None),
            Err(Some(ForeignClosed::NotGranted))
        );
        let granted = owner.other.write(allow(1));
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
            owner.table().opens(&at_home, &files(), 0),
            "its own are as before"
        );
        let taken_back = owner.founder.write(revoke(1));
        owner.take(taken_back);
        assert_eq!(
            owner.decide(&caller(), None),
            Err(Some(ForeignClosed::NotGranted))
        );
    }

    #[test]
    fn a_denial_wins_over_all_that_allows() {
        let mut owner = OwnerOfFiles::new();
        for change in [allow(1), deny(2), allow(3)] {
            let written = owner.other.write(change);
            owner.take(written);
        }
        assert_eq!(owner.decide(&caller(), Some("read_it")), Err(None));
        let listed = list(&owner.replica, 0, |_| "desk".to_owned());
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
        let admitted = owner.founder.write(admit(2, MemberRole::Member));
        owner.take(admitted);
        let other_name = node(1).agent(AgentId::new("b"));
        let other_node = node(2).agent(AgentId::new("a"));
        let at_node = owner.other.write(to(allow(1), Subject::AgentsAt(node(1))));
        owner.take(at_node);
        let read = Some("read_it");
        assert_eq!(owner.decide(&caller(), read), Ok(()));
        assert_eq!(owner.decide(&other_name, read), Ok(()));
        assert!(owner.decide(&other_node, read).is_err());
        let on = node(0).server(files());
        let there = explain_elsewhere(&owner.replica, &other_name, &on, read, 0);
        assert_eq!(there.permission, Permission::Allow);
        assert!(
            there.rule.contains("to every agent of node-1"),
            "{}",
            there.rule
        );
        assert_eq!(
            list(&owner.replica, 0, |_| "desk".to_owned())[0].agent_id,
            "*@desk"
        );
        let denied = owner.founder.write(of_tools(deny(2), "read_*"));
        owner.take(denied);
        assert_eq!(owner.decide(&caller(), read), Err(None));
        assert_eq!(owner.decide(&caller(), Some("write")), Ok(()));
        assert_eq!(owner.decide(&other_name, read), Ok(()));
        let tool = owner.founder.write(of_tool(allow(3), "read_it"));
        owner.take(tool);
        assert_eq!(
            owner.decide(&caller(), read),
            Ok(()),
            "the tool goes before several"
        );
        let everywhere = to(allow(4), Subject::AgentEverywhere(AgentId::new("a")));
        let everywhere = owner.founder.write(of_tools(everywhere, "read_*"));
        owner.take(everywhere);
        assert_eq!(owner.decide(&other_node, read), Ok(()));
        let who = Principal::Agent(AgentId::of_node(&other_node));
        assert!(owner.table().sees(&who, &files(), 0));
        let away = owner.founder.write(cut(2, LogTip::EMPTY));
        owner.take(away);
        assert_eq!(
            owner.decide(&other_node, read),
            Err(Some(ForeignClosed::NotIn))
        );
        let taken_back = owner.founder.write(revoke(1));
        owner.take(taken_back);
        assert!(owner.decide(&other_name, read).is_err());
    }

    /// What is granted and not shared stays closed, and so does what is shared and not granted.
    #[test]
    fn a_grant_counts_as_far_as_it_is_shared() {
        let mut owner = OwnerOfFiles::new();
        let granted = owner.other.write(allow(1));
        owner.take(granted);
        owner.known.shared = SharedTools::default();
        owner.known.shared.add(files(), None, "read_*");
        let closed = Err(Some(ForeignClosed::NotShared));
        assert_eq!(owner.decide(&caller(), Some("read_it")), Ok(()));
        assert_eq!(owner.decide(&caller(), Some("write")), closed);
        assert_eq!(owner.decide(&caller(), None), closed);
        let who = Principal::Agent(AgentId::of_node(&caller()));
        assert!(owner.table().sees(&who, &files(), 0));
        owner.known.shared = SharedTools::default();
        owner.known.shared.add(files(), Some(node(2)), "*");
        assert_eq!(owner.decide(&caller(), Some("read_it")), closed);
        assert!(!owner.table().sees(&who, &files(), 0));
    }

    /// PRJ-006: what a revoke closes that its author did not know of is shown with the way to open it again.
    #[test]
    fn a_grant_in_conflict_is_listed_and_explained_with_what_to_do() {
        let mut owner = OwnerOfFiles::new();
        let granted = owner.other.write(allow(1));
        owner.take(granted);
        let unseen = owner.other.write(allow(2));
        owner.founder.context.logs = [(node(1), 1)].into();
        let taken_back = owner.founder.write(revoke(1));
        owner.take(unseen);
        owner.take(taken_back);
        let closed = Err(Some(ForeignClosed::NotGranted));
        assert_eq!(owner.decide(&caller(), None), closed);
        let why = "in conflict with the revoke of first at 1970-01-01T00:00:00.000Z: grant again to allow it";
        let listed = list(&owner.replica, 0, |_| "desk".to_owned());
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
        let again = owner.other.write(allow(3));
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
            let explained = explain_elsewhere(&owner.replica, &caller(), on, tool, 0);
            assert_eq!(allowed, explained.permission == Permission::Allow);
            allowed
        };
        assert!(!allowed(&owner, &on), "nobody granted it");
        let granted = owner.other.write(allow(1));
        owner.take(granted);
        assert!(allowed(&owner, &on) && !allowed(&owner, &other));
        let denied = owner.founder.write(deny(2));
        owner.take(denied);
        assert!(!allowed(&owner, &on));
    }

    /// FED-039, FED-049: only allows lapse, and only those of other nodes' agents.
    #[test]
    fn what_is_allowed_ends_with_the_lease_and_comes_back_with_it() {
        let mut owner = OwnerOfFiles::new();
        let granted = owner.other.write(allow(1));
        owner.take(granted);
        let table = owner.table();
        let who = Principal::Agent(AgentId::of_node(&caller()));
        let pass = table.pass(&table.decide(&who, &files(), None, 0)).unwrap();
        let at = |seconds| move || MonotonicTime::new(Duration::from_secs(seconds));
        assert!(table.lapsed(at(29)).is_none() && table.honours(pass, 0));
        let lapsed = table.lapsed(at(30)).unwrap();
        assert!(
            !lapsed.honours(pass, 0),
            "a call that waits is decided again"
        );
        assert!(!lapsed.opens(&who, &files(), 0));
        assert!(lapsed.opens(&Principal::Agent(AgentId::new("a")), &files(), 0));
        owner.seconds = 30;
        let closed = |owner: &OwnerOfFiles| match owner.decide(&caller(), None) {
            Err(Some(ForeignClosed::Lapsed(lapsed))) => {
                lapsed.in_words("nas", MonotonicTime::new(Duration::from_secs(42)))
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
        let granted = owner.other.write(until(allow(1), 100_000));
        owner.take(granted);
        let who = Principal::Agent(AgentId::of_node(&caller()));
        let opens = |owner: &OwnerOfFiles, ms| owner.table().opens(&who, &files(), ms);
        assert!(opens(&owner, 99_999) && !opens(&owner, 100_000));
        let (offset_ms, error_ms) = (60_000, 0);
        let ahead = MeasuredClock {
            offset_ms,
            error_ms,
        };
        let changed = owner.act(|replica, means| replica.clock_measured(node(1), ahead, means));
        assert!(!changed.is_empty(), "the rules are made anew");
        assert!(opens(&owner, 39_999) && !opens(&owner, 40_000));
        let table = owner.table();
        let pass = table.pass(&table.decide(&who, &files(), None, 0)).unwrap();
        assert!(table.honours(pass, 39_999) && !table.honours(pass, 40_000));
    }

    #[test]
    fn who_was_cut_off_and_who_never_was_in_is_nobody() {
        let mut owner = OwnerOfFiles::new();
        let granted = owner.founder.write(allow(1));
        owner.take(granted);
        assert_eq!(owner.decide(&caller(), None), Ok(()));
        let away = owner.founder.write(cut(1, LogTip::EMPTY));
        owner.take(away);
        assert_eq!(
            owner.decide(&caller(), None),
            Err(Some(ForeignClosed::NotIn))
        );
        let itself = Principal::Agent(AgentId::node_itself(node(1)));
        assert!(!owner.table().opens(&itself, &files(), 0));
    }

    /// A node asks for what it lists to its own agents; what is done, these do.
    #[test]
    fn a_node_itself_lists_what_is_shared_and_calls_nothing() {
        let owner = OwnerOfFiles::new();
        let table = owner.table();
        let itself = Principal::Agent(AgentId::node_itself(node(1)));
        assert!(table.opens(&itself, &files(), 0) && table.sees(&itself, &files(), 0));
        assert!(!table.admits(&itself, &files(), Some("read_it"), 0));
        assert!(!table.opens(&itself, &ServerId::new("other"), 0));
        let stranger = Principal::Agent(AgentId::node_itself(node(2)));
        assert!(!table.opens(&stranger, &files(), 0) && !table.sees(&stranger, &files(), 0));
        assert!(!table.is_uniform());
    }

    /// A node follows resources for its agents: as long as one of them is let in, over a lease that lapses and
    /// comes back, in which it hears nothing.
    #[test]
    fn a_node_itself_follows_resources_for_agents_that_are_let_in() {
        let mut owner = OwnerOfFiles::new();
        let itself = Principal::Agent(AgentId::node_itself(node(1)));
        let follows = |table: &GrantTable| {
            let keeps = table.lets_keep_following(&itself, &files(), 0);
            (table.lets_follow(&itself, &files(), 0), keeps)
        };
        assert_eq!(follows(&owner.table()), (false, false), "none is let in");
        let granted = owner.other.write(allow(1));
        owner.take(granted);
        assert_eq!(follows(&owner.table()), (true, true));
        let stranger = Principal::Agent(AgentId::node_itself(node(2)));
        assert!(!owner.table().lets_keep_following(&stranger, &files(), 0));
        let end = || MonotonicTime::new(Duration::from_secs(30));
        assert_eq!(follows(&owner.table().lapsed(end).unwrap()), (false, true));
        let taken_back = owner.founder.write(revoke(1));
        owner.take(taken_back);
        assert_eq!(follows(&owner.table()), (false, false));
        let at_home = Principal::Agent(AgentId::new("a"));
        assert!(owner.table().lets_follow(&at_home, &files(), 0));
    }

    /// Without a cluster nobody of another node has anything, under any policy.
    #[test]
    fn without_a_cluster_all_is_closed_to_agents_of_other_nodes() {
        let owner = OwnerOfFiles::new();
        let alone = owner.table().with_foreign(None, 3);
        for who in [AgentId::of_node(&caller()), AgentId::node_itself(node(1))] {
            let who = Principal::Agent(who);
            assert!(!alone.opens(&who, &files(), 0) && !alone.sees(&who, &files(), 0));
        }
    }
}
