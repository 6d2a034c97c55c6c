//! `mgp/tools/request` (MGP §16.6): an agent names capabilities it misses; the kernel searches for each,
//! asks for missing permissions of servers, and loads the tools that can be called.

use std::collections::HashMap;
use std::sync::Arc;

use mgp_engine::tool_names::canonical_name;
use mgp_engine::tools::catalog::{CatalogTool, CatalogView};
use mgp_engine::tools::index::{SearchFilter, Strategy};
use mgp_engine::tools::tool_request_decision::{
    CANDIDATES_MAX, Candidate, CapabilityMatches, CreationConditions, Query, Readiness,
    build_queries, decide,
};
use mgp_protocol::mgp::audit::TraceId;
use mgp_protocol::mgp::tools::{PendingTool, Request, RequestResult, ToolMatch};
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::answer::json_outcome;
use crate::audit::PendingCallRecord;
use crate::mgp::discovery;
use crate::mgp::tools::session::{self, NO_SESSION_MESSAGE};
use crate::mgp::tools::{self, to_found};
use mgp_callers::request::{Caller, Outcome};
use mgp_callers::tool_cache::Loaded;
use mgp_tools::search::{Hit, ServerStatusFilter, ToolQuery};

/// Search results, by `server:tool`.
type Candidates = HashMap<String, (Arc<CatalogTool>, Hit)>;

/// `mgp/tools/request`. Its trace is that of the task, when the agent names one.
pub(crate) async fn request_tools(
    cx: &Context,
    caller: &Caller,
    asked: Request,
    facts: &PendingCallRecord,
) -> Outcome {
    // An invalid trace is ignored, like any other invalid trace of a caller.
    let task = asked.task_trace_id.as_deref().map(TraceId::parse);
    if let Some(Ok(trace)) = task {
        facts.set_task_trace(trace);
    }
    let needs = &asked.requirements;
    let queries = build_queries(needs).map_err(|why| Refusal::BadParams(why.to_string()))?;
    // Counted as one search each; the first is this call itself.
    tools::count_searches(cx, caller, queries.len() - 1)?;
    let mut found_by_name = Candidates::new();
    let mut sought = Vec::new();
    let mut by = Strategy::Hybrid;
    // One after the other, so that a request takes only one of the places for searches.
    for query in &queries {
        sought.push(find_candidates(cx, caller, query, &mut by, &mut found_by_name).await?);
    }
    let outcome = decide(
        &sought,
        needs.preferred_risk_level,
        creation_options(cx, caller),
    );
    let load: Vec<&(Arc<CatalogTool>, Hit)> = outcome
        .to_load
        .iter()
        .map(|name| &found_by_name[name])
        .collect();
    let tools_loaded: Vec<ToolMatch> = load
        .iter()
        .map(|(_, hit)| to_found(cx, &caller.view, hit))
        .collect();
    let tools = load.iter().map(|(tool, _)| tool.clone()).collect();
    let (loaded, note) = load_tools(cx, caller, tools).await?;
    let pending = outcome.pending.iter().map(|name| &found_by_name[name].0);
    json_outcome(&RequestResult {
        status: outcome.status,
        tools_loaded,
        tools_unavailable: outcome.unavailable,
        tools_pending: pending
            .map(|tool| pending_approvals(cx, caller, tool))
            .collect(),
        session_tools_count: loaded.count,
        context_tokens_added: loaded.added,
        creation: outcome.creation,
        note,
    })
}

/// Whether the caller may provide what is missing by registering a server.
fn creation_options(cx: &Context, caller: &Caller) -> CreationConditions {
    let registrar = &cx.registrar;
    CreationConditions {
        is_enabled: registrar.registration.suggests_creating,
        is_negotiated: caller
            .mgp
            .as_active()
            .is_none_or(|active| active.peer.tool_creation),
        can_run_code: discovery::can_register(cx, caller),
        policy: registrar.defaults.permissions.policy,
        has_session: caller.live_connection().is_some(),
    }
}

async fn load_tools(
    cx: &Context,
    caller: &Caller,
    tools: Vec<Arc<CatalogTool>>,
) -> Result<(Loaded, Option<&'static str>), Refusal> {
    let outside = session::callable_tools(cx, caller);
    if let Some(holding) = session::caller_tool_cache(cx, caller) {
        return Ok((holding.load(outside, tools).await?, None));
    }
    let loaded = Loaded {
        count: outside.pinned.len(),
        added: tools
            .iter()
            .map(|tool| mgp_callers::tool_cache::to_priced(tool).tokens)
            .sum(),
    };
    Ok((loaded, Some(NO_SESSION_MESSAGE)))
}

/// The candidates for one capability. When the embedding provider fails, `by` is set to words for the
/// rest of the request, so that it is waited for only once.
async fn find_candidates(
    cx: &Context,
    caller: &Caller,
    query: &Query,
    by: &mut Strategy,
    found_by_name: &mut Candidates,
) -> Result<CapabilityMatches<String>, Refusal> {
    let (reached, best) = run_search(cx, caller, query, *by).await?;
    *by = reached;
    let mut candidates = Vec::new();
    for hit in best {
        let name = canonical_name(&hit.entry.server, &hit.entry.name);
        let Some(tool) = cx.tool(&CatalogView::All, &name) else {
            continue;
        };
        candidates.push(Candidate {
            score: hit.score,
            is_match: hit.is_good_match,
            risk: tool.requirements.risk.level,
            readiness: readiness(cx, &tool),
            tool: name.clone(),
        });
        found_by_name.insert(name, (tool, hit));
    }
    Ok(CapabilityMatches {
        capability: query.capability.clone(),
        candidates,
    })
}

async fn run_search(
    cx: &Context,
    caller: &Caller,
    query: &Query,
    strategy: Strategy,
) -> Result<(Strategy, Vec<Hit>), Refusal> {
    let wanted = ToolQuery {
        query: query.text.clone(),
        strategy,
        filter: SearchFilter::default(),
        status: ServerStatusFilter::Connected,
        view: caller.view.clone(),
        limit: CANDIDATES_MAX,
    };
    let found = cx.search.search(&caller.identity(), wanted).await?;
    Ok((found.strategy, found.hits))
}

fn readiness(cx: &Context, tool: &CatalogTool) -> Readiness {
    let (server, words) = (&tool.server, &tool.requirements.permissions);
    match cx.policies.permissions.find_missing(server, words) {
        None => Readiness::Ready,
        Some(lacking) if lacking.is_denied => Readiness::PermissionDenied,
        Some(_) => Readiness::AwaitingApproval,
    }
}

/// The approvals the tool waits for; a question that ran out is asked again.
fn pending_approvals(cx: &Context, caller: &Caller, tool: &CatalogTool) -> PendingTool {
    let lacking = cx
        .policies
        .permissions
        .check(&tool.server, &tool.requirements.permissions);
    let missing = lacking.err().map(|lacking| lacking.permissions);
    let missing = missing.unwrap_or_default();
    PendingTool {
        name: tool.name_in_view(&caller.view).to_owned(),
        server_id: tool.server.to_string(),
        permissions: missing.iter().map(ToString::to_string).collect(),
    }
}
