//! `mgp/tools/discover` and `mgp/tools/call` (MGP §16.5): as methods for callers that negotiated
//! `tool_discovery`, and as tools of the kernel for all.

mod request;
pub(crate) mod session;

use std::sync::Arc;

use bytestring::ByteString;
use mgp_engine::callers::{token_cost, tool_cache};
use mgp_engine::policy::pins::Effect;
use mgp_engine::tool_names::canonical_name;
use mgp_engine::tools::brief;
use mgp_engine::tools::catalog::CatalogView;
use mgp_engine::tools::index::{IndexedTool, RESULTS_MAX, SearchFilter, Strategy};
use mgp_json::{Splice, member, quote, set_members, unquote};
use mgp_protocol::mcp;
use mgp_protocol::mgp::discovery::security::with_effective_level;
use mgp_protocol::mgp::tools::meta::MetaTool;
use mgp_protocol::mgp::tools::{
    self, BriefMatch, Call, DEFAULT_RESULTS, DESCRIBED_MAX, Describe, DescribedTools, Discover,
    DiscoverToolsResult, DiscoveredTool, Session, ToolMatch,
};
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

use crate::Context;
use crate::answer::{json_outcome, parse_string, to_tool_result};
use crate::audit::{self, PendingCallRecord};
use crate::mgp::kernel_tool;
use crate::skills;
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_runtime::time::unix_ms;
use mgp_tools::search::{Hit, ServerStatusFilter, ToolQuery};

/// `mgp/tools/discover`.
///
/// # Errors
/// [`Refusal::BadParams`]; what a search can end with.
pub async fn discover(cx: &Context, request: &Request) -> Outcome {
    count_searches(cx, &request.caller, 1)?;
    let asked = mcp::parse_params(request.params.as_deref())?;
    search_tools(cx, request, asked).await
}

/// `mgp/tools/request`.
///
/// # Errors
/// As [`discover`].
pub async fn request(cx: &Context, request: &Request) -> Outcome {
    let asked = mcp::parse_params(request.params.as_deref())?;
    let answer = async |facts: Arc<PendingCallRecord>| {
        facts.set_request(MetaTool::Request.tool_name(), request, None);
        count_searches(cx, &request.caller, 1)?;
        request::request_tools(cx, &request.caller, asked, &facts).await
    };
    audit::run_audited(cx, request, answer).await
}

/// `mgp/tools/session`.
///
/// # Errors
/// [`Refusal::BadParams`].
pub async fn session(cx: &Context, request: &Request) -> Outcome {
    let Session { .. } = mcp::parse_params(request.params.as_deref())?;
    session::show_session(cx, &request.caller).await
}

/// `mgp/tools/session/evict`.
///
/// # Errors
/// [`Refusal::BadParams`].
pub async fn evict(cx: &Context, request: &Request) -> Outcome {
    let asked = mcp::parse_params(request.params.as_deref())?;
    session::evict(cx, &request.caller, asked).await
}

/// The same as a tool of the kernel.
pub(crate) async fn call_as_tool(
    cx: &Context,
    request: &Request,
    tool: MetaTool,
    arguments: &str,
    facts: &PendingCallRecord,
) -> Outcome {
    let caller = &request.caller;
    let answer = match tool {
        MetaTool::Discover => {
            search_tools(cx, request, mcp::parse_params(Some(arguments))?).await?
        }
        MetaTool::Request => {
            let asked = mcp::parse_params(Some(arguments))?;
            request::request_tools(cx, caller, asked, facts).await?
        }
        MetaTool::Session => {
            let Session { .. } = mcp::parse_params(Some(arguments))?;
            session::show_session(cx, caller).await?
        }
        MetaTool::Evict => session::evict(cx, caller, mcp::parse_params(Some(arguments))?).await?,
        MetaTool::Describe => {
            let answer = describe_tools(cx, caller, mcp::parse_params(Some(arguments))?)?;
            json_outcome(&answer)?
        }
        MetaTool::Call | MetaTool::CallRead | MetaTool::CallWrite => {
            return Err(Refusal::UnknownTool(tool.tool_name().to_owned()));
        }
    };
    Ok(to_tool_result(caller, &answer))
}

/// Counts an agent's searches as calls; the operator's do not count.
pub(crate) fn count_searches(
    cx: &Context,
    caller: &Caller,
    searches: usize,
) -> Result<(), Refusal> {
    if caller.operator {
        Ok(())
    } else {
        (0..searches).try_for_each(|_| cx.policies.count_call(caller))
    }
}

