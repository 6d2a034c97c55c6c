//! Tests of an owner's refusals, and of its servers' errors.

use super::*;

/// An error of a server is relayed byte for byte, and is never taken for a refusal of its owner's kernel,
/// whatever it contains; with an older owner they cannot be distinguished, and it is no refusal either.
#[tokio::test]
async fn server_error_is_never_taken_for_a_refusal_of_its_owner() {
    let (now, before) = (
        WireFeatures::CALLS | WireFeatures::REFUSALS,
        WireFeatures::CALLS,
    );
    for (home, owner) in [(now, now), (now, before), (before, now)] {
        let nodes = TwoNodes::with_features(home, owner).await;
        for error in LIES {
            let params = json!({"name": "lies", "error": error});
            let refused = nodes.answer("tools/call", params).await;
            let refused = refused.map(drop).unwrap_err();
            assert_eq!(AttemptFailure::from_refusal(&refused), None, "{refused}");
            assert!(!AttemptFailure::is_closed(&refused), "{refused}");
            if home.contains(WireFeatures::REFUSALS) && owner.contains(WireFeatures::REFUSALS) {
                assert!(matches!(refused, Refusal::Peer(_)), "{refused}");
                assert_eq!(refused.to_string(), error);
                assert_eq!(for_refusal(&refused), CallOutcome::Done);
            } else {
                assert!(matches!(refused, Refusal::Unattributed(_)), "{refused}");
                assert_eq!(for_refusal(&refused), CallOutcome::Unknown);
            }
        }
        // A refusal of such an owner is no reason to ask another one.
        if owner == before || home == before {
            for tool in ["hidden", "away"] {
                let refused = nodes.answer("tools/call", json!({"name": tool})).await;
                let refused = refused.map(drop).unwrap_err();
                assert!(matches!(refused, Refusal::Unattributed(_)), "{refused}");
                assert_eq!(AttemptFailure::from_refusal(&refused), None, "{refused}");
            }
        }
    }
}

/// A refusal of the owner's kernel states whether the call was dispatched, in the first round and in later
/// ones.
#[tokio::test]
async fn owner_refusal_states_whether_the_call_was_dispatched() {
    let nodes = TwoNodes::new().await;
    let refused = async |params: Value| {
        let refused = nodes.answer("tools/call", params).await;
        let refused = refused.map(drop).unwrap_err();
        let Refusal::Owner(refusal) = refused else {
            panic!("{refused}");
        };
        *refusal
    };
    let away = refused(json!({"name": "away"})).await;
    assert_eq!(away.cause, OwnerRefusalCause::Unavailable);
    assert_eq!(away.outcome, CallOutcome::NotExecuted);
    let lost = refused(json!({"name": "broken off"})).await;
    assert_eq!(lost.cause, OwnerRefusalCause::Unavailable);
    assert_eq!(lost.outcome, CallOutcome::Unknown);
    let wrong = refused(json!({"name": "wrong"})).await;
    assert_eq!(wrong.cause, OwnerRefusalCause::Blocked);
    assert_eq!(wrong.outcome, CallOutcome::NotExecuted);
    // Whatever is refused in a later round, the call was made.
    let first = nodes
        .answer("tools/call", json!({"name": "asks"}))
        .await
        .unwrap();
    let state = first["requestState"].as_str().unwrap();
    let other = json!({"name": "away", "requestState": state});
    assert_eq!(refused(other).await.outcome, CallOutcome::Unknown);
    let state = "not this kernel's";
    let later = json!({"name": "away", "requestState": state});
    assert_eq!(refused(later).await.outcome, CallOutcome::Unknown);
}

/// The kernel of an older agent's node receives the earlier format.
#[tokio::test]
async fn older_node_receives_refusals_in_the_earlier_format() {
    let now = WireFeatures::CALLS | WireFeatures::REFUSALS;
    let nodes = TwoNodes::with_features(WireFeatures::CALLS, now).await;
    let mut call_header = header("tools/call");
    let shown = nodes.peer.assertion_for(&AgentId::new("agent.alice"));
    (call_header.assertion, call_header.signed) =
        (Some(shown.id), shown.signed.as_deref().cloned());
    let frame = answered(&nodes, call_header, &with_meta(json!({"name": "hidden"}))).await;
    assert!(matches!(frame, CallFrame::Error(_)), "{frame:?}");
    assert!(error(&frame).1.contains("Unknown tool"), "{frame:?}");
}
