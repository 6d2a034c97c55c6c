//! The parts of MGP the kernel offers, the same to agents and to servers. The results of negotiation are in
//! [`crate::request::Caller::mgp`] and in the link of each server.

use mgp_engine::servers::consent::Consents;
use mgp_protocol::dialect::Era;
use mgp_protocol::mcp::meta::CLIENT_CAPABILITIES;
use mgp_protocol::mgp::negotiation::{self, Active, Features, Negotiated, PLAIN};
use mgp_protocol::splice::member;
use serde_json::value::RawValue;

/// Streams, callbacks and events are not offered, because the kernel does not have them.
pub const OFFERED: Features = Features::PERMISSIONS
    .and(Features::TOOL_SECURITY)
    .and(Features::ACCESS_CONTROL)
    .and(Features::AUDIT)
    .and(Features::CODE_SAFETY)
    .and(Features::LIFECYCLE)
    .and(Features::DISCOVERY)
    .and(Features::TOOL_DISCOVERY)
    .and(Features::ERROR_HANDLING);

/// The result of negotiating with a client of these capabilities. A malformed declaration counts as
/// none.
pub fn with_client(capabilities: Option<&RawValue>, era: Era) -> Negotiated {
    let negotiated = Negotiated::with(OFFERED, capabilities, era);
    if let Negotiated::Plain(Some(why)) = &negotiated {
        tracing::debug!("a client is spoken to in plain MCP: {why}");
    }
    negotiated
}

/// The capabilities the kernel declares to a server; `offers` is false for one whose entry says
/// `mgp = false`.
#[must_use]
pub fn declared(capabilities: &str, era: Era, offers: bool) -> String {
    match offers {
        true => negotiation::offered_in(capabilities, era, OFFERED),
        false => capabilities.to_owned(),
    }
}

/// The client capabilities in a modern request to a server: MGP is negotiated with the kernel, so the
/// client's own declaration is removed, and so are capabilities for questions that the server may not
/// ask.
pub fn redeclared<'p>(
    params: &'p str,
    client: &Negotiated,
    server: &Negotiated,
    consents: Consents,
) -> Option<(&'p str, String)> {
    if !server.is_active() && *client == PLAIN && !consents.restrict() {
        return None;
    }
    let said = member(member(params, "_meta")?, CLIENT_CAPABILITIES)?;
    let instead = match server.is_active() {
        true => declared(said, Era::Modern, true),
        false => negotiation::undeclared(said),
    };
    let instead = consents.declared(&instead).into_owned();
    Some((said, instead))
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

/// Remarks about a server's MGP declaration, for its log.
#[must_use]
pub fn remark(mgp: &Negotiated) -> Option<String> {
    match mgp {
        Negotiated::Plain(None) => None,
        Negotiated::Plain(Some(why)) => Some(format!("it is spoken to in plain MCP: {why}")),
        Negotiated::Active(active) => Some(spoken(active)),
    }
}

fn spoken(active: &Active) -> String {
    let words = active.words().join(", ");
    let differs = match active.minor_differs {
        true => "; it announces another minor version, which hides nothing that both know",
        false => "",
    };
    format!("it speaks MGP {} with us: {words}{differs}", active.version)
}
