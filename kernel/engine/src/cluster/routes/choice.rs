//! Where one call goes, and where it goes next when that fails.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mgp_protocol::ids::AgentId;
use mgp_protocol::refusal::CallOutcome;

use super::CallPlace;
use crate::clock::MonotonicTime;

/// Most homes remembered: some servers for each of very many agents. The one that was not used the longest
/// makes room; its agent's next call chooses anew.
pub const HOMES_MAX: usize = 1 << 16;
/// Most places tried for one call: its caller waits meanwhile.
const TRIES_MAX: usize = 4;

/// A place, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceCandidate {
    /// The place.
    pub place: CallPlace,
    /// Its server takes calls, and its node is there.
    pub takes_calls: bool,
    /// Calls under way there.
    pub load: u32,
    /// The time to its node and back; none for this node.
    pub round_trip: Duration,
}

/// Where a call goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallChoice {
    /// There.
    pub place: CallPlace,
    /// The agent's home is elsewhere and not there: what the server remembered of it is lost.
    pub home_lost: bool,
}

/// Where the servers that remember their callers remember them: by agent, and by the place that the agent
/// knows the server by.
#[derive(Debug, Default)]
pub struct Homes {
    homes: BTreeMap<(AgentId, CallPlace), (CallPlace, MonotonicTime)>,
}

impl Homes {
    /// An agent's home.
    #[must_use]
    pub fn of(&self, agent: &AgentId, known_as: &CallPlace) -> Option<&CallPlace> {
        let home = self.homes.get(&(agent.clone(), known_as.clone()));
        home.map(|(place, _)| place)
    }

    /// A call of the agent went there.
    pub fn went(
        &mut self,
        agent: &AgentId,
        known_as: &CallPlace,
        to: CallPlace,
        now: MonotonicTime,
    ) {
        let key = (agent.clone(), known_as.clone());
        if self.homes.len() >= HOMES_MAX && !self.homes.contains_key(&key) {
            let oldest = self.homes.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.homes.remove(&oldest);
            }
        }
        self.homes.insert(key, (to, now));
    }

    /// The agent is gone.
    pub fn forget(&mut self, agent: &AgentId) {
        self.homes.retain(|(of, _), _| of != agent);
    }
}

/// How a try failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryFailure {
    /// The call did not leave, or its owner said that it did nothing.
    BeforeDispatch,
    /// It left, and nobody knows what became of it.
    AfterDispatch,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextTry {
    /// Go there.
    Go(CallChoice),
    /// Nowhere: the call ends, and its caller is told what became of it.
    Ended(CallOutcome),
}

/// The tries of one call.
#[derive(Clone, Debug, Default)]
pub struct CallAttempts {
    tried: BTreeSet<CallPlace>,
    /// A try left this node, and nobody knows what became of it.
    in_doubt: bool,
}

impl CallAttempts {
    /// Where to go. A server that remembers its callers is called at its home while that takes calls; else
    /// this node comes first, then the place that is least busy and near.
    pub fn next(&mut self, candidates: &[PlaceCandidate], home: Option<&CallPlace>) -> NextTry {
        let left = |candidate: &&PlaceCandidate| {
            candidate.takes_calls && !self.tried.contains(&candidate.place)
        };
        let rank = |candidate: &&PlaceCandidate| {
            let cost =
                (u128::from(candidate.load) + 1) * (candidate.round_trip.as_micros() + 1_000);
            let away = matches!(candidate.place, CallPlace::There(..));
            (
                Some(&candidate.place) != home,
                away,
                cost,
                candidate.place.clone(),
            )
        };
        let best = candidates.iter().filter(left).min_by_key(rank);
        match best.filter(|_| self.tried.len() < TRIES_MAX) {
            Some(best) => {
                self.tried.insert(best.place.clone());
                NextTry::Go(CallChoice {
                    place: best.place.clone(),
                    home_lost: home.is_some_and(|home| *home != best.place),
                })
            }
            None => NextTry::Ended(match self.in_doubt {
                true => CallOutcome::Unknown,
                false => CallOutcome::NotExecuted,
            }),
        }
    }

    /// The last try failed. A call that left is made again only where the operator of its owner confirmed
    /// that calling twice is calling once.
    pub fn failed(
        &mut self,
        failure: TryFailure,
        idempotent: bool,
        candidates: &[PlaceCandidate],
        home: Option<&CallPlace>,
    ) -> NextTry {
        if failure == TryFailure::AfterDispatch {
            self.in_doubt = true;
            if !idempotent {
                return NextTry::Ended(CallOutcome::Unknown);
            }
        }
        self.next(candidates, home)
    }
}
