//! Memory limits for messages that are being received or sent: in total and per agent, so that no agent
//! takes the capacity of the others.

use std::sync::Arc;

use mgp_callers::AgentTable;
use mgp_protocol::ids::AgentId;
use mgp_sync::Credit;
use mgp_transports::MessageBudget;

/// The fraction of the total for one agent.
const SHARES: u64 = 4;

/// Bytes for all unauthenticated callers together; a handshake takes a few hundred.
const ANONYMOUS_BYTES: u64 = 1 << 20;

/// The limits for all agents.
#[derive(Debug)]
pub struct MessageBudgets {
    total: Arc<Credit>,
    share: u64,
    message_max: usize,
    agents: AgentTable<Credit>,
    anonymous: MessageBudget,
}

impl MessageBudgets {
    /// Limits of this size, but never less than one agent needs for a message of the `longest` length;
    /// longer messages are rejected at every endpoint (CMCP-015).
    #[must_use]
    pub fn new(bytes: u64, longest: usize) -> Arc<Self> {
        let bytes = bytes.max(SHARES * longest as u64);
        let strangers = Credit::new(ANONYMOUS_BYTES);
        Arc::new(Self {
            total: Credit::new(bytes),
            share: bytes / SHARES,
            message_max: longest,
            agents: AgentTable::default(),
            anonymous: MessageBudget::new(strangers.clone(), strangers),
        })
    }

    /// The bytes of in-flight messages of all agents.
    #[must_use]
    pub fn bytes_in_flight(&self) -> u64 {
        self.total.in_use_amount()
    }

    /// The most bytes of a message of an agent.
    #[must_use]
    pub(crate) fn message_max(&self) -> usize {
        self.message_max
    }

    /// An agent's share. Only used for messages that do not arrive in one piece.
    #[must_use]
    pub(crate) fn agent_budget(&self, agent: &AgentId) -> MessageBudget {
        let own = self.agents.get_or_insert(agent, || Credit::new(self.share));
        MessageBudget::new(self.total.clone(), own)
    }

    /// The share of unauthenticated callers.
    #[must_use]
    pub(crate) fn anonymous_budget(&self) -> MessageBudget {
        self.anonymous.clone()
    }

    /// The error for a message that was not accepted, with advice.
    #[must_use]
    pub(crate) fn overload_message(&self) -> String {
        format!(
            "there is no room for this message: those under way may have {} bytes of one agent and {} in all (`[tuning.http] max_bodies_bytes`); try again later",
            self.share,
            self.share * SHARES
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_has_its_share_until_its_last_message() {
        let bodies = MessageBudgets::new(1 << 20, 1 << 10);
        let agent = |n: usize| AgentId::new(format!("agent.a{n}"));
        let mut one = bodies.agent_budget(&agent(0)).reserve();
        let mut again = bodies.agent_budget(&agent(0)).reserve();
        assert!(one.grow_to(1 << 18) && !again.grow_to(1));
        let mut others: Vec<_> = (1..=4)
            .map(|n| bodies.agent_budget(&agent(n)).reserve())
            .collect();
        let accepted: Vec<_> = others
            .iter_mut()
            .map(|held| held.grow_to(1 << 18))
            .collect();
        assert_eq!(accepted, [true, true, true, false]);
        drop((one, again, others));
        for n in 0..1000 {
            drop(bodies.agent_budget(&agent(n)));
        }
        assert!(bodies.agents.len() < 100);
        assert_eq!(bodies.total.in_use_amount(), 0);
    }
}
