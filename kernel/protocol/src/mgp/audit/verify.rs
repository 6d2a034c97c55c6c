//! `mgp/audit/verify`: the kernel verifies its whole log. For the operator.

use serde::{Deserialize, Serialize};

/// `mgp/audit/verify`: reads every record of the log, like `mgp audit verify`; progress notifications
/// report the number of verified files. One at a time. The kernel verifies itself here, while the command
/// only asks it for its last record. Answers [`Verified`].
#[derive(Debug)]
pub struct Verify;

/// The answer to `mgp/audit/verify`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// True if there are no unacknowledged problems.
    pub whole: bool,
    /// The number of valid records.
    pub records: u64,
    /// The number of the last record.
    pub last: u64,
    /// The problems, as text; the first 100.
    pub faults: Vec<String>,
    /// The number of further problems.
    pub more: u64,
    /// The acknowledged problems, as text; the first 100.
    pub acknowledged: Vec<String>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}
