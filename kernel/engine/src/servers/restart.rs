//! Restart policy of a stopped server: restart after a backoff, stay stopped, or park (MGP §11.5).

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::MonotonicTime;
use crate::servers::spec::{RestartConfig, RestartPolicy};

/// How a server stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerExit {
    /// Without an error: exit status 0, or a cleanly closed connection.
    Clean,
    /// With an error, in words.
    Failed(String),
    /// It ended the session, with a reason: it is healthy and needs a new handshake.
    SessionEnded(String),
    /// It must not be started again until a person changes its configuration or login.
    Rejected(String),
}

/// The decision about an exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartVerdict {
    /// Start it again.
    Restart {
        /// The backoff.
        after: Duration,
        /// Which restart within the window this is, from 1.
        attempt: u32,
    },
    /// Leave it stopped, on request or by policy.
    StayStopped,
    /// Park it: it restarted too often, and stays in error with its reason.
    Park {
        /// Reason for the operator; contains `restart_limit_exceeded` (MGP-152).
        reason: String,
        /// When the window has passed and the kernel tries again; `None` if the config allows no restart.
        next_try: Option<MonotonicTime>,
    },
}

impl RestartVerdict {
    /// True if the server failed more than once within the window.
    #[must_use]
    pub(crate) fn is_failing_repeatedly(&self) -> bool {
        match self {
            Self::Restart { attempt, .. } => *attempt > 1,
            Self::Park { .. } => true,
            Self::StayStopped => false,
        }
    }
}

/// The restarts of one server within the sliding window.
#[derive(Clone, Debug)]
pub(crate) struct RestartTracker {
    config: RestartConfig,
    /// When each restart was due, oldest first. At most `max_restarts` of them: one more parks the server.
    history: VecDeque<MonotonicTime>,
    /// Never parked: a server at a URL may be unavailable for any time.
    is_persistent: bool,
    /// Limits handshakes after ended sessions.
    session_budget: RateBudget,
}

impl RestartTracker {
    #[must_use]
    pub(crate) fn new(config: RestartConfig) -> Self {
        Self {
            config,
            history: VecDeque::new(),
            is_persistent: false,
            session_budget: RateBudget::default(),
        }
    }

    /// A persistent server is tried every `backoff_max` instead of being parked.
    #[must_use]
    pub(crate) fn with_persistence(mut self, persistent: bool) -> Self {
        self.is_persistent = persistent;
        self
    }

    /// Decides about an exit. `is_requested` is true for stops by an operator, a deregistration, an idle timeout or
    /// the kernel's shutdown.
    pub(crate) fn handle_exit(
        &mut self,
        exit: &ServerExit,
        is_requested: bool,
        now: MonotonicTime,
    ) -> RestartVerdict {
        if is_requested || !self.should_restart(exit) {
            return RestartVerdict::StayStopped;
        }
        if let ServerExit::SessionEnded(_) = exit {
            let after = self
                .session_budget
                .reserve(now, SESSION_BURST, SESSION_INTERVAL);
            return RestartVerdict::Restart { after, attempt: 1 };
        }
        self.prune_history(now);
        let restarts = self.count_in_window(now);
        if restarts >= self.config.max_restarts {
            if self.is_persistent && self.history.pop_front().is_some() {
                let after = self.config.backoff_max;
                self.history.push_back(now + after);
                let attempt = restarts.saturating_add(1);
                return RestartVerdict::Restart { after, attempt };
            }
            return self.park(exit, now);
        }
        let after = self.backoff(restarts);
        self.history.push_back(now + after);
        RestartVerdict::Restart {
            after,
            attempt: restarts + 1,
        }
    }

    /// Restarts within the window at `now`.
    #[must_use]
    pub(crate) fn count_in_window(&self, now: MonotonicTime) -> u32 {
        let in_window = self
            .history
            .iter()
            .filter(|at| self.is_in_window(**at, now));
        u32::try_from(in_window.count()).unwrap_or(u32::MAX)
    }

    /// An operator started the server: earlier restarts no longer count.
    pub(crate) fn clear(&mut self) {
        self.history.clear();
    }

    fn should_restart(&self, exit: &ServerExit) -> bool {
        match (self.config.policy, exit) {
            // The policy governs processes that the kernel starts, not sessions.
            (_, ServerExit::SessionEnded(_)) => true,
            (RestartPolicy::Never, _)
            | (RestartPolicy::OnFailure, ServerExit::Clean)
            | (_, ServerExit::Rejected(_)) => false,
            (RestartPolicy::OnFailure, ServerExit::Failed(_)) | (RestartPolicy::Always, _) => true,
        }
    }

