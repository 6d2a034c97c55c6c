//! Rolling restarts in every order of events.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::SupervisionInput;
use super::*;
use crate::servers::spec::{RestartConfig, RestartPolicy, StartMode};

const CONFIG: SupervisionConfig = SupervisionConfig {
    start: StartMode::Kernel,
    restart: RestartConfig {
        policy: RestartPolicy::OnFailure,
        max_restarts: 3,
        window: Duration::from_secs(1_000_000),
        backoff_base: Duration::from_millis(1),
        backoff_max: Duration::from_millis(1),
    },
    is_remote: false,
    is_at_url: false,
    rolling: true,
};

/// The generations that result from the effects.
#[derive(Debug, Default)]
struct Generations {
    current: Option<u64>,
    replacement: Option<u64>,
    retiring: Option<u64>,
    /// Completed their handshake.
    connected: BTreeSet<u64>,
    /// Takes calls.
    accepting: Option<u64>,
    stop_answered: bool,
    retry_planned: bool,
}

impl Generations {
    fn perform(&mut self, effect: &SupervisionEffect) {
        match effect {
            SupervisionEffect::StartGeneration(generation) => {
                (self.current, self.retry_planned) = (Some(*generation), false);
            }
            SupervisionEffect::StartReplacement(generation) => {
                assert_eq!(self.replacement.replace(*generation), None, "one at a time");
            }
            SupervisionEffect::ReleaseReplacement => {
                assert!(self.replacement.take().is_some(), "there is one");
            }
            SupervisionEffect::FailReplacement(_) => {
                assert_eq!(self.retiring, None, "one retires at a time");
                self.retiring = self.replacement.take();
                assert!(self.retiring.is_some(), "there is one");
            }
            SupervisionEffect::SwitchToReplacement(_) => {
                let new = self.replacement.take().expect("there is one");
                let old = self.current.replace(new);
                assert_eq!(self.retiring, None, "one retires at a time");
                self.retiring = old;
                self.accepting = Some(new);
            }
            SupervisionEffect::PromoteReplacement => {
                assert_eq!(self.current, None, "the one before is gone");
                self.current = self.replacement.take();
                assert!(self.current.is_some(), "there is one");
            }
            SupervisionEffect::ReleaseRetiring => {
                assert!(self.retiring.take().is_some(), "there is one");
            }
            SupervisionEffect::ReleaseGeneration => (self.current, self.accepting) = (None, None),
            SupervisionEffect::AcceptCalls => self.accepting = self.current,
            SupervisionEffect::SuspendCalls => self.accepting = None,
            SupervisionEffect::AnswerStopRequests => self.stop_answered = true,
            SupervisionEffect::RetryAt(_) => self.retry_planned = true,
            SupervisionEffect::MeasureUsageAt(_)
            | SupervisionEffect::StopGeneration(_)
            | SupervisionEffect::FailGeneration(_)
            | SupervisionEffect::HurryRetiring
            | SupervisionEffect::RollFailed(_)
            | SupervisionEffect::EndInstances(_)
            | SupervisionEffect::Announce(_)
            | SupervisionEffect::Ignore(_)
            | SupervisionEffect::Publish(_)
            | SupervisionEffect::NotifyConnected
            | SupervisionEffect::NotifyDisconnected(..)
            | SupervisionEffect::WithdrawOffer
            | SupervisionEffect::RequestPermit
            | SupervisionEffect::ReportImplausible(_) => {}
        }
    }

    fn by_role(&self, role: usize) -> Option<u64> {
        [self.current, self.replacement, self.retiring][role]
    }
}

#[derive(Clone, Debug)]
enum Step {
    Roll,
    Reconfigured {
        rolling: bool,
    },
    Start,
    Stop,
    Restart,
    Drains,
    OverLimit,
    /// Of the current generation, the replacement or the retiring one.
    Connected(usize),
    Ended(usize, bool),
    RetryDue,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Roll),
        2 => any::<bool>().prop_map(|rolling| Step::Reconfigured { rolling }),
        2 => Just(Step::Start),
        1 => Just(Step::Stop),
        1 => Just(Step::Restart),
        1 => Just(Step::Drains),
        1 => Just(Step::OverLimit),
        9 => (0usize..3).prop_map(Step::Connected),
        6 => (0usize..3, any::<bool>()).prop_map(|(role, clean)| Step::Ended(role, clean)),
        3 => Just(Step::RetryDue),
    ]
}

