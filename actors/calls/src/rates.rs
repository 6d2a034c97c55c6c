//! Rate limits of calls, per agent.

use std::sync::{Mutex, PoisonError};

use mgp_engine::calls::rates::{AGENTS_MAX, RateRules, Refusals};
use mgp_protocol::ids::AgentId;
use mgp_protocol::refusal::{Denial, Refusal};

use mgp_runtime::time::moment;

/// Counters for all agents. The lock is held only to look into the table.
#[derive(Debug)]
pub struct Rates {
    rules: RateRules,
    counted: Mutex<mgp_engine::calls::rates::Rates>,
    refused: Mutex<Refusals>,
}

impl Rates {
    /// No calls counted yet.
    #[must_use]
    pub fn new(rules: RateRules) -> Self {
        Self {
            rules,
            counted: Mutex::new(mgp_engine::calls::rates::Rates::new(rules)),
            refused: Mutex::new(Refusals::new(rules.refusals)),
        }
    }

    /// Counts a call of the agent; refuses it above the limit.
    pub(crate) fn call(&self, agent: &AgentId) -> Result<(), Refusal> {
        if self.rules.is_off() {
            return Ok(());
        }
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.call(agent, moment()).map_err(|too_many| {
            too_many.denial(self.rules).map_or_else(
                || Refusal::Overloaded {
                    what: format!("the table of {AGENTS_MAX} agents whose calls are counted"),
                },
                |denial| Refusal::Denied(Box::new(denial)),
            )
        })
    }

    /// Counts a refusal; what the agent reads instead of the reason once it was refused too often.
    pub(crate) fn refused(&self, agent: &AgentId) -> Option<Refusal> {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let after = refused.refused(agent, moment()).err()?;
        let limit = self.rules.refusals;
        Some(Refusal::Denied(Box::new(Denial::RateLimited {
            limit,
            window_secs: 1,
            current: limit.saturating_add(1),
            retry_after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX).max(1),
        })))
    }
}