    fn prune_history(&mut self, now: MonotonicTime) {
        while self
            .history
            .front()
            .is_some_and(|at| !self.is_in_window(*at, now))
        {
            self.history.pop_front();
        }
    }

    fn is_in_window(&self, at: MonotonicTime, now: MonotonicTime) -> bool {
        now.duration_since(at) < self.config.window
    }

    /// base, 2·base, 4·base … up to the longest delay (MGP-150).
    fn backoff(&self, restarts: u32) -> Duration {
        let factor = 2u32.saturating_pow(restarts);
        self.config
            .backoff_base
            .saturating_mul(factor)
            .min(self.config.backoff_max)
    }

    fn park(&self, exit: &ServerExit, now: MonotonicTime) -> RestartVerdict {
        let last = match exit {
            ServerExit::Clean => "it ended by itself",
            ServerExit::Failed(reason)
            | ServerExit::SessionEnded(reason)
            | ServerExit::Rejected(reason) => reason,
        };
        let RestartConfig {
            max_restarts,
            window,
            ..
        } = self.config;
        RestartVerdict::Park {
            reason: format!(
                "restart_limit_exceeded: {max_restarts} restarts within {} s; last: {last}",
                window.as_secs_f64()
            ),
            next_try: (max_restarts > 0).then(|| now + window),
        }
    }
}

/// Immediate handshakes after ended sessions, once the budget is full.
const SESSION_BURST: u32 = 10;

/// Afterwards one per interval, unless a call waits: limits a server that ends every session at once.
const SESSION_INTERVAL: Duration = Duration::from_secs(5);

/// Failing servers that may start at once when the budget is full.
const START_BURST: u32 = 8;

/// Afterwards one start per interval. A start costs about 20 ms of one core, so any number of failing servers
/// takes a fiftieth of a machine with two cores.
const START_INTERVAL: Duration = Duration::from_millis(500);

/// Rate limit for starts of servers that fail repeatedly: a burst, then one at a time. A first failure is not
/// limited.
#[derive(Clone, Debug, Default)]
pub struct RestartLimiter(RateBudget);

impl RestartLimiter {
    /// Reserves a start; returns its time, not before `now`.
    pub fn reserve(&mut self, now: MonotonicTime) -> MonotonicTime {
        now + self.0.reserve(now, START_BURST, START_INTERVAL)
    }
}

/// A rate limit: a burst, then one per interval.
#[derive(Clone, Debug, Default)]
pub(super) struct RateBudget {
    /// When the budget is full again.
    full_at: MonotonicTime,
}

