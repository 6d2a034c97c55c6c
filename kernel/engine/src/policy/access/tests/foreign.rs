//! Agents of other nodes: what lets them in, and what each missing part of it closes.

use super::*;
use crate::clock::MonotonicTime;
use std::time::Duration;

const OPEN: ForeignLease = ForeignLease::Valid(None);

fn seconds(seconds: u64) -> MonotonicTime {
    MonotonicTime::new(Duration::from_secs(seconds))
}

fn lapsed() -> ExpiredLease {
    ExpiredLease {
        node: issuer(3),
        cause: LeaseExpiryCause::NeverHeard,
    }
}

fn alice() -> AgentId {
    AgentId::from_node_agent(&issuer(2).agent(AgentId::new("alice")))
}

/// Shares of servers of this node: with one node, or with all.
fn shared(shares: &[(&str, Option<u8>, &str)]) -> SharedTools {
    let mut shared = SharedTools::default();
    for (name, with, tools) in shares {
        shared.add(server(name), with.map(issuer), tools);
    }
    shared
}

/// Grants to agents by their ids here, in the order of their numbers.
fn granted(entries: &[(&AgentId, Option<&str>, Permission)]) -> Grants {
    let mut grants = Grants::default();
    for (n, (who, tool, permission)) in (1..).zip(entries) {
        let mut asked = request(*tool, *permission);
        asked.agent_id = who.to_string();
        give(&mut grants, n, &asked);
    }
    grants
}

/// The nodes 2 and 3 are in.
fn rules(grants: &Grants, shared: SharedTools, lease: ForeignLease) -> ForeignRules {
    let granted = grants
        .iter()
        .map(|it| (it, it.grant.not_after_ms, EntryEffect::Whole));
    ForeignRules::new([issuer(2), issuer(3)].into(), shared, lease, granted)
}

fn with(rules: ForeignRules) -> GrantTable {
    let own = table(&Grants::default(), DefaultPolicy::OptOut);
    own.with_foreign(Some(Arc::new(rules)), 2)
}

/// FED-005: membership, a share, a grant and the lease; without any of them it is closed, and said why.
#[test]
fn an_agent_of_another_node_needs_a_member_a_share_a_grant_and_a_lease() {
    use Permission::{Allow, Deny};
    let everything = || shared(&[("files", None, "*")]);
    let allow = granted(&[(&alice(), Some("read"), Allow)]);
    let elsewhere = AgentId::from_node_agent(&issuer(4).agent(AgentId::new("alice")));
    let not_in = granted(&[(&elsewhere, Some("read"), Allow)]);
    let lapsed = lapsed();
    for (who, grants, shares, lease, closed) in [
        (alice(), &allow, everything(), OPEN, None),
        (
            elsewhere,
            &not_in,
            everything(),
            OPEN,
            Some(ForeignDenial::NotMember),
        ),
        (
            alice(),
            &allow,
            SharedTools::default(),
            OPEN,
            Some(ForeignDenial::NotShared),
        ),
        (
            alice(),
            &Grants::default(),
            everything(),
            OPEN,
            Some(ForeignDenial::NotGranted),
        ),
        (
            alice(),
            &allow,
            everything(),
            ForeignLease::Expired(lapsed),
            Some(ForeignDenial::LeaseExpired(lapsed)),
        ),
        (
            alice(),
            &allow,
            everything(),
            ForeignLease::LogsIncomplete,
            Some(ForeignDenial::LogsIncomplete),
        ),
    ] {
        let rules = rules(grants, shares, lease);
        let caller = who.as_remote().unwrap();
        let hindrance = closed.filter(|why| *why != ForeignDenial::NotGranted);
        assert_eq!(
            rules.find_denial(&caller, &server("files"), Some("read")),
            hindrance
        );
        let table = with(rules);
        let who = Principal::Agent(who);
        let decision = table.decide(&who, &server("files"), Some("read"), NOW);
        assert_eq!(decision.permission == Allow, closed.is_none());
        assert_eq!((decision.foreign_denial, decision.foreign), (closed, true));
        assert_eq!(table.lease(&decision).is_some(), closed.is_none());
    }
    let denies = granted(&[(&alice(), Some("read"), Deny)]);
    let table = with(rules(&denies, everything(), OPEN));
    let who = Principal::Agent(alice());
    let decision = table.decide(&who, &server("files"), Some("read"), NOW);
    assert_eq!((decision.permission, decision.foreign_denial), (Deny, None));
    assert_eq!(decision.entry.map(|entry| entry.id), Some(id(1)));
    let alone = super::table(&allow, DefaultPolicy::OptOut);
    let decision = alone.decide(&who, &server("files"), Some("read"), NOW);
    assert_eq!(
        decision.foreign_denial,
        Some(ForeignDenial::NotMember),
        "there is no cluster"
    );
}

