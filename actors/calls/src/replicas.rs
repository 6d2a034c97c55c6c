//! Tools that may be called at several places: which these are for a caller, and who is remembered where.

pub(crate) mod reading;

use std::sync::{Arc, Mutex, PoisonError};

use mgp_engine::cluster::routes::{self, ClosedPlaces, Homes, PlaceCandidate, TryFailure};
use mgp_engine::policy::access::Principal;
use mgp_engine::servers::replica_mark::ReplicaMark;
use mgp_engine::tools::catalog::{CatalogTool, CatalogView};
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::member;
use mgp_protocol::splice::mention::may_mention;

use crate::Context;
use crate::checks::access::may_call;
use mgp_runtime::time::moment;

/// What a call that goes on brings again, as its server wrote it.
const STATE: &str = "requestState";

/// Where servers that remember their callers remember them, where calls began that go on, and who was not let in where.
#[derive(Debug, Default)]
pub struct CallerHomes {
    homes: Mutex<Homes>,
    /// By what the caller brings again; the oldest are forgotten first.
    rounds: Mutex<Homes>,
    closed: Mutex<ClosedPlaces>,
}

impl CallerHomes {
    /// The agent's home, of a tool whose server remembers its callers.
    pub(crate) fn of(&self, agent: &AgentId, tool: &CatalogTool) -> Option<ServerId> {
        let replica = tool.replica.as_ref().filter(|replica| replica.stateful)?;
        let homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
        homes.of(agent, replica.group.specification).cloned()
    }

    /// A call of the agent went to this place.
    pub(crate) fn went(&self, agent: &AgentId, tool: &CatalogTool) {
        if let Some(replica) = tool.replica.as_ref().filter(|replica| replica.stateful) {
            let specification = replica.group.specification;
            let mut homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
            homes.went(agent, specification, tool.server.clone(), moment());
        }
    }

    /// True for a call that brings again what a server gave it with a question.
    pub(crate) fn is_continuation(params: &str) -> bool {
        may_mention(params.as_bytes(), STATE) && member(params, STATE).is_some()
    }

    /// The place that asked what this call answers: no other one understands it.
    pub(crate) fn asked(&self, agent: &AgentId, params: &str) -> Option<ServerId> {
        let state = routes::round(member(params, STATE)?);
        let rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.of(agent, state).cloned()
    }

    /// The same of what is read at a server with this mark.
    fn of_mark(&self, agent: &AgentId, mark: Option<&ReplicaMark>) -> Option<ServerId> {
        let mark = mark.filter(|mark| mark.stateful)?;
        let homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
        homes.of(agent, mark.specification).cloned()
    }

    /// The agent read something at this server, which has this mark.
    fn read_at(&self, agent: &AgentId, mark: Option<&ReplicaMark>, server: &ServerId) {
        if let Some(mark) = mark.filter(|mark| mark.stateful) {
            let mut homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
            homes.went(agent, mark.specification, server.clone(), moment());
        }
    }

    /// The agent was refused at this place, maybe because its owner does not open it to the agent.
    pub(crate) fn refused(&self, agent: &AgentId, server: &ServerId, refusal: &Refusal) {
        if TryFailure::is_closed(refusal) {
            let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
            closed.refused(agent, server.clone(), moment());
        }
    }

    /// Leaves out the places where the agent was not let in just now, if there are others.
    pub(crate) fn leave_out_closed(&self, agent: &AgentId, candidates: &mut Vec<PlaceCandidate>) {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        closed.leave_out(agent, candidates, moment());
    }

    /// The answer may ask for more: whoever brings that comes back to this place.
    pub(crate) fn asks(&self, agent: &AgentId, server: &ServerId, answer: &[u8]) {
        if !may_mention(answer, "\"requestState\"") {
            return;
        }
        let answer = std::str::from_utf8(answer).unwrap_or_default();
        if let Some(state) = member(answer, STATE) {
            let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
            rounds.went(agent, routes::round(state), server.clone(), moment());
        }
    }
}

/// The place at this server.
pub(crate) fn place(
    cx: &Context,
    named: &CatalogTool,
    server: &ServerId,
) -> Option<Arc<CatalogTool>> {
    let shown = cx.shown.load();
    let mut places = shown.catalog.replicas(named).iter();
    places.find(|tool| tool.server == *server).cloned()
}

/// The places that may take a call of this tool by this caller, as far as is known here.
pub(crate) fn places(
    cx: &Context,
    who: &Principal,
    named: &CatalogTool,
) -> (Vec<Arc<CatalogTool>>, Vec<PlaceCandidate>) {
    let (shown, servers) = (cx.shown.load(), cx.servers.load());
    let places = shown.catalog.replicas(named).iter();
    let open = places.filter(|tool| may_call(cx, who, tool));
    open.filter_map(|tool| {
        let handle = servers.get(&tool.server)?;
        Some((tool.clone(), handle.candidate(tool.requirements.idempotent)))
    })
    .unzip()
}

/// The places of a tool, or of the tools of a server, in words: how each is, and where the next call of the agent
/// goes. Nothing for what stands alone.
pub(crate) fn told(
    cx: &Context,
    agent: &AgentId,
    server: &ServerId,
    tool: Option<&str>,
) -> Vec<String> {
    let shown = cx.shown.load();
    let Some(named) = shown.catalog.replica_of(server, tool) else {
        return Vec::new();
    };
    let all = shown.catalog.replicas(named);
    let who = Principal::Agent(agent.clone());
    let (open, candidates) = places(cx, &who, named);
    let first = all.first().unwrap_or(named);
    let name = first.name_in(&CatalogView::All);
    let mut lines = vec![format!("{} places are one entry, {name}:", all.len())];
    lines.extend(routes::told(
        &candidates,
        cx.homes.of(agent, named).as_ref(),
    ));
    let closed = all.iter().filter(|tool| {
        let is_open = open.iter().any(|open| open.server == tool.server);
        !is_open
    });
    lines.extend(closed.map(|tool| format!("{}: not open to {agent}", tool.server)));
    lines
}
