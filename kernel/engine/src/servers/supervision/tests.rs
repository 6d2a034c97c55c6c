//! The supervision of a server against a reference model.

mod stories;

use proptest::prelude::*;

use super::*;
use crate::servers::spec::RestartPolicy;

/// Effects that the model predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Start(u64),
    Stop,
    Fail,
    AcceptCalls,
    Answer,
    Retry,
    RequestPermit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No generation; the last one failed or was stopped while it started.
    Off {
        error: bool,
    },
    /// No generation; a start is planned.
    Backoff,
    Starting,
    Up,
    Draining,
    /// Stopped while it started; its generation has not ended yet.
    Aborting,
}

const MAX_RESTARTS: u32 = 3;

fn config(autostart: bool, policy: RestartPolicy) -> SupervisionConfig {
    SupervisionConfig {
        start: if autostart {
            StartMode::Kernel
        } else {
            StartMode::Manual
        },
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

/// The restart rules, for a window that never slides.
#[derive(Debug)]
struct Model {
    policy: RestartPolicy,
    phase: Phase,
    generations: u64,
    failures: u32,
    stop_requested: bool,
    start_after_stop: bool,
    over_limit: bool,
    needs_permit: bool,
    acts: Vec<Act>,
}

impl Model {
    fn is_running(&self) -> bool {
        !matches!(self.phase, Phase::Off { .. } | Phase::Backoff)
    }

    fn begin(&mut self) {
        (self.start_after_stop, self.over_limit) = (false, false);
        self.generations += 1;
        self.phase = Phase::Starting;
        self.acts.push(Act::Start(self.generations));
    }

    fn start(&mut self, by_operator: bool) {
        if by_operator {
            self.failures = 0;
        }
        match self.phase {
            Phase::Off { .. } | Phase::Backoff | Phase::Aborting => {
                self.stop_requested = false;
                self.begin();
            }
            Phase::Draining => self.start_after_stop = true,
            Phase::Starting | Phase::Up => {}
        }
    }

    fn stop(&mut self, start_again: bool) {
        (self.stop_requested, self.start_after_stop) = (true, start_again);
        let was_running = self.is_running();
        self.phase = match self.phase {
            Phase::Up => Phase::Draining,
            Phase::Starting => Phase::Aborting,
            Phase::Backoff => Phase::Off { error: true },
            phase @ (Phase::Off { .. } | Phase::Draining | Phase::Aborting) => phase,
        };
        self.acts
            .push(if was_running { Act::Stop } else { Act::Answer });
    }

    fn ended(&mut self, exit: &ServerExit) {
        let over_limit = ServerExit::Failed("too much".into());
        let exit = if std::mem::take(&mut self.over_limit) && !self.stop_requested {
            &over_limit
        } else {
            exit
        };
        let before = self.phase;
        self.phase = Phase::Off {
            error: !matches!(exit, ServerExit::Clean) || before == Phase::Starting,
        };
        self.needs_permit = false;
        if self.stop_requested {
            self.phase = Phase::Off {
                error: before == Phase::Aborting,
            };
            self.acts.push(Act::Answer);
            if self.start_after_stop {
                self.start(true);
            }
        } else if self.start_after_stop {
            self.start(true);
        } else if self.restarts(exit) {
            self.acts.push(Act::Retry);
            self.needs_permit = self.failures > 0;
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
            _ if self.stop_requested => {}
            Phase::Up => {
                (self.phase, self.over_limit) = (Phase::Draining, true);
                self.acts.push(Act::Stop);
            }
            Phase::Starting => self.acts.push(Act::Fail),
            Phase::Off { .. } | Phase::Backoff | Phase::Draining | Phase::Aborting => {}
        }
    }

    fn reconfigure(&mut self, autostart: bool) {
        self.failures = 0;
        match (self.is_running(), self.phase) {
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

/// An event; a late one belongs to the previous generation.
#[derive(Clone, Debug)]
enum Step {
    Start { by_operator: bool },
    Stop,
    Restart,
    Reconfigured { autostart: bool },
    Connected { late: bool },
    Drains,
    Breaks,
    OverLimit { late: bool },
    Ended { late: bool, exit: ServerExit },
    RetryDue { late: bool, permitted_now: bool },
}

impl Step {
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

fn steps() -> impl Strategy<Value = Step> {
    let exit = prop_oneof![
        2 => Just(ServerExit::Clean),
        5 => Just(ServerExit::Failed("exit status 1".into())),
        1 => Just(ServerExit::Rejected("it may not".into())),
    ];
    let late = || prop::bool::weighted(0.2);
    prop_oneof![
        3 => any::<bool>().prop_map(|by_operator| Step::Start { by_operator }),
        2 => Just(Step::Stop),
        1 => Just(Step::Restart),
        1 => any::<bool>().prop_map(|autostart| Step::Reconfigured { autostart }),
        6 => late().prop_map(|late| Step::Connected { late }),
        1 => Just(Step::Drains),
        1 => Just(Step::Breaks),
        1 => late().prop_map(|late| Step::OverLimit { late }),
        8 => (late(), exit).prop_map(|(late, exit)| Step::Ended { late, exit }),
        6 => (late(), any::<bool>())
            .prop_map(|(late, permitted_now)| Step::RetryDue { late, permitted_now }),
    ]
}

/// A supervision, its model, and the clock of the next start.
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
            supervision: Supervision::new(config(true, policy), MonotonicTime::START),
            model: Model {
                policy,
                phase: Phase::Off { error: false },
                generations: 0,
                failures: 0,
                stop_requested: false,
                start_after_stop: false,
                over_limit: false,
                needs_permit: false,
                acts: Vec::new(),
            },
            now: MonotonicTime::START,
            retry: false,
            connected: false,
        }
    }

    fn handle(&mut self, event: SupervisionInput) -> Vec<Act> {
        let effects = self.supervision.handle(event, self.now);
        effects.iter().filter_map(act).collect()
    }

    fn report(&mut self, to: LifecycleState) -> Vec<Act> {
        self.handle(SupervisionInput::Reported {
            from: String::new(),
            to: to.as_str().into(),
            reason: String::new(),
        })
    }

    /// The effects of both; `None` if the step is impossible.
    fn apply(&mut self, step: Step) -> Option<(Vec<Act>, Vec<Act>)> {
        self.now = self.now + Duration::from_millis(10);
        let current = self.model.generations;
        let previous = current.saturating_sub(1);
        let generation = |late: bool| if late { previous } else { current };
        if current == 0 && step.is_late() {
            return None;
        }
        let model = &mut self.model;
        let acts = match step {
            Step::Start { by_operator } => {
                model.start(by_operator);
                self.handle(SupervisionInput::Start { by_operator })
            }
            Step::Stop => {
                model.stop(false);
                let order = TransitionReason::IdleTimeout.into();
                self.handle(SupervisionInput::Stop(order))
            }
            Step::Restart => {
                if model.is_running() {
                    model.stop(true)
                } else {
                    model.start(true)
                }
                self.handle(SupervisionInput::Restart)
            }
            Step::Reconfigured { autostart } => {
                model.reconfigure(autostart);
                let config = config(autostart, model.policy);
                self.handle(SupervisionInput::Reconfigured(config))
            }
            // A generation connects once.
            Step::Connected { late: false } if self.connected => return None,
            Step::Connected { late } => {
                if !late && model.phase == Phase::Starting {
                    model.phase = Phase::Up;
                    model.acts.push(Act::AcceptCalls);
                }
                self.connected |= !late;
                self.handle(SupervisionInput::Connected(generation(late)))
            }
            Step::Drains => {
                if model.phase == Phase::Up {
                    model.phase = Phase::Draining;
                    model.acts.push(Act::Stop);
                }
                self.report(LifecycleState::Draining)
            }
            Step::Breaks => {
                if matches!(model.phase, Phase::Up | Phase::Draining) {
                    model.acts.push(Act::Fail);
                }
                self.report(LifecycleState::Error)
            }
            Step::OverLimit { late } => {
                if !late {
                    model.over_limit();
                }
                self.handle(SupervisionInput::LimitExceeded(
                    generation(late),
                    "too much".into(),
                ))
            }
            Step::Ended { late, exit } => {
                if !late && model.is_running() {
                    model.ended(&exit);
                }
                let how = "it ended".to_owned();
                self.handle(SupervisionInput::Ended(generation(late), exit, how))
            }
            Step::RetryDue { late: false, .. } if !self.retry => return None,
            Step::RetryDue {
                late,
                permitted_now,
            } => self.apply_retry_due(late, permitted_now, generation(late)),
        };
        for act in &acts {
            self.retry = match act {
                Act::Retry => true,
                Act::Start(_) => false,
                Act::Stop | Act::Fail | Act::AcceptCalls | Act::Answer | Act::RequestPermit => {
                    self.retry
                }
            };
            self.connected &= !matches!(act, Act::Start(_));
        }
        Some((acts, std::mem::take(&mut self.model.acts)))
    }

    fn apply_retry_due(&mut self, late: bool, permitted_now: bool, generation: u64) -> Vec<Act> {
        self.retry &= late;
        let is_due = !late && !self.model.is_running() && !self.model.stop_requested;
        let needs_permit = is_due && std::mem::take(&mut self.model.needs_permit);
        let mut acts = Vec::new();
        if needs_permit {
            self.model.acts.push(Act::RequestPermit);
        }
        if is_due && needs_permit && !permitted_now {
            self.model.acts.push(Act::Retry);
        } else if is_due {
            self.model.begin();
        }
        acts.extend(self.handle(SupervisionInput::RetryDue(generation)));
        if acts.last() == Some(&Act::RequestPermit) {
            let wait = Duration::from_millis(if permitted_now { 0 } else { 5 });
            acts.extend(self.handle(SupervisionInput::PermitGranted(self.now + wait)));
        }
        acts
    }
}

fn act(effect: &SupervisionEffect) -> Option<Act> {
    match effect {
        SupervisionEffect::StartGeneration(generation) => Some(Act::Start(*generation)),
        SupervisionEffect::StopGeneration(_) => Some(Act::Stop),
        SupervisionEffect::FailGeneration(_) => Some(Act::Fail),
        SupervisionEffect::AcceptCalls => Some(Act::AcceptCalls),
        SupervisionEffect::AnswerStopRequests => Some(Act::Answer),
        SupervisionEffect::RetryAt(_) => Some(Act::Retry),
        SupervisionEffect::RequestPermit => Some(Act::RequestPermit),
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
        | SupervisionEffect::MeasureUsageAt(_)
        | SupervisionEffect::ReportImplausible(_) => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// MGP-122..130, MGP-146..153: in any order of events, late ones included, the supervision has
    /// the effects and state of its model.
    #[test]
    fn the_supervision_behaves_like_its_model(
        always in any::<bool>(),
        all in prop::collection::vec(steps(), 1..60),
    ) {
        let policy = if always { RestartPolicy::Always } else { RestartPolicy::OnFailure };
        let mut pair = Pair::new(policy);
        for step in all {
            let step_text = format!("{step:?}");
            let Some((acts, expected)) = pair.apply(step) else { continue };
            let state = pair.supervision.lifecycle.state();
            prop_assert_eq!(acts, expected, "{}; {:?}", step_text, pair.model);
            prop_assert!(pair.model.state().contains(&state), "{}: {}; {:?}", step_text, state, pair.model);
            prop_assert_eq!(pair.supervision.is_running, pair.model.is_running());
            prop_assert_eq!(pair.supervision.start_after_stop, pair.model.start_after_stop, "{}", step_text);
        }
    }
}
