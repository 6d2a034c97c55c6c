use mgp_protocol::refusal::owner_refusal::OwnerAnswer;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::calls::outcome::for_refusal;

fn at(millis: u64) -> MonotonicTime {
    MonotonicTime::new(Duration::from_millis(millis))
}

/// The server of this node for 0, else of another one.
fn place(n: u8) -> ServerId {
    match n {
        0 => ServerId::new("files"),
        n => ServerId::new_remote(&format!("node-{n}"), &ServerId::new("files")),
    }
}

fn candidate(n: u8, takes_calls: bool, load: u64, millis: u64) -> RouteCandidate {
    RouteCandidate {
        server: place(n),
        accepts_calls: takes_calls,
        load,
        round_trip: Duration::from_millis(millis),
        idempotent: false,
    }
}

fn confirmed(one: RouteCandidate) -> RouteCandidate {
    RouteCandidate {
        idempotent: true,
        ..one
    }
}

fn specification(n: u8) -> IndexRoot {
    IndexRoot([n; 32])
}

/// FED-063: this node, then the home, then the least busy and near.
#[test]
fn a_call_prefers_local_then_previous_then_least_busy() {
    let all = [
        candidate(0, true, 9, 0),
        candidate(1, true, 0, 1),
        candidate(2, true, 3, 1),
        candidate(3, true, 0, 90),
    ];
    let go = |all: &[RouteCandidate], home: Option<u8>| {
        let choice = RouteAttempts::default().next_route(all, home.map(place).as_ref())?;
        Some((choice.server, choice.reason, choice.affinity_lost))
    };
    use RouteReason::{Affinity, LeastLoaded, Local};
    assert_eq!(go(&all, None), Some((place(0), Local, false)));
    assert_eq!(go(&all, Some(3)), Some((place(0), Local, true)));
    assert_eq!(go(&all[1..], None), Some((place(1), LeastLoaded, false)));
    assert_eq!(go(&all[2..], None), Some((place(2), LeastLoaded, false)));
    assert_eq!(go(&all[1..], Some(3)), Some((place(3), Affinity, false)));
    let away = [
        candidate(0, false, 0, 0),
        candidate(2, true, 0, 1),
        candidate(3, false, 0, 0),
    ];
    assert_eq!(go(&away, Some(3)), Some((place(2), LeastLoaded, true)));
    assert_eq!(go(&away[..1], None), None);
}

/// FED-066: it must be idempotent at both servers.
#[test]
fn a_call_with_unknown_outcome_is_retried_only_if_idempotent() {
    let plain = [candidate(1, true, 0, 1), candidate(2, true, 0, 2)];
    let both = plain.clone().map(confirmed);
    let mixed = [both[0].clone(), plain[1].clone()];
    let lost = |all: &[RouteCandidate], failure| {
        let mut attempts = RouteAttempts::default();
        let first = attempts.next_route(all, None).unwrap();
        assert_eq!(first.server, place(1));
        let again = attempts.can_fail_over(all);
        let may = attempts.can_retry_elsewhere(failure, all[0].idempotent);
        let next = attempts.next_route(all, None).filter(|_| may);
        (next.map(|choice| choice.server), again)
    };
    let (before, after) = (
        AttemptFailure::BeforeDispatch,
        AttemptFailure::AfterDispatch,
    );
    assert_eq!(lost(&plain, before), (Some(place(2)), false));
    assert_eq!(lost(&plain, after), (None, false));
    assert_eq!(lost(&mixed, before), (Some(place(2)), false));
    assert_eq!(lost(&mixed, after), (None, false));
    assert_eq!(lost(&both, after), (Some(place(2)), true));
    assert_eq!(lost(&both[..1], after), (None, false));
}

