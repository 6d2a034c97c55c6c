//! Callbacks (MGP §13.4): which ones of a server are new, who may answer one, and what an answer is.

mod asked;
mod completion;
mod form;
mod open;

use std::time::Duration;

pub use self::asked::{Arrived, AskedCallbacks, CallbackEnd, CallbackTicket};
pub use self::completion::{completed, sampling};
pub use self::form::{CallbackAnswer, CallbackForm, Unfit};
pub use self::open::{NotOpened, OpenCallback, OpenCallbacks, ResponseRefused};

/// How long a callback waits where its server does not say: the example of the document.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The longest: how long a person may think about any question.
pub const PATIENCE_MAX: Duration = Duration::from_secs(600);

/// How long a callback waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// So long.
    pub lasts: Duration,
    /// The server said so itself, and knows when it is over.
    pub known: bool,
}

impl Patience {
    /// From the server's `timeout_ms`.
    #[must_use]
    pub fn of(timeout_ms: Option<u64>) -> Self {
        let wanted = timeout_ms.map(Duration::from_millis);
        Self {
            lasts: wanted.unwrap_or(PATIENCE).min(PATIENCE_MAX),
            known: wanted.is_some_and(|wanted| wanted <= PATIENCE_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MGP-175, MGP-181, A-50: the server's own time, within a bound that it may not know.
    #[test]
    fn a_callback_waits_as_long_as_its_server_says_within_a_bound() {
        let of = |ms| {
            let patience = Patience::of(ms);
            (patience.lasts.as_millis(), patience.known)
        };
        assert_eq!(of(None), (60_000, false));
        assert_eq!(of(Some(5)), (5, true));
        assert_eq!(of(Some(600_000)), (600_000, true));
        assert_eq!(of(Some(u64::MAX)), (600_000, false));
    }
}
