//! The ids of the kernel's requests to one peer, a server or a client.

use mgp_engine::callers::request_ids::RequestIds;

use crate::randomness;

/// Ids that no other connection has, nor one of an earlier kernel: an answer that comes late finds
/// nothing it could settle.
///
/// # Panics
/// When the system has no randomness.
<<<<<<< HEAD:actors/callers/src/wire_ids.rs
pub fn of_a_connection() -> RequestIds {
    let mut key = [0; 16];
    getrandom::fill(&mut key).expect("the system has randomness");
    RequestIds::new(key)
=======
pub(crate) fn of_a_connection() -> RequestIds {
    RequestIds::new(randomness::bytes())
>>>>>>> screen:actors/src/wire_ids.rs
}