/// Never a denial.
#[test]
fn only_an_unavailable_server_causes_failover() {
    let server = || place(1);
    let lost = Refusal::ServerLost {
        server: server(),
        reason: "gone".into(),
    };
    let away = Refusal::NotReady {
        server: server(),
        state: "disconnected",
        reason: None,
        retry_after_ms: None,
        unreachable: true,
    };
    assert_eq!(
        AttemptFailure::from_refusal(&lost),
        Some(AttemptFailure::AfterDispatch)
    );
    assert_eq!(
        AttemptFailure::from_refusal(&away),
        Some(AttemptFailure::BeforeDispatch)
    );
    for no in [
        Refusal::Forbidden("no".into()),
        Refusal::UnknownTool("it".into()),
        Refusal::Cancelled,
    ] {
        assert_eq!(AttemptFailure::from_refusal(&no), None, "{no}");
    }
    let said = |cause, outcome| AttemptFailure::from_refusal(&owner_refusal(cause, outcome));
    let away = OwnerRefusalCause::Unavailable;
    assert_eq!(
        said(away, CallOutcome::NotExecuted),
        Some(AttemptFailure::BeforeDispatch)
    );
    assert_eq!(
        said(away, CallOutcome::Unknown),
        Some(AttemptFailure::AfterDispatch)
    );
    assert_eq!(said(away, CallOutcome::Done), None);
    for no in [
        OwnerRefusalCause::NotFound,
        OwnerRefusalCause::Denied,
        OwnerRefusalCause::Blocked,
        OwnerRefusalCause::TimedOut,
        OwnerRefusalCause::Failed,
    ] {
        assert_eq!(said(no, CallOutcome::NotExecuted), None, "{no:?}");
    }
}

