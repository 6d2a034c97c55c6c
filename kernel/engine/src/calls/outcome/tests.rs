use super::*;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::audit::{Actor, ActorKind, Target, TraceId};
use mgp_protocol::refusal::owner_refusal::{OwnerAnswer, OwnerRefusal, OwnerRefusalCause};
use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};

const ID: &str = "550e8400-e29b-41d4-a716-446655440000";

fn at(ms: u64) -> MonotonicTime {
    MonotonicTime::new(Duration::from_millis(ms))
}

fn lost() -> Refusal {
    Refusal::ServerLost {
        server: ServerId::new("it"),
        reason: "exited".into(),
    }
}

fn away(retry_after_ms: Option<u64>) -> Refusal {
    Refusal::NotReady {
        server: ServerId::new("it"),
        state: "restarting",
        reason: None,
        retry_after_ms,
        unreachable: false,
    }
}

fn slow() -> Refusal {
    Refusal::TimedOut {
        server: ServerId::new("it"),
        after_ms: 30,
        remote: false,
    }
}

fn event(result: Outcome, details: Value) -> Event {
    Event {
        timestamp: "2026-11-22T10:00:00.000Z".into(),
        trace_id: TraceId::parse(ID).unwrap(),
        event_type: EventType::ToolExecuted,
        actor: Actor {
            kind: ActorKind::Agent,
            id: "agent.a".into(),
        },
        target: Target::default(),
        result,
        details: serde_json::from_value(details).unwrap(),
    }
}

fn found(results: &[(Outcome, Value)]) -> CallLookup {
    let events = results.iter().cloned().zip(1..);
    let records =
        events.filter_map(|((result, details), n)| parse_call_record(n, event(result, details)));
    CallLookup {
        records: records.collect(),
        ..CallLookup::default()
    }
}

/// A call that was sent and not answered is unknown, never undone.
#[test]
fn a_dispatched_request_is_never_reported_as_not_executed() {
    assert_eq!(for_refusal(&lost()), CallOutcome::Unknown);
    assert_eq!(for_refusal(&slow()), CallOutcome::Unknown);
    assert_eq!(for_refusal(&Refusal::Cancelled), CallOutcome::Unknown);
    assert_eq!(for_refusal(&away(None)), CallOutcome::NotExecuted);
}

