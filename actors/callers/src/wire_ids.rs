//! The ids of the kernel's requests to one peer, a server or a client.

use mgp_engine::callers::request_ids::RequestIds;

use mgp_runtime::randomness;

/// Ids that no other connection has, nor one of an earlier kernel: an answer that comes late finds
/// nothing it could settle.
///
/// # Panics
/// When the system has no randomness.
pub fn of_a_connection() -> RequestIds {
    RequestIds::new(randomness::bytes())
}
