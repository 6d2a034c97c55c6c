//! Which files of projects hold: a `./mgp.toml` comes with whatever was cloned or unpacked, so
//! it counts only once its user has seen what it would start. What was seen is known by its path and
//! the hash of its bytes.

mod ownership;
mod project;
mod store;

pub use project::{
    FILE_BYTES_MAX, ProjectFile, UntrustedFile, UntrustedReason, evaluate, hash, read_checked,
    trusted_path,
};
pub use store::{TrustError, TrustStore, TrustedFile, modify_store};