/// A share is with one node or with all, of one tool, of some that begin alike, or of the whole server.
#[test]
fn a_share_covers_what_it_names_for_whom_it_names() {
    let shared = shared(&[
        ("files", None, "read_*"),
        ("files", Some(2), "write"),
        ("clock", Some(3), "*"),
    ]);
    let covers = |node, name, tool| shared.is_shared(issuer(node), &server(name), tool);
    assert!(covers(2, "files", Some("read_a")) && covers(3, "files", Some("read_a")));
    assert!(covers(2, "files", Some("write")) && !covers(3, "files", Some("write")));
    assert!(!covers(2, "files", Some("write_all")) && !covers(2, "files", Some("read")));
    assert!(!covers(2, "files", None), "a part is not the whole");
    assert!(covers(3, "clock", None) && covers(3, "clock", Some("now")));
    assert!(!covers(2, "clock", None) && !covers(2, "clock", Some("now")));
    let shows = |node, name| shared.is_server_shared(issuer(node), &server(name));
    assert!(shows(2, "files") && shows(3, "files") && shows(3, "clock"));
    assert!(!shows(2, "clock") && !shows(2, "other"));
}

/// An entry for the tool before one for several before one for the server; within these, deny wins whoever it names.
#[test]
fn the_closest_entry_decides_and_deny_wins_among_equals() {
    use Permission::{Allow, Deny};
    let all = AgentId::pattern_for_node(issuer(2));
    let everywhere = AgentId::new("alice").pattern_for_all_nodes();
    for (entries, expected) in [
        (
            vec![(&all, None, Deny), (&alice(), Some("read_*"), Allow)],
            Allow,
        ),
        (
            vec![
                (&all, Some("read_*"), Deny),
                (&alice(), Some("read_a"), Allow),
            ],
            Allow,
        ),
        (
            vec![(&alice(), None, Allow), (&all, Some("read_*"), Deny)],
            Deny,
        ),
        (
            vec![(&alice(), None, Allow), (&all, Some("write_*"), Deny)],
            Allow,
        ),
        (
            vec![
                (&alice(), Some("read_a"), Allow),
                (&all, Some("read_a"), Deny),
            ],
            Deny,
        ),
        (
            vec![(&alice(), None, Allow), (&everywhere, None, Deny)],
            Deny,
        ),
        (vec![(&everywhere, None, Allow)], Allow),
        (vec![(&all, Some("read_*"), Allow)], Allow),
        (
            vec![
                (&all, Some("read_*"), Allow),
                (&everywhere, Some("read_*"), Deny),
            ],
            Deny,
        ),
    ] {
        let grants = granted(&entries);
        let table = with(rules(&grants, shared(&[("files", None, "*")]), OPEN));
        let who = Principal::Agent(alice());
        let decision = table.decide(&who, &server("files"), Some("read_a"), NOW);
        assert_eq!(decision.permission, expected, "{entries:?}");
        let other = AgentId::from_node_agent(&issuer(3).agent(AgentId::new("bob")));
        let other = table.decide(
            &Principal::Agent(other),
            &server("files"),
            Some("read_a"),
            NOW,
        );
        assert_eq!(other.foreign_denial, Some(ForeignDenial::NotGranted));
    }
}

/// By the clock of this node, which may end it at another time than its issuer's.
#[test]
fn an_entry_ends_when_it_is_said_to_here() {
    let all = AgentId::pattern_for_node(issuer(2));
    for tool in [None, Some("t"), Some("t*")] {
        let grants = granted(&[(&all, tool, Permission::Allow)]);
        let ending = grants
            .iter()
            .map(|it| (it, Some(20_000), EntryEffect::Whole));
        let shared = shared(&[("files", None, "*")]);
        let rules = ForeignRules::new([issuer(2)].into(), shared, OPEN, ending);
        let table = with(rules);
        let who = Principal::Agent(alice());
        let (files, tool) = (server("files"), Some("t"));
        assert!(
            table.is_allowed(&who, &files, tool, 19_999)
                && table.is_server_visible(&who, &files, 19_999)
        );
        assert!(
            !table.is_allowed(&who, &files, tool, 20_000)
                && !table.is_server_visible(&who, &files, 20_000)
        );
    }
}

