//! `mgp/tools/discover` and `mgp/tools/call` (MGP §16.5): as methods for callers that negotiated
//! `tool_discovery`, and as tools of the kernel for all.

mod request;
pub(crate) mod session;

use std::sync::Arc;

use bytestring::ByteString;
use mgp_engine::callers::{token_cost, tool_cache};
use mgp_engine::tool_names::canonical;
use mgp_engine::tools::catalog::CatalogView;
use mgp_engine::tools::index::{Filter, IndexedTool, RESULTS_MAX, Strategy};
use mgp_protocol::mcp;
use mgp_protocol::mgp::discovery::security::with_effective;
use mgp_protocol::mgp::tools::meta::MetaTool;
use mgp_protocol::mgp::tools::{self, Call, Discover, Discovered, Found, RESULTS, Session};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::{Splice, member, quoted};
use serde_json::value::RawValue;

use crate::Context;
use crate::answer::{json, structured, text};
use crate::audit::{self, CallFacts};
use crate::mgp::kernel_tool;
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_tools::search::{Hit, ServerStatusFilter, ToolQuery};

/// `mgp/tools/discover`.
///
/// # Errors
/// [`Refusal::BadParams`]; what a search can end with.
pub async fn discover(cx: &Context, request: &Request) -> Outcome {
    counts(cx, &request.caller, 1)?;
    let asked = mcp::read(request.params.as_deref())?;
    discovered(cx, &request.caller, asked).await
}

/// `mgp/tools/request`.
///
/// # Errors
/// As [`discover`].
pub async fn request(cx: &Context, request: &Request) -> Outcome {
    let asked = mcp::read(request.params.as_deref())?;
    let answer = async |facts: Arc<CallFacts>| {
        facts.asks_for(MetaTool::Request.shown(), request, None);
        counts(cx, &request.caller, 1)?;
        request::requested(cx, &request.caller, asked, &facts).await
    };
    audit::audited(cx, request, answer).await
}

/// `mgp/tools/session`.
///
/// # Errors
/// [`Refusal::BadParams`].
pub async fn session(cx: &Context, request: &Request) -> Outcome {
    let Session { .. } = mcp::read(request.params.as_deref())?;
    session::held(cx, &request.caller).await
}

/// `mgp/tools/session/evict`.
///
/// # Errors
/// [`Refusal::BadParams`].
pub async fn evict(cx: &Context, request: &Request) -> Outcome {
    let asked = mcp::read(request.params.as_deref())?;
    session::evicted(cx, &request.caller, asked).await
}

/// The same as a tool of the kernel.
pub(crate) async fn by_tool(
    cx: &Context,
    request: &Request,
    tool: MetaTool,
    arguments: &str,
    facts: &CallFacts,
) -> Outcome {
    let caller = &request.caller;
    let answer = match tool {
        MetaTool::Discover => discovered(cx, caller, mcp::read(Some(arguments))?).await?,
        MetaTool::Request => {
            let asked = mcp::read(Some(arguments))?;
            request::requested(cx, caller, asked, facts).await?
        }
        MetaTool::Session => {
            let Session { .. } = mcp::read(Some(arguments))?;
            session::held(cx, caller).await?
        }
        MetaTool::Evict => session::evicted(cx, caller, mcp::read(Some(arguments))?).await?,
        MetaTool::Call => return Err(Refusal::UnknownTool(tool.shown().to_owned())),
    };
    Ok(structured(caller, &answer))
}

/// Counts an agent's searches as calls; the operator's do not count.
pub(crate) fn counts(cx: &Context, caller: &Caller, searches: usize) -> Result<(), Refusal> {
    match caller.operator {
        true => Ok(()),
        false => (0..searches).try_for_each(|_| cx.policies.rates.call(&caller.agent)),
    }
}

async fn discovered(cx: &Context, caller: &Caller, asked: Discover) -> Outcome {
    let wanted = wanted(&caller.view, asked);
    let strategy = wanted.strategy;
    let found = cx.search.search(&caller.identity(), wanted).await?;
    let tools: Vec<Found> = found
        .hits
        .iter()
        .map(|hit| told(&caller.view, hit))
        .collect();
    let costs: Vec<u64> = tools.iter().map(cost).collect();
    let fitting = tool_cache::fitting(&cx.exposing.budget, &costs);
    let left_out = tools.len() - fitting;
    let answer = Discovered {
        tools: tools.into_iter().take(fitting).collect(),
        total_available: found.visible,
        search_strategy: word(strategy),
        fallback_strategy: (found.strategy != strategy).then(|| word(found.strategy)),
        query_time_ms: u64::try_from(found.took.as_millis()).unwrap_or(u64::MAX),
        left_out,
        note: found.note(),
    };
    json(&answer)
}

