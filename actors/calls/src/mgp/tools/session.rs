//! The tool cache of a session, as its agent sees it (MGP §16.7).

use std::sync::Arc;

use mgp_engine::callers::tool_cache::ToolCache;
use mgp_engine::tools::catalog::{CatalogTool, CatalogView};
use mgp_engine::tools::exposure::Exposure;
use mgp_protocol::mgp::tools::SessionTools;
use mgp_protocol::mgp::tools::session::{Evict, Evicted};
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::answer::json_outcome;
use mgp_callers::agent::Agent;
use mgp_callers::request::{Caller, Outcome};
use mgp_callers::tool_cache::{CallableTools, Names, ToolCacheHandle, to_priced};
use mgp_runtime::time::unix_ms;

/// The refusal for a caller without a session.
pub(crate) const NO_SESSION_MESSAGE: &str =
    "requests that stand alone have no session: only what is pinned is held";

/// Notes that a tool answered a call. Not needed where everything is listed.
pub(crate) fn record_use(cx: &Context, caller: &Caller, tool: &Arc<CatalogTool>) {
    if cx.exposure.configured_exposure(caller) == Some(Exposure::All) {
        return;
    }
    let agent = caller.live_connection();
    let holding = agent.as_ref().and_then(|agent| start_tool_cache(cx, agent));
    if let Some(holding) = holding {
        holding.record_use(tool);
    }
}

/// The caller's tool cache; `None` without a session.
pub(crate) fn caller_tool_cache(cx: &Context, caller: &Caller) -> Option<ToolCacheHandle> {
    start_tool_cache(cx, &caller.live_connection()?)
}

fn start_tool_cache(cx: &Context, agent: &Arc<Agent>) -> Option<ToolCacheHandle> {
    agent.start_tool_cache(cx.exposure.budget, cx.agents.get_cell())
}

/// The tools that are in the caller's list because its session holds them.
pub(crate) fn cached_tools(caller: &Caller, exposure: Exposure) -> Arc<Names> {
    let held = match (exposure, caller.live_connection()) {
        (Exposure::Pinned, Some(agent)) => agent.tool_cache.listed(),
        (Exposure::Pinned, None) => None,
        (Exposure::All | Exposure::Categories | Exposure::Discovery, _) => None,
    };
    held.unwrap_or_default()
}

/// The tools that are pinned for this caller, and which tools it may call.
pub(crate) fn callable_tools(cx: &Context, caller: &Caller) -> CallableTools {
    let (shown, table, who) = (
        cx.catalog.load(),
        cx.policies.access.table(),
        caller.identity(),
    );
    let pinned = cx
        .exposure
        .for_agent(&caller.agent)
        .pinned
        .iter()
        .filter_map(|name| {
            let tool = shown.catalog.tool(&CatalogView::All, name)?;
            let own = Some(&*tool.own_name);
            let open = table.is_allowed(&who, &tool.server, own, unix_ms());
            (open && is_in_view(&caller.view, tool)).then(|| to_priced(tool))
        });
    let pinned = pinned.collect();
    let there = move |name: &str| {
        let tool = shown.catalog.tool(&CatalogView::All, name);
        let open = |tool: &Arc<CatalogTool>| {
            table.is_allowed(&who, &tool.server, Some(&tool.own_name), unix_ms())
        };
        tool.is_some_and(|tool| *tool.canonical_name == *name && open(tool))
    };
    CallableTools {
        pinned,
        exists: Box::new(there),
    }
}

/// `mgp/tools/session`.
pub(crate) async fn show_session(cx: &Context, caller: &Caller) -> Outcome {
    let outside = callable_tools(cx, caller);
    let (cache, note) = match caller_tool_cache(cx, caller) {
        Some(holding) => (holding.read(outside).await?, None),
        None => {
            let cache = ToolCache::new(cx.exposure.budget, outside.pinned);
            (cache, Some(NO_SESSION_MESSAGE.to_owned()))
        }
    };
    let budget = *cache.budget();
    json_outcome(&SessionTools {
        pinned: visible_names(cx, caller, cache.pinned().iter().map(|one| &*one.tool)),
        cached: visible_names(cx, caller, cache.cached().map(|one| &*one.tool)),
        total_tokens: cache.total_tokens(),
        max_tokens: budget.max_tokens,
        tool_context_budget: budget,
        note,
    })
}

/// `mgp/tools/session/evict`.
pub(crate) async fn evict(cx: &Context, caller: &Caller, asked: Evict) -> Outcome {
    if asked.tools.len() > TOOLS_MAX {
        return Err(Refusal::BadParams(format!(
            "`tools` has {} entries, over the limit of {TOOLS_MAX}",
            asked.tools.len()
        )));
    }
    let shown = cx.catalog.load();
    let meant = |name: &str| {
        let tool = shown.catalog.tool(&caller.view, name)?;
        Some(tool.canonical_name.clone())
    };
    let outside = callable_tools(cx, caller);
    let named = asked.tools.into_iter().map(|name| {
        let tool = meant(&name);
        (name, tool)
    });
    let Some(holding) = caller_tool_cache(cx, caller) else {
        let is_pinned = |tool: &Option<Arc<str>>| {
            let all = &outside.pinned;
            tool.as_ref()
                .is_some_and(|t| all.iter().any(|one| one.tool == *t))
        };
        let (pinned, absent): (Vec<_>, Vec<_>) = named.partition(|(_, tool)| is_pinned(tool));
        let names = |list: Vec<(String, _)>| list.into_iter().map(|(name, _)| name).collect();
        return json_outcome(&Evicted {
            evicted: Vec::new(),
            pinned: names(pinned),
            not_cached: names(absent),
            total_tokens: outside.pinned.iter().map(|one| one.tokens).sum(),
        });
    };
    let named = named.collect();
    json_outcome(&holding.evict(outside, named).await?)
}

/// Tool names as this caller knows them.
fn visible_names<'a>(
    cx: &Context,
    caller: &Caller,
    tools: impl Iterator<Item = &'a str>,
) -> Vec<String> {
    let shown = cx.catalog.load();
    let name = |canonical: &str| {
        let tool = shown.catalog.tool(&CatalogView::All, canonical);
        let name = |tool: &Arc<CatalogTool>| tool.name_in_view(&caller.view).to_owned();
        tool.map_or_else(|| canonical.to_owned(), name)
    };
    tools.map(name).collect()
}

/// More than any session can hold.
const TOOLS_MAX: usize = 512;

pub(crate) fn is_in_view(view: &CatalogView, tool: &CatalogTool) -> bool {
    view.includes(&tool.server)
}
