//! Starts by calls and idle stops, as stories and in any order of events.

use proptest::prelude::*;

use super::super::{SupervisionConfig, SupervisionInput};
use super::*;
use crate::servers::lifecycle::LifecycleState as State;
use crate::servers::spec::{RestartConfig, RestartPolicy};

const LIMIT: Duration = Duration::from_secs(600);

fn at(secs: u64) -> MonotonicTime {
    MonotonicTime::START + Duration::from_secs(secs)
}

fn config(idle_stop: IdleStop) -> SupervisionConfig {
    SupervisionConfig {
        start: StartMode::OnDemand(idle_stop),
        restart: RestartConfig::default(),
        is_remote: false,
        is_at_url: false,
        rolling: false,
    }
}

fn sleeping(idle_stop: IdleStop) -> Supervision {
    let mut supervision = Supervision::new(config(idle_stop), at(0));
    assert!(supervision.will_start());
    supervision.handle(SupervisionInput::OfferRestored, at(0));
    assert!(supervision.starts_on_call() && !supervision.will_start());
    supervision
}

fn started(effects: &[SupervisionEffect]) -> Vec<u64> {
    let started = effects.iter().filter_map(|effect| {
        if let SupervisionEffect::StartGeneration(generation) = effect {
            Some(*generation)
        } else {
            None
        }
    });
    started.collect()
}

fn is_stopped(effects: &[SupervisionEffect]) -> bool {
    let order = StopOrder::from(TransitionReason::IdleTimeout);
    effects.contains(&SupervisionEffect::StopGeneration(order))
}

fn withdraws(effects: &[SupervisionEffect]) -> bool {
    effects.contains(&SupervisionEffect::WithdrawOffer)
}

fn failed() -> ServerExit {
    ServerExit::Failed("exit status 3".into())
}

fn ended(generation: u64, exit: ServerExit) -> SupervisionInput {
    SupervisionInput::Ended(generation, exit, "exited with code 3".into())
}

/// Idle since the start, after a call.
fn idle() -> GenerationUsage {
    GenerationUsage {
        is_in_use: false,
        last_used: at(0),
        was_called: true,
        declares_state: false,
    }
}

/// A connected generation that a call started at 0.
fn connected(idle_stop: IdleStop) -> Supervision {
    let mut supervision = sleeping(idle_stop);
    assert_eq!(
        started(&supervision.handle(SupervisionInput::CallWaiting, at(0))),
        [1]
    );
    supervision.handle(SupervisionInput::Connected(1), at(0));
    supervision
}

fn measure(supervision: &mut Supervision, usage: GenerationUsage, secs: u64) -> bool {
    let measured = SupervisionInput::UsageMeasured(1, usage);
    is_stopped(&supervision.handle(measured, at(secs)))
}

/// PRJ-015: without lists of an earlier run it is started once; with them only by a call.
#[test]
fn a_server_on_demand_is_started_once_for_its_lists() {
    let mut new = Supervision::new(config(IdleStop::After(LIMIT)), at(0));
    assert!(new.status(None, at(0)).will_start);
    let start = SupervisionInput::Start { by_operator: false };
    assert_eq!(started(&new.handle(start, at(0))), [1]);
    new.handle(SupervisionInput::Connected(1), at(1));
    let unused = GenerationUsage {
        was_called: false,
        last_used: at(1),
        ..idle()
    };
    assert!(!measure(&mut new, unused, 10));
    assert!(measure(&mut new, unused, 11), "nobody called it");
    let effects = new.handle(ended(1, ServerExit::Clean), at(62));
    assert!(!withdraws(&effects), "its tools stay listed");
    let status = new.status(None, at(62));
    assert_eq!(status.state, State::Disconnected);
    assert!(status.starts_on_call && !status.will_start);
    assert_eq!(status.reason, "sleeping: a call starts it");
}

/// PRJ-017: twenty calls, one start.
#[test]
fn many_calls_start_a_sleeping_server_once() {
    let mut supervision = sleeping(IdleStop::After(LIMIT));
    let mut starts = Vec::new();
    for _ in 0..20 {
        let effects = supervision.handle(SupervisionInput::CallWaiting, at(1));
        starts.extend(started(&effects));
    }
    assert_eq!(starts, [1]);
}

/// PRJ-018
#[test]
fn a_server_is_stopped_only_after_its_idle_limit_without_use() {
    let mut supervision = connected(IdleStop::UnlessStateful(LIMIT));
    let used = GenerationUsage {
        is_in_use: true,
        ..idle()
    };
    assert!(!measure(&mut supervision, used, 10_000));
    let recent = GenerationUsage {
        last_used: at(9_500),
        ..idle()
    };
    assert!(!measure(&mut supervision, recent, 10_000));
    assert!(!measure(&mut supervision, recent, 10_099));
    assert!(measure(&mut supervision, recent, 10_100));
}

