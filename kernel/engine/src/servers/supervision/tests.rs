//! The supervision of a server against a plain model of it.

mod stories;

use proptest::prelude::*;

use super::*;
use crate::servers::spec::RestartPolicy;

/// What the model and the supervision agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Start(u64),
    Stop,
    Fail,
    Open,
    Answer,
    Retry,
    TakeTurn,
}

/// Where a server stands, and whether a life is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No life; the last one failed or was stopped while it started.
    Off {
        error: bool,
    },
    /// No life; the next is to come.
    Backoff,
    Starting,
    Up,
    Draining,
    /// Stopped while it started; its life has not ended yet.
    Aborting,
}

const MAX_RESTARTS: u32 = 3;

fn rules(autostart: bool, policy: RestartPolicy) -> SupervisionConfig {
    SupervisionConfig {
        autostart,
        restart: RestartConfig {
            policy,
            max_restarts: MAX_RESTARTS,
            window: Duration::from_secs(1_000_000),
            backoff_base: Duration::from_millis(1),
            backoff_max: Duration::from_millis(1),
        },
        is_remote: false,
        is_at_url: false,
        rolling: false,
    }
}

/// The rules of restarts in the fewest words, for a window that never slides.
#[derive(Debug)]
struct Model {
    policy: RestartPolicy,
    phase: Phase,
    lives: u64,
    failures: u32,
    asked: bool,
    again: bool,
    over: bool,
    /// The next start waits for a turn.
    queues: bool,
    acts: Vec<Act>,
}

impl Model {
    fn lives_now(&self) -> bool {
        !matches!(self.phase, Phase::Off { .. } | Phase::Backoff)
    }

    fn begin(&mut self) {
        (self.again, self.over) = (false, false);
        self.lives += 1;
        self.phase = Phase::Starting;
        self.acts.push(Act::Start(self.lives));
    }

    fn start(&mut self, by_operator: bool) {
        if by_operator {
            self.failures = 0;
        }
        match self.phase {
            Phase::Off { .. } | Phase::Backoff | Phase::Aborting => {
                self.asked = false;
                self.begin();
            }
            Phase::Draining => self.again = true,
            Phase::Starting | Phase::Up => {}
        }
    }

    fn stop(&mut self, again: bool) {
        (self.asked, self.again) = (true, again);
        let lives = self.lives_now();
        self.phase = match self.phase {
            Phase::Up => Phase::Draining,
            Phase::Starting => Phase::Aborting,
            Phase::Backoff => Phase::Off { error: true },
            phase @ (Phase::Off { .. } | Phase::Draining | Phase::Aborting) => phase,
        };
        self.acts.push(if lives { Act::Stop } else { Act::Answer });
    }

    fn ended(&mut self, exit: &ServerExit) {
        let over = ServerExit::Failed("too much".into());
        let exit = if std::mem::take(&mut self.over) && !self.asked {
            &over
        } else {
            exit
        };
        let before = self.phase;
        self.phase = Phase::Off {
            error: !matches!(exit, ServerExit::Clean) || before == Phase::Starting,
        };
        self.queues = false;
        if self.asked {
            self.phase = Phase::Off {
                error: before == Phase::Aborting,
            };
            self.acts.push(Act::Answer);
            if self.again {
                self.start(true);
            }
        } else if self.again {
            self.start(true);
        } else if self.restarts(exit) {
            self.acts.push(Act::Retry);
            self.queues = self.failures > 0;
            if self.failures < MAX_RESTARTS {
                self.failures += 1;
                self.phase = Phase::Backoff;
            } else {
                self.phase = Phase::Off { error: true };
            }
        }
    }

    fn over_limit(&mut self) {
        match self.phase {
            _ if self.asked => {}
            Phase::Up => {
                (self.phase, self.over) = (Phase::Draining, true);
                self.acts.push(Act::Stop);
            }
            Phase::Starting => self.acts.push(Act::Fail),
            Phase::Off { .. } | Phase::Backoff | Phase::Draining | Phase::Aborting => {}
        }
    }

    fn reconfigure(&mut self, autostart: bool) {
        self.failures = 0;
        match (self.lives_now(), self.phase) {
            (true, _) => self.stop(true),
            (false, Phase::Off { error: true }) => self.start(true),
            (false, _) if autostart => self.start(true),
            (false, _) => {}
        }
    }

    fn restarts(&self, exit: &ServerExit) -> bool {
        match exit {
            ServerExit::Failed(_) | ServerExit::SessionEnded(_) => true,
            ServerExit::Clean => self.policy == RestartPolicy::Always,
            ServerExit::Rejected(_) => false,
        }
    }

