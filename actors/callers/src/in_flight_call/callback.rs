//! Answers of clients to questions.

use std::time::Duration;

use bytes::Bytes;

/// Questions one client may have open; a person answers one at a time.
pub(crate) const MAX_ASKED: usize = 64;

/// How long a person may think about a question of a server.
pub const ANSWER_DEADLINE: Duration = Duration::from_secs(600);

/// What the agent said to a question: the `result` or the `error` member, as JSON text.
pub type CallbackResult = Result<Bytes, Bytes>;

/// Why a question has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    /// The client never said that it is ready.
    #[error("the client has not said `notifications/initialized`, and is asked nothing before")]
    NotReady,
    /// Nothing can be sent to the client.
    #[error(
        "the client has no stream open on which it is asked: over HTTP that is the GET of its session"
    )]
    Unreachable,
    /// The client went away.
    #[error("the client went away before it answered")]
    Disconnected,
    /// Nobody answered within this time.
    #[error("nobody answered within {0:?}")]
    TimedOut(Duration),
    /// Too many questions wait for this client.
    #[error("{MAX_ASKED} questions wait for this client already")]
    Overloaded,
    /// The request that caused the question was taken back.
    #[error("the request was cancelled")]
    Cancelled,
}
