//! Tools with several replicas: which replicas a caller has, and which remember it.

pub(crate) mod replica_reads;

use std::sync::{Arc, Mutex, PoisonError};

use mgp_engine::cluster::routes::{
    self, AffinityTable, AttemptFailure, ClosedRoutes, RouteCandidate,
};
use mgp_engine::policy::access::Principal;
use mgp_engine::servers::replica_spec::ReplicaSpec;
use mgp_engine::tools::catalog::{CatalogTool, CatalogView};
use mgp_json::{can_contain_string, member};
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::checks::access::can_call;
use mgp_runtime::time::monotonic_now;

/// What a continued call sends back, as its server wrote it.
const STATE_MEMBER: &str = "requestState";

/// Which replicas remember their callers, where continued calls began, and which replicas refused whom.
#[derive(Debug, Default)]
pub struct CallAffinity {
    affinity: Mutex<AffinityTable>,
    /// By what the caller brings again; the oldest are forgotten first.
    continuations: Mutex<AffinityTable>,
    closed_routes: Mutex<ClosedRoutes>,
}

impl CallAffinity {
    /// The agent's affinity, for a tool whose server remembers its callers.
    pub(crate) fn affine_server(&self, agent: &AgentId, tool: &CatalogTool) -> Option<ServerId> {
        let replica = tool.replica.as_ref().filter(|replica| replica.stateful)?;
        let homes = self.affinity.lock().unwrap_or_else(PoisonError::into_inner);
        homes.get(agent, replica.group.spec_hash).cloned()
    }

    /// A call of the agent was routed to this replica.
    pub(crate) fn record_route(&self, agent: &AgentId, tool: &CatalogTool) {
        if let Some(replica) = tool.replica.as_ref().filter(|replica| replica.stateful) {
            let specification = replica.group.spec_hash;
            let mut homes = self.affinity.lock().unwrap_or_else(PoisonError::into_inner);
            homes.record(agent, specification, tool.server.clone(), monotonic_now());
        }
    }

    /// True for a call that returns what a server sent with a callback.
    pub(crate) fn is_continuation(params: &str) -> bool {
        can_contain_string(params.as_bytes(), STATE_MEMBER)
            && member(params, STATE_MEMBER).is_some()
    }

    /// The replica whose callback this call answers: no other one understands the answer.
    pub(crate) fn continuation_server(&self, agent: &AgentId, params: &str) -> Option<ServerId> {
        let state = routes::continuation_key(member(params, STATE_MEMBER)?);
        let rounds = self
            .continuations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        rounds.get(agent, state).cloned()
    }

    /// The same of what is read at a server with this mark.
    fn affine_server_for_mark(
        &self,
        agent: &AgentId,
        mark: Option<&ReplicaSpec>,
    ) -> Option<ServerId> {
        let mark = mark.filter(|mark| mark.stateful)?;
        let homes = self.affinity.lock().unwrap_or_else(PoisonError::into_inner);
        homes.get(agent, mark.spec_hash).cloned()
    }

    /// The agent read something at this server, which has this mark.
    fn record_read(&self, agent: &AgentId, mark: Option<&ReplicaSpec>, server: &ServerId) {
        if let Some(mark) = mark.filter(|mark| mark.stateful) {
            let mut homes = self.affinity.lock().unwrap_or_else(PoisonError::into_inner);
            homes.record(agent, mark.spec_hash, server.clone(), monotonic_now());
        }
    }

    /// This replica refused the agent, maybe because its owner does not open it to the agent.
    pub(crate) fn record_refusal(&self, agent: &AgentId, server: &ServerId, refusal: &Refusal) {
        if AttemptFailure::is_closed(refusal) {
            let mut closed = self
                .closed_routes
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            closed.record_refusal(agent, server.clone(), monotonic_now());
        }
    }

    /// Leaves out the replicas that recently refused the agent, if there are others.
    pub(crate) fn remove_closed(&self, agent: &AgentId, candidates: &mut Vec<RouteCandidate>) {
        let closed = self
            .closed_routes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        closed.retain_open(agent, candidates, monotonic_now());
    }

    /// The answer may ask for more input: the call that brings it returns to this replica.
    pub(crate) fn record_continuation(&self, agent: &AgentId, server: &ServerId, answer: &[u8]) {
        if !can_contain_string(answer, "\"requestState\"") {
            return;
        }
        let answer = std::str::from_utf8(answer).unwrap_or_default();
        if let Some(state) = member(answer, STATE_MEMBER) {
            let mut rounds = self
                .continuations
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            rounds.record(
                agent,
                routes::continuation_key(state),
                server.clone(),
                monotonic_now(),
            );
        }
    }
}

/// The replica at this server.
pub(crate) fn replica_at(
    cx: &Context,
    named: &CatalogTool,
    server: &ServerId,
) -> Option<Arc<CatalogTool>> {
    let shown = cx.catalog.load();
    let mut places = shown.catalog.replicas(named).iter();
    places.find(|tool| tool.server == *server).cloned()
}

/// The replicas that may take a call of this tool by this caller, as far as is known here.
pub(crate) fn find_replicas(
    cx: &Context,
    who: &Principal,
    named: &CatalogTool,
) -> (Vec<Arc<CatalogTool>>, Vec<RouteCandidate>) {
    let (shown, servers) = (cx.catalog.load(), cx.servers.load());
    let places = shown.catalog.replicas(named).iter();
    let open = places.filter(|tool| can_call(cx, who, tool));
    open.filter_map(|tool| {
        let handle = servers.get(&tool.server)?;
        Some((tool.clone(), handle.candidate(tool.requirements.idempotent)))
    })
    .unzip()
}

/// The places of a tool, or of the tools of a server, in words: how each is, and where the next call of the agent
/// goes. Nothing for what stands alone.
pub(crate) fn describe_replicas(
    cx: &Context,
    agent: &AgentId,
    server: &ServerId,
    tool: Option<&str>,
) -> Vec<String> {
    let shown = cx.catalog.load();
    let Some(named) = shown.catalog.replica_tool(server, tool) else {
        return Vec::new();
    };
    let all = shown.catalog.replicas(named);
    let who = Principal::Agent(agent.clone());
    let (open, candidates) = find_replicas(cx, &who, named);
    let first = all.first().unwrap_or(named);
    let name = first.name_in_view(&CatalogView::All);
    let mut lines = vec![format!("{} places are one entry, {name}:", all.len())];
    lines.extend(routes::describe_candidates(
        &candidates,
        cx.affinity.affine_server(agent, named).as_ref(),
    ));
    let closed = all.iter().filter(|tool| {
        let is_open = open.iter().any(|open| open.server == tool.server);
        !is_open
    });
    lines.extend(closed.map(|tool| format!("{}: not open to {agent}", tool.server)));
    lines
}
