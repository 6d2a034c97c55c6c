//! Memory limits for the streams of one agent: 64 MiB together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mgp_protocol::ids::AgentId;
use mgp_sync::{Charge, Credit};

/// Buffered bytes of chunks of one agent; beyond it chunks are dropped, which their indices show.
const WAITING_BYTES_MAX: u64 = 32 << 20;
/// Stored bytes of delivered chunks of one agent; beyond it they are not stored.
const STORED_BYTES_MAX: u64 = 32 << 20;

/// The budgets of all agents that have a stream. Bounded by the streams.
#[derive(Debug, Default)]
pub struct StreamBudgets(Mutex<HashMap<AgentId, Weak<AgentStreamBudget>>>);

/// The budget of one agent.
#[derive(Debug)]
pub struct AgentStreamBudget {
    waiting: Arc<Credit>,
    stored: Arc<Credit>,
    agent: AgentId,
    budgets: Weak<StreamBudgets>,
}

impl StreamBudgets {
    /// The budget of this agent, shared by all its streams.
    #[must_use]
    pub fn for_agent(self: &Arc<Self>, agent: &AgentId) -> Arc<AgentStreamBudget> {
        let mut budgets = self.lock_budgets();
        if let Some(budget) = budgets.get(agent).and_then(Weak::upgrade) {
            return budget;
        }
        let budget = Arc::new(AgentStreamBudget {
            waiting: Credit::new(WAITING_BYTES_MAX),
            stored: Credit::new(STORED_BYTES_MAX),
            agent: agent.clone(),
            budgets: Arc::downgrade(self),
        });
        budgets.insert(agent.clone(), Arc::downgrade(&budget));
        budget
    }

    fn lock_budgets(&self) -> MutexGuard<'_, HashMap<AgentId, Weak<AgentStreamBudget>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AgentStreamBudget {
    /// Reserves capacity for a buffered chunk.
    pub(super) fn reserve_waiting(&self, bytes: u64) -> Option<Charge> {
        self.waiting.try_take(bytes)
    }

    /// Reserves capacity for a delivered chunk.
    pub(super) fn reserve_stored(&self, bytes: usize) -> Option<Charge> {
        self.stored.try_take(bytes as u64)
    }
}

impl Drop for AgentStreamBudget {
    fn drop(&mut self) {
        if let Some(budgets) = self.budgets.upgrade() {
            let mut budgets = budgets.lock_budgets();
            // Another budget may have been created since.
            if budgets
                .get(&self.agent)
                .is_some_and(|it| it.strong_count() == 0)
            {
                budgets.remove(&self.agent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_an_agent_share_a_budget_until_the_last_ends() {
        let budgets = Arc::new(StreamBudgets::default());
        let agent = AgentId::new(AgentId::LOCAL);
        let (one, two) = (budgets.for_agent(&agent), budgets.for_agent(&agent));
        let all = one.reserve_waiting(WAITING_BYTES_MAX);
        assert!(
            all.is_some() && two.reserve_waiting(1).is_none() && two.reserve_stored(1).is_some()
        );
        drop((one, all));
        assert!(two.reserve_waiting(1).is_some());
        assert_eq!(budgets.lock_budgets().len(), 1);
        drop(two);
        assert!(budgets.lock_budgets().is_empty());
    }
}
