//! Check: the tool is the one that was approved (MGP §4.3).

use mgp_engine::policy::pins::Effect;
use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::mgp::tools::meta::MetaTool;
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::checks::unlisted_names;
use mgp_callers::request::Caller;

/// Rejects a tool that changed since it was approved, as if it did not exist.
///
/// # Errors
/// What [`unlisted_names::absent_refusal`] says.
pub(super) fn check_approved(
    cx: &Context,
    caller: &Caller,
    name: &str,
    tool: &CatalogTool,
) -> Result<(), Refusal> {
    if cx.policies.pins.is_blocked(&tool.server, &tool.own_name) {
        Err(unlisted_names::absent_refusal(cx, caller, name.to_owned()))
    } else {
        Ok(())
    }
}

/// Rejects a tool of which no person confirmed that it does no more than `limit`, if there is one.
///
/// # Errors
/// [`Refusal::BadParams`], with the tool that calls it.
pub(super) fn check_effect(
    cx: &Context,
    name: &str,
    tool: &CatalogTool,
    limit: Option<Effect>,
) -> Result<(), Refusal> {
    let Some(limit) = limit else {
        return Ok(());
    };
    let effect = cx.policies.pins.effect(&tool.server, &tool.own_name);
    if effect.is_some_and(|effect| effect <= limit) {
        return Ok(());
    }
    let (promised, other) = match (limit, effect) {
        (Effect::Read, Some(Effect::Write)) => ("only reads", MetaTool::CallWrite),
        (Effect::Read, _) => ("only reads", MetaTool::Call),
        (Effect::Write, _) => ("destroys nothing", MetaTool::Call),
    };
    Err(Refusal::BadParams(format!(
        "nobody confirmed that {name} {promised}; call it with {}",
        other.tool_name()
    )))
}