/// A server is known to an agent that may use any tool of it which is shared.
#[test]
fn a_server_is_seen_by_agents_of_other_nodes_that_may_use_a_shared_tool() {
    use Permission::{Allow, Deny};
    let bob = AgentId::from_node_agent(&issuer(3).agent(AgentId::new("bob")));
    let outside = AgentId::from_node_agent(&issuer(4).agent(AgentId::new("alice")));
    let everywhere = AgentId::new("alice").pattern_for_all_nodes();
    for (tool, permission, shares, sees) in [
        (None, Allow, "*", true),
        (None, Deny, "*", false),
        (Some("read"), Allow, "read", true),
        (Some("read"), Allow, "write", false),
        (Some("read"), Deny, "read", false),
        (Some("read_*"), Allow, "read_a", true),
        (Some("read_*"), Deny, "read_a", false),
        (Some("read_*"), Allow, "write", false),
        (Some("read_*"), Allow, "re*", true),
        (Some("re*"), Allow, "read_*", true),
        (Some("read_*"), Allow, "write_*", false),
    ] {
        let grants = granted(&[(&everywhere, tool, permission)]);
        let shares = || shared(&[("files", None, shares)]);
        let table = with(rules(&grants, shares(), OPEN));
        let seen = |who: &AgentId, name: &str| {
            let who = Principal::Agent(who.clone());
            table.is_server_visible(&who, &server(name), NOW)
        };
        assert_eq!(seen(&alice(), "files"), sees, "{tool:?} {permission:?}");
        assert!(!seen(&bob, "files") && !seen(&outside, "files") && !seen(&alice(), "other"));
        let table = with(rules(&grants, shares(), ForeignLease::LogsIncomplete));
        assert!(!table.is_server_visible(&Principal::Agent(alice()), &server("files"), NOW));
    }
    let alone = table(&Grants::default(), DefaultPolicy::OptOut);
    assert!(!alone.is_server_visible(&Principal::Agent(alice()), &server("files"), NOW));
}

/// The tools that a caller has entries for, whoever these name.
#[test]
fn the_tools_with_entries_are_named() {
    use Permission::Allow;
    let all = AgentId::pattern_for_node(issuer(2));
    let grants = granted(&[
        (&alice(), Some("read"), Allow),
        (&all, Some("write"), Allow),
    ]);
    let table = with(rules(&grants, SharedTools::default(), OPEN));
    let named = |who: AgentId| {
        let who = Principal::Agent(who);
        let named: BTreeSet<&str> = table.named_tools(&who, &server("files")).collect();
        named
    };
    assert_eq!(named(alice()), ["read", "write"].into());
    let bob = AgentId::from_node_agent(&issuer(2).agent(AgentId::new("bob")));
    assert_eq!(named(bob), ["write"].into());
    assert_eq!(named(AgentId::new("alice")), [].into());
}

/// Another node lists servers that are shared with it as a whole, whatever its agents may; what is done, its agents do.
#[test]
fn a_node_itself_sees_what_is_shared_and_calls_nothing() {
    let shares = || shared(&[("files", Some(2), "*"), ("clock", Some(2), "now")]);
    for lease in [OPEN, ForeignLease::LogsIncomplete] {
        let table = with(rules(&Grants::default(), shares(), lease));
        let node = |n| Principal::Agent(AgentId::for_node(issuer(n)));
        let closed = |n, name, tool| {
            table
                .decide(&node(n), &server(name), tool, NOW)
                .foreign_denial
        };
        let opened = table.decide(&node(2), &server("files"), None, NOW);
        let (permission, source) = (opened.permission, opened.source);
        assert_eq!(
            (permission, source),
            (Permission::Allow, Source::ServerGrant)
        );
        assert_eq!(closed(2, "clock", None), Some(ForeignDenial::NotShared));
        assert_eq!(
            closed(2, "files", Some("read")),
            Some(ForeignDenial::NotGranted)
        );
        assert_eq!(closed(3, "files", None), Some(ForeignDenial::NotShared));
        let sees = |n, name| table.is_server_visible(&node(n), &server(name), NOW);
        assert!(sees(2, "files") && sees(2, "clock") && !sees(3, "files"));
    }
}