/// A refusal of the owner's kernel.
fn owner_refusal(cause: OwnerRefusalCause, outcome: CallOutcome) -> Refusal {
    Refusal::Owner(Box::new(OwnerRefusal {
        cause,
        outcome,
        answer: OwnerAnswer::Error(r#"{"code":2000,"message":"m"}"#.to_owned()),
    }))
}

/// Whatever the error contains: the call was answered. Refusals of older owners look the same.
#[test]
fn an_error_of_a_server_causes_no_failover() {
    let errors = [
        json!({"code": -32602, "message": "Unknown tool: x"}),
        json!({"code": 4001, "message": "Unknown tool: x"}),
        json!({"code": 2000, "message": "not ready",
            "data": {"_mgp": {"retryable": true, "details": {"outcome": "not_executed"}}}}),
        json!({"code": 1000, "message": "no",
            "data": {"_mgp": {"details": {"outcome": "not_executed", "closed": true}}}}),
    ];
    for error in errors {
        let raw = serde_json::value::to_raw_value(&error).unwrap();
        for refusal in [Refusal::Peer(raw.clone()), Refusal::Unattributed(raw)] {
            assert_eq!(AttemptFailure::from_refusal(&refusal), None, "{refusal}");
            assert!(!AttemptFailure::is_closed(&refusal), "{refusal}");
            assert_ne!(for_refusal(&refusal), CallOutcome::NotExecuted, "{refusal}");
        }
    }
}

/// FED-066: the call had no effect there, and other owners may allow it. Covers the local form and the wire form.
#[test]
fn a_denying_server_causes_failover() {
    let closed = Refusal::ClosedByOwner("not open to agent.a".into());
    let owner = owner_refusal(OwnerRefusalCause::Closed, CallOutcome::NotExecuted);
    for closed in [closed, owner] {
        assert_eq!(
            AttemptFailure::from_refusal(&closed),
            Some(AttemptFailure::BeforeDispatch)
        );
        assert!(AttemptFailure::is_closed(&closed));
    }
    assert!(!AttemptFailure::is_closed(&Refusal::Forbidden("no".into())));
}

#[test]
fn a_server_that_denied_an_agent_is_avoided_for_a_while() {
    let agent = |name: &str| AgentId::new(format!("agent.{name}"));
    let mut closed = ClosedRoutes::default();
    closed.record_refusal(&agent("a"), place(1), at(0));
    let left = |closed: &ClosedRoutes, name: &str, all: &[RouteCandidate], now: u64| {
        let mut all = all.to_vec();
        closed.retain_open(&agent(name), &mut all, at(now));
        all.into_iter().map(|one| one.server).collect::<Vec<_>>()
    };
    let both = [candidate(1, true, 0, 1), candidate(2, true, 0, 1)];
    let away = [candidate(1, true, 0, 1), candidate(2, false, 0, 1)];
    assert_eq!(left(&closed, "a", &both, 9_999), [place(2)]);
    assert_eq!(left(&closed, "b", &both, 9_999), [place(1), place(2)]);
    assert_eq!(left(&closed, "a", &both, 10_000), [place(1), place(2)]);
    assert_eq!(left(&closed, "a", &away, 0), [place(1), place(2)]);
    for n in 0..=AFFINITIES_MAX {
        closed.record_refusal(&agent(&n.to_string()), place(1), at(1));
    }
    assert_eq!(closed.closed.len(), AFFINITIES_MAX);
    closed.record_refusal(&agent("late"), place(2), at(10_001));
    assert_eq!(closed.closed.len(), 1);
}

#[test]
fn previous_servers_are_stored_up_to_a_limit() {
    let mut homes = AffinityTable::default();
    let agent = |n: usize| AgentId::new(format!("agent.{n}"));
    for n in 0..=AFFINITIES_MAX {
        homes.record(&agent(n), specification(1), place(2), at(n as u64));
    }
    assert_eq!(homes.get(&agent(0), specification(1)), None);
    assert_eq!(homes.get(&agent(1), specification(1)), Some(&place(2)));
    assert_eq!(homes.get(&agent(1), specification(2)), None);
}

#[test]
fn the_operator_sees_all_servers_and_the_next_choice() {
    let all = [
        candidate(1, true, 0, 1),
        candidate(2, true, 3, 1),
        candidate(3, false, 0, 0),
    ];
    assert_eq!(
        describe_candidates(&all, None),
        [
            "node-1/files: 1.0 ms away; the next call goes there: it is least busy and near",
            "node-2/files: 1.0 ms away, 3 calls under way",
            "node-3/files: takes no calls now",
        ]
    );
    assert!(describe_candidates(&all, Some(&place(2)))[1].ends_with("it remembers the agent"));
}

fn candidates() -> impl Strategy<Value = Vec<RouteCandidate>> {
    let one = (any::<bool>(), 0..4_u64, 0..4_u64, any::<bool>());
    proptest::collection::vec(one, 0..6).prop_map(|all| {
        let all = all.into_iter().zip(0..);
        all.map(|((takes, load, millis, idempotent), n)| RouteCandidate {
            idempotent,
            ..candidate(n, takes, load, millis)
        })
        .collect()
    })
}

proptest! {
    /// FED-066: against a model of the attempts.
    #[test]
    fn no_server_is_tried_twice_and_no_unknown_outcome_is_retried(
        all in candidates(),
        home in proptest::option::of(1..6_u8),
        failures in proptest::collection::vec(any::<bool>(), 6),
    ) {
        let home = home.map(place);
        let mut attempts = RouteAttempts::default();
        let mut tried: Vec<ServerId> = Vec::new();
        let mut lost: Vec<bool> = Vec::new();
        for after in failures {
            let Some(choice) = attempts.next_route(&all, home.as_ref()) else { break };
            let its = all.iter().find(|one| one.server == choice.server).unwrap();
            prop_assert!(!tried.contains(&choice.server) && its.accepts_calls);
            // Whatever was lost before, and what is tried now, may be called twice.
            prop_assert!(lost.is_empty() || (its.idempotent && lost.iter().all(|confirmed| *confirmed)));
            let doubt = !lost.is_empty();
            let left = |one: &&RouteCandidate| {
                one.accepts_calls && !tried.contains(&one.server) && (one.idempotent || !doubt)
            };
            let left: Vec<_> = all.iter().filter(left).collect();
            let takes = |place: &ServerId| left.iter().any(|one| one.server == *place);
            if takes(&place(0)) {
                prop_assert_eq!(&choice.server, &place(0));
            } else if let Some(home) = home.as_ref().filter(|home| takes(home)) {
                prop_assert_eq!(&choice.server, home);
            } else {
                let of = |one: &RouteCandidate| (u128::from(one.load) + 1) * (one.round_trip.as_millis() + 1);
                prop_assert!(left.iter().all(|one| of(one) >= of(its)));
            }
            tried.push(choice.server);
            let failure = if after { AttemptFailure::AfterDispatch } else { AttemptFailure::BeforeDispatch };
            if after {
                lost.push(its.idempotent);
            }
            if !attempts.can_retry_elsewhere(failure, its.idempotent) {
                break;
            }
        }
    }
}
