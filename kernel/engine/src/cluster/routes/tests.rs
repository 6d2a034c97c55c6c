use std::time::Duration;

use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::federation::tool_index::ToolRecord;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mgp::discovery::Status;
use mgp_protocol::refusal::CallOutcome;
use proptest::prelude::*;

use super::*;
use crate::clock::MonotonicTime;
use crate::cluster::node_names::NodeNames;
use crate::cluster::shares::{Share, ShareAudience, ShareChange, Shares, ToolPattern};
use crate::cluster::tool_index::{IndexEffect, OfferedServer, OwnIndex, schemas_of};
use crate::tool_names::{SHOWN_MAX, shown};

fn node(n: u8) -> NodeId {
    NodeId([n; 32])
}

fn at(millis: u64) -> MonotonicTime {
    MonotonicTime::new(Duration::from_millis(millis))
}

/// What a node holds of one that shares these servers: id, mark, tools.
fn held(servers: &[(&str, bool, &[&str])]) -> HeldIndex {
    let mut own = OwnIndex::new(1);
    let mut shares = Shares::default();
    for (id, replica, tools) in servers {
        let server = ServerId::new(*id);
        shares.apply(&ShareChange::Share(Share {
            server: server.clone(),
            to: ShareAudience::Cluster,
            tools: ToolPattern::all(),
        }));
        let record = ServerRecord {
            state: Status::Connected,
            specification: Some(IndexRoot([7; 32])),
            replica: *replica,
            stateful: false,
        };
        let tools = tools.iter().map(|name| {
            let definition = serde_json::json!({"name": name, "inputSchema": {}}).to_string();
            let schemas = schemas_of(&definition).unwrap();
            let tool = ToolRecord {
                definition,
                schemas,
                idempotent: false,
                vector: None,
            };
            (Arc::from(*name), tool)
        });
        let offered = OfferedServer {
            record,
            tools: tools.collect(),
        };
        own.offer(&server, Some(&offered));
    }
    own.reshare(shares);
    let mut held = HeldIndex::default();
    let mut effects = held.told(own.digest(node(9)), at(0));
    while let Some(IndexEffect::Pull(pull)) = effects.pop() {
        effects = held.brought(own.page(node(9), &pull), usize::MAX, at(0));
    }
    held
}

fn handle(n: u8, name: &str) -> NodeHandle {
    NodeNames::default().called(node(n), &NodeName::parse(name).unwrap(), [])
}

fn names(table: &RouteTable, stage: impl Fn(NodeId) -> Stage) -> Vec<String> {
    table
        .listed(stage)
        .into_iter()
        .map(|tool| tool.shown.to_string())
        .collect()
}

fn fresh(_: NodeId) -> Stage {
    Stage::Fresh
}

/// MGP-222, PRJ-008: another node's tool has its node in front and no other name.
#[test]
fn a_remote_tool_has_the_name_of_its_node_in_front() {
    let mut table = RouteTable::default();
    table.set(
        node(1),
        &handle(1, "nas"),
        &held(&[("files", false, &["read", "a.b"])]),
    );
    let listed = names(&table, fresh);
    assert_eq!(listed[1], "nas__files__read");
    assert!(listed[0].starts_with("nas__files__a_b_"));
    let key = IndexKey::tool(&ServerId::new("files"), "read");
    for name in ["nas__files__read", "nas/files:read"] {
        assert_eq!(
            table.read(name),
            Some(RemoteName::Of(node(1), &key)),
            "{name}"
        );
    }
    assert_eq!(table.canonical(node(1), &key).unwrap(), "nas/files:read");
    for bare in [
        "read",
        "files__read",
        "files:read",
        "other__files__read",
        "NAS__files__read",
        "nas",
    ] {
        assert_eq!(table.read(bare), None, "{bare}");
    }
    assert_eq!(
        table.read("nas__files__raed"),
        Some(RemoteName::Missing(node(1)))
    );
    let servers = table.servers(fresh);
    assert_eq!(
        (servers[0].id.as_str(), servers[0].tools.len()),
        ("nas/files", 2)
    );
}

/// PRJ-007: what is away is found by nobody, and keeps its name for when it is back.
#[test]
fn tools_of_a_node_that_is_away_are_marked_then_hidden() {
    let mut table = RouteTable::default();
    table.set(
        node(1),
        &handle(1, "nas"),
        &held(&[("files", false, &["read"])]),
    );
    assert_eq!(table.listed(|_| Stage::Stale)[0].stage, Stage::Stale);
    assert!(names(&table, |_| Stage::Hidden).is_empty());
    assert_eq!(table.servers(|_| Stage::Hidden).len(), 1);
    assert!(table.read("nas__files__read").is_some());
    table.remove(node(1));
    assert_eq!(table.read("nas__files__read"), None);
}