/// A node follows resources for its agents: one of them must be let in. A lease that lapses lets nobody begin, and ends
/// nothing.
#[test]
fn a_node_follows_for_agents_that_are_let_in() {
    use Permission::{Allow, Deny};
    let bob = AgentId::from_node_agent(&issuer(3).agent(AgentId::new("bob")));
    let all = |n| AgentId::pattern_for_node(issuer(n));
    let everywhere = AgentId::new("alice").pattern_for_all_nodes();
    for (entries, follows) in [
        (vec![], false),
        (vec![(&alice(), None, Allow)], true),
        (vec![(&alice(), Some("read"), Allow)], false),
        (vec![(&alice(), None, Deny)], false),
        (vec![(&bob, None, Allow)], false),
        (vec![(&all(2), None, Allow)], true),
        (vec![(&all(3), None, Allow)], false),
        (vec![(&everywhere, None, Allow)], true),
        (
            vec![(&everywhere, None, Deny), (&all(2), None, Deny)],
            false,
        ),
    ] {
        let grants = granted(&entries);
        let shares = || shared(&[("files", None, "*")]);
        let node = Principal::Agent(AgentId::for_node(issuer(2)));
        let files = server("files");
        let table = with(rules(&grants, shares(), OPEN));
        assert_eq!(
            table.can_subscribe(&node, &files, NOW),
            follows,
            "{entries:?}"
        );
        assert_eq!(table.can_stay_subscribed(&node, &files, NOW), follows);
        for lease in [
            ForeignLease::Expired(lapsed()),
            ForeignLease::LogsIncomplete,
        ] {
            let table = with(rules(&grants, shares(), lease));
            assert!(!table.can_subscribe(&node, &files, NOW));
            assert_eq!(table.can_stay_subscribed(&node, &files, NOW), follows);
        }
    }
}

/// Everybody else follows what is open to them.
#[test]
fn agents_follow_what_is_open_to_them() {
    let grants = granted(&[(&alice(), None, Permission::Allow)]);
    let bob = AgentId::from_node_agent(&issuer(2).agent(AgentId::new("bob")));
    let shares = || shared(&[("files", None, "*")]);
    for lease in [OPEN, ForeignLease::LogsIncomplete] {
        let table = with(rules(&grants, shares(), lease));
        let follows = |who: &AgentId, name| {
            let who = Principal::Agent(who.clone());
            let now = table.can_subscribe(&who, &server(name), NOW);
            assert_eq!(now, table.can_stay_subscribed(&who, &server(name), NOW));
            now
        };
        assert_eq!(follows(&alice(), "files"), lease == OPEN);
        assert!(!follows(&bob, "files") && !follows(&alice(), "other"));
        assert!(
            follows(&AgentId::new("a"), "files"),
            "the default policy is open"
        );
        assert!(table.can_subscribe(&operator(), &server("files"), NOW));
    }
    let strict = table(&Grants::default(), DefaultPolicy::OptIn);
    assert!(!strict.can_subscribe(&agent("a"), &server("files"), NOW));
}

#[test]
fn a_lease_lapses_at_its_end_and_says_whose_it_was() {
    let nothing = Grants::default();
    let held = |lease| with(rules(&nothing, SharedTools::default(), lease));
    let running = held(ForeignLease::Valid(Some((seconds(30), issuer(3)))));
    assert_eq!(running.foreign_lease_denial(), None);
    assert!(running.with_expired_lease(|| seconds(29)).is_none());
    let over = running.with_expired_lease(|| seconds(30)).unwrap();
    let cause = LeaseExpiryCause::TimedOut(seconds(30));
    let lapse = ExpiredLease {
        node: issuer(3),
        cause,
    };
    assert_eq!(
        over.foreign_lease_denial(),
        Some(ForeignDenial::LeaseExpired(lapse))
    );
    assert_eq!(
        over.generation(),
        running.generation(),
        "nothing else changed"
    );
    assert!(
        over.with_expired_lease(|| seconds(31)).is_none(),
        "once is enough"
    );
    assert!(held(OPEN).with_expired_lease(|| seconds(31)).is_none());
    let shortened = held(ForeignLease::LogsIncomplete);
    assert_eq!(
        shortened.foreign_lease_denial(),
        Some(ForeignDenial::LogsIncomplete)
    );
    let alone = table(&nothing, DefaultPolicy::OptOut);
    assert!(
        alone.foreign_lease_denial().is_none()
            && alone.with_expired_lease(|| seconds(31)).is_none()
    );
}