impl RateBudget {
    /// Takes one; returns how long it has to wait.
    pub(super) fn reserve(
        &mut self,
        now: MonotonicTime,
        burst: u32,
        interval: Duration,
    ) -> Duration {
        let wait = self
            .full_at
            .duration_since(now)
            .saturating_sub(interval * (burst - 1));
        self.full_at = self.full_at.max(now) + interval;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> MonotonicTime {
        MonotonicTime::START + Duration::from_millis(millis)
    }

    fn failed() -> ServerExit {
        ServerExit::Failed("exit status 1".into())
    }

    fn tracker(policy: RestartPolicy) -> RestartTracker {
        RestartTracker::new(RestartConfig {
            policy,
            ..RestartConfig::default()
        })
    }

    /// MGP-149, MGP-150, MGP-151: 1, 2, 4, 8, 16 s, then parked; spawns are one more than restarts.
    #[test]
    fn a_crash_loop_backs_off_and_is_parked() {
        let mut restarts = tracker(RestartPolicy::OnFailure);
        let mut now = at(0);
        for (attempt, secs) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16)] {
            let after = Duration::from_secs(secs);
            let verdict = restarts.handle_exit(&failed(), false, now);
            assert_eq!(verdict, RestartVerdict::Restart { after, attempt });
            now = now + after;
        }
        let RestartVerdict::Park { reason, next_try } = restarts.handle_exit(&failed(), false, now)
        else {
            panic!("one restart too many");
        };
        assert!(reason.contains("restart_limit_exceeded"), "{reason}");
        assert!(reason.contains("exit status 1"), "{reason}");
        assert_eq!(next_try, Some(now + Duration::from_secs(300)));
        assert_eq!(restarts.count_in_window(next_try.unwrap()), 0);
    }

    #[test]
    fn backoff_is_capped() {
        let mut restarts = RestartTracker::new(RestartConfig {
            max_restarts: 40,
            ..RestartConfig::default()
        });
        let last = (0..40)
            .map(|_| restarts.handle_exit(&failed(), false, at(0)))
            .last();
        let after = Duration::from_secs(30);
        assert_eq!(last, Some(RestartVerdict::Restart { after, attempt: 40 }));
    }

    /// MGP-146, MGP-147, MGP-148, A-07
    #[test]
    fn policy_and_request_decide_about_restarts() {
        let restarts = |policy, exit: &ServerExit, is_requested| {
            let verdict = tracker(policy).handle_exit(exit, is_requested, at(0));
            matches!(verdict, RestartVerdict::Restart { .. })
        };
        for is_requested in [true, false] {
            assert!(!restarts(RestartPolicy::Never, &failed(), is_requested));
            assert!(!restarts(
                RestartPolicy::OnFailure,
                &ServerExit::Clean,
                is_requested
            ));
            assert_eq!(
                restarts(RestartPolicy::OnFailure, &failed(), is_requested),
                !is_requested
            );
            assert_eq!(
                restarts(RestartPolicy::Always, &ServerExit::Clean, is_requested),
                !is_requested
            );
        }
    }

    #[test]
    fn an_operators_start_clears_the_history() {
        let mut restarts = tracker(RestartPolicy::OnFailure);
        for _ in 0..6 {
            restarts.handle_exit(&failed(), false, at(0));
        }
        restarts.clear();
        let after = Duration::from_secs(1);
        let verdict = restarts.handle_exit(&failed(), false, at(0));
        assert_eq!(verdict, RestartVerdict::Restart { after, attempt: 1 });
    }

    /// Of fifty servers that fail together, a burst starts at once and the others one per interval. The budget
    /// refills.
    #[test]
    fn starts_of_failing_servers_are_rate_limited() {
        let mut limiter = RestartLimiter::default();
        let starts: Vec<_> = (0..50).map(|_| limiter.reserve(at(1000))).collect();
        let at_once = starts.iter().filter(|start| **start == at(1000)).count();
        assert_eq!(at_once, START_BURST as usize);
        let gaps = starts[START_BURST as usize - 1..].windows(2);
        assert!(
            gaps.clone()
                .all(|pair| pair[1].duration_since(pair[0]) == START_INTERVAL)
        );
        let later = *starts.last().unwrap() + START_INTERVAL * START_BURST;
        assert!((0..START_BURST).all(|_| limiter.reserve(later) == later));
        assert!(limiter.reserve(later) > later);
    }

    #[test]
    fn a_server_at_a_url_is_never_parked() {
        let mut restarts = tracker(RestartPolicy::OnFailure).with_persistence(true);
        let mut now = at(0);
        for attempt in 1..200 {
            let verdict = restarts.handle_exit(&failed(), false, now);
            let RestartVerdict::Restart { after, .. } = verdict else {
                panic!("{attempt}: {verdict:?}");
            };
            now = now + after;
            if attempt > 5 {
                assert_eq!(after, Duration::from_secs(30), "{attempt}");
            }
            assert!(restarts.history.len() <= 5);
        }
    }

    /// An ended session gets a new handshake at once and counts no restart; endless ones are rate limited.
    #[test]
    fn an_ended_session_counts_no_restart() {
        let ended = ServerExit::SessionEnded("its session has ended".into());
        for policy in [RestartPolicy::Never, RestartPolicy::OnFailure] {
            let mut restarts = tracker(policy);
            let at_once = RestartVerdict::Restart {
                after: Duration::ZERO,
                attempt: 1,
            };
            for n in 0..SESSION_BURST {
                let verdict = restarts.handle_exit(&ended, false, at(u64::from(n)));
                assert_eq!(verdict, at_once);
            }
            assert_eq!(restarts.count_in_window(at(10)), 0);
            let mut now = at(10);
            for _ in 0..100 {
                let verdict = restarts.handle_exit(&ended, false, now);
                let RestartVerdict::Restart { after, .. } = verdict else {
                    panic!("{verdict:?}");
                };
                now = now + after;
            }
            assert!(
                now.duration_since(at(10)) > SESSION_INTERVAL * 99,
                "{now:?}"
            );
            let later = now + SESSION_INTERVAL * SESSION_BURST;
            assert_eq!(restarts.handle_exit(&ended, false, later), at_once);
        }
    }

    #[test]
    fn no_restart_allowed_means_no_next_try() {
        let mut restarts = RestartTracker::new(RestartConfig {
            max_restarts: 0,
            ..RestartConfig::default()
        });
        let verdict = restarts.handle_exit(&failed(), false, at(0));
        assert!(matches!(
            verdict,
            RestartVerdict::Park { next_try: None, .. }
        ));
    }

    #[test]
    fn a_server_fails_repeatedly_from_its_second_restart() {
        let mut restarts = tracker(RestartPolicy::OnFailure);
        let verdicts: Vec<_> = (0..6)
            .map(|_| {
                restarts
                    .handle_exit(&failed(), false, at(0))
                    .is_failing_repeatedly()
            })
            .collect();
        assert_eq!(verdicts, [false, true, true, true, true, true]);
        assert!(matches!(
            restarts.handle_exit(&failed(), false, at(0)),
            RestartVerdict::Park { .. }
        ));
        let stays = restarts.handle_exit(&failed(), true, at(0));
        assert_eq!(
            (stays.is_failing_repeatedly(), stays),
            (false, RestartVerdict::StayStopped)
        );
    }

    #[test]
    fn a_rejected_server_stays_stopped_under_any_policy() {
        let rejected = ServerExit::Rejected("its token is wrong".into());
        for policy in [
            RestartPolicy::Never,
            RestartPolicy::OnFailure,
            RestartPolicy::Always,
        ] {
            let verdict = tracker(policy).handle_exit(&rejected, false, at(0));
            assert_eq!(verdict, RestartVerdict::StayStopped);
        }
    }

    #[test]
    fn a_server_that_exits_cleanly_too_often_is_parked_with_a_reason() {
        let mut restarts = RestartTracker::new(RestartConfig {
            policy: RestartPolicy::Always,
            max_restarts: 0,
            ..RestartConfig::default()
        });
        let verdict = restarts.handle_exit(&ServerExit::Clean, false, at(0));
        let reason = "restart_limit_exceeded: 0 restarts within 300 s; last: it ended by itself";
        assert!(
            matches!(&verdict, RestartVerdict::Park { reason: found, .. } if found == reason),
            "{verdict:?}"
        );
    }

    /// A restart counts from when it was due; the end of the window is exclusive.
    #[test]
    fn a_restart_leaves_the_window_at_its_end() {
        let mut restarts = tracker(RestartPolicy::OnFailure);
        restarts.handle_exit(&failed(), false, at(0));
        let end = Duration::from_secs(301);
        let before = end - Duration::from_millis(1);
        assert_eq!(restarts.count_in_window(MonotonicTime::START + before), 1);
        assert_eq!(restarts.count_in_window(MonotonicTime::START + end), 0);
        restarts.handle_exit(&failed(), false, MonotonicTime::START + end);
        assert_eq!(restarts.history.len(), 1, "expired restarts are pruned");
    }

    proptest! {
        /// MGP-153: only the restarts of the last window count, whatever the gaps between the exits.
        #[test]
        fn the_window_slides(gaps in proptest::collection::vec(0u64..4_000, 1..60), max in 1u32..6) {
            let rules = RestartConfig {
                policy: RestartPolicy::Always,
                max_restarts: max,
                window: Duration::from_millis(5_000),
                backoff_base: Duration::from_millis(100),
                backoff_max: Duration::from_millis(400),
            };
            let (mut restarts, mut model, mut now) = (RestartTracker::new(rules), Vec::<u64>::new(), 0);
            for gap in gaps {
                now += gap;
                let counted = model.iter().filter(|t| **t + 5_000 > now).count() as u32;
                let want = if counted < max {
                    let after = (100 << counted).min(400);
                    model.push(now + after);
                    now += after;
                    Some((Duration::from_millis(after), counted + 1))
                } else {
                    None
                };
                let asked_at = at(want.map_or(now, |(after, _)| now - after.as_millis() as u64));
                let got = match restarts.handle_exit(&ServerExit::Clean, false, asked_at) {
                    RestartVerdict::Restart { after, attempt } => Some((after, attempt)),
                    RestartVerdict::Park { .. } => None,
                    RestartVerdict::StayStopped => panic!("always restarts"),
                };
                prop_assert_eq!(got, want);
                prop_assert!(restarts.history.len() <= max as usize);
            }
        }
    }
}
