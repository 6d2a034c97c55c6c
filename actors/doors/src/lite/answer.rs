//! The answer to a call, for both bindings.

use bytes::Bytes;
use mgp_protocol::lite::ResponseType;
use mgp_protocol::lite::error::LiteError;

/// The answer to a call, or the error; the same in both bindings.
pub(crate) type LiteOutcome = Result<LiteAnswer, LiteError>;

/// The answer to a call.
#[derive(Debug, Clone)]
pub(crate) struct LiteAnswer {
    /// Its kind; never `request-for-more-resource`.
    pub(crate) response_type: ResponseType,
    /// The result with its `_meta`, an object as JSON text: the same in both bindings.
    pub(crate) result: Bytes,
    /// The token, if the answer is a promise or a callback of a promised call.
    pub(crate) promise: Option<String>,
    /// When it was created, in milliseconds since 1970.
    pub(crate) timestamp_ms: u64,
    /// How long the request took.
    pub(crate) processing_time_ms: u64,
}
