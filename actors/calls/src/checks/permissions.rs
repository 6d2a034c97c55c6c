//! Check: the permissions of the tool's server (MGP §3).

use mgp_engine::policy::permissions::MissingPermissions;
use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::refusal::{Denial, Refusal};

use crate::Context;

/// Checks that the tool's server has every permission the tool needs.
///
/// # Errors
/// 1000 (MGP-050), which names the first that is missing.
pub(super) fn check_permissions(
    cx: &Context,
    name: &str,
    tool: &CatalogTool,
) -> Result<(), Refusal> {
    let needed = &tool.requirements.permissions;
    let judged = cx.policies.permissions.check(&tool.server, needed);
    judged.map_err(|lacking| missing_permission_refusal(name, &lacking))
}

fn missing_permission_refusal(name: &str, lacking: &MissingPermissions) -> Refusal {
    let missing = lacking.permissions.first();
    Refusal::Denied(Box::new(Denial::Permission {
        tool: name.to_owned(),
        permission: missing.map(ToString::to_string).unwrap_or_default(),
    }))
}
