//! The places for calls at one server, which agents share: of those under way, and of those that wait for its start.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use mgp_callers::request::Caller;
use mgp_protocol::ids::AgentId;

/// With fewer places there are no shares: one agent alone may use them all.
const FAIR_SHARE_MIN_SLOTS: usize = 16;

/// So many calls may be under way at a server. No agent gets one more place while it holds more than are free, so that
/// whatever one agent does, half is left for the others, and half of that for whoever comes after them.
#[derive(Debug, Default)]
pub(crate) struct CallSlots(Mutex<TakenSlots>);

#[derive(Debug, Default)]
struct TakenSlots {
    total: usize,
    by_agent: HashMap<AgentId, usize>,
}

/// Why there is no place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CallSlotError {
    /// All are taken.
    Full,
    /// The agent holds its share.
    ShareTaken,
}

/// A place; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct CallSlot<'a> {
    slots: &'a CallSlots,
    agent: Option<AgentId>,
}

impl CallSlotError {
    /// What is full, of this list of calls.
    pub(crate) fn describe(&self, list: &str) -> String {
        match self {
            Self::Full => format!("the {list}"),
            Self::ShareTaken => format!("this agent's share of the {list}"),
        }
    }
}

impl CallSlots {
    /// One of `limit` places, for a call of an agent. The operator and the kernel itself have no share.
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
            let held = taken.by_agent.get(agent).copied().unwrap_or(0);
            if limit >= FAIR_SHARE_MIN_SLOTS && held > free {
                return Err(CallSlotError::ShareTaken);
            }
            taken.by_agent.insert(agent.clone(), held + 1);
        }
        taken.total += 1;
        let places = self;
        Ok(CallSlot {
            slots: places,
            agent,
        })
    }

    /// Places that are taken.
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
        if let Some(held) = taken.by_agent.get_mut(agent) {
            *held -= 1;
            if *held == 0 {
                taken.by_agent.remove(agent);
            }
        }
    }
}
