//! Clients' answers to callbacks.

use std::time::Duration;

use bytes::Bytes;

/// The most open callbacks of one client; a person answers one at a time.
pub(crate) const MAX_ASKED: usize = 64;

/// The time a person has to answer a callback of a server.
pub const ANSWER_DEADLINE: Duration = Duration::from_secs(600);

/// The agent's answer to a callback: the `result` or the `error` member, as JSON text.
pub type CallbackResult = Result<Bytes, Bytes>;

/// Why a callback has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    /// The client never sent `notifications/initialized`.
    #[error("the client has not said `notifications/initialized`, and is asked nothing before")]
    NotReady,
    /// Nothing can be sent to the client.
    #[error(
        "the client has no stream open on which it is asked: over HTTP that is the GET of its session"
    )]
    Unreachable,
    /// The client disconnected.
    #[error("the client went away before it answered")]
    Disconnected,
    /// Nobody answered within this time.
    #[error("nobody answered within {0:?}")]
    TimedOut(Duration),
    /// Too many callbacks are open for this client.
    #[error("{MAX_ASKED} questions wait for this client already")]
    Overloaded,
    /// The request that caused the callback was cancelled.
    #[error("the request was cancelled")]
    Cancelled,
}
