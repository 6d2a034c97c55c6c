//! What single inputs come to, one story each.

use super::*;

fn begun() -> Supervision {
    begun_under(RestartPolicy::OnFailure)
}

fn begun_under(policy: RestartPolicy) -> Supervision {
    let mut it = Supervision::new(rules(true, policy), MonotonicTime::START);
    it.handle(
        SupervisionInput::Start { by_operator: false },
        MonotonicTime::START,
    );
    it.handle(SupervisionInput::Connected(1), MonotonicTime::START);
    it
}

/// What is told and shown, in its order and with its reasons.
fn told(effects: &[SupervisionEffect]) -> Vec<String> {
    let told = effects.iter().filter_map(|effect| match effect {
        SupervisionEffect::Announce(step) => Some(format!("{} -> {}", step.from, step.to)),
        SupervisionEffect::Publish(status) => Some(format!("{}: {}", status.state, status.reason)),
        SupervisionEffect::WithdrawOffer => Some("withdrawn".into()),
        SupervisionEffect::AnswerStopRequests => Some("answered".into()),
        SupervisionEffect::NotifyDisconnected(_, why, _) => Some(format!("disconnected: {why}")),
        SupervisionEffect::StartGeneration(_)
        | SupervisionEffect::StopGeneration(_)
        | SupervisionEffect::FailGeneration(_)
        | SupervisionEffect::ReleaseGeneration
        | SupervisionEffect::StartReplacement(_)
        | SupervisionEffect::FailReplacement(_)
        | SupervisionEffect::ReleaseReplacement
        | SupervisionEffect::RollFailed(_)
        | SupervisionEffect::SwitchToReplacement(_)
        | SupervisionEffect::PromoteReplacement
        | SupervisionEffect::HurryRetiring
        | SupervisionEffect::ReleaseRetiring
        | SupervisionEffect::EndInstances(_)
        | SupervisionEffect::AcceptCalls
        | SupervisionEffect::SuspendCalls
        | SupervisionEffect::Ignore(_)
        | SupervisionEffect::NotifyConnected
        | SupervisionEffect::RetryAt(_)
        | SupervisionEffect::RequestPermit
        | SupervisionEffect::ReportImplausible(_) => None,
    });
    told.collect()
}

#[test]
fn a_crash_is_told_before_the_wait_for_the_next_start_is_shown() {
    let mut it = begun();
    let how = "exit status 1".to_owned();
    let ended = SupervisionInput::Ended(1, ServerExit::Failed(how.clone()), how);
    let effects = it.handle(ended, MonotonicTime::START);
    let expected = [
        "disconnected: exit status 1",
        "connected -> error",
        "error -> restarting",
        "restarting: exit status 1",
    ];
    assert_eq!(told(&effects), expected);
    let at = MonotonicTime::START + Duration::from_millis(1);
    assert_eq!(effects.last(), Some(&SupervisionEffect::RetryAt(at)));
}

#[test]
fn who_waits_for_a_stop_is_answered_when_it_is_shown() {
    let mut it = begun();
    let order = StopOrder::from(TransitionReason::OperatorRequest);
    let effects = it.handle(SupervisionInput::Stop(order), MonotonicTime::START);
    let expected = ["connected -> draining", "draining: operator_request"];
    assert_eq!(told(&effects), expected);
    assert_eq!(
        effects.last(),
        Some(&SupervisionEffect::StopGeneration(order))
    );
    let ended = SupervisionInput::Ended(1, ServerExit::Clean, "stopped".into());
    let expected = [
        "disconnected: operator_request",
        "draining -> disconnected",
        "disconnected: stopped (operator_request)",
        "answered",
        "withdrawn",
    ];
    assert_eq!(told(&it.handle(ended, MonotonicTime::START)), expected);
}

#[test]
fn a_restart_is_shown_as_one_and_not_as_an_end() {
    let mut it = begun();
    it.handle(SupervisionInput::Restart, MonotonicTime::START);
    let ended = SupervisionInput::Ended(1, ServerExit::Clean, "stopped".into());
    let effects = it.handle(ended, MonotonicTime::START);
    let expected = [
        "disconnected: operator_request",
        "draining -> restarting",
        "answered",
        "restarting: operator_request",
    ];
    assert_eq!(told(&effects), expected);
    assert!(effects.contains(&SupervisionEffect::StartGeneration(2)));
}

#[test]
fn only_a_server_elsewhere_that_failed_unasked_is_unreachable() {
    for (remote, stops, expected) in [
        (true, false, true),
        (true, true, false),
        (false, false, false),
    ] {
        let mut it = begun();
        it.rules.is_remote = remote;
        if stops {
            let order = TransitionReason::OperatorRequest.into();
            it.handle(SupervisionInput::Stop(order), MonotonicTime::START);
        }
        let failed = ServerExit::Failed("gone".into());
        it.handle(
            SupervisionInput::Ended(1, failed, "gone".into()),
            MonotonicTime::START,
        );
        let status = it.status(None, MonotonicTime::START);
        assert_eq!(status.is_unreachable, expected);
    }
}

fn operators_start() -> SupervisionInput {
    SupervisionInput::Start { by_operator: true }
}

fn clean_end(life: u64) -> SupervisionInput {
    SupervisionInput::Ended(life, ServerExit::Clean, "exit status 0".into())
}

