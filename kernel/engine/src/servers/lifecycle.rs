//! The seven states of a server and the transitions between them (MGP §11.2, A-06).

use std::borrow::Cow;
use std::fmt;

use mgp_protocol::mgp::lifecycle::Reason;
use serde::{Deserialize, Serialize};

use crate::clock::MonotonicTime;

/// The state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LifecycleState {
    /// Configured, not started.
    Registered,
    /// Its transport is being opened, or the handshake is under way.
    Connecting,
    /// Takes calls.
    Connected,
    /// Finishes the calls under way, takes no new ones.
    Draining,
    /// Stopped.
    Disconnected,
    /// Failed to start, or broke.
    Error,
    /// Is being stopped and started again; includes the wait before a new try.
    Restarting,
}

impl LifecycleState {
    /// In the order of MGP §11.2.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 7] = [
        Self::Registered,
        Self::Connecting,
        Self::Connected,
        Self::Draining,
        Self::Disconnected,
        Self::Error,
        Self::Restarting,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Registered => "registered",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Draining => "draining",
            Self::Disconnected => "disconnected",
            Self::Error => "error",
            Self::Restarting => "restarting",
        }
    }

    /// True if it takes calls or may soon do so without an order, so that calls wait for it. A server that is
    /// `connected` without a connection has just lost it, and changes its state in a moment. `will_start` is
    /// true if a start is planned: the first one, or one after a stop.
    #[must_use]
    pub const fn can_accept_calls_soon(self, will_start: bool) -> bool {
        match self {
            Self::Connecting | Self::Connected | Self::Restarting => true,
            Self::Registered | Self::Draining | Self::Disconnected | Self::Error => will_start,
        }
    }
}

impl fmt::Display for LifecycleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a server is stopped or restarted: the reasons of MGP §11.4, and two that do not come from the
/// kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransitionReason {
    /// Requested by an operator.
    OperatorRequest,
    /// Its configuration changed.
    ConfigurationChange,
    /// It exceeded a limit.
    ResourceLimit,
    /// It was idle for too long.
    IdleTimeout,
    /// The kernel shuts down.
    KernelShutdown,
    /// It was removed from the configuration or deregistered.
    Deregistered,
    /// The server exited without an order or an error.
    ServerRequest,
}

impl TransitionReason {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OperatorRequest => "operator_request",
            Self::ConfigurationChange => "configuration_change",
            Self::ResourceLimit => "resource_limit",
            Self::IdleTimeout => "idle_timeout",
            Self::KernelShutdown => "kernel_shutdown",
            Self::Deregistered => "deregistered",
            Self::ServerRequest => "server_request",
        }
    }

    /// The reason in messages to the server; MGP has five. `None` when the server gave it.
    #[must_use]
    pub const fn to_mgp_reason(self) -> Option<Reason> {
        match self {
            Self::OperatorRequest => Some(Reason::OperatorRequest),
            Self::ConfigurationChange | Self::Deregistered => Some(Reason::ConfigurationChange),
            Self::ResourceLimit => Some(Reason::ResourceLimit),
            Self::IdleTimeout => Some(Reason::IdleTimeout),
            Self::KernelShutdown => Some(Reason::KernelShutdown),
            Self::ServerRequest => None,
        }
    }
}

impl From<Reason> for TransitionReason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::OperatorRequest => Self::OperatorRequest,
            Reason::ConfigurationChange => Self::ConfigurationChange,
            Reason::ResourceLimit => Self::ResourceLimit,
            Reason::IdleTimeout => Self::IdleTimeout,
            Reason::KernelShutdown => Self::KernelShutdown,
        }
    }
}

impl fmt::Display for TransitionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A lifecycle event of a server.
///
/// An exit maps to one of these, depending on the state: [`LifecycleEvent::Failed`] for a failure,
/// [`LifecycleEvent::Drained`] for the end of a drain; and for an unrequested clean exit
/// [`LifecycleEvent::StopRequested`] with [`TransitionReason::ServerRequest`], then
/// [`LifecycleEvent::Drained`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LifecycleEvent {
    /// Started by the kernel or an operator.
    Start,
    /// The handshake is complete, and the first lists were read.
    HandshakeDone,
    /// It could not be started, its handshake failed, it died or lost its connection.
    Failed(String),
    /// Requested to finish and stop. A server may also report it (MGP-144).
    StopRequested(TransitionReason),
    /// Requested to stop and start again; in `draining`, after the drain.
    RestartRequested(TransitionReason),
    /// No call is under way, and its transport is closed.
    Drained,
    /// The restart rules allow another try; the wait before it is part of the new state.
    Retry,
}

