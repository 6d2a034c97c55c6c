//! `featureSets/update` and `mcpl/manifest`, of agents that are MCPL hosts (MCPL §6.7, 0.5 §17.4).

use crate::Context;
use crate::mcpl::unhandled_method;
use mgp_callers::request::{Caller, Outcome, Request};

/// `featureSets/update`: what the agent wants of what the operator lets through.
pub fn update(cx: &Context, caller: &Caller, params: Option<&str>) {
    cx.mcpl_agents.update(caller, params);
}

/// `featureSets/update` as a request of a host that speaks 0.5: its grant, answered with a receipt.
///
/// # Errors
/// The grant is malformed.
pub async fn grant(cx: &Context, request: &Request) -> Outcome {
    let params = request.params.as_deref();
    match cx.mcpl_agents.grant(&request.caller, params) {
        Some(receipt) => Ok(receipt?.into()),
        None => unhandled_method(request),
    }
}

/// `mcpl/manifest` of a host that speaks 0.5.
///
/// # Errors
/// The host speaks another version.
pub async fn manifest(cx: &Context, request: &Request) -> Outcome {
    match cx.mcpl_agents.manifest(&request.caller) {
        Some(manifest) => Ok(manifest.into()),
        None => unhandled_method(request),
    }
}
