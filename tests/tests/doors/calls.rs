//! One request from its beginning to its answer.

mod cancelling;
mod errors;
mod long_results;
mod progress;
mod verbatim;
