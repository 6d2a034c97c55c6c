//! `mgp/tools/request` (MGP §16.6): an agent names capabilities it misses; the kernel searches for each,
//! asks for missing permissions of servers, and loads the tools that can be called.

use std::collections::HashMap;
use std::sync::Arc;

use mgp_engine::tool_names::canonical;
use mgp_engine::tools::catalog::{CatalogTool, CatalogView};
use mgp_engine::tools::index::{Filter, Strategy};
use mgp_engine::tools::tool_requests::{
    CANDIDATES, Candidate, Creating, Query, Readiness, Sought, decide, queries,
};
use mgp_protocol::mgp::audit::TraceId;
use mgp_protocol::mgp::tools::{Found, Pending, Request, Requested};
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::answer::json;
use crate::audit::CallFacts;
use crate::mgp::discovery;
use crate::mgp::tools::session::{self, ALONE};
use crate::mgp::tools::{self, told};
use mgp_callers::request::{Caller, Outcome};
use mgp_callers::tool_cache::Loaded;
use mgp_tools::search::{Hit, ServerStatusFilter, ToolQuery};

/// Search results, by `server:tool`.
type Candidates = HashMap<String, (Arc<CatalogTool>, Hit)>;

/// `mgp/tools/request`. Its trace is that of the task, when the agent names one.
pub(crate) async fn requested(
    cx: &Context,
    caller: &Caller,
    asked: Request,
    facts: &CallFacts,
) -> Outcome {
    // An invalid trace is ignored, like any other invalid trace of a caller.
    let task = asked.task_trace_id.as_deref().map(TraceId::parse);
    if let Some(Ok(trace)) = task {
        facts.is_part_of(trace);
    }
    let needs = &asked.requirements;
    let queries = queries(needs).map_err(|why| Refusal::BadParams(why.to_string()))?;
    // Counted as one search each; the first is this call itself.
    tools::counts(cx, caller, queries.len() - 1)?;
    let mut found_by_name = Candidates::new();
    let mut sought = Vec::new();
    let mut by = Strategy::Hybrid;
    // One after the other, so that a request takes only one of the places for searches.
    for query in &queries {
        sought.push(candidates(cx, caller, query, &mut by, &mut found_by_name).await?);
    }
    let outcome = decide(&sought, needs.preferred_risk_level, creating(cx, caller));
    let load: Vec<&(Arc<CatalogTool>, Hit)> = outcome
        .load
        .iter()
        .map(|name| &found_by_name[name])
        .collect();
    let tools_loaded: Vec<Found> = load
        .iter()
        .map(|(_, hit)| told(&caller.view, hit))
        .collect();
    let tools = load.iter().map(|(tool, _)| tool.clone()).collect();
    let (loaded, note) = loaded(cx, caller, tools).await?;
    let pending = outcome.pending.iter().map(|name| &found_by_name[name].0);
    json(&Requested {
        status: outcome.status,
        tools_loaded,
        tools_unavailable: outcome.unavailable,
        tools_pending: pending.map(|tool| waiting(cx, caller, tool)).collect(),
        session_tools_count: loaded.count,
        context_tokens_added: loaded.added,
        creation: outcome.creation,
        note,
    })
}

/// Whether the caller may provide what is missing by registering a server.
fn creating(cx: &Context, caller: &Caller) -> Creating {
    let registrar = &cx.registrar;
    Creating {
        switched_on: registrar.registration.creating,
        negotiated: caller
            .mgp
            .active()
            .is_none_or(|active| active.peer.tool_creation),
        may_run_code: discovery::may_register(cx, caller),
        policy: registrar.background.permissions.policy,
        session: caller.standing().is_some(),
    }
}

async fn loaded(
    cx: &Context,
    caller: &Caller,
    tools: Vec<Arc<CatalogTool>>,
) -> Result<(Loaded, Option<&'static str>), Refusal> {
    let outside = session::outside(cx, caller);
    if let Some(holding) = session::holding(cx, caller) {
        return Ok((holding.load(outside, tools).await?, None));
    }
    let loaded = Loaded {
        count: outside.pinned.len(),
        added: tools
            .iter()
            .map(|tool| mgp_callers::tool_cache::priced(tool).tokens)
            .sum(),
    };
    Ok((loaded, Some(ALONE)))
}

/// The candidates for one capability. When the embedding provider fails, `by` is set to words for the
/// rest of the request, so that it is waited for only once.
async fn candidates(
    cx: &Context,
    caller: &Caller,
    query: &Query,
    by: &mut Strategy,
    found_by_name: &mut Candidates,
) -> Result<Sought<String>, Refusal> {
    let (reached, best) = looked(cx, caller, query, *by).await?;
    *by = reached;
    let mut candidates = Vec::new();
    for hit in best {
        let name = canonical(&hit.entry.server, &hit.entry.name);
        let Some(tool) = cx.tool(&CatalogView::All, &name) else {
            continue;
        };
        candidates.push(Candidate {
            score: hit.score,
            fits: hit.fits,
            risk: tool.requirements.risk.level,
            readiness: readiness(cx, &tool),
            tool: name.clone(),
        });
        found_by_name.insert(name, (tool, hit));
    }
    Ok(Sought {
        capability: query.capability.clone(),
        candidates,
    })
}

async fn looked(
    cx: &Context,
    caller: &Caller,
    query: &Query,
    strategy: Strategy,
) -> Result<(Strategy, Vec<Hit>), Refusal> {
    let wanted = ToolQuery {
        query: query.text.clone(),
        strategy,
        filter: Filter::default(),
        status: ServerStatusFilter::Connected,
        view: caller.view.clone(),
        most: CANDIDATES,
    };
    let found = cx.search.search(&caller.identity(), wanted).await?;
    Ok((found.strategy, found.hits))
}

fn readiness(cx: &Context, tool: &CatalogTool) -> Readiness {
    let (server, words) = (&tool.server, &tool.requirements.permissions);
    match cx.policies.permissions.lacks(server, words) {
        None => Readiness::Ready,
        Some(lacking) if lacking.denied => Readiness::Lacks,
        Some(_) => Readiness::Waits,
    }
}

/// The approvals the tool waits for; a question that ran out is asked again.
fn waiting(cx: &Context, caller: &Caller, tool: &CatalogTool) -> Pending {
    let lacking = cx
        .policies
        .permissions
        .may(&tool.server, &tool.requirements.permissions);
    let missing = lacking.err().map(|lacking| lacking.permissions);
    let missing = missing.unwrap_or_default();
    Pending {
        name: tool.name_in(&caller.view).to_owned(),
        server_id: tool.server.to_string(),
        permissions: missing.iter().map(ToString::to_string).collect(),
    }
}
