//! `mgp/stream/cancel` of one call: requested once, performed by the task that runs the call, answered with
//! the partial result.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::Flag;
use super::call_stream::PartialResult;

/// A client's request to stop a call, and its outcome.
#[derive(Debug, Default)]
pub struct Stop {
    requested: Flag,
    claimed: AtomicBool,
    reason: OnceLock<String>,
    /// The number of requests of the call that are at servers.
    tracked: AtomicUsize,
    partial: OnceLock<PartialResult>,
    ended: Flag,
}

/// A request of the call that is at a server, which is notified when the call is stopped.
#[derive(Debug)]
pub struct TrackedRequest<'a>(&'a Stop);

impl Stop {
    /// Requests the stop; false for all but the first request.
    pub fn request(&self, reason: Option<String>) -> bool {
        if self.claimed.swap(true, Ordering::Relaxed) {
            return false;
        }
        if let Some(reason) = reason {
            let _ = self.reason.set(reason);
        }
        self.requested.raise();
        true
    }

    /// True once a stop was requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.requested.is_raised()
    }

    /// Resolves when a stop is requested.
    pub async fn wait_until_requested(&self) {
        self.requested.wait_until_raised().await;
    }

    /// The reason, for people.
    #[must_use]
    pub fn reason(&self) -> &str {
        let reason = self.reason.get().map(String::as_str);
        reason.unwrap_or("the client cancelled the request")
    }

    /// Registers a request of the call that is sent to a server.
    pub fn track_request(&self) -> TrackedRequest<'_> {
        self.tracked.fetch_add(1, Ordering::SeqCst);
        TrackedRequest(self)
    }

    /// True while a request of the call is at a server.
    #[must_use]
    pub fn has_tracked_request(&self) -> bool {
        self.tracked.load(Ordering::SeqCst) > 0
    }

    /// Sets the partial result; the first one counts.
    pub fn set_partial(&self, partial: PartialResult) {
        let _ = self.partial.set(partial);
    }

    /// The partial result; `None` when the call was not stopped, but answered.
    #[must_use]
    pub fn partial(&self) -> Option<&PartialResult> {
        self.partial.get()
    }

    pub(super) fn mark_ended(&self) {
        self.ended.raise();
    }

    /// Resolves when the call has ended.
    pub async fn wait_until_ended(&self) {
        self.ended.wait_until_raised().await;
    }
}

impl Drop for TrackedRequest<'_> {
    fn drop(&mut self) {
        self.0.tracked.fetch_sub(1, Ordering::SeqCst);
    }
}
