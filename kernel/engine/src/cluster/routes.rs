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
pub const HOMES_MAX: usize = 1 << 12;
/// Most places tried for one call: its caller waits meanwhile.
const TRIES_MAX: usize = 4;
/// How long a place that was closed to an agent is left alone: a grant made meanwhile is noticed after that, and
/// till then the other place answers.
const CLOSED_FOR: Duration = Duration::from_secs(10);
/// What a call costs beside its way, so that places that are equally near are told apart by their load.
const CALL_COST: Duration = Duration::from_millis(1);

/// A place, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceCandidate {
    /// The server, of this node or of another one.
    pub server: ServerId,
    /// It takes calls, and its node is there.
    pub takes_calls: bool,
    /// Calls of this node under way there.
    pub load: u64,
    /// The time to its node and back; none for this node.
    pub round_trip: Duration,
    /// Its operator confirmed that calling the tool twice is calling it once.
    pub idempotent: bool,
}

/// Why a place was chosen, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChoiceReason {
    /// It asked what the call answers.
    Asked,
    /// It is on this node.
    Here,
    /// It remembers the agent.
    Home,
    /// It is least busy and near.
    Least,
}

impl ChoiceReason {
    /// For people, and in the audit log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Here => "it is on this node",
            Self::Home => "it remembers the agent",
            Self::Least => "it is least busy and near",
            Self::Asked => "it asked what the call answers",
        }
    }
}

/// Where a call goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallChoice {
    /// There.
    pub server: ServerId,
    /// For this reason.
    pub reason: ChoiceReason,
    /// The agent's home is elsewhere: what the server remembered of it is not there.
    pub home_lost: bool,
}

impl CallChoice {
    /// The place that a call which goes on began at: whatever comes first else, no other one understands it.
    #[must_use]
    pub fn of_round(server: ServerId) -> Self {
        Self {
            server,
            reason: ChoiceReason::Asked,
            home_lost: false,
        }
    }

    /// What the record of a call says of its place.
    #[must_use]
    pub fn in_words(&self) -> String {
        let reason = self.reason.as_str();
        match self.home_lost {
            true => format!("{reason}; what another one remembers of the agent is not there"),
            false => reason.to_owned(),
        }
    }
}

/// What a call that goes on is known by: what its server had the caller bring again.
#[must_use]
pub fn round(state: &str) -> IndexRoot {
    IndexRoot(blake3::hash(state.as_bytes()).into())
}

/// Where the servers that remember their callers remember them: by agent, and by what the servers are started
/// as, since what one remembers it remembers for all its tools.
#[derive(Debug, Default)]
pub struct Homes {
    homes: BTreeMap<(AgentId, IndexRoot), (ServerId, MonotonicTime)>,
}

impl Homes {
    /// An agent's home.
    #[must_use]
    pub fn of(&self, agent: &AgentId, specification: IndexRoot) -> Option<&ServerId> {
        let home = self.homes.get(&(agent.clone(), specification));
        home.map(|(place, _)| place)
    }

    /// A call of the agent went there.
    pub fn went(
        &mut self,
        agent: &AgentId,
        specification: IndexRoot,
        to: ServerId,
        now: MonotonicTime,
    ) {
        let key = (agent.clone(), specification);
        if self.homes.len() >= HOMES_MAX && !self.homes.contains_key(&key) {
            let oldest = self.homes.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.homes.remove(&oldest);
            }
        }
        self.homes.insert(key, (to, now));
    }
}

/// Places whose owners did not open them to an agent when it called: not asked again for a while where another
/// place may answer.
#[derive(Debug, Default)]
pub struct ClosedPlaces {
    closed: BTreeMap<(AgentId, ServerId), MonotonicTime>,
}

impl ClosedPlaces {
    /// The owner said so. At the bound nothing more is remembered, so that such calls ask there first.
    pub fn refused(&mut self, agent: &AgentId, place: ServerId, now: MonotonicTime) {
        self.closed.retain(|_, at| now.since(*at) < CLOSED_FOR);
        if self.closed.len() < HOMES_MAX {
            self.closed.insert((agent.clone(), place), now);
        }
    }

