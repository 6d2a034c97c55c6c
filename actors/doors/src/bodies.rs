//! Bytes of messages of agents that are under way, half sent or being answered: bounded in all, and for
//! each agent, so that none takes the room of the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mgp_protocol::ids::AgentId;
use mgp_sync::credit::Credit;
use mgp_transports::room::MessageBudget;

/// One agent has so many parts of the whole: four of them at their bound leave nothing to a fifth.
const SHARES: u64 = 4;

/// For all together who did not show who they are: their handshakes have a few hundred bytes.
const STRANGERS: u64 = 1 << 20;

/// Agents remembered before those without a message under way are forgotten.
const REMEMBERED: usize = 64;

/// The room of all agents.
#[derive(Debug)]
pub struct Bodies {
    all: Arc<Credit>,
    share: u64,
    longest: usize,
    agents: Mutex<HashMap<AgentId, Weak<Credit>>>,
    strangers: MessageBudget,
}

impl Bodies {
    /// Room for so many bytes, and never less than one agent needs for a message of the `longest`
    /// length: more is refused at every door (CMCP-015).
    #[must_use]
    pub fn new(bytes: u64, longest: usize) -> Arc<Self> {
        let bytes = bytes.max(SHARES * longest as u64);
        let strangers = Credit::new(STRANGERS);
        Arc::new(Self {
            all: Credit::new(bytes),
            share: bytes / SHARES,
            longest,
            agents: Mutex::default(),
            strangers: MessageBudget::new(strangers.clone(), strangers),
        })
    }

    /// Bytes of the longest message an agent may send.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// What an agent may take of it. Asked for what does not come in one piece only.
    #[must_use]
    pub fn room(&self, agent: &AgentId) -> MessageBudget {
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        let known = agents.get(agent).and_then(Weak::upgrade);
        let own = known.unwrap_or_else(|| {
            if agents.len() >= REMEMBERED {
                agents.retain(|_, own| own.strong_count() > 0);
            }
            let own = Credit::new(self.share);
            agents.insert(agent.clone(), Arc::downgrade(&own));
            own
        });
        MessageBudget::new(self.all.clone(), own)
    }

    /// What those may take who did not show who they are.
    #[must_use]
    pub fn strangers(&self) -> MessageBudget {
        self.strangers.clone()
    }

    /// Why a message was not taken, and what to do.
    #[must_use]
    pub fn full(&self) -> String {
        format!(
            "there is no room for this message: those under way may have {} bytes of one agent and {} in all (`[http] max_bodies_bytes`); try again later",
            self.share,
            self.share * SHARES
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_agent_has_its_share_and_is_forgotten_without_a_message() {
        let bodies = Bodies::new(1 << 20, 1 << 10);
        let agent = |n: usize| AgentId::new(format!("agent.a{n}"));
        let mut one = bodies.room(&agent(0)).hold();
        let mut again = bodies.room(&agent(0)).hold();
        assert!(one.reach(1 << 18) && !again.reach(1));
        let mut others: Vec<_> = (1..=4).map(|n| bodies.room(&agent(n)).hold()).collect();
        let took: Vec<_> = others.iter_mut().map(|held| held.reach(1 << 18)).collect();
        assert_eq!(took, [true, true, true, false]);
        drop((one, again, others));
        for n in 0..1000 {
            drop(bodies.room(&agent(n)));
        }
        assert!(bodies.agents.lock().unwrap().len() <= REMEMBERED);
        assert_eq!(bodies.all.taken(), 0);
    }
}
