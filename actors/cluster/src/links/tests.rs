//! Nodes in one process, over loopback.

mod crossing;
mod keeping_out;
mod members;
mod pins;
mod relay;
pub(crate) mod scene;
mod sockets;
