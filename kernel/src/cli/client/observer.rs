//! Receives notifications while a request is open.

use std::time::Duration;

use crate::cli::failure::Failure;

/// What takes longer than this is given progress.
pub(super) const PROGRESS_DELAY: Duration = Duration::from_millis(500);

/// Hears what comes while a request is open.
pub(in crate::cli) trait RequestObserver {
    /// The request has been open for [`PROGRESS_DELAY`].
    fn on_delay(&mut self) {}
    /// A notification came.
    fn on_notification(&mut self, _method: &str, _params: &str) -> Result<(), Failure> {
        Ok(())
    }
    /// A server asks; the answer, where this knows one: `result` or `error`, as JSON.
    fn answer_callback(&mut self, _method: &str) -> Option<Result<String, String>> {
        None
    }
    /// The terminal is wanted for a question, or free again.
    fn yield_terminal(&mut self, _wanted: bool) {}
}

/// Hears nothing.
impl RequestObserver for () {}