impl fmt::Display for LifecycleEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.clone().into_reason())
    }
}

impl LifecycleEvent {
    fn into_reason(self) -> Cow<'static, str> {
        match self {
            Self::Start => "start".into(),
            Self::HandshakeDone => "handshake done".into(),
            Self::Failed(reason) => reason.into(),
            Self::StopRequested(reason) | Self::RestartRequested(reason) => reason.as_str().into(),
            Self::Drained => "drained".into(),
            Self::Retry => "restart policy".into(),
        }
    }
}

/// A state change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The earlier state.
    pub from: LifecycleState,
    /// The new state.
    pub to: LifecycleState,
    /// The reason, in words.
    pub reason: Cow<'static, str>,
}

/// An event that is not possible in this state; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a server that is {state} knows no step for: {event}")]
pub struct IllegalTransition {
    /// The state of the server.
    pub state: LifecycleState,
    /// The event.
    pub event: LifecycleEvent,
}

/// A report of the server that is not possible in this state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it says that it went from {reported_from:?} to {reported_to:?}, but it is {state}: ignored"
)]
pub struct ImplausibleTransition {
    state: LifecycleState,
    reported_from: String,
    reported_to: String,
}

/// Interprets a transition that the server reports (MGP-144): it may report that it drains or has failed. It
/// cannot decide other transitions.
///
/// # Errors
/// [`ImplausibleTransition`] for everything it cannot report in this state.
pub(crate) fn parse_reported_transition(
    state: LifecycleState,
    from: &str,
    to: &str,
    reason: &str,
) -> Result<LifecycleEvent, ImplausibleTransition> {
    let is_from_current = from.is_empty() || from == state.as_str();
    if is_from_current
        && state == LifecycleState::Connected
        && to == LifecycleState::Draining.as_str()
    {
        return Ok(LifecycleEvent::StopRequested(
            TransitionReason::ServerRequest,
        ));
    }
    let is_running = matches!(state, LifecycleState::Connected | LifecycleState::Draining);
    if is_from_current && is_running && to == LifecycleState::Error.as_str() {
        let reason = match reason {
            "" => "it says that it is in error".to_owned(),
            reason => format!("it says that it is in error: {}", truncate_reason(reason)),
        };
        return Ok(LifecycleEvent::Failed(reason));
    }
    Err(ImplausibleTransition {
        state,
        reported_from: truncate_reason(from),
        reported_to: truncate_reason(to),
    })
}

/// Limits what a server can add to logs.
fn truncate_reason(reason: &str) -> String {
    reason.chars().take(200).collect()
}

/// The state of one server, its reason, and when it was entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lifecycle {
    state: LifecycleState,
    reason: Cow<'static, str>,
    entered_at: MonotonicTime,
}

impl Lifecycle {
    /// A configured server before its first start.
    #[must_use]
    pub(crate) const fn new(now: MonotonicTime) -> Self {
        Self {
            state: LifecycleState::Registered,
            reason: Cow::Borrowed("configured"),
            entered_at: now,
        }
    }

    #[must_use]
    pub(crate) const fn state(&self) -> LifecycleState {
        self.state
    }

    #[must_use]
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    #[must_use]
    pub(crate) const fn entered_at(&self) -> MonotonicTime {
        self.entered_at
    }

    /// Makes the transition for an event.
    ///
    /// # Errors
    /// [`IllegalTransition`] when MGP §11.2 and A-06 have none; the state is unchanged.
    pub(crate) fn apply(
        &mut self,
        event: LifecycleEvent,
        now: MonotonicTime,
    ) -> Result<Transition, IllegalTransition> {
        let from = self.state;
        let Some(to) = next_state(from, &event) else {
            return Err(IllegalTransition { state: from, event });
        };
        self.state = to;
        self.entered_at = now;
        self.reason = event.into_reason();
        Ok(Transition {
            from,
            to,
            reason: self.reason.clone(),
        })
    }
}

