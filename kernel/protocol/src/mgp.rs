//! The words of MGP that the kernel says and reads.

pub mod door;
pub mod kernel;
pub mod servers;

/// Prefix of every MGP method (MGP §1.5).
pub const PREFIX: &str = "mgp/";