/// PRJ-019: neither one whose operator excludes it, nor one that declares state, unless its operator ordered it.
#[test]
fn a_stateful_server_is_stopped_only_by_the_operators_order() {
    let stateful = GenerationUsage {
        declares_state: true,
        ..idle()
    };
    for (idle_stop, usage, stops) in [
        (IdleStop::Never, idle(), false),
        (IdleStop::Never, stateful, false),
        (IdleStop::UnlessStateful(LIMIT), idle(), true),
        (IdleStop::UnlessStateful(LIMIT), stateful, false),
        (IdleStop::After(LIMIT), stateful, true),
    ] {
        let mut supervision = connected(idle_stop);
        assert_eq!(
            measure(&mut supervision, usage, 100_000),
            stops,
            "{idle_stop:?} {usage:?}"
        );
    }
}

/// A call that comes while the server ends starts the next generation when this one has ended.
#[test]
fn a_call_during_an_idle_stop_goes_to_the_next_generation() {
    let mut supervision = connected(IdleStop::After(LIMIT));
    assert!(measure(&mut supervision, idle(), 601));
    assert_eq!(supervision.lifecycle.state(), State::Draining);
    assert!(
        supervision.status(None, at(601)).starts_on_call,
        "a call waits"
    );
    for _ in 0..3 {
        let effects = supervision.handle(SupervisionInput::CallWaiting, at(602));
        assert_eq!(started(&effects), [0; 0]);
    }
    let effects = supervision.handle(ended(1, ServerExit::Clean), at(603));
    assert_eq!(started(&effects), [2]);
    assert!(!withdraws(&effects));
}

/// PRJ-020: the calls that waited get the reason, and the next call tries again, at most once a second.
#[test]
fn a_failed_start_is_reported_and_repeated_by_the_next_call() {
    let mut supervision = sleeping(IdleStop::After(LIMIT));
    supervision.handle(SupervisionInput::CallWaiting, at(0));
    let effects = supervision.handle(ended(1, failed()), at(1));
    assert!(!withdraws(&effects));
    assert!(
        !effects
            .iter()
            .any(|effect| matches!(effect, SupervisionEffect::RetryAt(_))),
        "it is not started without a call"
    );
    let status = supervision.status(Some("exited with code 3".into()), at(1));
    assert_eq!((status.state, status.failed_generation), (State::Error, 1));
    assert!(status.starts_on_call);
    let effects = supervision.handle(SupervisionInput::CallWaiting, at(1));
    assert!(effects.contains(&SupervisionEffect::RetryAt(at(2))));
    let effects = supervision.handle(SupervisionInput::RetryDue(1), at(2));
    assert_eq!(started(&effects), [2]);
}

#[test]
fn a_server_that_fails_too_often_is_parked_on_demand_too() {
    let mut supervision = sleeping(IdleStop::After(LIMIT));
    supervision.handle(SupervisionInput::CallWaiting, at(0));
    let most = u64::from(RestartConfig::default().max_restarts);
    for generation in 1..=most {
        let secs = 10 * generation;
        supervision.handle(ended(generation, failed()), at(secs));
        supervision.handle(SupervisionInput::CallWaiting, at(secs + 2));
        let effects = supervision.handle(SupervisionInput::RetryDue(generation), at(secs + 2));
        if effects.contains(&SupervisionEffect::RequestPermit) {
            let permit = SupervisionInput::PermitGranted(at(secs + 2));
            assert_eq!(
                started(&supervision.handle(permit, at(secs + 2))),
                [generation + 1]
            );
        } else {
            assert_eq!(started(&effects), [generation + 1]);
        }
    }
    let effects = supervision.handle(ended(most + 1, failed()), at(100));
    assert!(withdraws(&effects));
    assert!(!supervision.starts_on_call());
    let effects = supervision.handle(SupervisionInput::CallWaiting, at(101));
    assert_eq!(effects, []);
}

/// `restart_policy = "never"` also holds for a start by a call after a failure.
#[test]
fn a_failed_server_that_may_never_restart_waits_for_the_operator() {
    let mut config = config(IdleStop::After(LIMIT));
    config.restart.policy = RestartPolicy::Never;
    let mut supervision = Supervision::new(config, at(0));
    supervision.handle(SupervisionInput::OfferRestored, at(0));
    supervision.handle(SupervisionInput::CallWaiting, at(0));
    let effects = supervision.handle(ended(1, failed()), at(1));
    assert!(withdraws(&effects) && !supervision.starts_on_call());
    let start = SupervisionInput::Start { by_operator: true };
    assert_eq!(started(&supervision.handle(start, at(2))), [2]);
}

