//! The kernel's capability declarations to servers, and the result of negotiation.

use mgp_engine::servers::consent::ConsentPolicy;
use mgp_json::member;
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::mcp::meta::CLIENT_CAPABILITIES;
use mgp_protocol::mgp::negotiation::{self, Active, Negotiated, PLAIN};

use mgp_callers::negotiation::OFFERED_FEATURES;

/// The capabilities the kernel declares to a server; `offers` is false if its entry says `mgp = false`.
pub(crate) fn declare_capabilities(
    capabilities: &str,
    family: ProtocolFamily,
    offers: bool,
) -> String {
    if offers {
        negotiation::with_offer(capabilities, family, OFFERED_FEATURES)
    } else {
        capabilities.to_owned()
    }
}

/// Rewrites the client capabilities in a stateless request to a server. MGP is negotiated by the kernel, so the
/// client's own declaration is removed, as are capabilities for callbacks that the server may not use.
pub(crate) fn rewrite_declaration<'p>(
    params: &'p str,
    client: &Negotiated,
    server: &Negotiated,
    consents: ConsentPolicy,
) -> Option<(&'p str, String)> {
    if !server.is_active() && *client == PLAIN && !consents.is_restricted() {
        return None;
    }
    let declared = member(member(params, "_meta")?, CLIENT_CAPABILITIES)?;
    let instead = if server.is_active() {
        declare_capabilities(declared, ProtocolFamily::Stateless, true)
    } else {
        negotiation::without_declaration(declared)
    };
    let instead = consents.allowed_capabilities(&instead).into_owned();
    Some((declared, instead))
}

/// Remarks about a server's MGP declaration, for its log.
pub(crate) fn mgp_remarks(mgp: &Negotiated) -> Option<String> {
    match mgp {
        Negotiated::Plain(None) => None,
        Negotiated::Plain(Some(why)) => Some(format!("it is spoken to in plain MCP: {why}")),
        Negotiated::Active(active) => Some(describe_mgp(active)),
    }
}

fn describe_mgp(active: &Active) -> String {
    let extensions = active.extension_names().join(", ");
    let differs = if active.minor_differs {
        "; it announces another minor version, which hides nothing that both know"
    } else {
        ""
    };
    format!(
        "it speaks MGP {} with us: {extensions}{differs}",
        active.version
    )
}
