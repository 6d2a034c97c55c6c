//! Requests between agents, with limits: chains of requests are short, and no chain contains a cycle.

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::ids::AgentId;

/// Longest chain of requests: an agent that handles a request may send one, and its recipient one more.
pub(crate) const DEPTH_MAX: usize = 3;
/// Requests in flight that one agent may have.
const PER_AGENT_MAX: usize = 8;
/// Requests in flight of all agents.
const TOTAL_MAX: usize = 256;

/// Which agents accept requests, and from which requesters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestableAgents(pub BTreeMap<AgentId, AllowedRequesters>);

/// The requesters an agent accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedRequesters {
    /// Every agent.
    All,
    /// Only these agents.
    Only(BTreeSet<AgentId>),
}

impl RequestableAgents {
    /// True when `target` accepts requests at all.
    #[must_use]
    pub fn accepts_requests(&self, target: &AgentId) -> bool {
        self.0.contains_key(target)
    }

    /// True when `target` accepts requests from `asker`.
    #[must_use]
    pub fn accepts_requests_from(&self, target: &AgentId, asker: &AgentId) -> bool {
        match self.0.get(target) {
            None => false,
            Some(AllowedRequesters::All) => true,
            Some(AllowedRequesters::Only(agents)) => agents.contains(asker),
        }
    }
}

/// Why a request between two agents is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentRequestError {
    /// An agent cannot send a request to itself.
    #[error("an agent does not ask itself")]
    SameAgent,
    /// The target waits for the requester, directly or through others.
    #[error("that agent waits for an answer of yours, directly or through others: answer it first")]
    Cycle,
    /// The chain would exceed [`DEPTH_MAX`].
    #[error(
        "you are asked by an agent that is itself asked: a chain of {DEPTH_MAX} goes no further"
    )]
    TooDeep,
    /// A limit on requests in flight is reached.
    #[error("too many agents are being asked; try again when one has answered")]
    TooMany,
}

/// The id of a request in flight; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentRequestId(u64);

#[derive(Clone, Debug)]
struct PendingAgentRequest {
    id: AgentRequestId,
    requester: AgentId,
    target: AgentId,
}

/// The requests in flight between agents.
///
/// It is not known which of its requests an agent works on when it sends another one. The longest chain that leads to
/// the agent counts.
#[derive(Clone, Debug, Default)]
pub struct AgentRequests {
    pending: Vec<PendingAgentRequest>,
    last_id: u64,
}

impl AgentRequests {
    /// Registers a request from one agent to another.
    ///
    /// # Errors
    /// [`AgentRequestError`].
    pub fn begin(
        &mut self,
        asker: &AgentId,
        target: &AgentId,
    ) -> Result<AgentRequestId, AgentRequestError> {
        if asker == target {
            return Err(AgentRequestError::SameAgent);
        }
        let pending = self.pending.iter();
        let pending = pending.filter(|request| request.requester == *asker);
        if pending.count() >= PER_AGENT_MAX || self.pending.len() >= TOTAL_MAX {
            return Err(AgentRequestError::TooMany);
        }
        if self.is_waiting_for(target, asker) {
            return Err(AgentRequestError::Cycle);
        }
        if self.depth_to(asker) + 1 + self.depth_from(target) > DEPTH_MAX {
            return Err(AgentRequestError::TooDeep);
        }
        self.last_id += 1;
        let number = AgentRequestId(self.last_id);
        self.pending.push(PendingAgentRequest {
            id: number,
            requester: asker.clone(),
            target: target.clone(),
        });
        Ok(number)
    }

    /// Removes a request that was answered or cancelled.
    pub fn end(&mut self, number: AgentRequestId) {
        self.pending.retain(|ask| ask.id != number);
    }

    /// True when one agent waits for another, directly or through others.
    fn is_waiting_for(&self, from: &AgentId, to: &AgentId) -> bool {
        let mut asks = self.pending.iter().filter(|ask| ask.requester == *from);
        asks.any(|ask| ask.target == *to || self.is_waiting_for(&ask.target, to))
    }

