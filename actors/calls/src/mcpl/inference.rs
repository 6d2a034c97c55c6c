//! `inference/chunk`, of agents that are MCPL hosts (MCPL §11.4).

use crate::Context;
use mgp_callers::request::Caller;

/// `inference/chunk`: of an inference that this agent was asked for.
pub fn handle_chunk(_: &Context, caller: &Caller, params: Option<&str>) {
    if let (Some(agent), Some(params)) = (caller.live_connection(), params) {
        agent.handle_chunk(params);
    }
}
