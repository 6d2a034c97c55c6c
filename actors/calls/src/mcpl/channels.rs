//! `channels/*`, of agents that are MCPL hosts (MCPL §14).

use crate::Context;
use crate::mcpl::unanswered;
use mgp_callers::request::{Caller, Outcome, Request};

/// `channels/list`.
///
/// # Errors
/// Nobody answers it yet.
pub async fn list(_: &Context, request: &Request) -> Outcome {
    unanswered(request)
}

/// `channels/open`.
///
/// # Errors
/// Nobody answers it yet.
pub async fn open(_: &Context, request: &Request) -> Outcome {
    unanswered(request)
}

/// `channels/close`.
///
/// # Errors
/// Nobody answers it yet.
pub async fn close(_: &Context, request: &Request) -> Outcome {
    unanswered(request)
}

/// `channels/publish`, as a request.
///
/// # Errors
/// Nobody answers it yet.
pub async fn publish(_: &Context, request: &Request) -> Outcome {
    unanswered(request)
}

/// `channels/publish`, as a notification.
pub fn published(_: &Context, _: &Caller, _: Option<&str>) {}

/// `channels/outgoing/chunk`.
pub fn outgoing_chunk(_: &Context, _: &Caller, _: Option<&str>) {}

/// `channels/outgoing/complete`.
pub fn outgoing_complete(_: &Context, _: &Caller, _: Option<&str>) {}
