//! `mgp/stream/cancel` of one call: asked for once, carried out where the call is, answered with what there
//! was of the result.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::Flag;
use super::call_stream::PartialResult;

/// Whether a call was stopped by its client, and what became of it.
#[derive(Debug, Default)]
pub struct Stop {
    asked: Flag,
    claimed: AtomicBool,
    reason: OnceLock<String>,
    /// How many requests of the call are at servers.
    carried: AtomicUsize,
    partial: OnceLock<PartialResult>,
    over: Flag,
}

/// A request of the call is at a server, which is told when the call is stopped.
#[derive(Debug)]
pub struct CarriedCall<'a>(&'a Stop);

impl Stop {
    /// Asks for it; false for everybody but the first.
    pub fn ask(&self, reason: Option<String>) -> bool {
        if self.claimed.swap(true, Ordering::Relaxed) {
            return false;
        }
        if let Some(reason) = reason {
            let _ = self.reason.set(reason);
        }
        self.asked.raise();
        true
    }

    /// True once it was asked for.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked.is_raised()
    }

    /// Resolves when it is asked for.
    pub async fn asked(&self) {
        self.asked.raised().await;
    }

    /// Why, for people.
    #[must_use]
    pub fn reason(&self) -> &str {
        let reason = self.reason.get().map(String::as_str);
        reason.unwrap_or("the client cancelled the request")
    }

    /// A request of the call is at a server from now on.
    pub fn carry(&self) -> CarriedCall<'_> {
        self.carried.fetch_add(1, Ordering::SeqCst);
        CarriedCall(self)
    }

    /// True while one is.
    #[must_use]
    pub fn is_carried(&self) -> bool {
        self.carried.load(Ordering::SeqCst) > 0
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

    pub(super) fn over(&self) {
        self.over.raise();
    }

    /// Resolves when the call has ended.
    pub async fn ended(&self) {
        self.over.raised().await;
    }
}

impl Drop for CarriedCall<'_> {
    fn drop(&mut self) {
        self.0.carried.fetch_sub(1, Ordering::SeqCst);
    }
}
