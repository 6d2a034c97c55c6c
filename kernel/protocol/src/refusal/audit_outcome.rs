//! How what was done ended.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Refusal;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Outcome {
    /// It succeeded.
    Success,
    /// With an error; [`Failure`] says whose.
    Failure,
    /// A validator or a bound kept it from being done.
    Blocked,
    /// Whoever asked may not.
    Denied,
    /// Nobody knows: no answer came in time.
    Timeout,
    /// Whoever asked took it back.
    Cancelled,
}

/// Where a failure lies: `details.failure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The server was not there, or went away: nothing was answered.
    Transport,
    /// It answered with a JSON-RPC error, or against its own word.
    Protocol,
    /// The tool ran and says that it failed (`isError`).
    Tool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Transport => "transport",
            Self::Protocol => "protocol",
            Self::Tool => "tool",
        })
    }
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Success,
        Self::Failure,
        Self::Blocked,
        Self::Denied,
        Self::Timeout,
        Self::Cancelled,
    ];

    /// In the words of a record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "SUCCESS",
            Self::Failure => "FAILURE",
            Self::Blocked => "BLOCKED",
            Self::Denied => "DENIED",
            Self::Timeout => "TIMEOUT",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// The same as labels of figures and options of commands have it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Blocked => "blocked",
            Self::Denied => "denied",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
        }
    }

    /// How a call ended that got a result; a result with `isError` is the tool's own failure.
    #[must_use]
    pub fn from_result(is_error: bool) -> (Self, Option<Failure>) {
        if is_error {
            (Self::Failure, Some(Failure::Tool))
        } else {
            (Self::Success, None)
        }
    }

    /// How a call ended that was refused.
    #[must_use]
    pub fn from_refusal(refusal: &Refusal) -> (Self, Option<Failure>) {
        let spec = refusal.spec();
        (spec.outcome, spec.failure)
    }
}
