//! How what was done ended.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::refusal::owner_refusal::{OwnerRefusal, OwnerRefusalCause};
use crate::refusal::{CallOutcome, Denial, Refusal};

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
        match refusal {
            Refusal::Cancelled => (Self::Cancelled, None),
            Refusal::TimedOut { .. } | Refusal::QueueTimeout { .. } => {
                (Self::Timeout, Some(Failure::Transport))
            }
            Refusal::NotReady { .. } | Refusal::ServerLost { .. } => {
                (Self::Failure, Some(Failure::Transport))
            }
            Refusal::Owner(refusal) => outcome_for_owner_refusal(refusal),
            Refusal::Peer(_)
            | Refusal::Unattributed(_)
            | Refusal::BadResult { .. }
            | Refusal::InvalidAnswer { .. }
            | Refusal::TooLarge { .. }
            | Refusal::Undelivered { .. }
            // It continues a call that was made.
            | Refusal::Expired(_)
            | Refusal::Internal(_) => (Self::Failure, Some(Failure::Protocol)),
            Refusal::Forbidden(_) | Refusal::ClosedByOwner(_) => (Self::Denied, None),
            Refusal::Denied(denial) => outcome_for_denial(denial),
            Refusal::Unanswered(call) => Self::from_refusal(&call.refusal),
            Refusal::UnknownMethod(_)
            | Refusal::BadParams(_)
            | Refusal::BadMeta(_)
            | Refusal::HeaderMismatch(_)
            | Refusal::MissingCapability { .. }
            | Refusal::UnsupportedVersion { .. }
            | Refusal::BadRequest(_)
            | Refusal::UnknownTool(_)
            | Refusal::UnknownPrompt(_)
            | Refusal::UnknownResource(_)
            | Refusal::UnknownServer(_)
            | Refusal::UnknownId(_)
            | Refusal::WindowExpired(_)
            | Refusal::BadCursor
            | Refusal::BadArguments { .. }
            | Refusal::Overloaded { .. } => (Self::Blocked, None),
        }
    }
}

/// A call that the kernel of another node refused. What was made was neither blocked nor denied.
fn outcome_for_owner_refusal(refusal: &OwnerRefusal) -> (Outcome, Option<Failure>) {
    let made = refusal.outcome != CallOutcome::NotExecuted;
    match refusal.cause {
        OwnerRefusalCause::Closed
        | OwnerRefusalCause::Denied
        | OwnerRefusalCause::NotFound
        | OwnerRefusalCause::Blocked
            if made =>
        {
            (Outcome::Failure, Some(Failure::Protocol))
        }
        OwnerRefusalCause::Closed | OwnerRefusalCause::Denied => (Outcome::Denied, None),
        OwnerRefusalCause::NotFound | OwnerRefusalCause::Blocked => (Outcome::Blocked, None),
        OwnerRefusalCause::Unavailable => (Outcome::Failure, Some(Failure::Transport)),
        OwnerRefusalCause::TimedOut => (Outcome::Timeout, Some(Failure::Transport)),
        OwnerRefusalCause::Failed => (Outcome::Failure, Some(Failure::Protocol)),
    }
}

fn outcome_for_denial(denial: &Denial) -> (Outcome, Option<Failure>) {
    match denial {
        Denial::Permission { .. }
        | Denial::Unconfirmed { .. }
        | Denial::NotGranted { .. }
        | Denial::NoCredentials(_)
        | Denial::CredentialsExpired(_) => (Outcome::Denied, None),
        Denial::Validator { .. }
        | Denial::UnsafeCode { .. }
        | Denial::Registration { .. }
        | Denial::RateLimited { .. }
        | Denial::OverQuota { .. }
        | Denial::Disabled { .. }
        | Denial::NoSubscription { .. } => (Outcome::Blocked, None),
    }
}