/// MGP-144: an operator's start is heeded, too, that came while the server drained of itself.
#[test]
fn a_start_during_a_drain_of_its_own_is_made_when_that_is_over() {
    let mut it = begun();
    it.handle(
        SupervisionInput::Reported {
            from: "connected".into(),
            to: "draining".into(),
            reason: String::new(),
        },
        MonotonicTime::START,
    );
    let effects = it.handle(operators_start(), MonotonicTime::START);
    assert_eq!(told(&effects), ["draining: server_request"]);
    let effects = it.handle(clean_end(1), MonotonicTime::START);
    assert!(effects.contains(&SupervisionEffect::StartGeneration(2)));
    assert!(!it.status(None, MonotonicTime::START).will_start);
}

/// a start that takes the place of a restart is the only one.
#[test]
fn a_start_after_a_restart_is_not_made_twice() {
    let mut it = Supervision::new(rules(true, RestartPolicy::OnFailure), MonotonicTime::START);
    let orders = [
        operators_start(),
        SupervisionInput::Restart,
        operators_start(),
    ];
    let effects = orders.map(|order| it.handle(order, MonotonicTime::START));
    assert!(effects[2].contains(&SupervisionEffect::StartGeneration(2)));
    assert!(!it.status(None, MonotonicTime::START).will_start);
    let effects = it.handle(clean_end(2), MonotonicTime::START);
    assert!(!effects.contains(&SupervisionEffect::StartGeneration(3)));
}

/// MGP-148: nobody who asks for a start has to wait for the one that the policy would make.
#[test]
fn a_start_cuts_the_wait_after_a_clean_end_short() {
    let mut it = begun_under(RestartPolicy::Always);
    let effects = it.handle(clean_end(1), MonotonicTime::START);
    assert!(matches!(
        effects.last(),
        Some(SupervisionEffect::RetryAt(_))
    ));
    let effects = it.handle(operators_start(), MonotonicTime::START);
    assert!(effects.contains(&SupervisionEffect::StartGeneration(2)));
}

/// MGP-151: a server that may not be started again is in error, even if it ended without one.
#[test]
fn too_many_clean_ends_are_an_error() {
    let mut rules = rules(true, RestartPolicy::Always);
    rules.restart.max_restarts = 0;
    let mut it = Supervision::new(rules, MonotonicTime::START);
    it.handle(operators_start(), MonotonicTime::START);
    it.handle(SupervisionInput::Connected(1), MonotonicTime::START);
    it.handle(clean_end(1), MonotonicTime::START);
    let status = it.status(None, MonotonicTime::START);
    assert_eq!(status.state, LifecycleState::Error);
}

/// MGP-140, A-06: what uses too much is drained for that reason, and then restarted as what failed.
#[test]
fn a_server_over_its_limit_is_drained_and_counts_as_failed() {
    let mut it = begun();
    let why = "resource_limit: it uses 2 processes, more than 1";
    let effects = it.handle(
        SupervisionInput::LimitExceeded(1, why.into()),
        MonotonicTime::START,
    );
    let order = StopOrder::from(TransitionReason::ResourceLimit);
    assert!(effects.contains(&SupervisionEffect::StopGeneration(order)));
    let expected = ["connected -> draining", &format!("draining: {why}")];
    assert_eq!(told(&effects), expected);
    let ended = SupervisionInput::Ended(1, ServerExit::Clean, "stopped".into());
    let expected = [
        format!("disconnected: {why}"),
        "draining -> error".into(),
        "error -> restarting".into(),
        format!("restarting: {why}"),
    ];
    assert_eq!(told(&it.handle(ended, MonotonicTime::START)), expected);
}

/// A server at a URL is tried when somebody calls, at most once a second; what the kernel starts waits for its time.
#[test]
fn a_call_brings_the_next_try_of_a_server_at_a_url_forward() {
    for at_url in [true, false] {
        let rules = SupervisionConfig {
            is_at_url: at_url,
            restart: RestartConfig {
                backoff_base: Duration::from_secs(30),
                backoff_max: Duration::from_secs(30),
                ..rules(true, RestartPolicy::OnFailure).restart
            },
            ..rules(true, RestartPolicy::OnFailure)
        };
        let at = |secs| MonotonicTime::START + Duration::from_secs(secs);
        let mut it = Supervision::new(rules, at(0));
        it.handle(SupervisionInput::Start { by_operator: false }, at(0));
        let failed = ServerExit::Failed("connection refused".into());
        let ended = SupervisionInput::Ended(1, failed, "connection refused".into());
        assert!(
            it.handle(ended, at(10))
                .contains(&SupervisionEffect::RetryAt(at(40)))
        );
        let soon = it.handle(SupervisionInput::CallWaiting, at(10));
        let forward = [SupervisionEffect::RetryAt(at(11))];
        assert_eq!(soon, forward[..usize::from(at_url)]);
        // A second one finds that try to come.
        assert_eq!(it.handle(SupervisionInput::CallWaiting, at(10)), []);
    }
}

/// A session that ends while it is in use is met anew at once, and no server is unreachable for it; one that was
/// never in use is a failed start.
#[test]
fn only_a_session_in_use_ends_without_a_failure() {
    let ended = |life| {
        let why = "its session has ended".to_owned();
        SupervisionInput::Ended(life, ServerExit::SessionEnded(why.clone()), why)
    };
    let now = MonotonicTime::START;
    let mut it = begun_under(RestartPolicy::Never);
    let effects = it.handle(ended(1), now);
    assert_eq!(effects.last(), Some(&SupervisionEffect::RetryAt(now)));
    assert_eq!(it.status(None, now).restarts, 0);
    it.handle(SupervisionInput::RetryDue(1), now);
    let effects = it.handle(ended(2), now);
    assert!(
        !effects.contains(&SupervisionEffect::RetryAt(now)),
        "{effects:?}"
    );
    assert_eq!(it.status(None, now).state, LifecycleState::Error);
}