    fn state(&self) -> &[LifecycleState] {
        match self.phase {
            Phase::Off { error: true } | Phase::Aborting => &[LifecycleState::Error],
            Phase::Off { error: false } => {
                &[LifecycleState::Registered, LifecycleState::Disconnected]
            }
            Phase::Backoff | Phase::Starting => {
                &[LifecycleState::Connecting, LifecycleState::Restarting]
            }
            Phase::Up => &[LifecycleState::Connected],
            Phase::Draining => &[LifecycleState::Draining],
        }
    }
}

/// What happens next. `late` is said of the life before.
#[derive(Clone, Debug)]
enum Happens {
    Start { by_operator: bool },
    Stop,
    Restart,
    Reconfigured { autostart: bool },
    Connected { late: bool },
    Drains,
    Breaks,
    OverLimit { late: bool },
    Ended { late: bool, exit: ServerExit },
    RetryDue { late: bool, turn_is_now: bool },
}

impl Happens {
    fn is_late(&self) -> bool {
        matches!(
            self,
            Self::Connected { late: true }
                | Self::OverLimit { late: true }
                | Self::Ended { late: true, .. }
                | Self::RetryDue { late: true, .. }
        )
    }
}

fn happens() -> impl Strategy<Value = Happens> {
    let exit = prop_oneof![
        2 => Just(ServerExit::Clean),
        5 => Just(ServerExit::Failed("exit status 1".into())),
        1 => Just(ServerExit::Rejected("it may not".into())),
    ];
    let late = || prop::bool::weighted(0.2);
    prop_oneof![
        3 => any::<bool>().prop_map(|by_operator| Happens::Start { by_operator }),
        2 => Just(Happens::Stop),
        1 => Just(Happens::Restart),
        1 => any::<bool>().prop_map(|autostart| Happens::Reconfigured { autostart }),
        6 => late().prop_map(|late| Happens::Connected { late }),
        1 => Just(Happens::Drains),
        1 => Just(Happens::Breaks),
        1 => late().prop_map(|late| Happens::OverLimit { late }),
        8 => (late(), exit).prop_map(|(late, exit)| Happens::Ended { late, exit }),
        6 => (late(), any::<bool>())
            .prop_map(|(late, turn_is_now)| Happens::RetryDue { late, turn_is_now }),
    ]
}

/// A supervision beside its model, and the clock of the next start.
struct Pair {
    supervision: Supervision,
    model: Model,
    now: MonotonicTime,
    retry: bool,
    connected: bool,
}

impl Pair {
    fn new(policy: RestartPolicy) -> Self {
        Self {
            supervision: Supervision::new(rules(true, policy), MonotonicTime::START),
            model: Model {
                policy,
                phase: Phase::Off { error: false },
                lives: 0,
                failures: 0,
                asked: false,
                again: false,
                over: false,
                queues: false,
                acts: Vec::new(),
            },
            now: MonotonicTime::START,
            retry: false,
            connected: false,
        }
    }

    fn tell(&mut self, event: SupervisionInput) -> Vec<Act> {
        let effects = self.supervision.handle(event, self.now);
        effects.iter().filter_map(act).collect()
    }

    fn report(&mut self, to: LifecycleState) -> Vec<Act> {
        self.tell(SupervisionInput::Reported {
            from: String::new(),
            to: to.as_str().into(),
            reason: String::new(),
        })
    }

