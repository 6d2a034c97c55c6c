//! Which files of projects hold: a `./mgp.toml` comes with whatever was cloned or unpacked, so
//! it counts only once its user has seen what it would start. What was seen is known by its path and
//! the hash of its bytes.

mod book;
mod ownership;
mod project;

pub use book::{Book, Entry, MAX_ENTRIES, TrustError, change};
pub use project::{Project, Untrusted, Why, hash, judge, location, read_fit};
