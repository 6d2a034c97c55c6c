//! The MGP extensions that the kernel offers, the same to agents and to servers. The results of negotiation
//! are in [`crate::request::Caller::mgp`] and in the link of each server.

use std::sync::Arc;

use mgp_json::quote;
use mgp_protocol::dialect::Version;
use mgp_protocol::mcpl;
use mgp_protocol::mgp::negotiation::{self, Features, Negotiated};
use serde_json::value::RawValue;

/// All known extensions and features.
pub const OFFERED_FEATURES: Features = Features::PERMISSIONS
    .union(Features::TOOL_SECURITY)
    .union(Features::ACCESS_CONTROL)
    .union(Features::AUDIT)
    .union(Features::CODE_SAFETY)
    .union(Features::LIFECYCLE)
    .union(Features::CALLBACKS)
    .union(Features::STREAMING)
    .union(Features::PROGRESS)
    .union(Features::EVENTS)
    .union(Features::DISCOVERY)
    .union(Features::TOOL_DISCOVERY)
    .union(Features::ERROR_HANDLING);

/// Negotiates MGP with a client of this version and these capabilities. A malformed declaration counts as
/// none.
pub fn negotiate_with_client(capabilities: Option<&RawValue>, version: Version) -> Negotiated {
    let negotiated =
        Negotiated::from_capabilities(OFFERED_FEATURES, capabilities, version.family());
    if let Negotiated::Plain(Some(error)) = &negotiated {
        tracing::debug!("invalid MGP declaration of a client; MGP is not used: {error}");
    }
    negotiated
}

/// Reads the MCPL declaration in the capabilities of a client that sends `initialize`. A malformed
/// declaration counts as none.
#[must_use]
pub(crate) fn negotiate_mcpl(capabilities: &RawValue) -> Option<Arc<mcpl::HostCapabilities>> {
    match mcpl::HostCapabilities::parse(Some(capabilities)) {
        Ok(declared) => declared.map(Arc::new),
        Err(error) => {
            tracing::debug!("invalid MCPL declaration of a client; MCPL is not used: {error}");
            None
        }
    }
}

/// Renders the kernel's own `Implementation` object.
#[must_use]
pub fn render_kernel_info() -> String {
    format!(
        r#"{{"name":"mgp","title":"MGP kernel","version":{}}}"#,
        quote(env!("CARGO_PKG_VERSION"))
    )
}

/// Renders the capabilities declared to a client, with MGP where the client expects it. A view of one
/// server includes that server's id and trust.
#[must_use]
pub fn render_capabilities(
    capabilities: String,
    mgp: &Negotiated,
    server: Option<(&str, &str)>,
) -> String {
    let Some(active) = mgp.as_active() else {
        return capabilities;
    };
    let answer = active.render_answer(server.map(|(id, _)| id), server.map(|(_, trust)| trust));
    negotiation::with_declaration(&capabilities, active.peer.carrier, &answer)
}