async fn search_tools(cx: &Context, request: &Request, asked: Discover) -> Outcome {
    let caller = &request.caller;
    let (who, words) = (caller.identity(), asked.query.clone());
    let wanted = to_query(&caller.view, asked);
    let strategy = wanted.strategy;
    let (skills, found) = tokio::join!(
        skills::search(cx, request, &who, &words),
        cx.search.search(&who, wanted)
    );
    let found = found?;
    let discovered = |hit: &Hit| {
        let whole = to_found(cx, &caller.view, hit);
        if cx.exposure.brief_answers {
            DiscoveredTool::Brief(to_brief(whole))
        } else {
            DiscoveredTool::Whole(whole)
        }
    };
    let tools: Vec<DiscoveredTool> = found.hits.iter().map(discovered).collect();
    let costs: Vec<u64> = tools.iter().map(found_cost).collect();
    let fitting = tool_cache::count_fitting_results(&cx.exposure.budget, &costs);
    let left_out = tools.len() - fitting;
    let answer = DiscoverToolsResult {
        tools: tools.into_iter().take(fitting).collect(),
        skills,
        total_available: found.visible,
        search_strategy: to_protocol_strategy(strategy),
        fallback_strategy: (found.strategy != strategy)
            .then(|| to_protocol_strategy(found.strategy)),
        query_time_ms: u64::try_from(found.duration.as_millis()).unwrap_or(u64::MAX),
        left_out,
        note: found.remark(),
    };
    json_outcome(&answer)
}

/// The definitions of found tools, of those that the caller may call.
fn describe_tools(
    cx: &Context,
    caller: &Caller,
    asked: Describe,
) -> Result<DescribedTools, Refusal> {
    if asked.names.len() > DESCRIBED_MAX {
        return Err(Refusal::BadParams(format!(
            "`names` has {} names; at most {DESCRIBED_MAX} are described at once",
            asked.names.len()
        )));
    }
    let (table, who, now) = (cx.policies.access.table(), caller.identity(), unix_ms());
    let mut described = DescribedTools {
        tools: Vec::new(),
        unknown: Vec::new(),
    };
    for name in asked.names {
        let tool = cx.tool(&caller.view, &name).filter(|tool| {
            table.is_allowed(&who, &tool.server, Some(&tool.own_name), now)
                && !cx.policies.pins.is_blocked(&tool.server, &tool.own_name)
                && !tool.is_app_only()
        });
        let definition = tool.and_then(|tool| {
            let definition = set_members(tool.visible_raw(), &[("name", &quote(&name))]);
            RawValue::from_string(definition).ok()
        });
        match definition {
            Some(definition) => described.tools.push(definition),
            None => described.unknown.push(name),
        }
    }
    Ok(described)
}

/// The most that a tool may do which is called through this finding tool; `None` for a tool that calls no others.
pub(crate) const fn effect_limit(tool: MetaTool) -> Option<Option<Effect>> {
    match tool {
        MetaTool::Call => Some(None),
        MetaTool::CallRead => Some(Some(Effect::Read)),
        MetaTool::CallWrite => Some(Some(Effect::Write)),
        MetaTool::Discover
        | MetaTool::Request
        | MetaTool::Session
        | MetaTool::Evict
        | MetaTool::Describe => None,
    }
}

/// The tool that a call means, if need be through a finding tool.
pub(crate) struct CalledTool<'a> {
    pub(crate) name: String,
    /// The most that it may do.
    pub(crate) limit: Option<Effect>,
    /// An object in JSON.
    pub(crate) arguments: &'a str,
}

/// The tool that a call means, and its arguments.
pub(crate) fn called_tool<'a>(
    caller: &Caller,
    call: &mcp::tools::Call<'a>,
) -> Result<CalledTool<'a>, Refusal> {
    let name = parse_string(call.name, "name")?;
    let arguments = call.arguments.map_or("{}", RawValue::get);
    let Some(limit) = kernel_tool::meta_tool(caller, &name).and_then(effect_limit) else {
        return Ok(CalledTool {
            name,
            limit: None,
            arguments,
        });
    };
    let found: Call<'_> = mcp::parse_params(Some(arguments))?;
    Ok(CalledTool {
        name: found.name.into_owned(),
        limit,
        arguments: found.arguments.map_or("{}", RawValue::get),
    })
}

