//! Rate limits of calls, per agent and per group.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use mgp_engine::calls::rate_limits::groups::{GroupLimiter, GroupLimits, GroupUsage};
use mgp_engine::calls::rate_limits::{AGENTS_MAX, CallRateLimiter, RateLimits, RefusalLimiter};
use mgp_engine::policy::access::GrantTable;
use mgp_protocol::ids::AgentId;
use mgp_protocol::refusal::{Denial, Refusal};

use mgp_callers::request::Caller;
use mgp_runtime::time::{boottime_now, monotonic_now, unix_ms};

/// Counters for all agents and groups. A lock is held only to look into its table.
#[derive(Debug)]
pub struct Rates {
    rules: RateLimits,
    limiter: Mutex<CallRateLimiter>,
    has_group_limits: bool,
    group_limiter: Mutex<GroupLimiter>,
    refusal_limiter: Mutex<RefusalLimiter>,
}

impl Rates {
    /// No calls counted yet.
    #[must_use]
    pub fn new(
        rules: RateLimits,
        groups: impl IntoIterator<Item = (AgentId, GroupLimits)>,
    ) -> Self {
        let groups = GroupLimiter::new(groups);
        Self {
            rules,
            limiter: Mutex::new(CallRateLimiter::new(rules)),
            has_group_limits: !groups.is_empty(),
            group_limiter: Mutex::new(groups),
            refusal_limiter: Mutex::new(RefusalLimiter::new(rules.refusals)),
        }
    }

    /// Counts a call; refuses it above a limit of the agent or of one of its groups. A refused call counts for none.
    pub(crate) fn count_call(&self, table: &GrantTable, caller: &Caller) -> Result<(), Refusal> {
        if !self.has_group_limits {
            return self.count_agent(&caller.agent);
        }
        let groups = self.limited_groups(table, caller);
        let mut counted = self
            .group_limiter
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // The time that is reported is one of the wall clock, which goes on while the machine is suspended.
        let now = boottime_now();
        counted
            .check(&groups, now)
            .map_err(|reached| Refusal::Denied(Box::new(reached.to_denial(unix_ms()))))?;
        self.count_agent(&caller.agent)?;
        counted.count_call(&groups, now);
        Ok(())
    }

    /// Counts the arguments and the result of a call.
    pub(crate) fn count_bytes(&self, table: &GrantTable, caller: &Caller, bytes: usize) {
        if self.has_group_limits {
            let groups = self.limited_groups(table, caller);
            let mut counted = self
                .group_limiter
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            counted.count_bytes(&groups, bytes as u64, boottime_now());
        }
    }

    /// What a group used, and its limits.
    #[must_use]
    pub fn group_usage(&self, group: &AgentId) -> Option<(GroupLimits, GroupUsage)> {
        let counted = self
            .group_limiter
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        counted.usage(group, boottime_now())
    }

    /// The groups of a caller that have limits, each once.
    fn limited_groups(&self, table: &GrantTable, caller: &Caller) -> Vec<AgentId> {
        let who = caller.identity();
        let counted = self
            .group_limiter
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let groups = table.groups_of(&who).map(|(group, _)| group);
        let groups = groups.filter(|group| counted.has_limits(group));
        let groups: BTreeSet<&AgentId> = groups.collect();
        groups.into_iter().cloned().collect()
    }

    fn count_agent(&self, agent: &AgentId) -> Result<(), Refusal> {
        if self.rules.is_unlimited() {
            return Ok(());
        }
        let mut counted = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        // By the same clock as groups, for the same reason.
        counted
            .count_call(agent, boottime_now())
            .map_err(|too_many| {
                too_many.to_denial(self.rules, unix_ms()).map_or_else(
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
            next: None,
        })))
    }
}
