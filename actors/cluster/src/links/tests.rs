//! Tests with several nodes in one process, over loopback.

mod crossed_links;
mod duplicate_keys;
mod members;
mod pins;
mod relay;
pub(crate) mod scene;
mod sockets;