#[test]
fn an_operators_stop_holds_against_calls() {
    for running in [true, false] {
        let mut supervision = match running {
            true => connected(IdleStop::After(LIMIT)),
            false => sleeping(IdleStop::After(LIMIT)),
        };
        let stop = StopOrder::from(TransitionReason::OperatorRequest);
        let mut effects = supervision.handle(SupervisionInput::Stop(stop), at(1));
        if running {
            effects = supervision.handle(ended(1, ServerExit::Clean), at(2));
        }
        assert!(withdraws(&effects));
        assert!(!supervision.status(None, at(2)).starts_on_call);
        assert_eq!(
            started(&supervision.handle(SupervisionInput::CallWaiting, at(3))),
            [0; 0]
        );
    }
}

#[test]
fn a_changed_start_mode_needs_no_restart() {
    let mut supervision = connected(IdleStop::Never);
    let mode = StartMode::OnDemand(IdleStop::After(LIMIT));
    let effects = supervision.handle(SupervisionInput::StartModeChanged(mode), at(1));
    assert_eq!(started(&effects), [0; 0]);
    assert!(measure(&mut supervision, idle(), 601));
    supervision.handle(ended(1, ServerExit::Clean), at(602));
    let effects = supervision.handle(
        SupervisionInput::StartModeChanged(StartMode::Kernel),
        at(603),
    );
    assert_eq!(started(&effects), [2]);
}

#[derive(Clone, Debug)]
enum Step {
    Call,
    Start { by_operator: bool },
    Stop,
    Connected,
    Ended { failed: bool },
    Idle { secs: u64, in_use: bool },
    RetryDue,
    Restored,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Call),
        1 => any::<bool>().prop_map(|by_operator| Step::Start { by_operator }),
        1 => Just(Step::Stop),
        6 => Just(Step::Connected),
        5 => any::<bool>().prop_map(|failed| Step::Ended { failed }),
        6 => (0..2_000_u64, any::<bool>()).prop_map(|(secs, in_use)| Step::Idle { secs, in_use }),
        4 => Just(Step::RetryDue),
        1 => Just(Step::Restored),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// PRJ-017, PRJ-018: in any order of events, one generation runs at a time, a call that may start the server leads
    /// to a start, and a server in use is not stopped.
    #[test]
    fn no_call_is_lost_and_no_server_in_use_is_stopped(all in prop::collection::vec(steps(), 1..60)) {
        let mut supervision = Supervision::new(config(IdleStop::After(LIMIT)), at(0));
        let (mut now, mut running, mut retry) = (at(0), None::<u64>, None::<MonotonicTime>);
        for step in all {
            now = now + Duration::from_secs(3);
            let (generation, could_wake) = (supervision.generation(), supervision.starts_on_call());
            let input = match &step {
                Step::Call => SupervisionInput::CallWaiting,
                Step::Start { by_operator } => SupervisionInput::Start { by_operator: *by_operator },
                Step::Stop => SupervisionInput::Stop(TransitionReason::OperatorRequest.into()),
                Step::Connected if running.is_some() => SupervisionInput::Connected(generation),
                Step::Ended { failed: true } if running.is_some() => ended(generation, failed()),
                Step::Ended { failed: false } if running.is_some() => ended(generation, ServerExit::Clean),
                Step::Idle { secs, in_use } => {
                    let last_used = MonotonicTime::new(now.since_start().saturating_sub(Duration::from_secs(*secs)));
                    let usage = GenerationUsage { is_in_use: *in_use, last_used, ..idle() };
                    SupervisionInput::UsageMeasured(generation, usage)
                }
                Step::RetryDue if retry.is_some() => {
                    now = now.max(retry.take().unwrap());
                    SupervisionInput::RetryDue(generation)
                }
                Step::Restored if generation == 0 => SupervisionInput::OfferRestored,
                Step::Connected | Step::Ended { .. } | Step::RetryDue | Step::Restored => continue,
            };
            if matches!(input, SupervisionInput::Ended(..)) {
                running = None;
            }
            let is_stopping = supervision.stop_requested;
            let mut effects = supervision.handle(input, now);
            if effects.contains(&SupervisionEffect::RequestPermit) {
                effects.extend(supervision.handle(SupervisionInput::PermitGranted(now), now));
            }
            for started in started(&effects) {
                // One that is stopped while it starts is replaced.
                prop_assert!(running.is_none() || is_stopping, "two generations run after {:?}", step);
                (running, retry) = (Some(started), None);
            }
            for effect in &effects {
                if let SupervisionEffect::RetryAt(at) = effect {
                    retry = Some(*at);
                }
            }
            if matches!(step, Step::Call) && could_wake {
                let will_start = running.is_some_and(|it| it > generation)
                    || supervision.start_after_stop
                    || retry.is_some();
                prop_assert!(will_start, "the call is lost");
            }
            if is_stopped(&effects) {
                let idle_long = matches!(step, Step::Idle { secs, in_use: false } if secs >= 600);
                prop_assert!(idle_long, "{:?} stopped it", step);
            }
            prop_assert!(
                !withdraws(&effects) || !supervision.starts_on_call(),
                "the tools of a server that a call starts are withdrawn after {:?}", step
            );
        }
    }
}
