//! Whether and when a failed call is retried, and what happens when all retries failed (MGP §14.6).
//!
//! The server's recommendations count within the kernel's own bounds. Access may be revoked between two attempts, so
//! each attempt, and above all a fallback, passes the same checks as a first call.

use std::time::Duration;

use mgp_protocol::refusal::mgp::{PeerError, Strategy};
use serde_json::{Map, Value};

use crate::clock::MonotonicTime;

/// Most retries of one call, whatever the server recommends: its caller waits meanwhile.
pub(crate) const RETRIES_MAX: u64 = 5;
/// Retries where the server allows them and gives no number.
pub(crate) const RETRIES_DEFAULT: u64 = 3;
/// Longest single wait. If a server asks for more, the call is not retried, because any shorter wait would
/// be too early.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);
/// The first wait where the server gives none.
pub(crate) const WAIT_DEFAULT: Duration = Duration::from_millis(500);

/// A retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAttempt {
    /// Which retry it is, from 1.
    pub number: u64,
    /// When it is to be made.
    pub due_at: MonotonicTime,
    /// How long that is from now.
    pub(crate) wait: Duration,
    /// By which strategy.
    pub(crate) strategy: Strategy,
    /// The error that led to it.
    pub code: i64,
}

impl RetryAttempt {
    /// `details` of its audit event, whose type is `EventType::TOOL_RETRIED`.
    ///
    /// # Panics
    /// Never: every strategy serializes to a word.
    #[must_use]
    pub fn details(&self) -> Map<String, Value> {
        let wait = u64::try_from(self.wait.as_millis()).unwrap_or(u64::MAX);
        let strategy = serde_json::to_value(self.strategy).expect("a strategy is a word");
        [
            ("attempt".to_owned(), self.number.into()),
            ("wait_ms".to_owned(), wait.into()),
            ("strategy".to_owned(), strategy),
            ("code".to_owned(), self.code.into()),
        ]
        .into_iter()
        .collect()
    }
}

/// Why there is no retry. The error is then reported as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GiveUpReason {
    /// The error does not allow it.
    #[error("not retryable")]
    NotRetryable,
    /// All allowed retries were made.
    #[error("retries exhausted")]
    RetriesExhausted,
    /// The wait would be longer than the kernel or the caller waits.
    #[error("the wait is too long")]
    WaitTooLong,
}

/// How a failed call continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// It is retried.
    Retry(RetryAttempt),
    /// Another tool of the same server is called with the same arguments, once, for the same caller and under all its
    /// checks.
    Fallback(String),
    /// The error is the answer.
    GiveUp(GiveUpReason),
}

/// The attempts of one call.
#[derive(Clone, Debug)]
pub struct Retries {
    tool: String,
    /// When its caller stops waiting.
    deadline: MonotonicTime,
    attempts: u64,
    /// The last wait, from which the next is computed.
    last_wait: Duration,
    /// A fallback was called: it has neither retries nor a fallback.
    is_final: bool,
}

impl Retries {
    /// A call of this tool, by the server's own name.
    #[must_use]
    pub fn new(tool: impl Into<String>, deadline: MonotonicTime) -> Self {
        Self {
            tool: tool.into(),
            deadline,
            attempts: 0,
            last_wait: Duration::ZERO,
            is_final: false,
        }
    }

    /// A call of a fallback tool: it has neither retries nor a fallback.
    #[must_use]
    pub fn into_fallback(mut self) -> Self {
        self.is_final = true;
        self
    }

