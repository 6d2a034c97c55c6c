//! `featureSets/update`, of agents that are MCPL hosts (MCPL §6.7).

use crate::Context;
use mgp_callers::request::Caller;

/// `featureSets/update`: what the agent wants of what the operator lets through.
pub fn update(cx: &Context, caller: &Caller, params: Option<&str>) {
    cx.mcpl_agents.update(caller, params);
}
