//! Pipes to children.

use std::os::fd::AsFd;

/// Pipes have the system's size.
pub fn enlarge(_pipe: &impl AsFd) {}