    /// Evaluates the error of an attempt that ended at `now`. `jitter` spreads the waits of many callers: 0 adds
    /// nothing, 255 adds a quarter.
    pub fn handle_failure(
        &mut self,
        error: &PeerError,
        jitter: u8,
        now: MonotonicTime,
    ) -> RetryDecision {
        let recovery = &error.recovery;
        if self.is_final || !recovery.retryable {
            return RetryDecision::GiveUp(GiveUpReason::NotRetryable);
        }
        let max_retries = recovery
            .max_retries
            .unwrap_or(RETRIES_DEFAULT)
            .min(RETRIES_MAX);
        if self.attempts >= max_retries {
            return self.fall_back(error, GiveUpReason::RetriesExhausted);
        }
        let strategy = recovery.retry_strategy.unwrap_or(Strategy::FixedDelay);
        let min_wait = recovery.retry_after_ms.map(Duration::from_millis);
        let wait = self.next_wait(strategy, min_wait, jitter);
        let due_at = now + wait;
        if wait > WAIT_MAX || due_at >= self.deadline {
            return self.fall_back(error, GiveUpReason::WaitTooLong);
        }
        self.attempts += 1;
        self.last_wait = wait;
        RetryDecision::Retry(RetryAttempt {
            number: self.attempts,
            due_at,
            wait,
            strategy,
            code: error.code,
        })
    }

    /// Never less than the server requests.
    fn next_wait(&self, strategy: Strategy, min_wait: Option<Duration>, jitter: u8) -> Duration {
        let first = min_wait.unwrap_or(WAIT_DEFAULT);
        let wait = match strategy {
            Strategy::Immediate => return min_wait.unwrap_or(Duration::ZERO),
            Strategy::FixedDelay => first,
            Strategy::ExponentialBackoff => {
                // Grows up to the longest wait, which the server's own value may still exceed.
                let grown = self.last_wait.saturating_mul(2).min(WAIT_MAX * 3 / 4);
                first.max(grown)
            }
        };
        wait.saturating_add(wait / 4 * u32::from(jitter) / 255)
    }

