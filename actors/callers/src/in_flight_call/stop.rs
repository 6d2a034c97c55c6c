//! `mgp/stream/cancel` of one call: asked for once, carried out where the call is, answered with what there
//! was of the result.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::Flag;
use super::call_stream::PartialResult;

/// Whether a call was stopped by its client, and what became of it.
#[derive(Debug, Default)]
pub struct Stop {
    requested: Flag,
    claimed: AtomicBool,
    reason: OnceLock<String>,
    /// How many requests of the call are at servers.
    tracked: AtomicUsize,
    partial: OnceLock<PartialResult>,
    ended: Flag,
}

/// A request of the call is at a server, which is told when the call is stopped.
#[derive(Debug)]
pub struct TrackedRequest<'a>(&'a Stop);

impl Stop {
    /// Asks for it; false for everybody but the first.
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

    /// True once it was asked for.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.requested.is_raised()
    }

    /// Resolves when it is asked for.
    pub async fn wait_until_requested(&self) {
        self.requested.wait_until_raised().await;
    }

    /// Why, for people.
    #[must_use]
    pub fn reason(&self) -> &str {
        let reason = self.reason.get().map(String::as_str);
        reason.unwrap_or("the client cancelled the request")
    }

    /// A request of the call is at a server from now on.
    pub fn track_request(&self) -> TrackedRequest<'_> {
        self.tracked.fetch_add(1, Ordering::SeqCst);
        TrackedRequest(self)
    }

    /// True while one is.
    #[must_use]
    pub fn has_tracked_request(&self) -> bool {
        self.tracked.load(Ordering::SeqCst) > 0
    }

    /// What there was of the result; what is set first counts.
    pub fn set_partial(&self, partial: PartialResult) {
        let _ = self.partial.set(partial);
    }

    /// What there was of the result; `None` when the call was not stopped, but answered.
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
