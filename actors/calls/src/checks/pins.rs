//! Check: the tool is the one that was approved (MGP §4.3).

use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::checks::arrival;
use mgp_callers::request::Caller;

/// Refuses a tool that changed since it was approved, as if it were gone.
///
/// # Errors
/// What [`arrival::absent`] says.
pub(super) fn approved(
    cx: &Context,
    caller: &Caller,
    name: &str,
    tool: &CatalogTool,
) -> Result<(), Refusal> {
    match cx.policies.pins.blocks(&tool.server, &tool.own_name) {
        true => Err(arrival::absent(cx, caller, name.to_owned())),
        false => Ok(()),
    }
}
