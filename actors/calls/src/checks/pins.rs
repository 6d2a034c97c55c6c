//! Check: the tool is the one that was approved (MGP §4.3).

use mgp_engine::tools::catalog::CatalogTool;
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