/// The whole state machine.
fn next_state(state: LifecycleState, event: &LifecycleEvent) -> Option<LifecycleState> {
    use LifecycleState::{
        Connected, Connecting, Disconnected, Draining, Error, Registered, Restarting,
    };
    match (event, state) {
        (LifecycleEvent::Start, Registered) => Some(Connecting),
        (
            LifecycleEvent::Start | LifecycleEvent::Retry | LifecycleEvent::RestartRequested(_),
            Disconnected,
        ) => Some(Connecting),
        (
            LifecycleEvent::Start | LifecycleEvent::Retry | LifecycleEvent::RestartRequested(_),
            Error,
        ) => Some(Restarting),
        (LifecycleEvent::RestartRequested(_), Connected | Draining) => Some(Restarting),
        (LifecycleEvent::HandshakeDone, Connecting | Restarting) => Some(Connected),
        (LifecycleEvent::Failed(_), Connecting | Connected | Draining | Restarting) => Some(Error),
        (LifecycleEvent::StopRequested(_), Connected) => Some(Draining),
        // MGP has no transition from a start to a stop except a failed start.
        (LifecycleEvent::StopRequested(_), Connecting | Restarting) => Some(Error),
        (LifecycleEvent::Drained, Draining) => Some(Disconnected),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LifecycleState::*;

    const REASONS: [TransitionReason; 7] = [
        TransitionReason::OperatorRequest,
        TransitionReason::ConfigurationChange,
        TransitionReason::ResourceLimit,
        TransitionReason::IdleTimeout,
        TransitionReason::KernelShutdown,
        TransitionReason::Deregistered,
        TransitionReason::ServerRequest,
    ];

    /// Every event in every state (in the order of [`LifecycleState::ALL`]): the arrows of MGP §11.2 and the extra
    /// ones of A-06. `None` is an illegal transition.
    fn table() -> Vec<(LifecycleEvent, [Option<LifecycleState>; 7])> {
        let mut table = vec![
            (
                LifecycleEvent::Start,
                [
                    Some(Connecting),
                    None,
                    None,
                    None,
                    Some(Connecting),
                    Some(Restarting),
                    None,
                ],
            ),
            (
                LifecycleEvent::HandshakeDone,
                [
                    None,
                    Some(Connected),
                    None,
                    None,
                    None,
                    None,
                    Some(Connected),
                ],
            ),
            (
                LifecycleEvent::Drained,
                [None, None, None, Some(Disconnected), None, None, None],
            ),
            (
                LifecycleEvent::Retry,
                [
                    None,
                    None,
                    None,
                    None,
                    Some(Connecting),
                    Some(Restarting),
                    None,
                ],
            ),
        ];
        let fails = [
            None,
            Some(Error),
            Some(Error),
            Some(Error),
            None,
            None,
            Some(Error),
        ];
        for reason in ["", "exit status 1", "killed by signal 9"] {
            table.push((LifecycleEvent::Failed(reason.into()), fails));
        }
        let stops = [
            None,
            Some(Error),
            Some(Draining),
            None,
            None,
            None,
            Some(Error),
        ];
        let restarts = [
            None,
            None,
            Some(Restarting),
            Some(Restarting),
            Some(Connecting),
            Some(Restarting),
            None,
        ];
        for why in REASONS {
            table.push((LifecycleEvent::StopRequested(why), stops));
            table.push((LifecycleEvent::RestartRequested(why), restarts));
        }
        table
    }

    fn in_state(state: LifecycleState) -> Lifecycle {
        Lifecycle {
            state,
            ..Lifecycle::new(MonotonicTime::START)
        }
    }

    /// MGP-122..130, A-06: applies every event with every reason in every state. An event that the table does not
    /// list is rejected and changes nothing.
    #[test]
    fn only_documented_transitions_are_possible() {
        let later = MonotonicTime::START + std::time::Duration::from_secs(1);
        for (event, steps) in table() {
            for (state, to) in LifecycleState::ALL.into_iter().zip(steps) {
                let mut lifecycle = in_state(state);
                let step = lifecycle.apply(event.clone(), later);
                match to {
                    Some(to) => {
                        let step = step.expect("the table lists this transition");
                        assert_eq!((step.from, step.to), (state, to), "{event:?}");
                        assert_eq!((lifecycle.state(), lifecycle.entered_at()), (to, later));
                        assert_eq!(lifecycle.reason(), event.to_string());
                    }
                    None => {
                        let event = event.clone();
                        assert_eq!(step, Err(IllegalTransition { state, event }));
                        assert_eq!(lifecycle, in_state(state));
                    }
                }
            }
        }
    }

    #[test]
    fn calls_wait_only_for_a_server_that_may_start() {
        for state in LifecycleState::ALL {
            let is_starting = matches!(state, Connecting | Connected | Restarting);
            assert_eq!(state.can_accept_calls_soon(false), is_starting, "{state}");
            assert!(state.can_accept_calls_soon(true), "{state}");
        }
    }

    /// MGP-115..121
    #[test]
    fn states_serialize_as_they_are_displayed() {
        for state in LifecycleState::ALL {
            let json = serde_json::to_string(&state).unwrap();
            assert_eq!(json, format!("\"{state}\""));
            assert_eq!(
                serde_json::from_str::<LifecycleState>(&json).unwrap(),
                state
            );
        }
        let why = serde_json::to_string(&TransitionReason::KernelShutdown).unwrap();
        assert_eq!(why, format!("\"{}\"", TransitionReason::KernelShutdown));
    }

    /// MGP-144: a server may report that it drains or has failed. It cannot report that it connected, undo a drain,
    /// end another way, or name an earlier state that it was not in.
    #[test]
    fn a_server_can_report_only_a_drain_or_a_failure() {
        let drains = Ok(LifecycleEvent::StopRequested(
            TransitionReason::ServerRequest,
        ));
        assert_eq!(
            parse_reported_transition(Connected, "connected", "draining", ""),
            drains
        );
        assert_eq!(
            parse_reported_transition(Connected, "", "draining", "any"),
            drains
        );
        let broken = parse_reported_transition(Draining, "draining", "error", "disk full").unwrap();
        let reason = "it says that it is in error: disk full";
        assert_eq!(broken, LifecycleEvent::Failed(reason.into()));
        for state in LifecycleState::ALL {
            for from in LifecycleState::ALL
                .iter()
                .map(|s| s.as_str())
                .chain(["", "asleep"])
            {
                for to in LifecycleState::ALL
                    .iter()
                    .map(|s| s.as_str())
                    .chain(["", "asleep"])
                {
                    if let Ok(event) = parse_reported_transition(state, from, to, "") {
                        let step = in_state(state).apply(event, MonotonicTime::START).unwrap();
                        assert_eq!(step.to.as_str(), to);
                        assert!(from.is_empty() || from == state.as_str());
                        assert!(matches!(step.to, Draining | Error));
                    }
                }
            }
        }
        let long = "x".repeat(10_000);
        assert!(
            parse_reported_transition(Connected, &long, &long, &long)
                .unwrap_err()
                .to_string()
                .len()
                < 600
        );
    }

    /// MGP-140
    #[test]
    fn mgp_reasons_survive_a_round_trip() {
        for why in [
            TransitionReason::OperatorRequest,
            TransitionReason::ConfigurationChange,
            TransitionReason::ResourceLimit,
            TransitionReason::IdleTimeout,
            TransitionReason::KernelShutdown,
        ] {
            let mgp_reason = why.to_mgp_reason().unwrap();
            assert_eq!(TransitionReason::from(mgp_reason), why);
            let json = serde_json::to_string(&mgp_reason).unwrap();
            assert_eq!(json, format!("\"{why}\""));
        }
        assert_eq!(
            TransitionReason::Deregistered.to_mgp_reason(),
            Some(Reason::ConfigurationChange)
        );
        assert_eq!(TransitionReason::ServerRequest.to_mgp_reason(), None);
    }

    /// MGP-128, MGP-129: a crash is an error, then a restart, then connected again.
    #[test]
    fn a_crash_and_its_recovery_are_three_transitions() {
        let mut server = in_state(Connected);
        let second = MonotonicTime::START + std::time::Duration::from_secs(1);
        let crash = server.apply(LifecycleEvent::Failed("killed by signal 9".into()), second);
        assert_eq!(crash.unwrap().reason, "killed by signal 9");
        assert_eq!(server.entered_at(), second);
        assert_eq!(server.reason(), "killed by signal 9");
        assert_eq!(
            server.apply(LifecycleEvent::Retry, second).unwrap().to,
            Restarting
        );
        assert_eq!(
            server
                .apply(LifecycleEvent::HandshakeDone, second)
                .unwrap()
                .to,
            Connected
        );
    }
}
