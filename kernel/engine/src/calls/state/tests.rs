use mgp_protocol::ids::ServerId;
use proptest::prelude::*;

use super::*;

/// What can happen to a call.
#[derive(Clone, Copy, Debug)]
enum Event {
    PassChecks,
    StartAttempt { continues: bool },
    Dispatch,
    EndRequest(CallOutcome),
    Suspend,
    Resume,
    Cancel,
}

/// What a server really saw of it.
#[derive(Debug, Default)]
struct Server {
    has_read: bool,
    has_answered: bool,
    is_awaited: bool,
    is_cancelled: bool,
    questions: usize,
}

fn any_outcome() -> impl Strategy<Value = CallOutcome> {
    prop_oneof![
        Just(CallOutcome::NotExecuted),
        Just(CallOutcome::Done),
        Just(CallOutcome::Unknown),
    ]
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => Just(Event::PassChecks),
        1 => any::<bool>().prop_map(|continues| Event::StartAttempt { continues }),
        3 => Just(Event::Dispatch),
        3 => any_outcome().prop_map(Event::EndRequest),
        1 => Just(Event::Suspend),
        1 => Just(Event::Resume),
        1 => Just(Event::Cancel),
    ]
}

/// Applies an event where it can happen; `server` notes what is true.
fn apply(state: &mut CallState, server: &mut Server, event: Event) {
    match event {
        Event::PassChecks => state.pass_checks(),
        Event::StartAttempt { continues } if !server.is_awaited => {
            server.has_read |= continues;
            server.has_answered = false;
            state.start_attempt(continues);
        }
        Event::Dispatch if !server.is_awaited && server.questions == 0 => {
            server.has_answered = false;
            server.is_awaited = state.dispatch();
            assert_eq!(server.is_awaited, !server.is_cancelled, "{state:?}");
        }
        Event::EndRequest(outcome) if server.is_awaited && server.questions == 0 => {
            server.has_read |= outcome != CallOutcome::NotExecuted;
            // Of what a call that was taken back is answered nothing is known.
            server.has_answered = outcome == CallOutcome::Done && !server.is_cancelled;
            server.is_awaited = false;
            state.end_request(outcome);
        }
        Event::Suspend if server.is_awaited && !server.is_cancelled => {
            server.has_read = true;
            server.questions += 1;
            state.suspend();
        }
        Event::Resume if server.questions > 0 => {
            server.questions -= 1;
            state.resume();
        }
        Event::Cancel => {
            server.is_cancelled = true;
            state.cancel();
        }
        Event::StartAttempt { .. }
        | Event::Dispatch
        | Event::EndRequest(_)
        | Event::Suspend
        | Event::Resume => {}
    }
}

proptest! {
    /// Whatever happens in whatever order: what a server may have read is never "not executed", what none did always
    /// is, and nothing is sent for a call that was taken back.
    #[test]
    fn the_outcome_matches_what_servers_received(events in proptest::collection::vec(any_event(), 0..24)) {
        let (mut state, mut server) = (CallState::default(), Server::default());
        for event in events {
            apply(&mut state, &mut server, event);
            let may_have_read = server.has_read || server.is_awaited;
            if may_have_read {
                prop_assert_ne!(state.outcome(), CallOutcome::NotExecuted, "{:?} {:?}", state, server);
            }
            // A request that is under way when the call is taken back may have been read for all that is known.
            if !may_have_read && !server.is_cancelled {
                prop_assert_eq!(state.outcome(), CallOutcome::NotExecuted, "{:?} {:?}", state, server);
            }
            if state.outcome() == CallOutcome::Done {
                prop_assert!(server.has_answered || server.is_cancelled, "{:?} {:?}", state, server);
            }
            prop_assert_eq!(state.has_question(), server.questions > 0);
        }
    }
}

fn not_ready() -> Refusal {
    Refusal::NotReady {
        server: ServerId::parse("files").unwrap(),
        state: "restarting",
        reason: None,
        retry_after_ms: Some(60_000),
        unreachable: false,
    }
}

/// A call that was lost and made again finds its server away: the first attempt may have taken effect.
#[test]
fn a_later_attempt_does_not_undo_an_earlier_one() {
    let mut state = CallState::default();
    state.pass_checks();
    state.start_attempt(false);
    assert!(state.dispatch());
    state.end_request(CallOutcome::Unknown);
    state.start_attempt(false);
    assert!(!state.has_reached_in_attempt());
    assert_eq!(state.outcome_after(&not_ready()), CallOutcome::Unknown);
}

/// What was written to a connection that was lost before the server read it was not executed.
#[test]
fn an_unread_request_was_not_executed() {
    let mut state = CallState::default();
    state.start_attempt(false);
    assert!(state.dispatch());
    state.end_request(CallOutcome::NotExecuted);
    assert_eq!(state.outcome_after(&not_ready()), CallOutcome::NotExecuted);
    assert_eq!(state.stage(), CallStage::Waiting);
}

/// An error that says nothing about the call means nothing where no server was reached.
#[test]
fn an_undispatched_call_was_not_executed_for_any_refusal() {
    let mut state = CallState::default();
    state.start_attempt(false);
    for refusal in [Refusal::Cancelled, Refusal::Internal("no memory".into())] {
        assert_eq!(state.outcome_after(&refusal), CallOutcome::NotExecuted);
    }
    state.cancel();
    assert!(!state.dispatch());
    assert_eq!(
        state.outcome_after(&Refusal::Cancelled),
        CallOutcome::NotExecuted
    );
}

/// A call whose first part its server answered with a question continues what was begun.
#[test]
fn a_continued_call_has_reached_its_server() {
    let mut state = CallState::default();
    state.start_attempt(true);
    assert_eq!(state.outcome_after(&not_ready()), CallOutcome::Unknown);
}

/// The fallback of a tool is a call of its own; the request has reached what both did.
#[test]
fn a_nested_call_has_its_own_state() {
    let mut state = CallState::default();
    state.admit();
    state.start_attempt(false);
    assert!(state.dispatch());
    state.end_request(CallOutcome::Done);
    let outer = state.start_nested();
    assert!(!state.is_admitted());
    assert_eq!(state.outcome(), CallOutcome::NotExecuted);
    state.end_nested(&outer);
    assert!(state.is_admitted());
    assert_eq!(state.outcome(), CallOutcome::Unknown);
}
