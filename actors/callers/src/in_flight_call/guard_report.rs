//! What the guards of results found in the messages of a request.

use std::sync::PoisonError;

use mgp_screening::results::Findings;

use super::InFlightCall;

/// What was found and done, without the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardReport {
    /// Kinds and counts.
    pub findings: Findings,
    /// Whether structured content was changed.
    pub structured_changed: bool,
    /// The operator's decision about a result that was held.
    pub approved: Option<bool>,
    /// An interceptor changed the result.
    pub intercepted: bool,
}

impl InFlightCall {
    /// Adds to the report.
    pub fn update_guard_report(&self, update: impl FnOnce(&mut GuardReport)) {
        let mut report = self.lock_guard_report();
        update(report.get_or_insert_default());
    }

    /// The report; `None` if no guard found anything.
    #[must_use]
    pub fn guard_report(&self) -> Option<GuardReport> {
        self.lock_guard_report().as_deref().copied()
    }

    fn lock_guard_report(&self) -> std::sync::MutexGuard<'_, Option<Box<GuardReport>>> {
        self.guard_report
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
