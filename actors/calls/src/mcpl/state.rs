//! `state/rollback`, of agents that are MCPL hosts (MCPL §8.5).

use crate::Context;
use crate::mcpl::unanswered;
use mgp_callers::request::{Outcome, Request};

/// `state/rollback`.
///
/// # Errors
/// Nobody answers it yet.
pub async fn rollback(_: &Context, request: &Request) -> Outcome {
    unanswered(request)
}
