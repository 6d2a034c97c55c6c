//! What all streams of one agent may hold together: 64 MiB.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mgp_protocol::ids::AgentId;
use mgp_sync::{Charge, Credit};

/// Bytes of chunks of one agent that wait; beyond it they are dropped, which their indices show.
const WAITING_BYTES_MAX: u64 = 32 << 20;
/// Bytes of delivered chunks kept for one agent; beyond it they are not kept.
const STORED_BYTES_MAX: u64 = 32 << 20;

/// The room of every agent that has a stream. Bounded by the streams.
#[derive(Debug, Default)]
pub struct StreamBudgets(Mutex<HashMap<AgentId, Weak<AgentStreamBudget>>>);

/// The room of one agent.
#[derive(Debug)]
pub struct AgentStreamBudget {
    waiting: Arc<Credit>,
    stored: Arc<Credit>,
    agent: AgentId,
    budgets: Weak<StreamBudgets>,
}

impl StreamBudgets {
    /// The room of this agent, the same for all its streams.
    #[must_use]
    pub fn for_agent(self: &Arc<Self>, agent: &AgentId) -> Arc<AgentStreamBudget> {
        let mut rooms = self.lock_budgets();
        if let Some(room) = rooms.get(agent).and_then(Weak::upgrade) {
            return room;
        }
        let room = Arc::new(AgentStreamBudget {
            waiting: Credit::new(WAITING_BYTES_MAX),
            stored: Credit::new(STORED_BYTES_MAX),
            agent: agent.clone(),
            budgets: Arc::downgrade(self),
        });
        rooms.insert(agent.clone(), Arc::downgrade(&room));
        room
    }

    fn lock_budgets(&self) -> MutexGuard<'_, HashMap<AgentId, Weak<AgentStreamBudget>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AgentStreamBudget {
    /// Room for a chunk that waits.
    pub(super) fn reserve_waiting(&self, bytes: u64) -> Option<Charge> {
        self.waiting.try_take(bytes)
    }

    /// Room for a chunk that was delivered.
    pub(super) fn reserve_stored(&self, bytes: usize) -> Option<Charge> {
        self.stored.try_take(bytes as u64)
    }
}

impl Drop for AgentStreamBudget {
    fn drop(&mut self) {
        if let Some(rooms) = self.budgets.upgrade() {
            let mut rooms = rooms.lock_budgets();
            // Another one may have been made since.
            if rooms
                .get(&self.agent)
                .is_some_and(|it| it.strong_count() == 0)
            {
                rooms.remove(&self.agent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_streams_of_an_agent_share_one_room_that_ends_with_the_last() {
        let rooms = Arc::new(StreamBudgets::default());
        let agent = AgentId::new(AgentId::LOCAL);
        let (one, two) = (rooms.for_agent(&agent), rooms.for_agent(&agent));
        let all = one.reserve_waiting(WAITING_BYTES_MAX);
        assert!(
            all.is_some() && two.reserve_waiting(1).is_none() && two.reserve_stored(1).is_some()
        );
        drop((one, all));
        assert!(two.reserve_waiting(1).is_some());
        assert_eq!(rooms.lock_budgets().len(), 1);
        drop(two);
        assert!(rooms.lock_budgets().is_empty());
    }
}
