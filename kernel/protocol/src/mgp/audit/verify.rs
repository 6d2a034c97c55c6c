//! `mgp/audit/verify`: the kernel reads its whole log. For the operator.

use serde::{Deserialize, Serialize};

/// `mgp/audit/verify`: reads every record of the log, as `mgp audit verify` does; progress notifications tell how
/// many of its files were read. One at a time. The kernel vouches for itself here: the command asks nothing of it
/// but its last record. Answers [`Verified`].
#[derive(Debug)]
pub struct Verify;

/// Answer of `mgp/audit/verify`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Nothing is wrong that was not acknowledged.
    pub whole: bool,
    /// How many records are as they were written.
    pub records: u64,
    /// The last of them.
    pub last: u64,
    /// What is wrong, in words; the first 100.
    pub faults: Vec<String>,
    /// Further faults.
    pub more: u64,
    /// What is wrong and was acknowledged, in words; the first 100.
    pub acknowledged: Vec<String>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}