    /// What both do about it; `None` where it cannot happen.
    fn happens(&mut self, what: Happens) -> Option<(Vec<Act>, Vec<Act>)> {
        self.now = self.now + Duration::from_millis(10);
        let (lives, before) = (self.model.lives, self.model.lives.saturating_sub(1));
        let life = |late: bool| if late { before } else { lives };
        if lives == 0 && what.is_late() {
            return None;
        }
        let model = &mut self.model;
        let acts = match what {
            Happens::Start { by_operator } => {
                model.start(by_operator);
                self.tell(SupervisionInput::Start { by_operator })
            }
            Happens::Stop => {
                model.stop(false);
                let order = TransitionReason::IdleTimeout.into();
                self.tell(SupervisionInput::Stop(order))
            }
            Happens::Restart => {
                if model.lives_now() {
                    model.stop(true)
                } else {
                    model.start(true)
                }
                self.tell(SupervisionInput::Restart)
            }
            Happens::Reconfigured { autostart } => {
                model.reconfigure(autostart);
                let rules = rules(autostart, model.policy);
                self.tell(SupervisionInput::Reconfigured(rules))
            }
            // A life says so once.
            Happens::Connected { late: false } if self.connected => return None,
            Happens::Connected { late } => {
                if !late && model.phase == Phase::Starting {
                    model.phase = Phase::Up;
                    model.acts.push(Act::Open);
                }
                self.connected |= !late;
                self.tell(SupervisionInput::Connected(life(late)))
            }
            Happens::Drains => {
                if model.phase == Phase::Up {
                    model.phase = Phase::Draining;
                    model.acts.push(Act::Stop);
                }
                self.report(LifecycleState::Draining)
            }
            Happens::Breaks => {
                if matches!(model.phase, Phase::Up | Phase::Draining) {
                    model.acts.push(Act::Fail);
                }
                self.report(LifecycleState::Error)
            }
            Happens::OverLimit { late } => {
                if !late {
                    model.over_limit();
                }
                self.tell(SupervisionInput::LimitExceeded(
                    life(late),
                    "too much".into(),
                ))
            }
            Happens::Ended { late, exit } => {
                if !late && model.lives_now() {
                    model.ended(&exit);
                }
                let how = "it ended".to_owned();
                self.tell(SupervisionInput::Ended(life(late), exit, how))
            }
            Happens::RetryDue { late: false, .. } if !self.retry => return None,
            Happens::RetryDue { late, turn_is_now } => {
                self.retry &= late;
                let waits = !late && !model.lives_now() && !model.asked;
                let queues = waits && std::mem::take(&mut model.queues);
                let mut acts = Vec::new();
                if queues {
                    model.acts.push(Act::TakeTurn);
                }
                if waits && queues && !turn_is_now {
                    model.acts.push(Act::Retry);
                } else if waits {
                    model.begin();
                }
                acts.extend(self.tell(SupervisionInput::RetryDue(life(late))));
                if acts.last() == Some(&Act::TakeTurn) {
                    let wait = Duration::from_millis(if turn_is_now { 0 } else { 5 });
                    acts.extend(self.tell(SupervisionInput::PermitGranted(self.now + wait)));
                }
                acts
            }
        };
        for act in &acts {
            self.retry = match act {
                Act::Retry => true,
                Act::Start(_) => false,
                Act::Stop | Act::Fail | Act::Open | Act::Answer | Act::TakeTurn => self.retry,
            };
            self.connected &= !matches!(act, Act::Start(_));
        }
        Some((acts, std::mem::take(&mut self.model.acts)))
    }
}

fn act(effect: &SupervisionEffect) -> Option<Act> {
    match effect {
        SupervisionEffect::StartGeneration(life) => Some(Act::Start(*life)),
        SupervisionEffect::StopGeneration(_) => Some(Act::Stop),
        SupervisionEffect::FailGeneration(_) => Some(Act::Fail),
        SupervisionEffect::AcceptCalls => Some(Act::Open),
        SupervisionEffect::AnswerStopRequests => Some(Act::Answer),
        SupervisionEffect::RetryAt(_) => Some(Act::Retry),
        SupervisionEffect::RequestPermit => Some(Act::TakeTurn),
        SupervisionEffect::ReleaseGeneration
        | SupervisionEffect::StartReplacement(_)
        | SupervisionEffect::FailReplacement(_)
        | SupervisionEffect::ReleaseReplacement
        | SupervisionEffect::RollFailed(_)
        | SupervisionEffect::SwitchToReplacement(_)
        | SupervisionEffect::PromoteReplacement
        | SupervisionEffect::HurryRetiring
        | SupervisionEffect::ReleaseRetiring
        | SupervisionEffect::EndInstances(_)
        | SupervisionEffect::SuspendCalls
        | SupervisionEffect::Announce(_)
        | SupervisionEffect::Ignore(_)
        | SupervisionEffect::Publish(_)
        | SupervisionEffect::NotifyConnected
        | SupervisionEffect::NotifyDisconnected(..)
        | SupervisionEffect::WithdrawOffer
        | SupervisionEffect::ReportImplausible(_) => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// MGP-122..130, MGP-146..153: whatever happens, in whatever order and however late, the supervision
    /// starts, stops and answers as its plain model does, and stands where that stands.
    #[test]
    fn the_supervision_is_the_plainest_one(
        always in any::<bool>(),
        all in prop::collection::vec(happens(), 1..60),
    ) {
        let policy = if always { RestartPolicy::Always } else { RestartPolicy::OnFailure };
        let mut pair = Pair::new(policy);
        for what in all {
            let said = format!("{what:?}");
            let Some((acts, expected)) = pair.happens(what) else { continue };
            let state = pair.supervision.lifecycle.state();
            prop_assert_eq!(acts, expected, "{}; {:?}", said, pair.model);
            prop_assert!(pair.model.state().contains(&state), "{}: {}; {:?}", said, state, pair.model);
            prop_assert_eq!(pair.supervision.is_running, pair.model.lives_now());
            prop_assert_eq!(pair.supervision.start_after_stop, pair.model.again, "{}", said);
        }
    }
}
