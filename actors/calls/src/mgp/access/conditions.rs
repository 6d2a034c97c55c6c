//! Conditions of grants, as the operator writes them and asks about them.

use std::sync::Arc;

use mgp_engine::doors::name_resolver::ServerOrTool;
use mgp_engine::tools::catalog::CatalogTool;
use mgp_json::member;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mgp::access::{Explanation, Permission};
use mgp_protocol::refusal::Refusal;
use mgp_screening::conditions::Condition;
use serde_json::{Map, Value};

use crate::Context;
use crate::checks::conditions::ConditionFacts;

/// Checks a condition, and the arguments in it against the schemas of the tools that it is about, as far as they are
/// known.
pub(super) fn check(
    cx: &Context,
    when: &str,
    place: &ServerOrTool,
    agent: &AgentId,
) -> Result<(), Refusal> {
    let condition = Condition::compile(when)
        .map_err(|why| Refusal::BadParams(format!("the condition cannot be read, {why}")))?;
    let tools = find_tools(cx, place);
    let schemas = tools
        .iter()
        .filter_map(|tool| member(&tool.raw, "inputSchema"));
    let schemas: Vec<&str> = schemas.collect();
    condition.check_schemas(&schemas).map_err(|why| {
        Refusal::BadParams(format!(
            "the condition on {} for {agent} can never hold: {why}",
            place.canonical_name()
        ))
    })
}

/// The listed tools that an entry is about.
fn find_tools(cx: &Context, place: &ServerOrTool) -> Vec<Arc<CatalogTool>> {
    let shown = cx.catalog.load();
    let Some(offer) = shown.catalog.offer(&place.server) else {
        return Vec::new();
    };
    let is_meant = |tool: &&Arc<CatalogTool>| match place.tool.as_deref() {
        None => true,
        Some(name) => {
            *tool.own_name == *name
                || name
                    .strip_suffix('*')
                    .is_some_and(|beginning| tool.own_name.starts_with(beginning))
        }
    };
    offer.tools().iter().filter(is_meant).cloned().collect()
}

/// Evaluates the conditions of an explanation for the arguments of a call.
pub(super) async fn apply(
    cx: &Context,
    agent: &AgentId,
    place: &ServerOrTool,
    arguments: &Map<String, Value>,
    mut explained: Explanation,
) -> Result<Explanation, Refusal> {
    if explained.conditions.is_empty() {
        return Ok(explained);
    }
    let tools = find_tools(cx, place);
    let Some(tool) = tools.first() else {
        return Err(Refusal::BadParams(format!(
            "{} is not listed, so its conditions cannot be evaluated",
            place.canonical_name()
        )));
    };
    let known = ConditionFacts::new(cx, agent, tool);
    let arguments = Value::Object(arguments.clone()).to_string();
    for explained in &mut explained.conditions {
        let condition = Condition::compile_or_closed(&explained.when);
        let outcome = known.explain(&condition, &arguments).await;
        explained.holds = Some(outcome.is_ok());
        explained.failure = outcome.err();
    }
    let mut all = explained.conditions.iter();
    if let Some(holding) = all.find(|condition| condition.holds == Some(true)) {
        explained.permission = Permission::Allow;
        explained.rule = format!(
            "the condition of grant {} holds: {}",
            holding.grant_id, holding.when
        );
    } else {
        let all = explained.conditions.iter().map(|condition| {
            let failure = condition.failure.as_deref().unwrap_or_default();
            format!(
                "the condition of grant {} does not hold: {failure}",
                condition.grant_id
            )
        });
        explained.rule = all.collect::<Vec<_>>().join("; ");
    }
    Ok(explained)
}
