//! `inference/chunk`, of agents that are MCPL hosts (MCPL §11.4).

use crate::Context;
use mgp_callers::request::Caller;

/// `inference/chunk`.
pub fn chunk(_: &Context, _: &Caller, _: Option<&str>) {}
