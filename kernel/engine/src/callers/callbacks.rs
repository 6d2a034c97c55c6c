//! Callbacks (MGP §13.4): which callbacks of a server are new, who may answer one, and what a valid answer is.

mod completion;
mod form;
mod open_callbacks;
mod received;

use std::time::Duration;

pub use self::completion::{from_sampling_result, to_sampling_params};
pub use self::form::{CallbackAnswer, CallbackForm};
pub use self::open_callbacks::{OpenCallback, OpenCallbackError, OpenCallbacks, ResponseError};
pub use self::received::{CallbackArrival, CallbackOutcome, CallbackTicket, ReceivedCallbacks};

/// Timeout of a callback whose server sets none: the value of the document's example.
pub(crate) const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// Longest timeout: how long a person may take for any answer.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// How long a callback waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallbackTimeout {
    /// The timeout.
    pub duration: Duration,
    /// The server set it, and knows when the callback expires.
    pub is_from_server: bool,
}

impl CallbackTimeout {
    /// From the server's `timeout_ms`.
    #[must_use]
    pub fn from_timeout_ms(timeout_ms: Option<u64>) -> Self {
        let wanted = timeout_ms.map(Duration::from_millis);
        Self {
            duration: wanted.unwrap_or(TIMEOUT_DEFAULT).min(TIMEOUT_MAX),
            is_from_server: wanted.is_some_and(|wanted| wanted <= TIMEOUT_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MGP-175, MGP-181, A-50.
    #[test]
    fn the_timeout_of_a_server_is_bounded() {
        let of = |ms| {
            let patience = CallbackTimeout::from_timeout_ms(ms);
            (patience.duration.as_millis(), patience.is_from_server)
        };
        assert_eq!(of(None), (60_000, false));
        assert_eq!(of(Some(5)), (5, true));
        assert_eq!(of(Some(600_000)), (600_000, true));
        assert_eq!(of(Some(u64::MAX)), (600_000, false));
    }
}