fn input(
    step: &Step,
    generations: &mut Generations,
    supervision: &Supervision,
) -> Option<SupervisionInput> {
    Some(match step {
        Step::Roll => SupervisionInput::Roll,
        Step::Reconfigured { rolling } => SupervisionInput::Reconfigured(SupervisionConfig {
            rolling: *rolling,
            ..CONFIG
        }),
        Step::Start => SupervisionInput::Start { by_operator: true },
        Step::Stop => SupervisionInput::Stop(TransitionReason::OperatorRequest.into()),
        Step::Restart => SupervisionInput::Restart,
        Step::Drains => SupervisionInput::Reported {
            from: String::new(),
            to: "draining".into(),
            reason: String::new(),
        },
        Step::OverLimit => {
            SupervisionInput::LimitExceeded(supervision.generation(), "too much".into())
        }
        Step::Connected(role) => {
            let generation = generations.by_role(*role).filter(|_| *role < 2)?;
            // A generation connects once.
            generations.connected.insert(generation).then_some(())?;
            SupervisionInput::Connected(generation)
        }
        Step::Ended(role, clean) => {
            let exit = if *clean {
                ServerExit::Clean
            } else {
                ServerExit::Failed("exit status 1".into())
            };
            SupervisionInput::Ended(generations.by_role(*role)?, exit, "it ended".into())
        }
        Step::RetryDue => {
            generations.retry_planned.then_some(())?;
            SupervisionInput::RetryDue(supervision.generation())
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// MGP-117, MGP-130: in any order of events, calls go to the current generation and only while that is connected;
    /// only its exit or an order interrupts calls; every generation is tracked.
    #[test]
    fn a_rolling_restart_does_not_interrupt_calls(all in prop::collection::vec(steps(), 1..80)) {
        let (mut supervision, mut generations) = (Supervision::new(CONFIG, MonotonicTime::START), Generations::default());
        let mut now = MonotonicTime::START;
        for step in all {
            now = now + Duration::from_millis(10);
            let Some(input) = input(&step, &mut generations, &supervision) else { continue };
            let (before, others) = (generations.accepting, generations.retiring.or(generations.replacement));
            generations.stop_answered = false;
            for effect in supervision.handle(input, now) {
                generations.perform(&effect);
            }
            let connected = supervision.lifecycle.state() == LifecycleState::Connected;
            prop_assert_eq!(connected, generations.accepting.is_some(), "{:?}: {:?}", step, generations);
            prop_assert!(generations.accepting.is_none() || generations.accepting == generations.current);
            prop_assert_eq!(generations.current.is_some(), supervision.is_running);
            prop_assert_eq!(generations.replacement, supervision.rolling.replacement);
            prop_assert_eq!(generations.retiring, supervision.rolling.retiring);
            let is_uninterrupted = match &step {
                Step::Roll => true,
                Step::Connected(_)
                | Step::Ended(1 | 2, _)
                | Step::RetryDue
                | Step::Start => true,
                Step::Reconfigured { rolling } => *rolling && others.is_none(),
                Step::Ended(..)
                | Step::Stop
                | Step::Restart
                | Step::Drains
                | Step::OverLimit => false,
            };
            prop_assert!(!is_uninterrupted || before.is_none() || generations.accepting.is_some(), "{:?}", step);
            prop_assert!(!generations.stop_answered || generations.retiring.is_none(), "a generation still retires");
        }
    }
}

fn rolling() -> Supervision {
    let mut supervision = Supervision::new(CONFIG, MonotonicTime::START);
    for input in [
        SupervisionInput::Start { by_operator: false },
        SupervisionInput::Connected(1),
        SupervisionInput::Roll,
    ] {
        supervision.handle(input, MonotonicTime::START);
    }
    supervision
}

fn ended(generation: u64) -> SupervisionInput {
    SupervisionInput::Ended(generation, ServerExit::Failed("no".into()), "no".into())
}

#[test]
fn a_failed_replacement_leaves_the_current_generation_connected() {
    let mut supervision = rolling();
    supervision.handle(ended(2), MonotonicTime::START);
    let status = supervision.status(None, MonotonicTime::START);
    assert_eq!(status.state, LifecycleState::Connected);
    assert_eq!(status.roll, RollStatus::Failed("no".into()));
    assert!(supervision.is_current_generation(1));
}

/// MGP-145: the config of the generation that stays applies again.
#[test]
fn a_failed_config_does_not_apply_to_later_restarts() {
    let mut supervision = Supervision::new(CONFIG, MonotonicTime::START);
    let mut changed = CONFIG;
    changed.restart.policy = RestartPolicy::Never;
    changed.is_remote = true;
    for input in [
        SupervisionInput::Start { by_operator: false },
        SupervisionInput::Connected(1),
        SupervisionInput::Reconfigured(changed),
    ] {
        supervision.handle(input, MonotonicTime::START);
    }
    let effects = supervision.handle(ended(2), MonotonicTime::START);
    assert!(effects.contains(&SupervisionEffect::RollFailed("no".into())));
    let effects = supervision.handle(ended(1), MonotonicTime::START);
    let restarts = |effect: &SupervisionEffect| matches!(effect, SupervisionEffect::RetryAt(_));
    assert!(effects.iter().any(restarts), "{effects:?}");
    let status = supervision.status(None, MonotonicTime::START);
    assert!(
        !status.is_unreachable,
        "the generation that ended was a process"
    );
}

#[test]
fn a_replacement_is_promoted_when_the_current_generation_exits() {
    let mut supervision = rolling();
    let effects = supervision.handle(ended(1), MonotonicTime::START);
    assert!(effects.contains(&SupervisionEffect::PromoteReplacement));
    let status = supervision.status(None, MonotonicTime::START);
    assert_eq!(status.state, LifecycleState::Restarting);
    supervision.handle(SupervisionInput::Connected(2), MonotonicTime::START);
    let status = supervision.status(None, MonotonicTime::START);
    assert_eq!(status.state, LifecycleState::Connected);
}

#[test]
fn a_stop_waits_for_the_retiring_generation() {
    let mut supervision = rolling();
    let effects = supervision.handle(SupervisionInput::Connected(2), MonotonicTime::START);
    let is_switch = |effect: &SupervisionEffect| {
        matches!(effect, SupervisionEffect::SwitchToReplacement(order)
            if order.reason == TransitionReason::OperatorRequest && order.drain_timeout.is_some())
    };
    assert!(effects.iter().any(is_switch));
    let stop = SupervisionInput::Stop(TransitionReason::KernelShutdown.into());
    let effects = supervision.handle(stop, MonotonicTime::START);
    assert!(effects.contains(&SupervisionEffect::HurryRetiring));
    let effects = supervision.handle(ended(2), MonotonicTime::START);
    assert!(!effects.contains(&SupervisionEffect::AnswerStopRequests));
    let effects = supervision.handle(ended(1), MonotonicTime::START);
    assert!(effects.contains(&SupervisionEffect::AnswerStopRequests));
}
