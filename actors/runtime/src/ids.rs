//! Unguessable ids.

use mgp_engine::callers::request_ids::RequestIds;
use mgp_protocol::ids::SessionId;

use crate::randomness;

/// MCP-083, CMCP-020: a random UUID of version 4.
#[must_use]
pub fn new_session_id() -> SessionId {
    let mut b = randomness::random_bytes::<16>();
    b[6] = b[6] & 0x0f | 0x40;
    b[8] = b[8] & 0x3f | 0x80;
    let hex: String = b.iter().map(|byte| format!("{byte:02x}")).collect();
    SessionId::new(format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    ))
}

/// The ids of the kernel's requests to one client. They are unique to the connection and to this run of the kernel, so that
/// a late answer matches no request.
#[must_use]
pub fn new_request_ids() -> RequestIds {
    RequestIds::new(randomness::random_bytes())
}
