//! Which files of projects hold: a `./mgp.toml` comes with whatever was cloned or unpacked, so
//! it counts only once its user has seen what it would start. What was seen is known by its path and
//! the hash of its bytes.

mod ownership;
mod project;
mod store;

pub use project::{
    Distrust, MAX_FILE, ProjectFile, UntrustedFile, hash, judge, location, read_fit,
};
pub use store::{TrustError, TrustStore, TrustedFile, change};