/// That call, as the caller would make it directly. A model makes it, so tools that are only for apps are unknown.
pub(crate) fn to_direct_call(
    cx: &Context,
    request: &Request,
    call: Call<'_>,
) -> Result<Request, Refusal> {
    let tool = cx.tool(&request.caller.view, &call.name);
    if tool.is_some_and(|tool| tool.is_app_only()) {
        return Err(Refusal::UnknownTool(call.name.into_owned()));
    }
    if MetaTool::from_name(&call.name).is_some() {
        return Err(Refusal::BadParams(format!(
            "`name` is {}, which is called by itself",
            call.name
        )));
    }
    let arguments = call.arguments.map_or("{}", RawValue::get);
    let outer = request.params.as_deref().unwrap_or("{}");
    let mut params = format!(
        r#"{{"name":{},"arguments":{arguments}}}"#,
        quote(&call.name)
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
        call: request.call.clone(),
        method: ByteString::from_static("tools/call"),
        params: Some(params.into()),
        trace: request.trace.clone(),
    })
}

fn to_query(view: &CatalogView, asked: Discover) -> ToolQuery {
    let filter = asked.filter;
    ToolQuery {
        query: asked.query,
        strategy: asked.strategy.map_or(Strategy::Hybrid, to_engine_strategy),
        filter: SearchFilter {
            categories: filter.categories,
            risk_max: filter.risk_level_max,
        },
        status: filter.status.map_or(
            ServerStatusFilter::Connected,
            ServerStatusFilter::from_status,
        ),
        view: view.clone(),
        limit: asked
            .max_results
            .unwrap_or(DEFAULT_RESULTS)
            .min(RESULTS_MAX),
    }
}

fn to_engine_strategy(strategy: tools::Strategy) -> Strategy {
    match strategy {
        tools::Strategy::Keyword => Strategy::Keyword,
        tools::Strategy::Semantic => Strategy::Semantic,
        tools::Strategy::Category => Strategy::Category,
        tools::Strategy::Hybrid => Strategy::Hybrid,
    }
}

fn to_protocol_strategy(strategy: Strategy) -> tools::Strategy {
    match strategy {
        Strategy::Keyword => tools::Strategy::Keyword,
        Strategy::Semantic => tools::Strategy::Semantic,
        Strategy::Category => tools::Strategy::Category,
        Strategy::Hybrid => tools::Strategy::Hybrid,
    }
}

/// A hit under the name by which it is called in this view, with all that a call needs.
pub(crate) fn to_found(cx: &Context, view: &CatalogView, hit: &Hit) -> ToolMatch {
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
    let called = member(raw, "name").and_then(unquote);
    let called = called.as_deref().unwrap_or(name);
    let description = member(raw, "description");
    let description = description.and_then(|text| serde_json::from_str(text).ok());
    let empty = || RawValue::from_string("{\"type\":\"object\"}".into()).expect("this is JSON");
    ToolMatch {
        name: view.name_for(server, called),
        server_id: server.to_string(),
        tool_id: canonical_name(server, name),
        description: description.unwrap_or_default(),
        relevance_score: Some(hit.score),
        fits: hit.is_good_match,
        effect: cx.policies.pins.effect(server, name).map(Effect::as_str),
        input_schema: part("inputSchema", raw).unwrap_or_else(empty),
        security: part("security", &with_effective_level(raw, *risk)),
    }
}

/// The same in short.
fn to_brief(found: ToolMatch) -> BriefMatch {
    BriefMatch {
        does: brief::first_sentence(&found.description),
        arguments: brief::arguments(found.input_schema.get()),
        name: found.name,
        fits: found.fits,
        effect: found.effect,
    }
}

/// What a hit costs of a model's context, as estimated by [`tokenizer`].
fn found_cost(found: &DiscoveredTool) -> u64 {
    let texts =
        |texts: &[&str]| -> u64 { texts.iter().map(|it| token_cost::estimate_text(it)).sum() };
    match found {
        DiscoveredTool::Whole(found) => {
            texts(&[&found.description, &found.name])
                + token_cost::estimate_definition(found.input_schema.get())
        }
        DiscoveredTool::Brief(found) => texts(&[&found.name, &found.does, &found.arguments]),
    }
}