/// The tool that a call through `mgp/tools/call` means.
pub(crate) fn meant(caller: &Caller, call: &mcp::tools::Call<'_>) -> Result<String, Refusal> {
    let name = text(call.name, "name")?;
    if kernel_tool::meta_tool(caller, &name) != Some(MetaTool::Call) {
        return Ok(name);
    }
    let arguments = call.arguments.map_or("{}", RawValue::get);
    let found: Call<'_> = mcp::read(Some(arguments))?;
    Ok(found.name.into_owned())
}

/// That call, as the caller would make it directly.
pub(crate) fn called(request: &Request, call: Call<'_>) -> Result<Request, Refusal> {
    if MetaTool::named(&call.name).is_some() {
        return Err(Refusal::BadParams(format!(
            "`name` is {}, which is called by itself",
            call.name
        )));
    }
    let arguments = call.arguments.map_or("{}", RawValue::get);
    let outer = request.params.as_deref().unwrap_or("{}");
    let mut params = format!(
        r#"{{"name":{},"arguments":{arguments}}}"#,
        quoted(&call.name)
    );
    for kept in ["_meta", "trace_id"] {
        if let Some(said) = member(outer, kept) {
            let mut splice = Splice::new(&params);
            splice.insert_member(&params, kept, said);
            params = splice.finish().into_owned();
        }
    }
    Ok(Request {
        caller: request.caller.clone(),
        exchange: request.exchange.clone(),
        method: ByteString::from_static("tools/call"),
        params: Some(params.into()),
        trace: request.trace.clone(),
    })
}

fn wanted(view: &CatalogView, asked: Discover) -> ToolQuery {
    let filter = asked.filter;
    ToolQuery {
        query: asked.query,
        strategy: asked.strategy.map_or(Strategy::Hybrid, searched),
        filter: Filter {
            categories: filter.categories,
            risk_max: filter.risk_level_max,
        },
        status: filter
            .status
            .map_or(ServerStatusFilter::Connected, ServerStatusFilter::of),
        view: view.clone(),
        most: asked.max_results.unwrap_or(RESULTS).min(RESULTS_MAX),
    }
}

fn searched(strategy: tools::Strategy) -> Strategy {
    match strategy {
        tools::Strategy::Keyword => Strategy::Keyword,
        tools::Strategy::Semantic => Strategy::Semantic,
        tools::Strategy::Category => Strategy::Category,
        tools::Strategy::Hybrid => Strategy::Hybrid,
    }
}

fn word(strategy: Strategy) -> tools::Strategy {
    match strategy {
        Strategy::Keyword => tools::Strategy::Keyword,
        Strategy::Semantic => tools::Strategy::Semantic,
        Strategy::Category => tools::Strategy::Category,
        Strategy::Hybrid => tools::Strategy::Hybrid,
    }
}

/// A hit under the name by which it is called in this view, with all that a call needs.
pub(crate) fn told(view: &CatalogView, hit: &Hit) -> Found {
    let IndexedTool {
        server,
        name,
        raw,
        risk,
        ..
    } = &hit.entry;
    let part = |name: &str, of: &str| {
        let part = member(of, name)?.to_owned();
        RawValue::from_string(part).ok()
    };
    // What agents call it may be another name than its server's.
    let called = member(raw, "name").and_then(|text| serde_json::from_str::<String>(text).ok());
    let called = called.as_deref().unwrap_or(name);
    let description = member(raw, "description");
    let description = description.and_then(|text| serde_json::from_str(text).ok());
    let empty = || RawValue::from_string("{\"type\":\"object\"}".into()).expect("this is JSON");
    Found {
        name: view.name_of(server, called),
        server_id: server.to_string(),
        tool_id: canonical(server, name),
        description: description.unwrap_or_default(),
        relevance_score: Some(hit.score),
        fits: hit.fits,
        input_schema: part("inputSchema", raw).unwrap_or_else(empty),
        security: part("security", &with_effective(raw, *risk)),
    }
}

/// What a hit costs of a model's context, as estimated by [`tokens`].
fn cost(found: &Found) -> u64 {
    let description = token_cost::of_text(&found.description);
    description
        + token_cost::of_definition(found.input_schema.get())
        + token_cost::of_text(&found.name)
}
