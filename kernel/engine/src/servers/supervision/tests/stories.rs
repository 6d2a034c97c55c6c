//! Single inputs and their effects.

use super::*;

fn connected() -> Supervision {
    connected_with(RestartPolicy::OnFailure)
}

fn connected_with(policy: RestartPolicy) -> Supervision {
    let mut supervision = Supervision::new(config(true, policy), MonotonicTime::START);
    supervision.handle(
        SupervisionInput::Start { by_operator: false },
        MonotonicTime::START,
    );
    supervision.handle(SupervisionInput::Connected(1), MonotonicTime::START);
    supervision
}

/// Announced and published effects, in order, with reasons.
fn visible_effects(effects: &[SupervisionEffect]) -> Vec<String> {
    let visible = effects.iter().filter_map(|effect| match effect {
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
        | SupervisionEffect::MeasureUsageAt(_)
        | SupervisionEffect::RequestPermit
        | SupervisionEffect::ReportImplausible(_) => None,
    });
    visible.collect()
}

#[test]
fn a_crash_is_announced_before_the_backoff_is_published() {
    let mut supervision = connected();
    let how = "exit status 1".to_owned();
    let ended = SupervisionInput::Ended(1, ServerExit::Failed(how.clone()), how);
    let effects = supervision.handle(ended, MonotonicTime::START);
    let expected = [
        "disconnected: exit status 1",
        "connected -> error",
        "error -> restarting",
        "restarting: exit status 1",
    ];
    assert_eq!(visible_effects(&effects), expected);
    let at = MonotonicTime::START + Duration::from_millis(1);
    assert_eq!(effects.last(), Some(&SupervisionEffect::RetryAt(at)));
}

#[test]
fn a_stop_request_is_answered_once_the_stop_is_published() {
    let mut supervision = connected();
    let order = StopOrder::from(TransitionReason::OperatorRequest);
    let effects = supervision.handle(SupervisionInput::Stop(order), MonotonicTime::START);
    let expected = ["connected -> draining", "draining: operator_request"];
    assert_eq!(visible_effects(&effects), expected);
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
    assert_eq!(
        visible_effects(&supervision.handle(ended, MonotonicTime::START)),
        expected
    );
}

#[test]
fn a_restart_is_published_as_one_transition() {
    let mut supervision = connected();
    supervision.handle(SupervisionInput::Restart, MonotonicTime::START);
    let ended = SupervisionInput::Ended(1, ServerExit::Clean, "stopped".into());
    let effects = supervision.handle(ended, MonotonicTime::START);
    let expected = [
        "disconnected: operator_request",
        "draining -> restarting",
        "answered",
        "restarting: operator_request",
    ];
    assert_eq!(visible_effects(&effects), expected);
    assert!(effects.contains(&SupervisionEffect::StartGeneration(2)));
}

#[test]
fn only_a_remote_server_that_failed_without_an_order_is_unreachable() {
    for (remote, stops, expected) in [
        (true, false, true),
        (true, true, false),
        (false, false, false),
    ] {
        let mut supervision = connected();
        supervision.config.is_remote = remote;
        if stops {
            let order = TransitionReason::OperatorRequest.into();
            supervision.handle(SupervisionInput::Stop(order), MonotonicTime::START);
        }
        let failed = ServerExit::Failed("gone".into());
        supervision.handle(
            SupervisionInput::Ended(1, failed, "gone".into()),
            MonotonicTime::START,
        );
        let status = supervision.status(None, MonotonicTime::START);
        assert_eq!(status.is_unreachable, expected);
    }
}

fn operators_start() -> SupervisionInput {
    SupervisionInput::Start { by_operator: true }
}

fn clean_exit(generation: u64) -> SupervisionInput {
    SupervisionInput::Ended(generation, ServerExit::Clean, "exit status 0".into())
}

/// MGP-144
#[test]
fn a_start_during_a_reported_drain_follows_the_drain() {
    let mut supervision = connected();
    supervision.handle(
        SupervisionInput::Reported {
            from: "connected".into(),
            to: "draining".into(),
            reason: String::new(),
        },
        MonotonicTime::START,
    );
    let effects = supervision.handle(operators_start(), MonotonicTime::START);
    assert_eq!(visible_effects(&effects), ["draining: server_request"]);
    let effects = supervision.handle(clean_exit(1), MonotonicTime::START);
    assert!(effects.contains(&SupervisionEffect::StartGeneration(2)));
    assert!(!supervision.status(None, MonotonicTime::START).will_start);
}

