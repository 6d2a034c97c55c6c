//! `context/*`, of agents that are MCPL hosts (MCPL §10).

use crate::Context;
use crate::mcpl::unanswered;
use mgp_callers::request::{Caller, Outcome, Request};

/// `context/beforeInference`.
///
/// # Errors
/// Nobody answers it yet.
pub async fn before_inference(_: &Context, request: &Request) -> Outcome {
    unanswered(request)
}

/// `context/afterInference`, as a request.
///
/// # Errors
/// Nobody answers it yet.
pub async fn after_inference(_: &Context, request: &Request) -> Outcome {
    unanswered(request)
}

/// `context/afterInference`, as a notification.
pub fn inferred(_: &Context, _: &Caller, _: Option<&str>) {}
