//! HTTP, both ways: our own doors, and the servers behind other people's.
//!
//! Moves requests, replies and event streams; what they mean is decided one floor up.

pub mod address_scope;
pub mod body;
pub mod certificate;
pub mod client;
mod connection;
mod dial;
pub mod guard;
pub mod listener_tls;
pub mod names;
mod pooled_connection;
pub mod proxy;
mod safe_url;
pub mod server;
pub mod tls;

use std::error::Error;

pub use self::safe_url::is_safe_url;

/// An error and what caused it, the innermost last.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// The words of the innermost cause: the one that says what happened.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    causes(error).last().unwrap_or(error).to_string()
}

#[cfg(test)]
mod tests;
