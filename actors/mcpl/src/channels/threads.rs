//! The agent that continues each thread.

use std::collections::{BTreeMap, VecDeque};

use mgp_protocol::ids::{AgentId, ServerId};

/// Stored threads; the oldest is evicted, and its next message counts as that of a new thread.
const THREADS_MAX: usize = 4096;

type Thread = (ServerId, String, Option<String>);

/// The agents that accepted the last message of each thread.
#[derive(Debug, Default)]
pub(super) struct Threads {
    agents: BTreeMap<Thread, AgentId>,
    order: VecDeque<Thread>,
}

impl Threads {
    /// The agent that accepted the last message of this thread.
    pub(super) fn agent(&self, thread: &Thread) -> Option<&AgentId> {
        self.agents.get(thread)
    }

    /// Records that this agent accepted a message.
    pub(super) fn set_agent(&mut self, thread: Thread, agent: AgentId) {
        if self.agents.insert(thread.clone(), agent).is_none() {
            self.order.push_back(thread);
        }
        if self.order.len() > THREADS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.agents.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCPL-128: a thread stays with the agent that accepted it, and the table is bounded.
    #[test]
    fn a_thread_stays_with_its_agent() {
        let mut threads = Threads::default();
        let thread = |n: usize| (ServerId::new("chat"), "c".to_owned(), Some(n.to_string()));
        for n in 0..THREADS_MAX + 10 {
            threads.set_agent(thread(n), AgentId::new("agent.a"));
            threads.set_agent(thread(n), AgentId::new("agent.b"));
        }
        assert_eq!(threads.agent(&thread(0)), None);
        let last = threads.agent(&thread(THREADS_MAX)).unwrap();
        assert_eq!(last.as_str(), "agent.b");
        assert_eq!(threads.agents.len(), THREADS_MAX);
        assert_eq!(threads.order.len(), THREADS_MAX);
    }
}
