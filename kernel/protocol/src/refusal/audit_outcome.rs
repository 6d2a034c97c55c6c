//! The outcome of an action, for the audit log.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Refusal;

/// The outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Outcome {
    /// It succeeded.
    Success,
    /// It failed; [`Failure`] states where.
    Failure,
    /// A validator or a limit blocked it.
    Blocked,
    /// The caller was not authorized.
    Denied,
    /// There was no answer before the deadline.
    Timeout,
    /// The caller cancelled it.
    Cancelled,
}

/// The layer of a failure: `details.failure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The server was unreachable or lost: there was no answer.
    Transport,
    /// It answered with a JSON-RPC error, or an invalid answer.
    Protocol,
    /// The tool ran and reported a failure (`isError`).
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
    /// All outcomes.
    pub const ALL: [Self; 6] = [
        Self::Success,
        Self::Failure,
        Self::Blocked,
        Self::Denied,
        Self::Timeout,
        Self::Cancelled,
    ];

    /// The value in a record.
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

    /// The label in metrics and command options.
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

    /// The outcome of a call with a result; a result with `isError` is a failure of the tool.
    #[must_use]
    pub fn from_result(is_error: bool) -> (Self, Option<Failure>) {
        if is_error {
            (Self::Failure, Some(Failure::Tool))
        } else {
            (Self::Success, None)
        }
    }

    /// The outcome of a refused call.
    #[must_use]
    pub fn from_refusal(refusal: &Refusal) -> (Self, Option<Failure>) {
        let spec = refusal.spec();
        (spec.outcome, spec.failure)
    }
}
