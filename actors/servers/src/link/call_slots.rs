//! Call slots of one server, shared fairly by agents: one set for in-flight calls, one for calls that wait for
//! its start.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use mgp_callers::request::Caller;
use mgp_protocol::ids::AgentId;

/// With fewer slots there are no fair shares: one agent may use them all.
const FAIR_SHARE_MIN_SLOTS: usize = 16;

/// Limits the calls at a server. An agent gets no further slot while it holds more than are free, so that one
/// agent leaves half of the slots to the others, a second one a quarter, and so on.
#[derive(Debug, Default)]
pub(crate) struct CallSlots(Mutex<TakenSlots>);

#[derive(Debug, Default)]
struct TakenSlots {
    total: usize,
    by_agent: HashMap<AgentId, usize>,
}

/// Why no slot was given.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CallSlotError {
    /// All slots are taken.
    Full,
    /// The agent already holds its share.
    ShareTaken,
}

/// A taken slot; dropping it frees it.
#[derive(Debug)]
pub(crate) struct CallSlot<'a> {
    slots: &'a CallSlots,
    agent: Option<AgentId>,
}

impl CallSlotError {
    /// Names the limit that was reached, for this list of calls.
    pub(crate) fn describe(&self, list: &str) -> String {
        match self {
            Self::Full => format!("the {list}"),
            Self::ShareTaken => format!("this agent's share of the {list}"),
        }
    }
}

impl CallSlots {
    /// Takes one of `limit` slots for an agent's call. The operator and the kernel have no share limit.
    pub(crate) fn take(
        &self,
        limit: usize,
        caller: Option<&Caller>,
    ) -> Result<CallSlot<'_>, CallSlotError> {
        let agent = caller.filter(|caller| !caller.operator);
        let agent = agent.map(|caller| caller.agent.clone());
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.total >= limit {
            return Err(CallSlotError::Full);
        }
        if let Some(agent) = &agent {
            let free = limit - taken.total;
            let agent_slots = taken.by_agent.get(agent).copied().unwrap_or(0);
            if limit >= FAIR_SHARE_MIN_SLOTS && agent_slots > free {
                return Err(CallSlotError::ShareTaken);
            }
            taken.by_agent.insert(agent.clone(), agent_slots + 1);
        }
        taken.total += 1;
        let limiter = self;
        Ok(CallSlot {
            slots: limiter,
            agent,
        })
    }

    /// The number of taken slots.
    pub(crate) fn taken_count(&self) -> usize {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.total
    }
}

impl Drop for CallSlot<'_> {
    fn drop(&mut self) {
        let taken = self.slots.0.lock();
        let mut taken = taken.unwrap_or_else(PoisonError::into_inner);
        taken.total -= 1;
        let Some(agent) = &self.agent else { return };
        if let Some(agent_slots) = taken.by_agent.get_mut(agent) {
            *agent_slots -= 1;
            if *agent_slots == 0 {
                taken.by_agent.remove(agent);
            }
        }
    }
}
