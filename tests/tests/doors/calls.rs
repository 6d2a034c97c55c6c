//! One request from its beginning to its answer.

mod cancelling;
mod errors;
mod progress;
mod verbatim;