///
#[test]
fn a_start_after_a_restart_starts_only_once() {
    let mut supervision =
        Supervision::new(config(true, RestartPolicy::OnFailure), MonotonicTime::START);
    let orders = [
        operators_start(),
        SupervisionInput::Restart,
        operators_start(),
    ];
    let effects = orders.map(|order| supervision.handle(order, MonotonicTime::START));
    assert!(effects[2].contains(&SupervisionEffect::StartGeneration(2)));
    assert!(!supervision.status(None, MonotonicTime::START).will_start);
    let effects = supervision.handle(clean_exit(2), MonotonicTime::START);
    assert!(!effects.contains(&SupervisionEffect::StartGeneration(3)));
}

/// MGP-148
#[test]
fn a_start_skips_the_backoff_after_a_clean_exit() {
    let mut supervision = connected_with(RestartPolicy::Always);
    let effects = supervision.handle(clean_exit(1), MonotonicTime::START);
    assert!(matches!(
        effects.last(),
        Some(SupervisionEffect::RetryAt(_))
    ));
    let effects = supervision.handle(operators_start(), MonotonicTime::START);
    assert!(effects.contains(&SupervisionEffect::StartGeneration(2)));
}

/// MGP-151
#[test]
fn too_many_clean_exits_are_an_error() {
    let mut config = config(true, RestartPolicy::Always);
    config.restart.max_restarts = 0;
    let mut supervision = Supervision::new(config, MonotonicTime::START);
    supervision.handle(operators_start(), MonotonicTime::START);
    supervision.handle(SupervisionInput::Connected(1), MonotonicTime::START);
    supervision.handle(clean_exit(1), MonotonicTime::START);
    let status = supervision.status(None, MonotonicTime::START);
    assert_eq!(status.state, LifecycleState::Error);
}

/// MGP-140, A-06
#[test]
fn a_server_over_its_limit_is_drained_and_counts_as_failed() {
    let mut supervision = connected();
    let why = "resource_limit: it uses 2 processes, more than 1";
    let effects = supervision.handle(
        SupervisionInput::LimitExceeded(1, why.into()),
        MonotonicTime::START,
    );
    let order = StopOrder::from(TransitionReason::ResourceLimit);
    assert!(effects.contains(&SupervisionEffect::StopGeneration(order)));
    let expected = ["connected -> draining", &format!("draining: {why}")];
    assert_eq!(visible_effects(&effects), expected);
    let ended = SupervisionInput::Ended(1, ServerExit::Clean, "stopped".into());
    let expected = [
        format!("disconnected: {why}"),
        "draining -> error".into(),
        "error -> restarting".into(),
        format!("restarting: {why}"),
    ];
    assert_eq!(
        visible_effects(&supervision.handle(ended, MonotonicTime::START)),
        expected
    );
}

/// At most one attempt per second. A process that the kernel starts keeps its backoff.
#[test]
fn a_call_triggers_an_attempt_to_reach_a_server_at_a_url() {
    for at_url in [true, false] {
        let config = SupervisionConfig {
            is_at_url: at_url,
            restart: RestartConfig {
                backoff_base: Duration::from_secs(30),
                backoff_max: Duration::from_secs(30),
                ..config(true, RestartPolicy::OnFailure).restart
            },
            ..config(true, RestartPolicy::OnFailure)
        };
        let at = |secs| MonotonicTime::START + Duration::from_secs(secs);
        let mut supervision = Supervision::new(config, at(0));
        supervision.handle(SupervisionInput::Start { by_operator: false }, at(0));
        let failed = ServerExit::Failed("connection refused".into());
        let ended = SupervisionInput::Ended(1, failed, "connection refused".into());
        assert!(
            supervision
                .handle(ended, at(10))
                .contains(&SupervisionEffect::RetryAt(at(40)))
        );
        let soon = supervision.handle(SupervisionInput::CallWaiting, at(10));
        let forward = [SupervisionEffect::RetryAt(at(11))];
        assert_eq!(soon, forward[..usize::from(at_url)]);
        // A second call changes nothing: the attempt is already planned.
        assert_eq!(
            supervision.handle(SupervisionInput::CallWaiting, at(10)),
            []
        );
    }
}

/// A session that ends in use gets a new handshake at once and does not make the server unreachable; one that was
/// never in use is a failed start.
#[test]
fn only_an_ended_session_that_was_in_use_is_no_failure() {
    let ended = |generation| {
        let why = "its session has ended".to_owned();
        SupervisionInput::Ended(generation, ServerExit::SessionEnded(why.clone()), why)
    };
    let now = MonotonicTime::START;
    let mut supervision = connected_with(RestartPolicy::Never);
    let effects = supervision.handle(ended(1), now);
    assert_eq!(effects.last(), Some(&SupervisionEffect::RetryAt(now)));
    assert_eq!(supervision.status(None, now).restarts, 0);
    supervision.handle(SupervisionInput::RetryDue(1), now);
    let effects = supervision.handle(ended(2), now);
    assert!(
        !effects.contains(&SupervisionEffect::RetryAt(now)),
        "{effects:?}"
    );
    assert_eq!(supervision.status(None, now).state, LifecycleState::Error);
}
