//! Where a call of one of several servers that are alike goes, and where it goes next when that fails.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mgp_protocol::federation::tool_index::IndexRoot;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::refusal::owner_refusal::{OwnerRefusal, OwnerRefusalCause};
use mgp_protocol::refusal::{CallOutcome, Refusal};

use crate::clock::MonotonicTime;

/// Most homes remembered: some servers for each of very many agents. The one that was not used the longest
/// makes room; its agent's next call chooses anew.
pub const AFFINITIES_MAX: usize = 1 << 12;
/// Most places tried for one call: its caller waits meanwhile.
const ATTEMPTS_MAX: usize = 4;
/// How long a place that was closed to an agent is left alone: a grant made meanwhile is noticed after that, and
/// till then the other place answers.
const CLOSED_RETENTION: Duration = Duration::from_secs(10);
/// What a call costs beside its way, so that places that are equally near are told apart by their load.
const CALL_OVERHEAD: Duration = Duration::from_millis(1);

/// A place, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteCandidate {
    /// The server, of this node or of another one.
    pub server: ServerId,
    /// It takes calls, and its node is there.
    pub accepts_calls: bool,
    /// Calls of this node under way there.
    pub load: u64,
    /// The time to its node and back; none for this node.
    pub round_trip: Duration,
    /// Its operator confirmed that calling the tool twice is calling it once.
    pub idempotent: bool,
}

/// Why a place was chosen, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteReason {
    /// It asked what the call answers.
    Continuation,
    /// It is on this node.
    Local,
    /// It remembers the agent.
    Affinity,
    /// It is least busy and near.
    LeastLoaded,
}

impl RouteReason {
    /// For people, and in the audit log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "it is on this node",
            Self::Affinity => "it remembers the agent",
            Self::LeastLoaded => "it is least busy and near",
            Self::Continuation => "it asked what the call answers",
        }
    }
}

/// Where a call goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRoute {
    /// There.
    pub server: ServerId,
    /// For this reason.
    pub reason: RouteReason,
    /// The agent's home is elsewhere: what the server remembered of it is not there.
    pub affinity_lost: bool,
}

impl CallRoute {
    /// The place that a call which goes on began at: whatever comes first else, no other one understands it.
    #[must_use]
    pub fn for_continuation(server: ServerId) -> Self {
        Self {
            server,
            reason: RouteReason::Continuation,
            affinity_lost: false,
        }
    }

    /// What the record of a call says of its place.
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

/// What a call that goes on is known by: what its server had the caller bring again.
#[must_use]
pub fn continuation_key(state: &str) -> IndexRoot {
    IndexRoot(blake3::hash(state.as_bytes()).into())
}

/// Where the servers that remember their callers remember them: by agent, and by what the servers are started
/// as, since what one remembers it remembers for all its tools.
#[derive(Debug, Default)]
pub struct AffinityTable {
    entries: BTreeMap<(AgentId, IndexRoot), (ServerId, MonotonicTime)>,
}

impl AffinityTable {
    /// An agent's home.
    #[must_use]
    pub fn get(&self, agent: &AgentId, specification: IndexRoot) -> Option<&ServerId> {
        let home = self.entries.get(&(agent.clone(), specification));
        home.map(|(place, _)| place)
    }

    /// A call of the agent went there.
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

/// Places whose owners did not open them to an agent when it called: not asked again for a while where another
/// place may answer.
#[derive(Debug, Default)]
pub struct ClosedRoutes {
    closed: BTreeMap<(AgentId, ServerId), MonotonicTime>,
}

impl ClosedRoutes {
    /// The owner said so. At the bound nothing more is remembered, so that such calls ask there first.
    pub fn record_refusal(&mut self, agent: &AgentId, place: ServerId, now: MonotonicTime) {
        self.closed
            .retain(|_, at| now.duration_since(*at) < CLOSED_RETENTION);
        if self.closed.len() < AFFINITIES_MAX {
            self.closed.insert((agent.clone(), place), now);
        }
    }

    /// Leaves out what is closed to the agent, unless nothing would be left.
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

/// How a try failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptFailure {
    /// The call did not leave, or its owner said that it did nothing.
    BeforeDispatch,
    /// It left, and nobody knows what became of it.
    AfterDispatch,
}

impl AttemptFailure {
    /// `None` for what another place is not asked after: an answer, a no to this call of who decides there, and a
    /// server that is slow. That an agent is not let in there at all says nothing of other places.
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

    /// True where the owner does not open the place to the caller.
    #[must_use]
    pub fn is_closed(refusal: &Refusal) -> bool {
        if let Refusal::Owner(refusal) = refusal {
            return refusal.cause == OwnerRefusalCause::Closed;
        }
        matches!(refusal, Refusal::ClosedByOwner(_))
    }

    /// What became of the call there.
    #[must_use]
    pub fn outcome(self) -> CallOutcome {
        match self {
            Self::BeforeDispatch => CallOutcome::NotExecuted,
            Self::AfterDispatch => CallOutcome::Unknown,
        }
    }
}

/// A call that the owner's kernel refused, by the frame that says so. The error of a server, whatever stands in it, is an
/// answer.
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

/// The tries of one call.
#[derive(Clone, Debug, Default)]
pub struct RouteAttempts {
    tried: BTreeSet<ServerId>,
    /// A try left this node, and nobody knows what became of it.
    outcome_unknown: bool,
    refusal: Option<Refusal>,
}

impl RouteAttempts {
    /// Where to go, when there is such a place: this node comes first, then where a server that remembers its
    /// callers remembers the agent, then the place that is least busy and near.
    pub fn next_route(
        &mut self,
        candidates: &[RouteCandidate],
        home: Option<&ServerId>,
    ) -> Option<CallRoute> {
        let choice = self.best_route(candidates, home)?;
        self.tried.insert(choice.server.clone());
        Some(choice)
    }

    /// Where the next try would go.
    #[must_use]
    pub fn best_route(
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

    /// Whether a call that is lost where it is now may be made at another one of these.
    #[must_use]
    pub fn can_fail_over(&self, candidates: &[RouteCandidate]) -> bool {
        let in_doubt = Self {
            outcome_unknown: true,
            ..self.clone()
        };
        let is_here = |one: &RouteCandidate| one.idempotent && self.tried.contains(&one.server);
        candidates.iter().any(is_here) && in_doubt.best_route(candidates, None).is_some()
    }

    /// The last try was refused, at a place that is `idempotent` or not. `Ok` when the call is to be made at another
    /// one of these: how it failed.
    ///
    /// # Errors
    /// What the caller is told. Of a call that was lost it is not known what became, however other places fail
    /// after that.
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

    /// What the caller is told where no place is left; `None` when none was tried.
    #[must_use]
    pub fn into_refusal(self) -> Option<Refusal> {
        self.refusal
    }

    /// Whether the call may be made elsewhere after its last try failed so: one that left may only where the
    /// operators of both owners confirmed that calling twice is calling once.
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

/// The least is the best. The id comes last, so that all things equal the choice is always the same.
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

/// The places of one group in words, a line for each, and where a call would go now.
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