/// A call that waits goes on while the lease holds, also where it was prolonged, and not any more once it has lapsed.
#[test]
fn a_waiting_call_ends_with_the_lease_and_goes_on_with_a_longer_one() {
    let grants = granted(&[(&alice(), None, Permission::Allow)]);
    let shares = || shared(&[("files", None, "*")]);
    let until = |end| ForeignLease::Valid(Some((seconds(end), issuer(3))));
    let table = with(rules(&grants, shares(), until(30)));
    let pass = |who: Principal| {
        let decision = table.decide(&who, &server("files"), None, NOW);
        table.lease(&decision).unwrap()
    };
    let (of_alice, own) = (pass(Principal::Agent(alice())), pass(agent("a")));
    assert!(table.is_lease_valid(of_alice, NOW));
    let longer = Arc::new(rules(&grants, shares(), until(60)));
    let prolonged = table.with_foreign(Some(longer.clone()), table.generation());
    assert!(prolonged.is_lease_valid(of_alice, NOW));
    assert_eq!(prolonged.foreign(), Some(&longer));
    let who = Principal::Agent(alice());
    assert_eq!(prolonged.audience(&who), table.audience(&who));
    let lapsed = table.with_expired_lease(|| seconds(30)).unwrap();
    assert!(!lapsed.is_lease_valid(of_alice, NOW) && lapsed.is_lease_valid(own, NOW));
    let alone = table.with_foreign(None, table.generation());
    assert!(!alone.is_lease_valid(of_alice, NOW) && alone.is_lease_valid(own, NOW));
    let changed = table.with_foreign(Some(longer), 3);
    assert!(!changed.is_lease_valid(of_alice, NOW) && changed.generation() == 3);
    assert_ne!(changed.audience(&who), table.audience(&who));
    assert_eq!(changed.audience(&agent("a")), table.audience(&agent("a")));
}

/// Only a lease that goes on is no change; each other difference is one.
#[test]
fn rules_grant_the_same_while_only_a_running_lease_differs() {
    use Permission::Allow;
    let one = granted(&[(&alice(), None, Allow)]);
    let all = granted(&[(&AgentId::pattern_for_node(issuer(2)), None, Allow)]);
    let everywhere = granted(&[(&AgentId::new("alice").pattern_for_all_nodes(), None, Allow)]);
    let shares = || shared(&[("files", None, "*")]);
    let base = rules(&one, shares(), OPEN);
    let longer = ForeignLease::Valid(Some((seconds(30), issuer(3))));
    assert!(base.is_same_except_lease(&base.with_lease(longer)));
    assert_eq!(base.with_lease(longer).lease(), longer);
    assert!(!base.is_same_except_lease(&base.with_lease(ForeignLease::LogsIncomplete)));
    let nobody = Grants::default();
    for grants in [&nobody, &all, &everywhere] {
        assert!(!rules(&nobody, shares(), OPEN).is_same_except_lease(&base));
        let other = rules(grants, shares(), OPEN);
        assert!(!base.is_same_except_lease(&other) && !other.is_same_except_lease(&base));
    }
    assert!(!rules(&all, shares(), OPEN).is_same_except_lease(&rules(&nobody, shares(), OPEN)));
    assert!(
        !rules(&everywhere, shares(), OPEN).is_same_except_lease(&rules(&nobody, shares(), OPEN))
    );
    assert!(!base.is_same_except_lease(&rules(&one, SharedTools::default(), OPEN)));
    let granted = one.iter().map(|it| (it, None, EntryEffect::Whole));
    let fewer = ForeignRules::new([issuer(2)].into(), shares(), OPEN, granted);
    assert!(!base.is_same_except_lease(&fewer));
}
