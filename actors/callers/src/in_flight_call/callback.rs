//! Clients' answers to callbacks.

use std::time::Duration;

use bytes::Bytes;

/// The most open callbacks of one client; a person answers one at a time.
pub(crate) const MAX_CALLBACKS: usize = 64;

/// The time a person has to answer a callback of a server.
pub const ANSWER_DEADLINE: Duration = Duration::from_secs(600);

/// The agent's answer to a callback: the `result` or the `error` member, as JSON text.
pub type CallbackResult = Result<Bytes, Bytes>;

/// Why a callback has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    /// The client never sent `notifications/initialized`.
    #[error("the client has not sent `notifications/initialized`, which callbacks require")]
    NotReady,
    /// Nothing can be sent to the client.
    #[error(
        "the client has no open stream for callbacks: over HTTP that is the GET of its session"
    )]
    Unreachable,
    /// The client disconnected.
    #[error("the client went away before it answered")]
    Disconnected,
    /// Nobody answered within this time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// Too many callbacks are open for this client.
    #[error("{MAX_CALLBACKS} callbacks are already open for this client")]
    Overloaded,
    /// The request that caused the callback was cancelled.
    #[error("the request was cancelled")]
    Cancelled,
}
