//! Agents that ask one another: who agreed, what is under way, and over which connection an agent is asked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_engine::callers::agent_asks::{self, AskNumber, NotAskable};
use mgp_protocol::ids::AgentId;

/// The asks under way.
#[derive(Debug, Clone, Default)]
pub struct AgentAsks(Arc<Mutex<agent_asks::AgentAsks>>);

/// One ask under way. Dropping it ends it.
#[derive(Debug)]
pub struct AskGuard {
    asks: AgentAsks,
    number: AskNumber,
}

impl AgentAsks {
    /// One agent asks another.
    ///
    /// # Errors
    /// [`NotAskable`].
    pub fn begin(&self, asker: &AgentId, target: &AgentId) -> Result<AskGuard, NotAskable> {
        let number = self.engine().begin(asker, target)?;
        let asks = self.clone();
        Ok(AskGuard { asks, number })
    }

    fn engine(&self) -> MutexGuard<'_, agent_asks::AgentAsks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AskGuard {
    fn drop(&mut self) {
        self.asks.engine().end(self.number);
    }
}
