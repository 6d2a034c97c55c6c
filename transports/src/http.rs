//! HTTP: our own listeners, and clients of upstream servers.
//!
//! Moves requests, replies and event streams without interpreting them.

pub mod address_scope;
pub mod body;
pub mod certificate;
pub mod client;
mod connection;
mod cors;
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

/// An error and its causes, the innermost last.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// The text of the innermost cause, which is the most specific.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    causes(error).last().unwrap_or(error).to_string()
}

#[cfg(test)]
mod tests;