/// Replicas are one entry, under the name of whoever came first, or of this node's own.
#[test]
fn replicas_are_one_entry_that_keeps_its_name() {
    let mut table = RouteTable::default();
    let replica = held(&[("files", true, &["read"])]);
    table.set(node(2), &handle(2, "nas"), &replica);
    table.set(node(1), &handle(1, "attic"), &replica);
    table.set(
        node(3),
        &handle(3, "cellar"),
        &held(&[("files", false, &["read"])]),
    );
    assert_eq!(
        names(&table, fresh),
        ["nas__files__read", "cellar__files__read"]
    );
    table.set(node(2), &handle(2, "nas"), &replica);
    assert_eq!(names(&table, fresh)[0], "nas__files__read");
    let away = |n: NodeId| {
        if n == node(2) {
            Stage::Hidden
        } else {
            Stage::Fresh
        }
    };
    assert_eq!(
        names(&table, away),
        ["attic__files__read", "cellar__files__read"]
    );
    let files = ServerId::new("files");
    let places = table.places(&CallPlace::There(node(2), files.clone()), "read");
    assert_eq!(places.len(), 2);
    assert_eq!(
        table
            .places(&CallPlace::There(node(3), files.clone()), "read")
            .len(),
        1
    );

    let schemas = schemas_of(r#"{"name":"read","inputSchema":{}}"#).unwrap();
    let mut own = OwnReplica {
        server: ServerId::new("local"),
        specification: IndexRoot([7; 32]),
        tools: [("read".into(), schemas)].into(),
    };
    table.set_own(std::slice::from_ref(&own));
    assert_eq!(names(&table, fresh), ["cellar__files__read"]);
    assert_eq!(
        table
            .places(&CallPlace::Here(own.server.clone()), "read")
            .len(),
        3
    );
    own.specification = IndexRoot([8; 32]);
    table.set_own(&[own]);
    assert_eq!(names(&table, fresh).len(), 2);
    table.remove(node(2));
    assert_eq!(
        names(&table, fresh),
        ["attic__files__read", "cellar__files__read"]
    );
}

fn place(n: u8) -> CallPlace {
    let server = ServerId::new("files");
    match n {
        0 => CallPlace::Here(server),
        n => CallPlace::There(node(n), server),
    }
}

fn candidate(n: u8, takes_calls: bool, load: u32, millis: u64) -> PlaceCandidate {
    PlaceCandidate {
        place: place(n),
        takes_calls,
        load,
        round_trip: Duration::from_millis(millis),
    }
}

fn went(next: NextTry) -> Option<(CallPlace, bool)> {
    match next {
        NextTry::Go(choice) => Some((choice.place, choice.home_lost)),
        NextTry::Ended(_) => None,
    }
}

#[test]
fn a_call_goes_here_then_home_then_to_the_least_busy() {
    let all = [
        candidate(0, true, 9, 0),
        candidate(1, true, 0, 1),
        candidate(2, true, 3, 1),
        candidate(3, true, 0, 90),
    ];
    let go = |all: &[PlaceCandidate], home: Option<u8>| {
        went(CallAttempts::default().next(all, home.map(place).as_ref()))
    };
    assert_eq!(go(&all, None), Some((place(0), false)));
    assert_eq!(go(&all[1..], None), Some((place(1), false)));
    assert_eq!(go(&all[2..], None), Some((place(2), false)));
    // What the server remembers of the agent is at its home.
    assert_eq!(go(&all, Some(3)), Some((place(3), false)));
    let away = [
        candidate(0, false, 0, 0),
        candidate(2, true, 0, 1),
        candidate(3, false, 0, 0),
    ];
    assert_eq!(go(&away, Some(3)), Some((place(2), true)));
    let none = CallAttempts::default().next(&away[..1], None);
    assert_eq!(none, NextTry::Ended(CallOutcome::NotExecuted));
}

/// A call that may have been made is not made again, but where that does no harm.
#[test]
fn a_call_in_doubt_ends_unless_it_is_idempotent() {
    let all = [candidate(1, true, 0, 1), candidate(2, true, 0, 2)];
    let mut attempts = CallAttempts::default();
    assert_eq!(went(attempts.next(&all, None)), Some((place(1), false)));
    let before = attempts
        .clone()
        .failed(TryFailure::BeforeDispatch, false, &all, None);
    assert_eq!(went(before), Some((place(2), false)));
    let after = attempts
        .clone()
        .failed(TryFailure::AfterDispatch, false, &all, None);
    assert_eq!(after, NextTry::Ended(CallOutcome::Unknown));
    let again = attempts.failed(TryFailure::AfterDispatch, true, &all, None);
    assert_eq!(went(again), Some((place(2), false)));
    let last = attempts.failed(TryFailure::BeforeDispatch, true, &all, None);
    assert_eq!(last, NextTry::Ended(CallOutcome::Unknown));
}

#[test]
fn homes_are_remembered_up_to_their_bound() {
    let mut homes = Homes::default();
    let agent = |n: usize| AgentId::new(format!("agent.{n}"));
    for n in 0..=HOMES_MAX {
        homes.went(&agent(n), &place(1), place(2), at(n as u64));
    }
    assert_eq!(homes.of(&agent(0), &place(1)), None);
    assert_eq!(homes.of(&agent(1), &place(1)), Some(&place(2)));
    homes.forget(&agent(1));
    assert_eq!(homes.of(&agent(1), &place(1)), None);
}

fn candidates() -> impl Strategy<Value = Vec<PlaceCandidate>> {
    let one = (any::<bool>(), 0..4_u32, 0..4_u64);
    proptest::collection::vec(one, 0..6).prop_map(|all| {
        let all = all.into_iter().zip(0..);
        all.map(|((takes, load, millis), n)| candidate(n, takes, load, millis))
            .collect()
    })
}

proptest! {
    /// Against a model that knows of each try only where it went and how it failed.
    #[test]
    fn no_place_is_tried_twice_and_no_call_in_doubt_is_made_again(
        all in candidates(),
        home in proptest::option::of(0..6_u8),
        failures in proptest::collection::vec(any::<bool>(), 6),
        idempotent in any::<bool>(),
    ) {
        let home = home.map(place);
        let mut attempts = CallAttempts::default();
        let mut tried = Vec::new();
        let mut dispatched = 0;
        let mut next = attempts.next(&all, home.as_ref());
        for after in failures {
            let NextTry::Go(choice) = next.clone() else { break };
            prop_assert!(!tried.contains(&choice.place));
            prop_assert!(dispatched == 0 || idempotent);
            let left = |one: &&PlaceCandidate| one.takes_calls && !tried.contains(&one.place);
            let left: Vec<_> = all.iter().filter(left).collect();
            prop_assert!(left.iter().any(|one| one.place == choice.place));
            let home_takes = left.iter().any(|one| Some(&one.place) == home.as_ref());
            let here_takes = left.iter().any(|one| one.place == place(0));
            if home_takes {
                prop_assert_eq!(Some(&choice.place), home.as_ref());
            } else if here_takes {
                prop_assert_eq!(&choice.place, &place(0));
            } else {
                let of = |one: &PlaceCandidate| (one.load + 1) * (u32::try_from(one.round_trip.as_millis()).unwrap() + 1);
                let its = left.iter().find(|one| one.place == choice.place).unwrap();
                prop_assert!(left.iter().all(|one| of(one) >= of(its)));
            }
            tried.push(choice.place);
            dispatched += usize::from(after);
            let failure = if after { TryFailure::AfterDispatch } else { TryFailure::BeforeDispatch };
            next = attempts.failed(failure, idempotent, &all, home.as_ref());
        }
        if let NextTry::Ended(outcome) = next {
            let said = if dispatched > 0 { CallOutcome::Unknown } else { CallOutcome::NotExecuted };
            prop_assert_eq!(outcome, said);
        }
    }

    /// No name of a remote tool is that of another one, or of any local tool there could be, once its node
    /// is not called like a local server.
    #[test]
    fn shown_names_of_remote_tools_are_their_own(
        tools in proptest::collection::vec(("[a-]{1,3}", "[a_.]{1,4}", "[a_.0]{1,8}"), 2..30),
        local in proptest::collection::vec(("[b_.]{1,4}", "[a_.0]{1,8}"), 0..10),
    ) {
        let mut owners = std::collections::HashMap::new();
        let remote = tools.into_iter().map(|(node, server, name)| {
            let shown = shown_remote(&node, &node, &ServerId::new(server.as_str()), &name);
            (shown, format!("{node}/{server}:{name}"))
        });
        let local = local.into_iter().map(|(server, name)| {
            (shown(&ServerId::new(server.as_str()), &name), format!("{server}:{name}"))
        });
        for (shown, owner) in remote.chain(local) {
            prop_assert!(shown.len() <= SHOWN_MAX);
            let first = owners.entry(shown).or_insert_with(|| owner.clone());
            prop_assert_eq!(&*first, &owner);
        }
    }
}
