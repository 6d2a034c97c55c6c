//! The places for calls at one server, which agents share.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use mgp_callers::request::Caller;
use mgp_protocol::ids::AgentId;

/// With fewer places there are no shares: one agent alone may use them all.
const SHARED_FROM: usize = 16;

/// So many calls may be under way at a server. No agent gets one more place while it holds more than are free, so that
/// whatever one agent does, half is left for the others, and half of that for whoever comes after them.
#[derive(Debug)]
pub(super) struct CallPlaces {
    limit: usize,
    taken: Mutex<TakenPlaces>,
}

#[derive(Debug, Default)]
struct TakenPlaces {
    all: usize,
    by: HashMap<AgentId, usize>,
}

/// Why there is no place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// All are taken.
    Full,
    /// The agent holds its share.
    ShareTaken,
}

/// A place; dropping it gives it back.
#[derive(Debug)]
pub(super) struct CallPlace<'a> {
    places: &'a CallPlaces,
    agent: Option<AgentId>,
}

impl CallPlaces {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            taken: Mutex::default(),
        }
    }

    /// A place for a call of an agent. The operator and the kernel itself have no share.
    pub(super) fn take(&self, caller: Option<&Caller>) -> Result<CallPlace<'_>, NoPlace> {
        let agent = caller.filter(|caller| !caller.operator);
        let agent = agent.map(|caller| caller.agent.clone());
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.all >= self.limit {
            return Err(NoPlace::Full);
        }
        if let Some(agent) = &agent {
            let free = self.limit - taken.all;
            let held = taken.by.get(agent).copied().unwrap_or(0);
            if self.limit >= SHARED_FROM && held > free {
                return Err(NoPlace::ShareTaken);
            }
            taken.by.insert(agent.clone(), held + 1);
        }
        taken.all += 1;
        let places = self;
        Ok(CallPlace { places, agent })
    }

    /// Places that are taken.
    pub(super) fn taken(&self) -> usize {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all
    }
}

impl Drop for CallPlace<'_> {
    fn drop(&mut self) {
        let taken = &self.places.taken;
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        let Some(agent) = &self.agent else { return };
        if let Some(held) = taken.by.get_mut(agent) {
            *held -= 1;
            if *held == 0 {
                taken.by.remove(agent);
            }
        }
    }
}
