//! The parts of MGP the kernel offers, the same to agents and to servers. The results of negotiation are in
//! [`crate::request::Caller::mgp`] and in the link of each server.

use std::sync::Arc;

use mgp_protocol::dialect::Version;
use mgp_protocol::mcpl;
use mgp_protocol::mgp::negotiation::{self, Features, Negotiated};
use mgp_protocol::splice::quoted;
use serde_json::value::RawValue;

/// Everything there is a word for.
pub const OFFERED: Features = Features::PERMISSIONS
    .and(Features::TOOL_SECURITY)
    .and(Features::ACCESS_CONTROL)
    .and(Features::AUDIT)
    .and(Features::CODE_SAFETY)
    .and(Features::LIFECYCLE)
    .and(Features::CALLBACKS)
    .and(Features::STREAMING)
    .and(Features::PROGRESS)
    .and(Features::EVENTS)
    .and(Features::DISCOVERY)
    .and(Features::TOOL_DISCOVERY)
    .and(Features::ERROR_HANDLING);

/// The result of negotiating with a client of this version and these capabilities. A malformed declaration counts as
/// none.
pub fn with_client(capabilities: Option<&RawValue>, version: Version) -> Negotiated {
    let negotiated = Negotiated::with(OFFERED, capabilities, version.era());
    if let Negotiated::Plain(Some(why)) = &negotiated {
        tracing::debug!("a client is spoken to in plain MCP: {why}");
    }
    negotiated
}

/// What a client with these capabilities, which says `initialize`, declares of MCPL. A malformed declaration counts
/// as none.
#[must_use]
pub fn mcpl_with_client(capabilities: &RawValue) -> Option<Arc<mcpl::HostCapabilities>> {
    match mcpl::HostCapabilities::read(Some(capabilities)) {
        Ok(said) => said.map(Arc::new),
        Err(why) => {
            tracing::debug!("a client is not spoken to in MCPL: {why}");
            None
        }
    }
}

/// The kernel's own `Implementation` object.
#[must_use]
pub fn kernel_info() -> String {
    format!(
        r#"{{"name":"mgp","title":"MGP kernel","version":{}}}"#,
        quoted(env!("CARGO_PKG_VERSION"))
    )
}

/// The capabilities declared to a client, with MGP where the client looks for it. In a view of one server
/// with that server's id and trust.
#[must_use]
pub fn answered(capabilities: String, mgp: &Negotiated, of: Option<(&str, &str)>) -> String {
    let Some(active) = mgp.active() else {
        return capabilities;
    };
    let answer = active.answer(of.map(|(id, _)| id), of.map(|(_, trust)| trust));
    negotiation::declared_in(&capabilities, active.peer.carrier, &answer)
}
