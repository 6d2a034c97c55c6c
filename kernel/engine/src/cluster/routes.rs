//! Chooses the server for a call that several equivalent servers can answer, and the next one when that fails.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mgp_protocol::federation::tool_index::IndexRoot;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::refusal::owner_refusal::{OwnerRefusal, OwnerRefusalCause};
use mgp_protocol::refusal::{CallOutcome, Refusal};

use crate::clock::MonotonicTime;

/// Most affinities stored: some servers for each of very many agents. The least recently used one is evicted; its
/// agent's next call chooses anew.
pub(crate) const AFFINITIES_MAX: usize = 1 << 12;
/// Most servers tried for one call: its caller waits meanwhile.
const ATTEMPTS_MAX: usize = 4;
/// How long a server that denied an agent is skipped: a new grant takes effect after that, and until then another
/// server answers.
const CLOSED_RETENTION: Duration = Duration::from_secs(10);
/// Cost of a call besides its round trip, so that equally near servers are ranked by load.
const CALL_OVERHEAD: Duration = Duration::from_millis(1);

/// A candidate for a call, with its current state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteCandidate {
    /// The server, of this node or of another one.
    pub server: ServerId,
    /// It accepts calls, and its node is available.
    pub accepts_calls: bool,
    /// In-flight calls from this node.
    pub load: u64,
    /// The round-trip time to its node; zero for this node.
    pub round_trip: Duration,
    /// Its operator confirmed that the tool is idempotent.
    pub idempotent: bool,
}

/// Why a server was chosen, the strongest reason first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RouteReason {
    /// It sent the request that the call answers.
    Continuation,
    /// It is on this node.
    Local,
    /// It stores state of the agent.
    Affinity,
    /// It has the least load and latency.
    LeastLoaded,
}

impl RouteReason {
    /// The name for display and in the audit log.
    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Local => "it is on this node",
            Self::Affinity => "it remembers the agent",
            Self::LeastLoaded => "it is least busy and near",
            Self::Continuation => "it asked what the call answers",
        }
    }
}

/// The route of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRoute {
    /// The chosen server.
    pub server: ServerId,
    /// Why it was chosen.
    pub(crate) reason: RouteReason,
    /// The agent has an affinity to another server: state that server stored is not available here.
    pub(crate) affinity_lost: bool,
}

impl CallRoute {
    /// The route of a continued call: the server where it began, because no other one can interpret its state.
    #[must_use]
    pub fn for_continuation(server: ServerId) -> Self {
        Self {
            server,
            reason: RouteReason::Continuation,
            affinity_lost: false,
        }
    }

    /// The route as text for the record of a call.
    #[must_use]
    pub fn describe(&self) -> String {
        let reason = self.reason.as_str();
        if self.affinity_lost {
            format!("{reason}; what another one remembers of the agent is not there")
        } else {
            reason.to_owned()
        }
    }
}

/// The key of a continued call: what its server asked the caller to send back.
#[must_use]
pub fn continuation_key(state: &str) -> IndexRoot {
    IndexRoot(blake3::hash(state.as_bytes()).into())
}

/// The affinity of agents to servers that store state of their callers. The key is the agent and the server's
/// specification, because a server stores state for all its tools together.
#[derive(Debug, Default)]
pub struct AffinityTable {
    entries: BTreeMap<(AgentId, IndexRoot), (ServerId, MonotonicTime)>,
}

impl AffinityTable {
    /// The server an agent has an affinity to.
    #[must_use]
    pub fn get(&self, agent: &AgentId, specification: IndexRoot) -> Option<&ServerId> {
        let home = self.entries.get(&(agent.clone(), specification));
        home.map(|(place, _)| place)
    }

    /// Records that a call of the agent went to this server.
    pub fn record(
        &mut self,
        agent: &AgentId,
        specification: IndexRoot,
        to: ServerId,
        now: MonotonicTime,
    ) {
        let key = (agent.clone(), specification);
        if self.entries.len() >= AFFINITIES_MAX && !self.entries.contains_key(&key) {
            let oldest = self.entries.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.entries.remove(&oldest);
            }
        }
        self.entries.insert(key, (to, now));
    }
}

/// Servers whose owners denied an agent: skipped for a while where another server may answer.
#[derive(Debug, Default)]
pub struct ClosedRoutes {
    closed: BTreeMap<(AgentId, ServerId), MonotonicTime>,
}