    /// Leaves out what is closed to the agent, unless nothing would be left.
    pub fn leave_out(
        &self,
        agent: &AgentId,
        candidates: &mut Vec<PlaceCandidate>,
        now: MonotonicTime,
    ) {
        let open = |one: &PlaceCandidate| {
            let closed = self.closed.get(&(agent.clone(), one.server.clone()));
            closed.is_none_or(|at| now.since(*at) >= CLOSED_FOR)
        };
        let takes_calls = |one: &&PlaceCandidate| one.takes_calls;
        if !self.closed.is_empty() && candidates.iter().filter(takes_calls).any(open) {
            candidates.retain(open);
        }
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

impl TryFailure {
    /// `None` for what another place is not asked after: an answer, a no to this call of who decides there, and a
    /// server that is slow. That an agent is not let in there at all says nothing of other places.
    #[must_use]
    pub fn of(refusal: &Refusal) -> Option<Self> {
        if let Refusal::Owner(refusal) = refusal {
            return failure_for_owner(refusal);
        }
        if let Refusal::Lost { .. } = refusal {
            return Some(Self::AfterDispatch);
        }
        let away = matches!(
            refusal,
            Refusal::NotReady { .. }
                | Refusal::HeldUp { .. }
                | Refusal::Overloaded { .. }
                | Refusal::UnknownServer(_)
                | Refusal::Closed(_)
        );
        away.then_some(Self::BeforeDispatch)
    }

    /// True where the owner does not open the place to the caller.
    #[must_use]
    pub fn is_closed(refusal: &Refusal) -> bool {
        if let Refusal::Owner(refusal) = refusal {
            return refusal.cause == OwnerRefusalCause::Closed;
        }
        matches!(refusal, Refusal::Closed(_))
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
fn failure_for_owner(refusal: &OwnerRefusal) -> Option<TryFailure> {
    match refusal.cause {
        OwnerRefusalCause::Closed | OwnerRefusalCause::Unavailable => {}
        OwnerRefusalCause::NotFound
        | OwnerRefusalCause::Denied
        | OwnerRefusalCause::Blocked
        | OwnerRefusalCause::TimedOut
        | OwnerRefusalCause::Failed => return None,
    }
    match refusal.outcome {
        CallOutcome::NotExecuted => Some(TryFailure::BeforeDispatch),
        CallOutcome::Unknown => Some(TryFailure::AfterDispatch),
        CallOutcome::Done => None,
    }
}

/// The tries of one call.
#[derive(Clone, Debug, Default)]
pub struct CallAttempts {
    tried: BTreeSet<ServerId>,
    /// A try left this node, and nobody knows what became of it.
    in_doubt: bool,
    told: Option<Refusal>,
}

impl CallAttempts {
    /// Where to go, when there is such a place: this node comes first, then where a server that remembers its
    /// callers remembers the agent, then the place that is least busy and near.
    pub fn next(
        &mut self,
        candidates: &[PlaceCandidate],
        home: Option<&ServerId>,
    ) -> Option<CallChoice> {
        let choice = self.best(candidates, home)?;
        self.tried.insert(choice.server.clone());
        Some(choice)
    }

    /// Where the next try would go.
    #[must_use]
    pub fn best(
        &self,
        candidates: &[PlaceCandidate],
        home: Option<&ServerId>,
    ) -> Option<CallChoice> {
        if self.tried.len() >= TRIES_MAX {
            return None;
        }
        let left = candidates.iter().filter(|one| self.may_take(one));
        let best = left.min_by_key(|one| rank(one, home))?;
        Some(CallChoice {
            server: best.server.clone(),
            reason: reason(best, home),
            home_lost: home.is_some_and(|home| *home != best.server),
        })
    }

    /// Whether a call that is lost where it is now may be made at another one of these.
    #[must_use]
    pub fn goes_on(&self, candidates: &[PlaceCandidate]) -> bool {
        let in_doubt = Self {
            in_doubt: true,
            ..self.clone()
        };
        let is_here = |one: &PlaceCandidate| one.idempotent && self.tried.contains(&one.server);
        candidates.iter().any(is_here) && in_doubt.best(candidates, None).is_some()
    }

    /// The last try was refused, at a place that is `idempotent` or not. `Ok` when the call is to be made at another
    /// one of these: how it failed.
    ///
    /// # Errors
    /// What the caller is told. Of a call that was lost it is not known what became, however other places fail
    /// after that.
    pub fn failed(
        &mut self,
        refusal: &Refusal,
        idempotent: bool,
        candidates: &[PlaceCandidate],
        home: Option<&ServerId>,
    ) -> Result<TryFailure, Refusal> {
        let was_in_doubt = self.in_doubt;
        let failure = TryFailure::of(refusal);
        let moves = failure.filter(|failure| {
            self.may_move(*failure, idempotent) && self.best(candidates, home).is_some()
        });
        if !was_in_doubt {
            self.told = Some(refusal.clone());
        }
        moves.ok_or_else(|| self.told.clone().unwrap_or_else(|| refusal.clone()))
    }

    /// What the caller is told where no place is left; `None` when none was tried.
    #[must_use]
    pub fn told(self) -> Option<Refusal> {
        self.told
    }

    /// Whether the call may be made elsewhere after its last try failed so: one that left may only where the
    /// operators of both owners confirmed that calling twice is calling once.
    fn may_move(&mut self, failure: TryFailure, idempotent: bool) -> bool {
        match failure {
            TryFailure::BeforeDispatch => true,
            TryFailure::AfterDispatch => {
                self.in_doubt = true;
                idempotent
            }
        }
    }

    fn may_take(&self, one: &PlaceCandidate) -> bool {
        let again = one.idempotent || !self.in_doubt;
        one.takes_calls && again && !self.tried.contains(&one.server)
    }
}

/// The least is the best. The id comes last, so that all things equal the choice is always the same.
fn rank<'a>(
    one: &'a PlaceCandidate,
    home: Option<&ServerId>,
) -> (ChoiceReason, u128, &'a ServerId) {
    let way = (one.round_trip + CALL_COST).as_micros();
    let cost = u128::from(one.load) + 1;
    (reason(one, home), cost * way, &one.server)
}

fn reason(one: &PlaceCandidate, home: Option<&ServerId>) -> ChoiceReason {
    if !one.server.is_of_node() {
        ChoiceReason::Here
    } else if Some(&one.server) == home {
        ChoiceReason::Home
    } else {
        ChoiceReason::Least
    }
}

/// The places of one group in words, a line for each, and where a call would go now.
#[must_use]
pub fn told(candidates: &[PlaceCandidate], home: Option<&ServerId>) -> Vec<String> {
    let chosen = CallAttempts::default().best(candidates, home);
    let line = |one: &PlaceCandidate| {
        let mut line = match (one.takes_calls, one.server.is_of_node()) {
            (false, _) => format!("{}: takes no calls now", one.server),
            (true, false) => format!("{}: here", one.server),
            (true, true) => format!("{}: {} away", one.server, millis(one.round_trip)),
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

fn millis(time: Duration) -> String {
    let us = time.as_micros();
    format!("{}.{} ms", us / 1000, us % 1000 / 100)
}
