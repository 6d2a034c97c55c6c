//! HTTP, both ways: our own doors, and the servers behind other people's.
//!
//! Moves requests, replies and event streams; what they mean is decided one floor up.

pub mod address_scope;
pub mod body;
pub mod certificate;
pub mod client;
mod connection;
mod dial;
pub mod door_tls;
pub mod guard;
pub mod names;
pub mod proxy;
mod safe;
pub mod server;
pub mod tls;
mod wire;

use std::error::Error;

pub use self::safe::is_safe;

/// An error and what caused it, the innermost last.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// The words of the innermost cause: the one that says what happened.
fn innermost(error: &(dyn Error + 'static)) -> String {
    causes(error).last().unwrap_or(error).to_string()
}

#[cfg(test)]
mod tests;