/// A call whose first part reached its server was made, whatever keeps a later part from it: where the server is away it
/// is lost, anything else is a failure that no other place is asked about, and neither is said to be undone.
#[test]
fn a_dispatched_call_is_never_reported_as_not_executed() {
    let server = ServerId::new("it");
    let owner = |cause, outcome| {
        Refusal::Owner(Box::new(OwnerRefusal {
            cause,
            outcome,
            answer: OwnerAnswer::Error(
                r#"{"code":1000,"message":"the call was not executed"}"#.into(),
            ),
        }))
    };
    let away = owner(OwnerRefusalCause::Unavailable, CallOutcome::NotExecuted);
    for refusal in [away, self::away(Some(0)), self::away(None)] {
        let lost = mark_dispatched(refusal, &server);
        assert!(matches!(lost, Refusal::ServerLost { .. }), "{lost}");
    }
    let closed = owner(OwnerRefusalCause::Closed, CallOutcome::NotExecuted);
    let denied = owner(OwnerRefusalCause::Denied, CallOutcome::NotExecuted);
    let closed_here = Refusal::ClosedByOwner("no".into());
    let unknown = Refusal::UnknownTool("t".into());
    for refusal in [closed, denied, closed_here, unknown] {
        let failed = mark_dispatched(refusal, &server);
        assert!(matches!(failed, Refusal::InvalidAnswer { .. }), "{failed}");
        assert_eq!(AttemptFailure::from_refusal(&failed), None);
        assert_eq!(for_refusal(&failed), CallOutcome::Unknown);
        assert!(!failed.to_string().contains("not executed"), "{failed}");
    }
    // What says more is left as it is.
    let expired = Refusal::Expired("late".into());
    assert_eq!(for_refusal(&expired), CallOutcome::Unknown);
    let error = RawValue::from_string(r#"{"code":1,"message":"m"}"#.into()).unwrap();
    for refusal in [expired, Refusal::Peer(error), slow()] {
        let before = refusal.to_string();
        assert_eq!(mark_dispatched(refusal, &server).to_string(), before);
    }
}

/// A result that the kernel keeps back was given all the same.
#[test]
fn a_call_with_an_undelivered_result_is_done() {
    let kept = mark_answered(Refusal::Forbidden("a hook".into()), ID);
    assert_eq!(for_refusal(&kept), CallOutcome::Done);
    assert!(kept.to_string().contains("the server did answer"), "{kept}");
    assert!(matches!(
        mark_answered(lost(), ID),
        Refusal::ServerLost { .. }
    ));
}

/// The last of what became of a call with this id is told, and that something is unknown before all.
#[test]
fn a_record_has_the_outcome_of_its_call() {
    let told =
        |results: &[(Outcome, Value)]| found(results).into_history(ID, false).unwrap().outcome;
    let said = |outcome: &str| json!({OUTCOME: outcome});
    assert_eq!(told(&[(Outcome::Success, json!({}))]), CallOutcome::Done);
    assert_eq!(told(&[(Outcome::Failure, said("done"))]), CallOutcome::Done);
    assert_eq!(told(&[(Outcome::Failure, json!({}))]), CallOutcome::Unknown);
    let unmade = told(&[(Outcome::Failure, said("not_executed"))]);
    assert_eq!(unmade, CallOutcome::NotExecuted);
    assert_eq!(
        told(&[(Outcome::Denied, json!({}))]),
        CallOutcome::NotExecuted
    );
    let both = [(Outcome::Timeout, json!({})), (Outcome::Success, json!({}))];
    assert_eq!(told(&both), CallOutcome::Unknown);
    assert_eq!(
        told(&[(Outcome::Cancelled, said("nonsense"))]),
        CallOutcome::Unknown
    );
    let task = found(&[(Outcome::Success, json!({TASK: "t-1"}))]);
    let task = task.into_history(ID, false).unwrap();
    assert_eq!(task.outcome, CallOutcome::Unknown);
    assert!(task.reason.as_ref().unwrap().contains("`tasks/get` of t-1"));
    let working = apply_task_statuses(task.clone(), &[Some(TaskStatus::Working)]);
    assert_eq!(working.outcome, CallOutcome::Unknown);
    assert_eq!(working.records[0].task_status.as_deref(), Some("working"));
    let failed = apply_task_statuses(task.clone(), &[Some(TaskStatus::Failed)]);
    assert_eq!(failed.outcome, CallOutcome::Unknown);
    assert_eq!(apply_task_statuses(task.clone(), &[None]), task);
    let done = apply_task_statuses(task, &[Some(TaskStatus::Completed)]);
    assert_eq!(done.outcome, CallOutcome::Done);
    assert!(done.reason.unwrap().contains("which is completed"));
}

/// The number of a record counts what everybody does: the operator reads it, an agent does not.
#[test]
fn agents_get_no_sequence_numbers_of_the_log() {
    let asked = |own| {
        let told = found(&[(Outcome::Success, json!({}))]).into_history(ID, own);
        serde_json::to_value(told.unwrap()).unwrap()["records"][0]["seq"].clone()
    };
    assert_eq!((asked(true), asked(false)), (Value::Null, json!(1)));
}

/// What is no call is no record of one.
#[test]
fn other_events_of_a_trace_are_not_call_records() {
    let mut other = event(Outcome::Success, json!({}));
    other.event_type = EventType::AccessGranted;
    assert_eq!(parse_call_record(1, other), None);
}

/// A missing record means unknown once a kernel has ended without closing its log, and nothing before that.
#[test]
fn a_missing_record_is_unknown_after_an_unclean_shutdown() {
    let none = CallLookup {
        log_start: Some("2026-11-01".into()),
        ..CallLookup::default()
    };
    let error = none.clone().into_history(ID, true).unwrap_err().to_string();
    for part in [
        ID,
        "that is yours",
        "goes back to 2026-11-01",
        "copied whole",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let mut killed = CallLookup {
        interrupted_at: Some("2026-11-22".into()),
        ..none
    };
    let told = killed.clone().into_history(ID, false).unwrap();
    assert_eq!(told.outcome, CallOutcome::Unknown);
    assert!(told.reason.unwrap().contains("2026-11-22"));
    killed.logged_before_reply = true;
    let told = killed.into_history(ID, false).unwrap();
    assert_eq!(told.outcome, CallOutcome::Unknown);
    assert!(told.reason.unwrap().contains("no answer was given"));
}

/// A server that was away before the call was sent, or that is slow, gets no call of an idempotent tool twice.
#[test]
fn only_lost_calls_are_retried() {
    let mut tries = IdempotentRetries::default();
    assert_eq!(tries.next_delay(&away(Some(10)), at(0)), None);
    assert_eq!(tries.next_delay(&slow(), at(0)), None);
    assert_eq!(tries.next_delay(&Refusal::Cancelled, at(0)), None);
    assert_eq!(tries.next_delay(&lost(), at(0)), Some(RETRY_DELAY));
    let wait = Duration::from_millis(900);
    assert_eq!(tries.next_delay(&away(Some(900)), at(500)), Some(wait));
    assert_eq!(tries.next_delay(&away(Some(60_000)), at(1_400)), None);
    assert_eq!(tries.count(), 2);
}

proptest! {
    /// Whatever a server does, there are so many tries, and none later than its time.
    #[test]
    fn retries_are_bounded(ends in proptest::collection::vec(proptest::option::of(0u64..40_000), 1..20)) {
        let (mut tries, mut now, mut first) = (IdempotentRetries::default(), at(0), None);
        for end in ends {
            let refusal = end.map_or_else(lost, |ms| away(Some(ms)));
            first = first.or(end.is_none().then_some(now));
            let Some(wait) = tries.next_delay(&refusal, now) else { continue };
            prop_assert!(wait >= RETRY_DELAY_MIN);
            now = now + wait;
            prop_assert!(now.duration_since(first.unwrap()) <= RETRY_WINDOW);
        }
        prop_assert!(tries.count() <= RETRIES_MAX);
    }
}