impl ClosedRoutes {
    /// Records a denial by the owner. At the limit nothing more is stored, so such calls try that server first.
    pub fn record_refusal(&mut self, agent: &AgentId, place: ServerId, now: MonotonicTime) {
        self.closed
            .retain(|_, at| now.duration_since(*at) < CLOSED_RETENTION);
        if self.closed.len() < AFFINITIES_MAX {
            self.closed.insert((agent.clone(), place), now);
        }
    }

    /// Removes candidates that are closed to the agent, unless none would be left.
    pub fn retain_open(
        &self,
        agent: &AgentId,
        candidates: &mut Vec<RouteCandidate>,
        now: MonotonicTime,
    ) {
        let open = |one: &RouteCandidate| {
            let closed = self.closed.get(&(agent.clone(), one.server.clone()));
            closed.is_none_or(|at| now.duration_since(*at) >= CLOSED_RETENTION)
        };
        let takes_calls = |one: &&RouteCandidate| one.accepts_calls;
        if !self.closed.is_empty() && candidates.iter().filter(takes_calls).any(open) {
            candidates.retain(open);
        }
    }
}

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptFailure {
    /// The call was not sent, or its owner reported that it had no effect.
    BeforeDispatch,
    /// It was sent, and its outcome is unknown.
    AfterDispatch,
}

impl AttemptFailure {
    /// `None` when no other server should be tried: for an answer, for a denial of this call by its owner, and for a
    /// slow server. That an agent has no access there at all says nothing about other servers.
    #[must_use]
    pub fn from_refusal(refusal: &Refusal) -> Option<Self> {
        if let Refusal::Owner(refusal) = refusal {
            return from_owner_refusal(refusal);
        }
        if let Refusal::ServerLost { .. } = refusal {
            return Some(Self::AfterDispatch);
        }
        let away = matches!(
            refusal,
            Refusal::NotReady { .. }
                | Refusal::QueueTimeout { .. }
                | Refusal::Overloaded { .. }
                | Refusal::UnknownServer(_)
                | Refusal::ClosedByOwner(_)
        );
        away.then_some(Self::BeforeDispatch)
    }

    /// True where the owner gives the caller no access.
    #[must_use]
    pub fn is_closed(refusal: &Refusal) -> bool {
        if let Refusal::Owner(refusal) = refusal {
            return refusal.cause == OwnerRefusalCause::Closed;
        }
        matches!(refusal, Refusal::ClosedByOwner(_))
    }

    /// The outcome of the call there.
    #[must_use]
    pub fn outcome(self) -> CallOutcome {
        match self {
            Self::BeforeDispatch => CallOutcome::NotExecuted,
            Self::AfterDispatch => CallOutcome::Unknown,
        }
    }
}

/// A call refused by the owner's kernel, which its frame marks. An error of the server itself is an answer, whatever
/// it contains.
fn from_owner_refusal(refusal: &OwnerRefusal) -> Option<AttemptFailure> {
    match refusal.cause {
        OwnerRefusalCause::Closed | OwnerRefusalCause::Unavailable => {}
        OwnerRefusalCause::NotFound
        | OwnerRefusalCause::Denied
        | OwnerRefusalCause::Blocked
        | OwnerRefusalCause::TimedOut
        | OwnerRefusalCause::Failed => return None,
    }
    match refusal.outcome {
        CallOutcome::NotExecuted => Some(AttemptFailure::BeforeDispatch),
        CallOutcome::Unknown => Some(AttemptFailure::AfterDispatch),
        CallOutcome::Done => None,
    }
}

/// The attempts of one call.
#[derive(Clone, Debug, Default)]
pub struct RouteAttempts {
    tried: BTreeSet<ServerId>,
    /// An attempt was sent, and its outcome is unknown.
    outcome_unknown: bool,
    refusal: Option<Refusal>,
}

impl RouteAttempts {
    /// The next route, if there is one: this node first, then the server with the agent's affinity, then the one with
    /// the least load and latency.
    pub fn next_route(
        &mut self,
        candidates: &[RouteCandidate],
        home: Option<&ServerId>,
    ) -> Option<CallRoute> {
        let choice = self.best_route(candidates, home)?;
        self.tried.insert(choice.server.clone());
        Some(choice)
    }

    /// The best route for the next attempt.
    #[must_use]
    pub(crate) fn best_route(
        &self,
        candidates: &[RouteCandidate],
        home: Option<&ServerId>,
    ) -> Option<CallRoute> {
        if self.tried.len() >= ATTEMPTS_MAX {
            return None;
        }
        let left = candidates.iter().filter(|one| self.is_eligible(one));
        let best = left.min_by_key(|one| rank(one, home))?;
        Some(CallRoute {
            server: best.server.clone(),
            reason: route_reason(best, home),
            affinity_lost: home.is_some_and(|home| *home != best.server),
        })
    }

