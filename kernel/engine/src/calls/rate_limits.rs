//! Rate limits for the calls of an agent (MGP §14.3: 3000 and 3002): a limit per minute and one per day.
//!
//! A window begins with the first call and ends after its length; the next call begins another.
//!
//! Groups have limits of their own, which their members share, with a budget of bytes besides ([`groups`]).
//!
//! [`RefusalLimiter`] bounds how often an agent gets the reason for a refused call: each refusal costs the kernel a
//! record, and a refused agent loses nothing by retrying.

pub mod groups;

use std::collections::HashMap;
use std::time::Duration;

use mgp_protocol::ids::AgentId;
use mgp_protocol::refusal::{Denial, NextCall};

use crate::clock::MonotonicTime;
use crate::timestamps::render_rfc3339_ms;

/// Most agents that are counted; more than one person manages. When the table is full, agents whose windows have
/// expired are dropped, and the call of an agent without an entry is refused.
pub const AGENTS_MAX: usize = 4096;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// Default limit of refused calls a second: far more than a model needs to correct its arguments.
pub(crate) const REFUSALS_PER_SECOND_DEFAULT: u64 = 50;
/// Size of a burst of refusals, in seconds of their rate: an agent may try every tool on its list once.
const BURST_SECONDS: u32 = 20;

/// The limits of each agent; 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimits {
    /// Calls of tools a minute.
    pub per_minute: u64,
    /// Calls of tools a day.
    pub per_day: u64,
    /// Refused calls a second.
    pub refusals: u64,
}

impl Default for RateLimits {
    fn default() -> Self {
        Self {
            per_minute: 0,
            per_day: 0,
            refusals: REFUSALS_PER_SECOND_DEFAULT,
        }
    }
}

impl RateLimits {
    /// True when nothing is limited.
    #[must_use]
    pub fn is_unlimited(self) -> bool {
        self.per_minute == 0 && self.per_day == 0
    }
}

/// The refusals of all agents, with a token bucket for each that holds twenty seconds' worth.
#[derive(Debug)]
pub struct RefusalLimiter {
    per_second: u64,
    /// When the bucket of an agent is full again. Agents without an entry have a full one.
    full_at: HashMap<AgentId, MonotonicTime>,
}

impl RefusalLimiter {
    /// A limiter without refusals. 0 sets no limit.
    #[must_use]
    pub fn new(per_second: u64) -> Self {
        Self {
            per_second,
            full_at: HashMap::new(),
        }
    }

    /// Counts a refusal of an agent. When [`AGENTS_MAX`] agents were refused just now, a further agent has no
    /// refusals left.
    ///
    /// # Errors
    /// The time until the agent has a refusal left; until then it gets no reason.
    pub fn count_refusal(&mut self, agent: &AgentId, now: MonotonicTime) -> Result<(), Duration> {
        let Some(interval) = Duration::from_secs(1).checked_div(clamp_rate(self.per_second)) else {
            return Ok(());
        };
        if !self.full_at.contains_key(agent) && self.full_at.len() >= AGENTS_MAX {
            self.full_at.retain(|_, full_at| *full_at > now);
            if self.full_at.len() >= AGENTS_MAX {
                return Err(interval);
            }
        }
        let full_at = self.full_at.entry(agent.clone()).or_insert(now);
        let next = now.max(*full_at) + interval;
        let capacity = interval * clamp_rate(self.per_second) * BURST_SECONDS;
        match next.duration_since(now) {
            filled if filled > capacity => Err(filled.saturating_sub(capacity)),
            _ => {
                *full_at = next;
                Ok(())
            }
        }
    }
}

