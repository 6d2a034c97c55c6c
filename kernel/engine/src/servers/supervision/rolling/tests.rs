//! The lives of a server that is restarted without a gap, as their supervisor holds them.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::SupervisionInput;
use super::*;
use crate::servers::spec::{RestartConfig, RestartPolicy};

const RULES: SupervisionConfig = SupervisionConfig {
    autostart: true,
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

/// The lives by what they are for, as effects made them.
#[derive(Debug, Default)]
struct Lives {
    current: Option<u64>,
    beside: Option<u64>,
    leaving: Option<u64>,
    /// Those that have shaken hands.
    connected: BTreeSet<u64>,
    /// Where calls go.
    open: Option<u64>,
    answered: bool,
    /// The next start was put off.
    waits: bool,
}

impl Lives {
    fn perform(&mut self, effect: &SupervisionEffect) {
        match effect {
            SupervisionEffect::StartGeneration(life) => {
                (self.current, self.waits) = (Some(*life), false);
            }
            SupervisionEffect::StartReplacement(life) => {
                assert_eq!(self.beside.replace(*life), None, "one at a time");
            }
            SupervisionEffect::ReleaseReplacement => {
                assert!(self.beside.take().is_some(), "there is one");
            }
            SupervisionEffect::FailReplacement(_) => {
                assert_eq!(self.leaving, None, "one leaves at a time");
                self.leaving = self.beside.take();
                assert!(self.leaving.is_some(), "there is one");
            }
            SupervisionEffect::SwitchToReplacement(_) => {
                let new = self.beside.take().expect("there is one");
                let old = self.current.replace(new);
                assert_eq!(self.leaving, None, "one leaves at a time");
                self.leaving = old;
                self.open = Some(new);
            }
            SupervisionEffect::PromoteReplacement => {
                assert_eq!(self.current, None, "the one before is gone");
                self.current = self.beside.take();
                assert!(self.current.is_some(), "there is one");
            }
            SupervisionEffect::ReleaseRetiring => {
                assert!(self.leaving.take().is_some(), "there is one");
            }
            SupervisionEffect::ReleaseGeneration => (self.current, self.open) = (None, None),
            SupervisionEffect::AcceptCalls => self.open = self.current,
            SupervisionEffect::SuspendCalls => self.open = None,
            SupervisionEffect::AnswerStopRequests => self.answered = true,
            SupervisionEffect::RetryAt(_) => self.waits = true,
            SupervisionEffect::StopGeneration(_)
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

    fn of(&self, which: usize) -> Option<u64> {
        [self.current, self.beside, self.leaving][which]
    }
}

#[derive(Clone, Debug)]
enum Happens {
    Roll,
    Reconfigured {
        rolling: bool,
    },
    Start,
    Stop,
    Restart,
    Drains,
    OverLimit,
    /// Of the current life, the one beside or the leaving one.
    Connected(usize),
    Ended(usize, bool),
    RetryDue,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => Just(Happens::Roll),
        2 => any::<bool>().prop_map(|rolling| Happens::Reconfigured { rolling }),
        2 => Just(Happens::Start),
        1 => Just(Happens::Stop),
        1 => Just(Happens::Restart),
        1 => Just(Happens::Drains),
        1 => Just(Happens::OverLimit),
        9 => (0usize..3).prop_map(Happens::Connected),
        6 => (0usize..3, any::<bool>()).prop_map(|(which, clean)| Happens::Ended(which, clean)),
        3 => Just(Happens::RetryDue),
    ]
}

fn input(what: &Happens, lives: &mut Lives, it: &Supervision) -> Option<SupervisionInput> {
    Some(match what {
        Happens::Roll => SupervisionInput::Roll,
        Happens::Reconfigured { rolling } => SupervisionInput::Reconfigured(SupervisionConfig {
            rolling: *rolling,
            ..RULES
        }),
        Happens::Start => SupervisionInput::Start { by_operator: true },
        Happens::Stop => SupervisionInput::Stop(TransitionReason::OperatorRequest.into()),
        Happens::Restart => SupervisionInput::Restart,
        Happens::Drains => SupervisionInput::Reported {
            from: String::new(),
            to: "draining".into(),
            reason: String::new(),
        },
        Happens::OverLimit => SupervisionInput::LimitExceeded(it.generation(), "too much".into()),
        Happens::Connected(which) => {
            let life = lives.of(*which).filter(|_| *which < 2)?;
            // A life says so once.
            lives.connected.insert(life).then_some(())?;
            SupervisionInput::Connected(life)
        }
        Happens::Ended(which, clean) => {
            let exit = if *clean {
                ServerExit::Clean
            } else {
                ServerExit::Failed("exit status 1".into())
            };
            SupervisionInput::Ended(lives.of(*which)?, exit, "it ended".into())
        }
        Happens::RetryDue => {
            lives.waits.then_some(())?;
            SupervisionInput::RetryDue(it.generation())
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// MGP-117, MGP-130: in whatever order the lives of a rolling restart come and go: calls go to the current
    /// life and only while that is connected; nothing but the end of that life, or an order, takes a connected
    /// server from its callers; no life is lost sight of.
    #[test]
    fn a_rolling_restart_leaves_no_gap(all in prop::collection::vec(happens(), 1..80)) {
        let (mut it, mut lives) = (Supervision::new(RULES, MonotonicTime::START), Lives::default());
        let mut now = MonotonicTime::START;
        for what in all {
            now = now + Duration::from_millis(10);
            let Some(input) = input(&what, &mut lives, &it) else { continue };
            let (before, others) = (lives.open, lives.leaving.or(lives.beside));
            lives.answered = false;
            for effect in it.handle(input, now) {
                lives.perform(&effect);
            }
            let connected = it.lifecycle.state() == LifecycleState::Connected;
            prop_assert_eq!(connected, lives.open.is_some(), "{:?}: {:?}", what, lives);
            prop_assert!(lives.open.is_none() || lives.open == lives.current);
            prop_assert_eq!(lives.current.is_some(), it.is_running);
            prop_assert_eq!(lives.beside, it.rolling.replacement);
            prop_assert_eq!(lives.leaving, it.rolling.retiring);
            let gapless = match &what {
                Happens::Roll => true,
                Happens::Connected(_)
                | Happens::Ended(1 | 2, _)
                | Happens::RetryDue
                | Happens::Start => true,
                Happens::Reconfigured { rolling } => *rolling && others.is_none(),
                Happens::Ended(..)
                | Happens::Stop
                | Happens::Restart
                | Happens::Drains
                | Happens::OverLimit => false,
            };
            prop_assert!(!gapless || before.is_none() || lives.open.is_some(), "{:?}", what);
            prop_assert!(!lives.answered || lives.leaving.is_none(), "one still leaves");
        }
    }
}

fn rolling() -> Supervision {
    let mut it = Supervision::new(RULES, MonotonicTime::START);
    for input in [
        SupervisionInput::Start { by_operator: false },
        SupervisionInput::Connected(1),
        SupervisionInput::Roll,
    ] {
        it.handle(input, MonotonicTime::START);
    }
    it
}

fn ended(life: u64) -> SupervisionInput {
    SupervisionInput::Ended(life, ServerExit::Failed("no".into()), "no".into())
}

#[test]
fn a_second_life_that_fails_leaves_the_first_as_it_was() {
    let mut it = rolling();
    it.handle(ended(2), MonotonicTime::START);
    let status = it.status(None, MonotonicTime::START);
    assert_eq!(status.state, LifecycleState::Connected);
    assert_eq!(status.roll, RollStatus::Failed("no".into()));
    assert!(it.is_current_generation(1));
}

/// MGP-145: restarts of the life that stays are those of its own entry, not of the one that failed.
#[test]
fn a_change_that_failed_does_not_rule_over_later_restarts() {
    let mut it = Supervision::new(RULES, MonotonicTime::START);
    let mut changed = RULES;
    changed.restart.policy = RestartPolicy::Never;
    changed.is_remote = true;
    for input in [
        SupervisionInput::Start { by_operator: false },
        SupervisionInput::Connected(1),
        SupervisionInput::Reconfigured(changed),
    ] {
        it.handle(input, MonotonicTime::START);
    }
    let effects = it.handle(ended(2), MonotonicTime::START);
    assert!(effects.contains(&SupervisionEffect::RollFailed("no".into())));
    let effects = it.handle(ended(1), MonotonicTime::START);
    let restarts = |effect: &SupervisionEffect| matches!(effect, SupervisionEffect::RetryAt(_));
    assert!(effects.iter().any(restarts), "{effects:?}");
    let status = it.status(None, MonotonicTime::START);
    assert!(!status.is_unreachable, "the life that ended was a process");
}

#[test]
fn a_second_life_goes_on_where_the_first_one_dies() {
    let mut it = rolling();
    let effects = it.handle(ended(1), MonotonicTime::START);
    assert!(effects.contains(&SupervisionEffect::PromoteReplacement));
    let status = it.status(None, MonotonicTime::START);
    assert_eq!(status.state, LifecycleState::Restarting);
    it.handle(SupervisionInput::Connected(2), MonotonicTime::START);
    let status = it.status(None, MonotonicTime::START);
    assert_eq!(status.state, LifecycleState::Connected);
}

#[test]
fn the_first_life_is_told_why_it_leaves_and_a_stop_waits_for_it() {
    let mut it = rolling();
    let effects = it.handle(SupervisionInput::Connected(2), MonotonicTime::START);
    let leaves = |effect: &SupervisionEffect| {
        matches!(effect, SupervisionEffect::SwitchToReplacement(order)
            if order.reason == TransitionReason::OperatorRequest && order.drain_timeout.is_some())
    };
    assert!(effects.iter().any(leaves));
    let stop = SupervisionInput::Stop(TransitionReason::KernelShutdown.into());
    let effects = it.handle(stop, MonotonicTime::START);
    assert!(effects.contains(&SupervisionEffect::HurryRetiring));
    let effects = it.handle(ended(2), MonotonicTime::START);
    assert!(!effects.contains(&SupervisionEffect::AnswerStopRequests));
    let effects = it.handle(ended(1), MonotonicTime::START);
    assert!(effects.contains(&SupervisionEffect::AnswerStopRequests));
}