    /// Whether a call that is lost at its current server may be retried at one of these.
    #[must_use]
    pub fn can_fail_over(&self, candidates: &[RouteCandidate]) -> bool {
        let in_doubt = Self {
            outcome_unknown: true,
            ..self.clone()
        };
        let is_here = |one: &RouteCandidate| one.idempotent && self.tried.contains(&one.server);
        candidates.iter().any(is_here) && in_doubt.best_route(candidates, None).is_some()
    }

    /// The last attempt was refused, at a server that is `idempotent` or not. `Ok` with the kind of failure when the
    /// call is to be retried at one of these candidates.
    ///
    /// # Errors
    /// The refusal for the caller. The outcome of a lost call stays unknown, even if later attempts fail otherwise.
    pub fn handle_failure(
        &mut self,
        refusal: &Refusal,
        idempotent: bool,
        candidates: &[RouteCandidate],
        home: Option<&ServerId>,
    ) -> Result<AttemptFailure, Refusal> {
        let was_in_doubt = self.outcome_unknown;
        let failure = AttemptFailure::from_refusal(refusal);
        let moves = failure.filter(|failure| {
            self.can_retry_elsewhere(*failure, idempotent)
                && self.best_route(candidates, home).is_some()
        });
        if !was_in_doubt {
            self.refusal = Some(refusal.clone());
        }
        moves.ok_or_else(|| self.refusal.clone().unwrap_or_else(|| refusal.clone()))
    }

    /// The refusal for the caller when no candidate is left; `None` when none was tried.
    #[must_use]
    pub fn into_refusal(self) -> Option<Refusal> {
        self.refusal
    }

    /// Whether the call may be retried elsewhere after this failure: one that was sent may only if the operators of
    /// both owners confirmed that the tool is idempotent.
    fn can_retry_elsewhere(&mut self, failure: AttemptFailure, idempotent: bool) -> bool {
        match failure {
            AttemptFailure::BeforeDispatch => true,
            AttemptFailure::AfterDispatch => {
                self.outcome_unknown = true;
                idempotent
            }
        }
    }

    fn is_eligible(&self, one: &RouteCandidate) -> bool {
        let again = one.idempotent || !self.outcome_unknown;
        one.accepts_calls && again && !self.tried.contains(&one.server)
    }
}

/// The lowest rank is the best. The id is compared last, so that the choice is deterministic.
fn rank<'a>(one: &'a RouteCandidate, home: Option<&ServerId>) -> (RouteReason, u128, &'a ServerId) {
    let way = (one.round_trip + CALL_OVERHEAD).as_micros();
    let cost = u128::from(one.load) + 1;
    (route_reason(one, home), cost * way, &one.server)
}

fn route_reason(one: &RouteCandidate, home: Option<&ServerId>) -> RouteReason {
    if !one.server.is_remote() {
        RouteReason::Local
    } else if Some(&one.server) == home {
        RouteReason::Affinity
    } else {
        RouteReason::LeastLoaded
    }
}

/// Describes the candidates of a group, one on each line, and which one a call would go to now.
#[must_use]
pub fn describe_candidates(candidates: &[RouteCandidate], home: Option<&ServerId>) -> Vec<String> {
    let chosen = RouteAttempts::default().best_route(candidates, home);
    let line = |one: &RouteCandidate| {
        let mut line = match (one.accepts_calls, one.server.is_remote()) {
            (false, _) => format!("{}: takes no calls now", one.server),
            (true, false) => format!("{}: here", one.server),
            (true, true) => format!("{}: {} away", one.server, render_millis(one.round_trip)),
        };
        match one.load {
            0 => {}
            1 => line.push_str(", 1 call under way"),
            load => line.push_str(&format!(", {load} calls under way")),
        }
        if let Some(chosen) = chosen.as_ref().filter(|chosen| chosen.server == one.server) {
            line.push_str(&format!(
                "; the next call goes there: {}",
                chosen.reason.as_str()
            ));
        }
        line
    };
    candidates.iter().map(line).collect()
}

fn render_millis(time: Duration) -> String {
    let us = time.as_micros();
    format!("{}.{} ms", us / 1000, us % 1000 / 100)
}