/// A rate above one a nanosecond is no limit.
fn clamp_rate(per_second: u64) -> u32 {
    u32::try_from(per_second).unwrap_or(u32::MAX).min(1_000_000)
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateLimitError {
    /// The limit per minute is reached.
    Minute {
        /// The calls in the window, this one included.
        current: u64,
        /// When the next window begins.
        retry_after: Duration,
    },
    /// The limit per day is reached.
    Day {
        /// When the next window begins.
        retry_after: Duration,
    },
    /// [`AGENTS_MAX`] agents are counted already.
    Agents,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    started: MonotonicTime,
    calls: u64,
}

impl Window {
    /// The window at `now`: this one, or a new one if it has expired.
    fn current_at(self, now: MonotonicTime, length: Duration) -> Self {
        if now.duration_since(self.started) < length {
            self
        } else {
            Self {
                started: now,
                calls: 0,
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct CallWindows {
    minute: Window,
    day: Window,
}

/// The counted calls of all agents.
#[derive(Debug)]
pub struct CallRateLimiter {
    limits: RateLimits,
    agents: HashMap<AgentId, CallWindows>,
}

impl CallRateLimiter {
    /// No calls yet.
    #[must_use]
    pub fn new(limits: RateLimits) -> Self {
        Self {
            limits,
            agents: HashMap::new(),
        }
    }

    /// Counts a call of an agent. A refused call does not count toward the limits, so that a caller that waits is
    /// served.
    ///
    /// # Errors
    /// [`RateLimitError`].
    pub fn count_call(
        &mut self,
        agent: &AgentId,
        now: MonotonicTime,
    ) -> Result<(), RateLimitError> {
        let limits = self.limits;
        let windows = self.windows_for(agent, now)?;
        windows.minute = windows.minute.current_at(now, MINUTE);
        windows.day = windows.day.current_at(now, DAY);
        let is_reached = |calls: u64, limit: u64| limit > 0 && calls >= limit;
        if is_reached(windows.day.calls, limits.per_day) {
            return Err(RateLimitError::Day {
                retry_after: DAY.saturating_sub(now.duration_since(windows.day.started)),
            });
        }
        windows.minute.calls = windows.minute.calls.saturating_add(1);
        if is_reached(windows.minute.calls - 1, limits.per_minute) {
            return Err(RateLimitError::Minute {
                current: windows.minute.calls,
                retry_after: MINUTE.saturating_sub(now.duration_since(windows.minute.started)),
            });
        }
        windows.day.calls = windows.day.calls.saturating_add(1);
        Ok(())
    }

    fn windows_for(
        &mut self,
        agent: &AgentId,
        now: MonotonicTime,
    ) -> Result<&mut CallWindows, RateLimitError> {
        if !self.agents.contains_key(agent) {
            if self.agents.len() >= AGENTS_MAX {
                let longest = match self.limits.per_day {
                    0 => MINUTE,
                    _ => DAY,
                };
                self.agents
                    .retain(|_, windows| now.duration_since(windows.day.started) < longest);
            }
            if self.agents.len() >= AGENTS_MAX {
                return Err(RateLimitError::Agents);
            }
        }
        let window = Window {
            started: now,
            calls: 0,
        };
        Ok(self.agents.entry(agent.clone()).or_insert(CallWindows {
            minute: window,
            day: window,
        }))
    }
}

impl RateLimitError {
    /// The denial for the agent; `None` when the agent is not the cause. `now_ms` is in milliseconds since 1970.
    #[must_use]
    pub fn to_denial(self, limits: RateLimits, now_ms: u64) -> Option<Denial> {
        match self {
            Self::Minute {
                current,
                retry_after,
            } => Some(Denial::RateLimited {
                limit: limits.per_minute,
                window_secs: MINUTE.as_secs(),
                current,
                retry_after_ms: to_ms(retry_after),
                next: None,
            }),
            Self::Day { retry_after } => Some(Denial::OverQuota {
                what: "calls of this agent a day".into(),
                limit: limits.per_day,
                next: Some(next_call(None, "agent_calls_per_day", retry_after, now_ms)),
            }),
            Self::Agents => None,
        }
    }
}

/// Rounded up: at that time the call is possible.
fn to_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// When the next call is possible.
fn next_call(
    group: Option<&AgentId>,
    limit: &'static str,
    retry_after: Duration,
    now_ms: u64,
) -> NextCall {
    let after_ms = to_ms(retry_after);
    NextCall {
        group: group.map(ToString::to_string),
        limit,
        at: render_rfc3339_ms(now_ms.saturating_add(after_ms)),
        after_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> MonotonicTime {
        MonotonicTime::new(Duration::from_secs(secs))
    }

    fn rates(per_minute: u64, per_day: u64) -> CallRateLimiter {
        CallRateLimiter::new(RateLimits {
            per_minute,
            per_day,
            refusals: 0,
        })
    }

    /// MGP-196
    #[test]
    fn calls_beyond_the_limit_per_minute_are_refused_until_the_next_window() {
        let (mut rates, agent) = (rates(2, 0), AgentId::new("a"));
        assert_eq!(rates.count_call(&agent, at(10)), Ok(()));
        assert_eq!(rates.count_call(&agent, at(20)), Ok(()));
        let after = Duration::from_secs(40);
        let too_many = RateLimitError::Minute {
            current: 3,
            retry_after: after,
        };
        assert_eq!(rates.count_call(&agent, at(30)), Err(too_many));
        assert_eq!(rates.count_call(&AgentId::new("b"), at(30)), Ok(()));
        assert!(rates.count_call(&agent, at(69)).is_err());
        assert_eq!(rates.count_call(&agent, at(70)), Ok(()));
    }

    /// MGP-198: refused calls do not count.
    #[test]
    fn calls_beyond_the_limit_per_day_are_refused() {
        let (mut rates, agent) = (rates(1, 2), AgentId::new("a"));
        assert_eq!(rates.count_call(&agent, at(0)), Ok(()));
        assert!(rates.count_call(&agent, at(1)).is_err());
        assert_eq!(rates.count_call(&agent, at(60)), Ok(()));
        let retry_after = Duration::from_secs(86_400 - 120);
        let day = RateLimitError::Day { retry_after };
        assert_eq!(rates.count_call(&agent, at(120)), Err(day));
        assert_eq!(rates.count_call(&agent, at(86_400)), Ok(()));
    }

    /// Expired entries are dropped when the table is full.
    #[test]
    fn the_table_of_agents_is_bounded() {
        let mut rates = rates(1, 0);
        for n in 0..AGENTS_MAX {
            assert_eq!(
                rates.count_call(&AgentId::new(format!("a{n}")), at(0)),
                Ok(())
            );
        }
        let late = AgentId::new("late");
        assert_eq!(rates.count_call(&late, at(59)), Err(RateLimitError::Agents));
        assert_eq!(rates.count_call(&late, at(60)), Ok(()));
        assert_eq!(rates.agents.len(), 1);
    }

    /// A burst, then a rate; each agent has its own bucket, and the table is bounded.
    #[test]
    fn refusals_have_a_burst_and_then_a_rate() {
        let (mut refusals, agent) = (RefusalLimiter::new(50), AgentId::new("a"));
        let at = |ms: u64| MonotonicTime::new(Duration::from_millis(ms));
        let at_once = (0..2_400).filter(|_| refusals.count_refusal(&agent, at(0)).is_ok());
        assert_eq!(at_once.count(), 1_000);
        assert_eq!(
            refusals.count_refusal(&agent, at(19)),
            Err(Duration::from_millis(1))
        );
        assert_eq!(refusals.count_refusal(&agent, at(20)), Ok(()));
        assert!(refusals.count_refusal(&agent, at(20)).is_err());
        assert_eq!(refusals.count_refusal(&AgentId::new("b"), at(20)), Ok(()));
        let later = (0..2_400).filter(|_| refusals.count_refusal(&agent, at(1_020)).is_ok());
        assert_eq!(later.count(), 50);
        for n in 0..2 * AGENTS_MAX {
            let _ = refusals.count_refusal(&AgentId::new(format!("a{n}")), at(1_020));
        }
        assert!(refusals.full_at.len() <= AGENTS_MAX);
        let late = AgentId::new("late");
        assert!(refusals.count_refusal(&late, at(1_020)).is_err());
        assert_eq!(refusals.count_refusal(&late, at(1_040)), Ok(()));
        let mut off = RefusalLimiter::new(0);
        assert!((0..9_999).all(|_| off.count_refusal(&agent, at(0)).is_ok()));
    }
}
