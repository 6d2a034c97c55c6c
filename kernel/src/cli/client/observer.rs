//! Receives notifications while a request is open.

use std::time::Duration;

use crate::cli::failure::Failure;

/// Slower requests show progress.
pub(super) const PROGRESS_DELAY: Duration = Duration::from_millis(500);

/// Observes messages while a request is open.
pub(in crate::cli) trait RequestObserver {
    /// The request has been open for [`PROGRESS_DELAY`].
    fn on_delay(&mut self) {}
    /// A notification arrived.
    fn on_notification(&mut self, _method: &str, _params: &str) -> Result<(), Failure> {
        Ok(())
    }
    /// Answers a server's request, if this observer can: `result` or `error`, as JSON.
    fn answer_callback(&mut self, _method: &str) -> Option<Result<String, String>> {
        None
    }
    /// The terminal is needed for a prompt, or free again.
    fn yield_terminal(&mut self, _wanted: bool) {}
}

/// Ignores everything.
impl RequestObserver for () {}