    fn fall_back(&mut self, error: &PeerError, why: GiveUpReason) -> RetryDecision {
        let fallback = error.recovery.fallback_tool.as_ref();
        let fallback = fallback.filter(|tool| !tool.is_empty() && **tool != self.tool);
        self.is_final = true;
        fallback.map_or(RetryDecision::GiveUp(why), |tool| {
            RetryDecision::Fallback(tool.clone())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use serde_json::value::RawValue;

    fn at(ms: u64) -> MonotonicTime {
        MonotonicTime::new(Duration::from_millis(ms))
    }

    fn error(mgp: &Value) -> PeerError {
        let text = json!({"code": 3000, "message": "m", "data": {"_mgp": mgp}}).to_string();
        PeerError::parse(&RawValue::from_string(text).unwrap()).unwrap()
    }

    /// All waits, and the final decision.
    fn run(mgp: &Value, deadline: u64) -> (Vec<u64>, RetryDecision) {
        let mut retries = Retries::new("t", at(deadline));
        let (mut waits, mut now) = (Vec::new(), at(0));
        loop {
            match retries.handle_failure(&error(mgp), 0, now) {
                RetryDecision::Retry(attempt) => {
                    waits.push(attempt.wait.as_millis() as u64);
                    assert_eq!(attempt.number, waits.len() as u64);
                    now = attempt.due_at;
                }
                end @ (RetryDecision::Fallback(_) | RetryDecision::GiveUp(_)) => {
                    return (waits, end);
                }
            }
        }
    }

    const EXHAUSTED: RetryDecision = RetryDecision::GiveUp(GiveUpReason::RetriesExhausted);

    /// MGP-208, MGP-209, MGP-210
    #[test]
    fn waits_follow_the_strategy_up_to_the_allowed_number() {
        let with = |strategy: &str| json!({"retryable": true, "retry_after_ms": 100, "retry_strategy": strategy, "max_retries": 4});
        let long = 1_000_000;
        assert_eq!(run(&with("immediate"), long), (vec![100; 4], EXHAUSTED));
        assert_eq!(run(&with("fixed_delay"), long), (vec![100; 4], EXHAUSTED));
        assert_eq!(
            run(&with("exponential_backoff"), long),
            (vec![100, 200, 400, 800], EXHAUSTED)
        );
        let immediate = json!({"retryable": true, "retry_strategy": "immediate", "max_retries": 2});
        assert_eq!(run(&immediate, long), (vec![0, 0], EXHAUSTED));
        assert_eq!(
            run(&json!({"retryable": true}), long),
            (vec![500; 3], EXHAUSTED)
        );
        let endless = json!({"retryable": true, "max_retries": u64::MAX});
        assert_eq!(run(&endless, long).0.len() as u64, RETRIES_MAX);
        assert_eq!(
            run(&json!({"retryable": true, "max_retries": 0}), long),
            (vec![], EXHAUSTED)
        );
    }

    /// MGP-213: the fallback is not called either.
    #[test]
    fn an_error_that_is_not_retryable_is_reported() {
        let end = RetryDecision::GiveUp(GiveUpReason::NotRetryable);
        assert_eq!(
            run(&json!({"retryable": false, "fallback_tool": "u"}), 9_999),
            (vec![], end.clone())
        );
        assert_eq!(run(&json!({}), 9_999), (vec![], end));
    }

    /// MGP-211: it is called once, and is never the tool itself.
    #[test]
    fn the_fallback_follows_the_last_retry() {
        let mgp =
            json!({"retryable": true, "retry_after_ms": 1, "max_retries": 2, "fallback_tool": "u"});
        assert_eq!(
            run(&mgp, 9_999),
            (vec![1, 1], RetryDecision::Fallback("u".into()))
        );
        let itself = json!({"retryable": true, "max_retries": 0, "fallback_tool": "t"});
        assert_eq!(run(&itself, 9_999).1, EXHAUSTED);
        let mut retries = Retries::new("t", at(9_999));
        let mgp = error(&json!({"retryable": true, "max_retries": 0, "fallback_tool": "u"}));
        assert_eq!(
            retries.handle_failure(&mgp, 0, at(0)),
            RetryDecision::Fallback("u".into())
        );
        let again = error(&json!({"retryable": true, "fallback_tool": "v"}));
        assert_eq!(
            retries.handle_failure(&again, 0, at(0)),
            RetryDecision::GiveUp(GiveUpReason::NotRetryable)
        );
    }

    /// MGP-208: a wait that is too long is not shortened.
    #[test]
    fn a_wait_beyond_the_bounds_ends_the_retries() {
        let too_long = RetryDecision::GiveUp(GiveUpReason::WaitTooLong);
        let hour = json!({"retryable": true, "retry_after_ms": 3_600_000});
        assert_eq!(run(&hour, u64::MAX / 2), (vec![], too_long.clone()));
        let second = json!({"retryable": true, "retry_after_ms": 1_000});
        assert_eq!(run(&second, 2_500), (vec![1_000, 1_000], too_long));
    }

    /// MGP-212
    #[test]
    fn each_retry_has_an_event_with_its_number_and_reason() {
        let mut retries = Retries::new("t", at(99_999));
        let mgp = error(&json!({"retryable": true, "retry_after_ms": 70}));
        let RetryDecision::Retry(attempt) = retries.handle_failure(&mgp, 0, at(0)) else {
            panic!("no retry");
        };
        let want = json!({"attempt": 1, "wait_ms": 70, "strategy": "fixed_delay", "code": 3000});
        assert_eq!(Value::from(attempt.details()), want);
    }

    proptest! {
        /// MGP-208: for any recommendation of a server.
        #[test]
        fn retries_are_never_early_late_or_endless(
            after in proptest::option::of(0u64..90_000), most in proptest::option::of(0u64..20),
            word in "immediate|fixed_delay|exponential_backoff|x", chance: u8, deadline in 0u64..400_000,
        ) {
            let mut mgp = json!({"retryable": true, "retry_strategy": word});
            if let Some(after) = after { mgp["retry_after_ms"] = after.into(); }
            if let Some(most) = most { mgp["max_retries"] = most.into(); }
            let (mut retries, mut now, mut tries) = (Retries::new("t", at(deadline)), at(0), 0);
            while let RetryDecision::Retry(attempt) = retries.handle_failure(&error(&mgp), chance, now) {
                tries += 1;
                prop_assert!(attempt.wait >= Duration::from_millis(after.unwrap_or(0)));
                prop_assert!(attempt.wait <= WAIT_MAX && attempt.due_at < at(deadline));
                prop_assert!(tries <= most.unwrap_or(RETRIES_DEFAULT).min(RETRIES_MAX));
                now = attempt.due_at;
            }
        }
    }
}
