//! Trust in project files: a `./mgp.toml` comes with whatever was cloned or unpacked, so it counts only after
//! its user has reviewed what it would start. Reviewed files are identified by path and
//! the hash of their bytes.

mod ownership;
mod project;
mod store;

pub(crate) use project::{
    FILE_BYTES_MAX, ProjectFile, UntrustedReason, evaluate, hash, read_checked, trusted_path,
};
pub(crate) use store::{TrustError, TrustStore, TrustedFile, modify_store};