    /// The longest chain that ends in an agent.
    fn depth_to(&self, agent: &AgentId) -> usize {
        let asks = self.pending.iter().filter(|ask| ask.target == *agent);
        let longest = asks.map(|ask| 1 + self.depth_to(&ask.requester)).max();
        longest.unwrap_or(0)
    }

    /// The longest chain that begins with an agent.
    fn depth_from(&self, agent: &AgentId) -> usize {
        let asks = self.pending.iter().filter(|ask| ask.requester == *agent);
        let longest = asks.map(|ask| 1 + self.depth_from(&ask.target)).max();
        longest.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn agent(name: &str) -> AgentId {
        AgentId::new(format!("agent.{name}"))
    }

    #[test]
    fn a_chain_is_bounded_and_has_no_cycle() {
        let mut asks = AgentRequests::default();
        let mut ask = |from: &str, to: &str| asks.begin(&agent(from), &agent(to));
        assert_eq!(ask("a", "a"), Err(AgentRequestError::SameAgent));
        ask("a", "b").unwrap();
        ask("b", "c").unwrap();
        assert_eq!(ask("c", "a"), Err(AgentRequestError::Cycle));
        let last = ask("c", "d").unwrap();
        assert_eq!(ask("d", "e"), Err(AgentRequestError::TooDeep));
        assert_eq!(ask("x", "a"), Err(AgentRequestError::TooDeep));
        ask("x", "d").unwrap();
        asks.end(last);
        asks.begin(&agent("d"), &agent("e")).unwrap();
    }

    #[test]
    fn requests_of_one_agent_are_bounded() {
        let mut asks = AgentRequests::default();
        for n in 0..PER_AGENT_MAX {
            asks.begin(&agent("a"), &agent(&format!("t{n}"))).unwrap();
        }
        assert_eq!(
            asks.begin(&agent("a"), &agent("z")),
            Err(AgentRequestError::TooMany)
        );
        asks.begin(&agent("b"), &agent("z")).unwrap();
    }

    #[test]
    fn an_agent_accepts_only_configured_requesters() {
        let some = BTreeSet::from([agent("a")]);
        let all = RequestableAgents(BTreeMap::from([
            (agent("b"), AllowedRequesters::Only(some)),
            (agent("c"), AllowedRequesters::All),
        ]));
        let answers = |target, asker| all.accepts_requests_from(&agent(target), &agent(asker));
        assert!(answers("b", "a") && !answers("b", "x"));
        assert!(answers("c", "x") && !answers("a", "b"));
        assert!(all.accepts_requests(&agent("b")) && !all.accepts_requests(&agent("a")));
    }

    proptest! {
        /// After any history, and without cycles.
        #[test]
        fn chains_are_bounded(
            steps in proptest::collection::vec((0u8..6, 0u8..6, any::<bool>()), 0..80)
        ) {
            let mut asks = AgentRequests::default();
            for (from, to, ends) in steps {
                if ends && !asks.pending.is_empty() {
                    let at = usize::from(from) % asks.pending.len();
                    asks.end(asks.pending[at].id);
                    continue;
                }
                let _ = asks.begin(&agent(&from.to_string()), &agent(&to.to_string()));
                let mut chains: Vec<Vec<&AgentId>> = asks
                    .pending
                    .iter()
                    .map(|ask| vec![&ask.requester, &ask.target])
                    .collect();
                while let Some(chain) = chains.pop() {
                    prop_assert!(chain.len() <= DEPTH_MAX + 1);
                    let last = *chain.last().unwrap();
                    for next in asks.pending.iter().filter(|ask| ask.requester == *last) {
                        prop_assert!(!chain.contains(&&next.target));
                        chains.push([chain.as_slice(), &[&next.target]].concat());
                    }
                }
            }
        }
    }
}
