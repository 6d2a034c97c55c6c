//! Rate limits of calls, per agent.

use std::sync::{Mutex, PoisonError};

use mgp_engine::calls::rate_limits::{AGENTS_MAX, RateLimits, RefusalLimiter};
use mgp_protocol::ids::AgentId;
use mgp_protocol::refusal::{Denial, Refusal};

use mgp_runtime::time::monotonic_now;

/// Counters for all agents. The lock is held only to look into the table.
#[derive(Debug)]
pub struct Rates {
    rules: RateLimits,
    limiter: Mutex<mgp_engine::calls::rate_limits::CallRateLimiter>,
    refusal_limiter: Mutex<RefusalLimiter>,
}

impl Rates {
    /// No calls counted yet.
    #[must_use]
    pub fn new(rules: RateLimits) -> Self {
        Self {
            rules,
            limiter: Mutex::new(mgp_engine::calls::rate_limits::CallRateLimiter::new(rules)),
            refusal_limiter: Mutex::new(RefusalLimiter::new(rules.refusals)),
        }
    }

    /// Counts a call of the agent; refuses it above the limit.
    pub(crate) fn count_call(&self, agent: &AgentId) -> Result<(), Refusal> {
        if self.rules.is_unlimited() {
            return Ok(());
        }
        let mut counted = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        counted
            .count_call(agent, monotonic_now())
            .map_err(|too_many| {
                too_many.to_denial(self.rules).map_or_else(
                    || Refusal::Overloaded {
                        what: format!("the table of {AGENTS_MAX} agents whose calls are counted"),
                    },
                    |denial| Refusal::Denied(Box::new(denial)),
                )
            })
    }

    /// Counts a refusal; what the agent reads instead of the reason once it was refused too often.
    pub(crate) fn count_refusal(&self, agent: &AgentId) -> Option<Refusal> {
        let mut refused = self
            .refusal_limiter
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let after = refused.count_refusal(agent, monotonic_now()).err()?;
        let limit = self.rules.refusals;
        Some(Refusal::Denied(Box::new(Denial::RateLimited {
            limit,
            window_secs: 1,
            current: limit.saturating_add(1),
            retry_after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX).max(1),
        })))
    }
}
