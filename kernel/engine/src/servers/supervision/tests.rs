//! The supervision of a server against a plain model of it.

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

fn rules(autostart: bool, policy: RestartPolicy) -> SupervisionRules {
    SupervisionRules {
        autostart,
        restart: RestartRules {
            policy,
            max_restarts: MAX_RESTARTS,
            window: Duration::from_secs(1_000_000),
            backoff_base: Duration::from_millis(1),
            backoff_max: Duration::from_millis(1),
        },
        remote: false,
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
    /// The next start waits for a turn.
    queues: bool,
    acts: Vec<Act>,
}

impl Model {
    fn lives_now(&self) -> bool {
        !matches!(self.phase, Phase::Off { .. } | Phase::Backoff)
    }

    fn begin(&mut self) {
        self.again = false;
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

    fn restarts(&self, exit: &ServerExit) -> bool {
        match exit {
            ServerExit::Failed(_) => true,
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
    Ended { late: bool, exit: ServerExit },
    RetryDue { late: bool, turn_is_now: bool },
}

impl Happens {
    fn is_late(&self) -> bool {
        matches!(
            self,
            Self::Connected { late: true }
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
                match model.lives_now() {
                    true => model.stop(true),
                    false => model.start(true),
                }
                self.tell(SupervisionInput::Restart)
            }
            Happens::Reconfigured { autostart } => {
                model.failures = 0;
                match (model.lives_now(), model.phase) {
                    (true, _) => model.stop(true),
                    (false, Phase::Off { error: true }) => model.start(true),
                    (false, _) if autostart => model.start(true),
                    (false, _) => {}
                }
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
                    acts.extend(self.tell(SupervisionInput::Turn(self.now + wait)));
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
        SupervisionEffect::StartLife(life) => Some(Act::Start(*life)),
        SupervisionEffect::StopLife(_) => Some(Act::Stop),
        SupervisionEffect::FailLife(_) => Some(Act::Fail),
        SupervisionEffect::OpenToCalls => Some(Act::Open),
        SupervisionEffect::AnswerStops => Some(Act::Answer),
        SupervisionEffect::RetryAt(_) => Some(Act::Retry),
        SupervisionEffect::TakeTurn => Some(Act::TakeTurn),
        SupervisionEffect::LetGo
        | SupervisionEffect::EndInstances(_)
        | SupervisionEffect::CloseToCalls
        | SupervisionEffect::Announce(_)
        | SupervisionEffect::Ignore(_)
        | SupervisionEffect::Publish(_)
        | SupervisionEffect::TellConnected
        | SupervisionEffect::TellDisconnected(..)
        | SupervisionEffect::Withdraw
        | SupervisionEffect::Note(_) => None,
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
            prop_assert_eq!(pair.supervision.lives_now, pair.model.lives_now());
            prop_assert_eq!(pair.supervision.start_again, pair.model.again, "{}", said);
        }
    }
}

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
        SupervisionEffect::Withdraw => Some("withdrawn".into()),
        SupervisionEffect::AnswerStops => Some("answered".into()),
        SupervisionEffect::TellDisconnected(_, why, _) => Some(format!("disconnected: {why}")),
        SupervisionEffect::StartLife(_)
        | SupervisionEffect::StopLife(_)
        | SupervisionEffect::FailLife(_)
        | SupervisionEffect::LetGo
        | SupervisionEffect::EndInstances(_)
        | SupervisionEffect::OpenToCalls
        | SupervisionEffect::CloseToCalls
        | SupervisionEffect::Ignore(_)
        | SupervisionEffect::TellConnected
        | SupervisionEffect::RetryAt(_)
        | SupervisionEffect::TakeTurn
        | SupervisionEffect::Note(_) => None,
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
    assert_eq!(effects.last(), Some(&SupervisionEffect::StopLife(order)));
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
    assert!(effects.contains(&SupervisionEffect::StartLife(2)));
}

#[test]
fn only_a_server_elsewhere_that_failed_unasked_is_unreachable() {
    for (remote, stops, expected) in [
        (true, false, true),
        (true, true, false),
        (false, false, false),
    ] {
        let mut it = begun();
        it.rules.remote = remote;
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
        assert_eq!(status.unreachable, expected);
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
    assert!(effects.contains(&SupervisionEffect::StartLife(2)));
    assert!(!it.status(None, MonotonicTime::START).due);
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
    assert!(effects[2].contains(&SupervisionEffect::StartLife(2)));
    assert!(!it.status(None, MonotonicTime::START).due);
    let effects = it.handle(clean_end(2), MonotonicTime::START);
    assert!(!effects.contains(&SupervisionEffect::StartLife(3)));
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
    assert!(effects.contains(&SupervisionEffect::StartLife(2)));
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
